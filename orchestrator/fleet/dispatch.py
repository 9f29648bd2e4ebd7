"""Hands runs to hosts and takes back what comes of them. What starts next, and where, is decided by
`Packing`; dask carries it there. The scheduler is asked for nothing that it could forget: whatever it loses
is handed out again."""

from __future__ import annotations

import asyncio
import concurrent.futures
import queue
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from distributed import Client, Future

from orchestrator.engine.packing import Packing, Room

LOOK_EVERY_S = 1.0
STEP_S = 0.2
FETCH_TIMEOUT_S = 600.0
ASK_TIMEOUT_S = 60.0
Task = Callable[[Any], Any]
Found = Callable[[str, Room], None]
Lost = Callable[[str, list[str]], None]


class SchedulerLostError(Exception):
    """The connection is gone; whoever has the runs connects again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Landed:
    """One run that left its host: what the task returned, or why it returned nothing."""

    run: str
    host: str
    value: Any = None
    error: str = ""


class Dispatch:
    """One connection's worth of work. Used by one thread."""

    def __init__(
        self, client: Client, packing: Packing, task: Task, order: Callable[[str, str], Any]
    ) -> None:
        """`order(run, host)` is what `task` is called with on the host."""
        self.listed: frozenset[str] = frozenset()  # the hosts that the scheduler had when they were looked at
        self._client = client
        self._packing = packing
        self._task = task
        self._order = order
        self._futures: dict[str, tuple[Future[Any], str]] = {}  # by run, with its host
        self._ended: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._unfetched: set[str] = set()  # runs that have left their hosts
        self._look_at = 0.0
        self._scheduler = ""  # its id; one that was started in its place has another

    def step(self, found: Found, lost: Lost) -> Iterator[Landed]:
        """Looks at the hosts now and then, hands out what fits, waits a moment for what ends, and yields it.
        `found` is asked to add each new host to the packing; `lost` gets one that went, and what it
        ran. Whoever is given what landed puts it back when it is to be done again. Raises
        SchedulerLostError."""
        if time.monotonic() >= self._look_at:
            self._look(found, lost)
            self._look_at = time.monotonic() + LOOK_EVERY_S
        self._start()
        ended = self._wait()
        for run in ended:
            if run not in self._unfetched:
                self._unfetched.add(run)
                self._packing.ended(self._futures[run][1], run)
        self._start()  # hosts work on while results are fetched, checked and published
        yield from self._landed(ended)

    def busy(self) -> bool:
        """Whether anything was handed out that has not landed."""
        return bool(self._futures)

    def give_up(self) -> None:
        """All that was handed out waits again, on no host."""
        for host in self._packing.hosts():
            self._packing.drop_host(host)
        for run in self._unfetched:
            self._packing.put_back(run)
        self._futures.clear()
        self._unfetched.clear()

    def _start(self) -> None:
        for run, host in self._packing.start():
            self.hand_out(run, host)

    def hand_out(self, run: str, host: str) -> None:
        """A run that the packing has put on the host."""
        takes = self._packing.takes(host, run)
        resources = {"vcpu": takes.cpus} | ({"memory": takes.memory_mib} if takes.memory_mib else {})
        # point: order handed out
        future = self._client.submit(
            self._task,
            self._order(run, host),
            key=f"{run}-{uuid.uuid4().hex}",  # what an earlier connection asked for is not this
            workers=[host],
            resources=resources,
            pure=False,
            retries=0,
        )
        self._futures[run] = future, host
        future.add_done_callback(lambda _: self._ended.put(run))

    def _look(self, found: Found, lost: Lost) -> None:
        there = self._hosts()
        self.listed = frozenset(there)
        for host in set(self._packing.hosts()) - set(there):
            self._packing.drop_host(host)
            runs = [run for run, (_, where) in self._futures.items() if where == host]
            for run in runs:
                future, _ = self._futures.pop(run)
                future.release()
                if run in self._unfetched:
                    self._unfetched.remove(run)
                    self._packing.put_back(run)
            lost(host, runs)
        for host in set(there) - set(self._packing.hosts()):
            resources = there[host].get("resources", {})
            room = Room(cpus=int(resources.get("vcpu", 0)), memory_mib=int(resources.get("memory", 0)))
            found(host, room)

    def _wait(self) -> list[str]:
        """The runs that have ended: those so far, or the next one, or none for a moment."""
        ended: list[str] = []
        try:
            ended.append(self._ended.get(timeout=STEP_S))
            while True:
                ended.append(self._ended.get_nowait())
        except queue.Empty:
            # Of those that were handed out again, an earlier future may have spoken.
            return [run for run in ended if run in self._futures and self._futures[run][0].done()]

    def _landed(self, ended: list[str]) -> list[Landed]:
        futures = {run: self._futures[run] for run in ended}
        self._require_connection()
        if any(future.cancelled() for future, _ in futures.values()):
            raise SchedulerLostError
        good = {run: future for run, (future, _) in futures.items() if future.status == "finished"}
        values = self._values(good)
        landed = []
        for run, (future, host) in futures.items():
            if run in good and run not in values:
                self._ended.put(run)  # its host may be gone; if not, another time
                continue
            error = "" if run in values else _why(future)
            landed.append(Landed(run=run, host=host, value=values.get(run), error=error))
            del self._futures[run]
            self._unfetched.discard(run)
            future.release()
        return landed

    def _values(self, futures: dict[str, Future[Any]]) -> dict[str, Any]:
        """What the tasks returned. Nothing when it does not come: a host may die before it is fetched."""
        if not futures:
            return {}
        fetching = begin(self._client, lambda: self._client.gather(list(futures.values())))
        began = time.monotonic()
        while not fetching.done() and time.monotonic() < began + FETCH_TIMEOUT_S:
            if concurrent.futures.wait([fetching], timeout=STEP_S).done:
                break
            there = self._hosts()
            if any(self._futures[run][1] not in there for run in futures):
                break
        if not fetching.done():
            fetching.cancel()
            return {}
        try:
            return dict(zip(futures, fetching.result(), strict=True))
        except (asyncio.CancelledError, concurrent.futures.CancelledError, OSError) as error:
            raise SchedulerLostError from error

    def _hosts(self) -> dict[str, Any]:
        """The workers by their addresses. A scheduler that went, or was replaced, knows none; they are not
        lost for that."""
        info = self._client.scheduler_info(n_workers=-1)
        self._require_connection()
        known = self._scheduler or info.get("id", "")
        if not known or info.get("id") != known:
            raise SchedulerLostError
        self._scheduler = known
        return dict(info["workers"])

    def _require_connection(self) -> None:
        if self._client.status != "running":
            raise SchedulerLostError


def ask(
    client: Client, task: Callable[..., Any], *arguments: Any, host: str, timeout_s: float = ASK_TIMEOUT_S
) -> Any:
    """What a function returns on a host, at once and beside its runs. Raises TimeoutError or whatever the way
    there raises: a host may be gone, or hang."""
    asking = begin(client, lambda: client.run(task, *arguments, workers=[host]))
    try:
        return asking.result(timeout_s)[host]
    finally:
        asking.cancel()


def begin(client: Client, call: Callable[[], Any]) -> concurrent.futures.Future[Any]:
    """Starts something on the client's own thread, where its methods do not block."""

    async def called() -> Any:
        return await call()

    return asyncio.run_coroutine_threadsafe(called(), client.loop.asyncio_loop)


def _why(future: Future[Any]) -> str:
    try:
        return str(future.exception(timeout=STEP_S) or "its answer was lost")
    except Exception as error:  # noqa: BLE001  (whatever kept the answer away is the reason)
        return f"{type(error).__name__}: {error}"
