"""The guests in which a trace's two sides train."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence

from guest import fingerprint
from guest.records import RunSpec
from orchestrator import agent_archive, borrowed
from orchestrator.guests import Guest, guest_for, guest_spec
from orchestrator.providers import Provider, machine_of
from orchestrator.scheduler import CoreLeases, cores_of
from orchestrator.session import Session
from orchestrator.store import Store
from orchestrator.study import Study
from orchestrator.trace_guest import TraceGuest

Say = Callable[[str], None]


@contextlib.contextmanager
def sides(study: Study, store: Store, specs: Sequence[RunSpec], say: Say) -> Iterator[list[TraceGuest]]:
    """An agent in the guest of each spec; one guest has one session. Local guests that are not there are
    made, and removed in the end. Raises UsageError for other guests that are not there."""
    agent = agent_archive.build()
    vendor = fingerprint.cpu()["vendor"]
    opened: dict[str, Session] = {}
    wanted = [guest_spec(spec.threads.cpus, spec.cpu_model) for spec in specs]
    with (
        borrowed.guests(study, store, wanted, stand_in=False) as (provider, guests),
        contextlib.ExitStack() as stack,
    ):
        mine = [guests[guest_for(spec)] for spec in specs]
        cores = _leased(mine, provider, stack, say)
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


def _leased(
    guests: Sequence[Guest], provider: Provider, stack: contextlib.ExitStack, say: Say
) -> dict[str, tuple[int, ...]]:
    """By machine the cores that its guests share: only one side works at a time."""
    found: dict[str, tuple[int, ...]] = {}
    for guest in sorted(guests, key=lambda guest: -guest.spec.cpus):
        machine = guest.observed.machine
        if machine not in found:
            leases = CoreLeases(cores_of(guest), machine_of(provider, guest.spec), waiting=say)
            lease = leases.lease(guest.spec.name, guest.spec.cpus, threading.Event())
            assert lease is not None  # noqa: S101  (nobody sets the event)
            found[machine] = stack.enter_context(lease).cores
    return found
