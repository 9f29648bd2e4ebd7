"""Cores of a machine behind SSH, leased as those of this machine are: by the same locks, held there by a
process that lives as long as the SSH session that started it. So sweeps of many studies do not meet."""

from __future__ import annotations

import contextlib
import inspect
import json
import shlex
import threading
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from typing import Any

from guest.records.codec import RecordError, from_json
from guest.records.plain_json import PlainJsonError, parse
from orchestrator.cores import locks, topology
from orchestrator.cores.locks import Locks
from orchestrator.cores.topology import Topology
from orchestrator.errors import GuestError
from orchestrator.transport.ssh import SshConnection
from orchestrator.transport.ssh_stream import SshStream

ANSWER_S = 30.0
PING_S, SILENT_S = 20.0, 120.0  # a session whose network was cut may stay for hours; its process does not


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """Of the process there, to one request."""

    others: tuple[int, ...] = ()
    holders: dict[str, int] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)
    error: str = ""


class RemoteCores:
    """A machine for CoreLeases. Connects when it is first asked, and stays connected until nothing is held.
    Raises GuestError where the machine cannot be reached or does not answer."""

    def __init__(self, connect: Callable[[], SshConnection]) -> None:
        self.locks: Locks = self
        self._connect = connect
        self._session: tuple[SshConnection, SshStream, threading.Event] | None = None
        self._held: frozenset[int] = frozenset()
        self._released: frozenset[int] = frozenset()  # here, and not yet on the machine
        self._state = threading.Lock()  # of the two sets; never held during a request
        self._turn = threading.Lock()  # one request at a time

    def topology(self, cores: tuple[int, ...]) -> Topology:
        with self._requesting():
            answer = self._ask(do="read", folder=str(topology.SYSTEM), patterns=topology.FILES)
        return topology.from_files(cores, answer.files)

    def take(self, cores: Collection[int]) -> set[int]:
        with self._requesting():
            others = set(self._ask(do="take", cores=sorted(cores)).others) & set(cores)
            if not others:
                with self._state:
                    self._held |= set(cores)
        return others

    def release(self, cores: Collection[int]) -> None:
        """Does not wait for another thread's request: the cores are released on the machine after it."""
        with self._state:
            self._held -= set(cores)
            self._released |= set(cores)
        self._release_between_requests()

    def holders(self, cores: Collection[int]) -> dict[int, int]:
        """Nothing where the machine does not report them."""
        try:
            with self._requesting():
                holders = self._ask(do="holders", cores=sorted(cores)).holders
        except GuestError:
            return {}
        return {core: holders[str(core)] for core in cores if str(core) in holders}

    @contextlib.contextmanager
    def _requesting(self) -> Iterator[None]:
        """This thread's turn, after what was released before it, and before what is released meanwhile."""
        try:
            with self._turn:
                self._send_released()
                yield
        finally:
            self._release_between_requests()

    def _release_between_requests(self) -> None:
        """Whoever has the turn does it at the end of that."""
        while self._released and self._turn.acquire(blocking=False):
            try:
                self._send_released()
            finally:
                self._turn.release()

    def _send_released(self) -> None:
        with self._state:
            released, self._released = self._released, frozenset()
        if released and not self._held:
            self._end()  # and its locks with it
        elif released:
            with contextlib.suppress(GuestError):  # with the session, the locks are gone too
                self._ask(do="release", cores=sorted(released))

    # ---- the process there -------------------------------------------------------------------

    def _ask(self, **request: Any) -> Answer:
        known = self._session is not None
        try:
            return self._exchange(request)
        except GuestError:
            if not known:
                raise
            return self._exchange(request)  # the session was lost, and that had not been noticed

    def _exchange(self, request: dict[str, Any]) -> Answer:
        stream = self._stream()
        try:
            stream.send(json.dumps(request))
            return read_answer(stream)
        except GuestError:
            self._end()
            raise

    def _stream(self) -> SshStream:
        """A lost session is replaced, and takes again what was held: as much of it as others have
        not taken meanwhile. Those that have are among the holders then."""
        if self._session is not None:
            if self._session[1].is_open():
                return self._session[1]
            self._end()
        connection, over = self._connect(), threading.Event()
        program = f"{inspect.getsource(locks)}\nserve({SILENT_S})\n"
        try:
            stream = connection.converse(f"exec {shlex.quote(connection.python)} -c {shlex.quote(program)}")
            for core in sorted(self._held):
                stream.send(json.dumps({"do": "take", "cores": [core]}))
                read_answer(stream)
        except GuestError:
            connection.close()
            raise
        self._session = connection, stream, over
        threading.Thread(target=self._ping, args=(over,), daemon=True).start()
        return stream

    def _ping(self, over: threading.Event) -> None:
        while not over.wait(PING_S):
            with contextlib.suppress(GuestError), self._requesting():  # the next request reconnects
                if not over.is_set():
                    self._ask(do="nothing")

    def _end(self) -> None:
        if self._session is not None:
            connection, _, over = self._session
            self._session = None
            over.set()
            connection.close()


def read_answer(stream: SshStream) -> Answer:
    """Raises GuestError for what is none."""
    line = stream.receive(ANSWER_S)
    if not line:
        why = f"did not answer within {ANSWER_S:.0f} s" if line is None else stream.how_it_ended()
        raise GuestError(f"{stream}: cores cannot be leased there: {why}", evidence=stream.stderr())
    try:
        answer = from_json(Answer, parse(line), "answer")
    except (PlainJsonError, RecordError) as error:
        raise GuestError(f"{stream}: cores cannot be leased there: protocol error: {error}") from None
    if answer.error:
        raise GuestError(f"{stream}: {answer.error}")
    return answer
