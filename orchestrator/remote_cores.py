"""Cores of a machine behind SSH, leased as those of this machine are: by the same locks, held there by a
process that lives as long as the SSH session that started it. So sweeps of many studies do not meet."""

from __future__ import annotations

import contextlib
import inspect
import json
import shlex
import threading
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any

from guest.plain_json import PlainJsonError, parse
from guest.records import RecordError, from_json
from orchestrator import core_locks, topology
from orchestrator.core_locks import Locks
from orchestrator.errors import GuestError
from orchestrator.ssh import SshConnection
from orchestrator.ssh_stream import SshStream
from orchestrator.topology import Topology

ANSWER_S = 30.0
PING_S, SILENT_S = 20.0, 120.0  # a session whose network was cut may stay for hours; its process does not


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """Of the process there, to one request."""

    others: tuple[int, ...] = ()
    holders: dict[str, int] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)


class RemoteCores:
    """A machine for CoreLeases. Connects when it is first asked, and stays connected until nothing is held.
    Raises GuestError where the machine cannot be reached or does not answer."""

    def __init__(self, connect: Callable[[], SshConnection]) -> None:
        self.locks: Locks = self
        self._connect = connect
        self._session: tuple[SshConnection, SshStream, threading.Event] | None = None
        self._held: set[int] = set()
        self._lock = threading.RLock()

    def topology(self, cores: tuple[int, ...]) -> Topology:
        told = self._ask(do="read", folder=str(topology.SYSTEM), patterns=topology.FILES)
        return topology.told(cores, told.files)

    def take(self, cores: Collection[int]) -> set[int]:
        with self._lock:
            others = set(self._ask(do="take", cores=sorted(cores)).others) & set(cores)
            if not others:
                self._held |= set(cores)
            return others

    def release(self, cores: Collection[int]) -> None:
        with self._lock:
            self._held -= set(cores)
            if not self._held:
                self._end()  # and its locks with it
                return
            with contextlib.suppress(GuestError):  # with the session, the locks are gone too
                self._ask(do="release", cores=sorted(cores))

    def holders(self, cores: Collection[int]) -> dict[int, int]:
        """Nothing where the machine does not tell."""
        try:
            told = self._ask(do="holders", cores=sorted(cores)).holders
        except GuestError:
            return {}
        return {core: told[str(core)] for core in cores if str(core) in told}

    # ---- the process there -------------------------------------------------------------------

    def _ask(self, **request: Any) -> Answer:
        with self._lock:
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
        """A session that was lost is made anew, and takes again what was held: as much of it as others have
        not taken meanwhile. Those that have are among the holders then."""
        if self._session is not None:
            if self._session[1].is_open():
                return self._session[1]
            self._end()
        connection, over = self._connect(), threading.Event()
        program = f"{inspect.getsource(core_locks)}\nserve({SILENT_S})\n"
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
            with self._lock, contextlib.suppress(GuestError):  # whoever asks next makes a new session
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
        return from_json(Answer, parse(line), "answer")
    except (PlainJsonError, RecordError) as error:
        raise GuestError(f"{stream}: cores cannot be leased there: it says {error}") from None
