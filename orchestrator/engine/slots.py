"""The guests of one host at work for sweeps: made when they are first needed, kept warm between runs, put to
rest when others need their cores."""

from __future__ import annotations

import contextlib
import itertools
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from guest import fingerprint
from orchestrator import agent_archive, provision
from orchestrator.errors import GuestError, PrerequisiteError
from orchestrator.guests import Guest, GuestSpec
from orchestrator.providers import Provider, make
from orchestrator.scheduler import CoreLeases, Lease
from orchestrator.session import Session
from orchestrator.store import Store
from orchestrator.study import Study


@dataclass(slots=True)
class Slot:
    """A place for one guest of a study: the same guest may be there several times, each in a folder of its
    own. A warm one holds a lease of cores."""

    key: str
    number: int
    spec: GuestSpec
    provider: Provider
    guest: Guest | None = None
    session: Session | None = None
    lease: Lease | None = None
    held: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)
    busy: bool = True
    used_at: float = 0.0  # monotonic

    @property
    def name(self) -> str:
        return f"{self.spec.name}.{self.number}"


class Slots:
    """Of one host. Used by several threads, one a run."""

    def __init__(self, folder: Path, cores: tuple[int, ...], waiting: Callable[[str, str], None]) -> None:
        """`waiting` is told of the study, and why it waits for cores."""
        self._waiting = waiting
        self.agent = agent_archive.build()
        self._folder = folder
        self._cores = cores
        self._leases: dict[str, CoreLeases] = {}  # by the study, whose settings they follow
        self._slots: list[Slot] = []
        self._blocked = 0  # those who wait for cores
        self._lock = threading.Lock()
        self._vendor = fingerprint.cpu()["vendor"]

    @contextlib.contextmanager
    def warm(
        self, key: str, study: Study, store: Store, spec: GuestSpec, stop: threading.Event
    ) -> Iterator[tuple[Guest, Session, Lease] | None]:
        """A guest for one run, with cores of its own. None when `stop` is set first. Raises GuestError and
        PrerequisiteError where the guest cannot be made."""
        slot = self._take(key, study, spec)
        try:
            yield self._warmed(slot, study, store, stop)
            if self._blocked:  # somebody waits for cores
                self._cool(slot)
        except BaseException:
            with contextlib.suppress(GuestError):  # what was raised first says more
                self._cool(slot)
            raise
        finally:
            slot.used_at, slot.busy = time.monotonic(), False

    def leases(self, key: str, study: Study) -> CoreLeases:
        """Studies lease apart from each other, as they do in processes of their own."""
        with self._lock:
            if key not in self._leases:
                self._leases[key] = CoreLeases.of(
                    study.engine, self._cores, waiting=lambda why: self._waiting(key, why)
                )
            return self._leases[key]

    def stop(self, key: str) -> None:
        """Ends what runs in the guests of a study."""
        for slot in self._of(key):
            if slot.busy and slot.guest is not None:
                slot.provider.stop(slot.spec)

    def rest(self, key: str, idle_s: float = 0.0) -> None:
        """Stops the guests of a study ("": of all) that have had nothing to do for `idle_s`."""
        for slot in self._of(key):
            if time.monotonic() - slot.used_at >= idle_s and self._reserve(slot):
                self._let_go(slot)

    def destroy(self, key: str) -> None:
        """Removes the guests of a study ("": of all). Those that are busy are stopped first."""
        for slot in self._of(key):
            slot.busy = True  # nobody takes it any more
            with contextlib.suppress(GuestError):
                self._cool(slot)
            slot.provider.destroy(slot.spec)
            with self._lock:
                self._slots.remove(slot)
            shutil.rmtree(self._place(slot), ignore_errors=True)
        with self._lock:
            self._leases.pop(key, None)

    def destroy_former(self, key: str, study: Study) -> None:
        """Removes guests that a killed worker left."""
        for place in (self._folder / key).glob("slot-*"):
            provision.destroy(study, Store(place))
            shutil.rmtree(place, ignore_errors=True)

    # ---- one slot ----------------------------------------------------------------------------

    def _take(self, key: str, study: Study, spec: GuestSpec) -> Slot:
        """One that is warm, or cold, or new; busy from now on."""
        with self._lock:
            idle = [s for s in self._slots if s.key == key and s.spec == spec and not s.busy]
            if idle:
                slot = max(idle, key=lambda s: (s.lease is not None, s.used_at))
                slot.busy = True
                return slot
            used = {s.number for s in self._slots if s.key == key}
            number = next(n for n in itertools.count(1) if n not in used)
            store = Store(self._folder / key / f"slot-{number}")
            store.directory.mkdir(parents=True, exist_ok=True)
            slot = Slot(key=key, number=number, spec=spec, provider=make(study, store))
            self._slots.append(slot)
            return slot

    def _warmed(
        self, slot: Slot, study: Study, store: Store, stop: threading.Event
    ) -> tuple[Guest, Session, Lease] | None:
        if slot.lease is None:
            slot.lease = self._lease(slot, self.leases(slot.key, study), stop)
            if slot.lease is None:
                return None
            slot.held.enter_context(slot.lease)
        if slot.guest is None:
            problems = slot.provider.check()
            if problems:
                raise PrerequisiteError("; ".join(problems))
            slot.guest = provision.make_guest(slot.spec, slot.provider, slot.lease.cores)
        if slot.session is None:
            slot.session = Session(
                study, store, slot.provider, slot.guest, slot.lease.cores, self.agent, self._vendor
            )
        return slot.guest, slot.session, slot.lease

    def _lease(self, slot: Slot, leases: CoreLeases, stop: threading.Event) -> Lease | None:
        """Cores; idle guests are put to rest for them, the longest unused first."""
        at_once = threading.Event()
        at_once.set()
        while True:
            lease = leases.lease(slot.name, slot.spec.cpus, at_once)
            if lease is not None or stop.is_set():
                return lease
            idle = [s for s in self._of("") if s.lease is not None and not s.busy]
            if not idle:
                break
            longest = min(idle, key=lambda s: s.used_at)
            if self._reserve(longest):
                self._let_go(longest)
        with self._lock:
            self._blocked += 1
        try:
            return leases.lease(slot.name, slot.spec.cpus, stop)
        finally:
            with self._lock:
                self._blocked -= 1

    def _reserve(self, slot: Slot) -> bool:
        with self._lock:
            if slot.busy or slot.lease is None:
                return False
            slot.busy = True
            return True

    def _let_go(self, slot: Slot) -> None:
        try:
            self._cool(slot)
        finally:
            slot.busy = False

    def _cool(self, slot: Slot) -> None:
        """Stops the guest and frees its cores."""
        session, slot.session, slot.lease = slot.session, None, None
        with slot.held:
            if session is not None:
                session.close()

    def _of(self, key: str) -> list[Slot]:
        with self._lock:
            return [slot for slot in self._slots if key in ("", slot.key)]

    def _place(self, slot: Slot) -> Path:
        return self._folder / slot.key / f"slot-{slot.number}"
