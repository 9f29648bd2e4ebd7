"""Guests that stay up between their turns, so that they boot, and their workers import a framework, once and
not in every block."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable

from orchestrator.cores.leases import Lease
from orchestrator.errors import VbstudyError
from orchestrator.guests.session import Session
from orchestrator.inventory import Guest

NewSession = Callable[[Guest, tuple[int, ...]], Session]


class OpenGuests:
    """Used by several threads, but one guest by one at a time. An idle guest holds memory, and no cores."""

    def __init__(self, new_session: NewSession, at_most: int) -> None:
        """As many guests are up, unless more have a turn at the same time."""
        self._new_session = new_session
        self._at_most = at_most
        self._up: set[str] = set()
        self._idle: dict[str, Session] = {}  # the longest unused first
        self._lock = threading.Lock()

    def take(self, guest: Guest, lease: Lease) -> Session:
        """The guest for its turn; it is stopped before where it was on other cores. Others that are idle are
        stopped for it where too many are up."""
        name = guest.spec.name
        with self._lock:
            session = self._idle.pop(name, None)
            self._up.add(name)
            idle = list(self._idle)[: max(len(self._up) - self._at_most, 0)]
            closing = [self._idle.pop(other) for other in idle]
            self._up.difference_update(idle)
        if session is not None and session.cores != lease.cores:
            closing.append(session)
            session = None
        for each in closing:
            with contextlib.suppress(VbstudyError):  # its next start stops it first, and raises
                each.close()
        return session or self._new_session(guest, lease.cores)

    def leave(self, session: Session) -> None:
        """Its turn is over, and it has another one."""
        with self._lock:
            self._idle[session.guest.spec.name] = session

    def close(self, session: Session) -> None:
        """Its last turn is over."""
        with self._lock:
            self._up.discard(session.guest.spec.name)
        session.close()

    def close_idle(self) -> None:
        """After a sweep that did not come to its end, for a reason that says more than what fails here. An
        interrupt is raised when all are closed."""
        try:
            while self._idle:
                name, session = next(iter(self._idle.items()))
                with contextlib.suppress(VbstudyError):
                    self.close(session)
                del self._idle[name]
        except KeyboardInterrupt:
            self.close_idle()
            raise
