"""The guests in which a trace's two sides train."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence

from guest import fingerprint
from guest.records import RunSpec
from orchestrator import agent_archive
from orchestrator.errors import UsageError
from orchestrator.guests import Guest, GuestSpec, guest_for, guest_spec, read_inventory
from orchestrator.providers import Provider, make
from orchestrator.provision import make_all
from orchestrator.scheduler import CoreLeases, host_cores
from orchestrator.session import Session
from orchestrator.store import Store
from orchestrator.study import Study
from orchestrator.trace_guest import TraceGuest

Say = Callable[[str], None]


@contextlib.contextmanager
def sides(study: Study, store: Store, specs: Sequence[RunSpec], say: Say) -> Iterator[list[TraceGuest]]:
    """An agent in the guest of each spec; one guest has one session. Local guests that are not there are
    made, and removed in the end. Raises UsageError for other guests that are not there."""
    provider = make(study, store)
    agent = agent_archive.build()
    vendor = fingerprint.cpu()["vendor"]
    opened: dict[str, Session] = {}
    with _guests(study, store, provider, specs) as guests, contextlib.ExitStack() as stack:
        mine = [guests[guest_for(spec)] for spec in specs]
        cores = _leased(mine, stack, say)
        working = []
        for spec, guest in zip(specs, mine, strict=True):
            name = guest.spec.name
            if name not in opened:
                own = cores[guest.observed.machine][: guest.spec.cpus]
                opened[name] = session = Session(study, store, provider, guest, own, agent, vendor)
                stack.callback(session.close)
            side = TraceGuest(opened[name], agent.name, name, spec)
            stack.callback(side.close)
            working.append(side)
        yield working


def _leased(guests: Sequence[Guest], stack: contextlib.ExitStack, say: Say) -> dict[str, tuple[int, ...]]:
    """By machine the cores that its guests share: only one side works at a time."""
    found: dict[str, tuple[int, ...]] = {}
    for guest in sorted(guests, key=lambda guest: -guest.spec.cpus):
        machine = guest.observed.machine
        if machine not in found:
            cores = guest.observed.machine_cores if machine else host_cores()
            leases = CoreLeases(cores, here=not machine, waiting=say)
            lease = leases.lease(guest.spec.name, guest.spec.cpus, threading.Event())
            assert lease is not None  # noqa: S101  (nobody sets the event)
            found[machine] = stack.enter_context(lease).cores
    return found


def _quietly(guest: Guest) -> None:
    """What is made for one trace is not told."""


@contextlib.contextmanager
def _guests(
    study: Study, store: Store, provider: Provider, specs: Sequence[RunSpec]
) -> Iterator[dict[str, Guest]]:
    there = read_inventory(store.guests_file).by_name() if store.guests_file.exists() else {}
    wanted: list[GuestSpec] = [guest_spec(spec.threads.cpus, spec.cpu_model) for spec in specs]
    missing = [spec for spec in dict.fromkeys(wanted) if spec.name not in there]
    if missing and study.provider.kind != "local":
        names = ",".join(str(spec.cpus) for spec in wanted)
        raise UsageError(f"there is no guest {missing[0].name}; run `vbstudy provision --cpus {names}`")
    try:
        made = make_all(missing, provider, _quietly)
        yield there | {guest.spec.name: guest for guest in made}
    finally:
        for spec in missing:
            provider.destroy(spec)
        if missing and store.guests.is_dir() and not any(store.guests.iterdir()):
            store.guests.rmdir()
