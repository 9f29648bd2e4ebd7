"""What hosts tell while they run, for those who watch the sweep."""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Any

from guest.records import Message, RunSpec
from orchestrator.engine import Observer
from orchestrator.guests import Guest, GuestSpec, Observation


class Events:
    """Called with dask's events, by one thread. Nothing is decided by what they say."""

    def __init__(self, observer: Observer, specs: Mapping[str, RunSpec], over: Container[str]) -> None:
        """What comes late, of runs that are `over`, is not told."""
        self._observer = observer
        self._specs = specs
        self._over = over
        self._last: dict[str, str] = {}  # the run by guest, as far as it was told

    def __call__(self, event: tuple[float, dict[str, Any]]) -> None:
        _, told = event
        if "waiting" in told:
            self._observer.waiting(f"host {told['host']}: {told['waiting']}")
            return
        spec = self._specs.get(told["run"])
        if spec is None or spec.run_id in self._over:
            return  # of an earlier sweep, or too late
        guest = _guest(f"{told['guest']}@{told['host']}", spec.threads.cpus)
        if "kind" not in told or self._last.get(guest.spec.name) != spec.run_id:
            self._last[guest.spec.name] = spec.run_id
            self._observer.started(guest, spec, tuple(told.get("cores", ())))
        if "kind" in told:
            self._observer.message(guest, Message(kind=told["kind"], run_id=spec.run_id, body=told["body"]))


def _guest(name: str, cpus: int) -> Guest:
    """As much of it as is shown."""
    observed = Observation(provider_cpus=cpus, guest_cpus=cpus, oversubscribed=False, start_s=0.0, details={})
    return Guest(spec=GuestSpec(name=name, cpus=cpus), observed=observed, created_at="")
