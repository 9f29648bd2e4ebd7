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

from orchestrator.agent import archive
from orchestrator.cores.leases import CoreLeases, Lease
from orchestrator.engine.attempts import Slot
from orchestrator.errors import GuestError, PrerequisiteError, for_each
from orchestrator.guests import provision
from orchestrator.guests.session import Session
from orchestrator.inventory import Guest, GuestSpec
from orchestrator.providers import Provider, make
from orchestrator.store.store import Store
from orchestrator.study.schema import Study


@dataclass(slots=True)
class Place:
    """For one guest of a study: the same guest may be there several times, each in a folder of its own. A
    warm one holds a lease of cores."""

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
        """`waiting` gets the study, and why it waits for cores."""
        self._waiting = waiting
        self.agent = archive.build()
        self._folder = folder
        self._cores = cores
        self._leases: dict[str, CoreLeases] = {}  # by the study, whose settings they follow
        self._places: list[Place] = []
        self._blocked = 0  # those who wait for cores
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def warm(
        self, key: str, study: Study, store: Store, spec: GuestSpec, stop: threading.Event
    ) -> Iterator[Slot | None]:
        """A guest for one run, with cores of its own. None when `stop` is set first. Raises GuestError and
        PrerequisiteError where the guest cannot be made."""
        place = self._take(key, study, spec)
        try:
            yield self._warmed(place, study, store, stop)
            if self._blocked:  # somebody waits for cores
                self._cool(place)
        except BaseException:
            with contextlib.suppress(GuestError):  # what was raised first says more
                self._cool(place)
            raise
        finally:
            place.used_at, place.busy = time.monotonic(), False

    def leases(self, place: Place, study: Study) -> CoreLeases:
        """Studies lease apart from each other, as they do in processes of their own."""
        key = place.key
        with self._lock:
            if key not in self._leases:
                cores = tuple(core for core in place.provider.cores(place.spec) if core in self._cores)
                self._leases[key] = CoreLeases(
                    cores, settings=study.engine, waiting=lambda why: self._waiting(key, why)
                )
            return self._leases[key]

    def stop(self, key: str) -> None:
        """Ends what runs in the guests of a study."""
        busy = [place for place in self._of(key) if place.busy and place.guest is not None]
        for_each(lambda place: place.provider.stop(place.spec), busy)

    def rest(self, key: str, idle_s: float = 0.0) -> None:
        """Stops the guests of a study ("": of all) that have had nothing to do for `idle_s`."""
        for place in self._of(key):
            if time.monotonic() - place.used_at >= idle_s and self._reserve(place):
                self._let_go(place)

    def destroy(self, key: str) -> None:
        """Removes the guests of a study ("": of all). Those that are busy are stopped first."""
        for_each(self._remove, self._of(key))
        with self._lock:
            self._leases.pop(key, None)

    def destroy_former(self, key: str, study: Study) -> None:
        """Removes what a killed worker left of a study, except finished runs."""
        provision.destroy_slots(self._folder / key, study)

    # ---- one place ---------------------------------------------------------------------------

    def _take(self, key: str, study: Study, spec: GuestSpec) -> Place:
        """One that is warm, or cold, or new; busy from now on."""
        with self._lock:
            idle = [s for s in self._places if s.key == key and s.spec == spec and not s.busy]
            if idle:
                place = max(idle, key=lambda s: (s.lease is not None, s.used_at))
                place.busy = True
                return place
            used = {s.number for s in self._places if s.key == key}
            number = next(n for n in itertools.count(1) if n not in used)
            store = Store(self._folder / key / f"slot-{number}")
            store.directory.mkdir(parents=True, exist_ok=True)
            place = Place(key=key, number=number, spec=spec, provider=make(study, store))
            self._places.append(place)
            return place

    def _warmed(self, place: Place, study: Study, store: Store, stop: threading.Event) -> Slot | None:
        if place.lease is None:
            place.lease = self._lease(place, self.leases(place, study), stop)
            if place.lease is None:
                return None
            place.held.enter_context(place.lease)
        if place.guest is None and not stop.is_set():
            problems = place.provider.check()
            if problems:
                raise PrerequisiteError("; ".join(problems))
            # point: slot guest made
            place.guest = provision.make_guest(place.spec, place.provider, place.lease.cores)
        if place.guest is None or stop.is_set():  # while the guest was made, too
            return None
        if place.session is None:
            cores = place.lease.cores
            place.session = Session(study, store, place.provider, place.guest, cores, self.agent)
        leases = self.leases(place, study)
        return Slot(guest=place.guest, session=place.session, lease=place.lease, leases=leases)

    def _lease(self, place: Place, leases: CoreLeases, stop: threading.Event) -> Lease | None:
        """Cores; idle guests are put to rest for them, the longest unused first."""
        at_once = threading.Event()
        at_once.set()
        while True:
            lease = leases.lease(place.name, place.spec.cpus, at_once)
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
            return leases.lease(place.name, place.spec.cpus, stop)
        finally:
            with self._lock:
                self._blocked -= 1

    def _reserve(self, place: Place) -> bool:
        with self._lock:
            if place.busy or place.lease is None:
                return False
            place.busy = True
            return True

    def _let_go(self, place: Place) -> None:
        """Cools one that nobody uses. Where its guest cannot be stopped, its next start does or raises."""
        try:
            self._cool(place)
        except Exception as error:  # noqa: BLE001  (whatever is raised, others are let go or need its cores)
            self._waiting(place.key, f"idle guest {place.name} cannot be stopped: {error}")
        finally:
            place.busy = False

    def _cool(self, place: Place) -> None:
        """Stops the guest and frees its cores."""
        session, place.session, place.lease = place.session, None, None
        with place.held:
            if session is not None:
                session.close()

    def _remove(self, place: Place) -> None:
        place.busy = True  # nobody takes it any more
        with contextlib.suppress(GuestError):
            self._cool(place)
        place.provider.destroy(place.spec)
        with self._lock:
            self._places.remove(place)
        shutil.rmtree(self._folder / place.key / f"slot-{place.number}", ignore_errors=True)

    def _of(self, key: str) -> list[Place]:
        with self._lock:
            return [place for place in self._places if key in ("", place.key)]
