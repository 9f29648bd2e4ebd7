"""Core leases: which guests may run at once, and on which host cores. Two guests never share one."""

from __future__ import annotations

import os
import threading
from types import TracebackType


def host_cores() -> tuple[int, ...]:
    """The cores this process may use; a container may be given fewer than the machine has."""
    return tuple(sorted(os.sched_getaffinity(0)))


class CoreLeases:
    """Leases cores, first come first served among those that fit: a waiting guest that needs more
    cores than are free holds back those behind it, so that nobody starves."""

    def __init__(self, cores: tuple[int, ...], *, side_by_side: bool = True) -> None:
        self._all = cores
        self._free = list(cores)
        self._side_by_side = side_by_side
        self._queue: list[object] = []
        self._holders: dict[object, str] = {}
        self._changed = threading.Condition()

    def lease(self, holder: str, count: int, stop: threading.Event) -> Lease | None:
        """Waits for `count` cores (all of them when it is more than there are). None when `stop`
        is set first."""
        wanted = min(count, len(self._all)) if self._side_by_side else len(self._all)
        ticket = object()
        with self._changed:
            self._queue.append(ticket)
            while self._queue[0] is not ticket or len(self._free) < wanted:
                if stop.is_set():
                    self._queue.remove(ticket)
                    self._changed.notify_all()
                    return None
                self._changed.wait(0.2)
            self._queue.pop(0)
            taken = [self._free.pop(0) for _ in range(wanted)]
            self._holders[ticket] = holder
            self._changed.notify_all()
        return Lease(self, ticket, holder, tuple(taken[: min(count, len(taken))]), tuple(taken))

    def holders(self) -> tuple[str, ...]:
        """Who holds cores now."""
        with self._changed:
            return tuple(self._holders.values())

    def _release(self, ticket: object, cores: tuple[int, ...]) -> None:
        with self._changed:
            self._holders.pop(ticket, None)
            self._free = sorted([*self._free, *cores])
            self._changed.notify_all()


class Lease:
    """Cores held until the `with` block ends. `cores` are for the guest to use; with side-by-side
    off, more may be held so that nothing else runs."""

    def __init__(
        self,
        leases: CoreLeases,
        ticket: object,
        holder: str,
        cores: tuple[int, ...],
        held: tuple[int, ...],
    ) -> None:
        self.cores = cores
        self.holder = holder
        self._leases = leases
        self._ticket = ticket
        self._held = held

    def __enter__(self) -> Lease:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._leases._release(self._ticket, self._held)
