"""Events of hosts while they run, for those who watch the sweep."""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Any

from guest.records.run import Message, RunSpec
from orchestrator.engine import Observer


class Events:
    """Called with dask's events, by one thread. Events decide nothing."""

    def __init__(self, observer: Observer, specs: Mapping[str, RunSpec], over: Container[str]) -> None:
        """Late events, of runs that are `over`, are dropped."""
        self._observer = observer
        self._specs = specs
        self._over = over
        self._last: dict[str, str] = {}  # the last reported run of each guest

    def __call__(self, stamped: tuple[float, dict[str, Any]]) -> None:
        _, event = stamped
        if "waiting" in event:
            self._observer.waiting(f"host {event['host']}: {event['waiting']}")
            return
        spec = self._specs.get(event["run"])
        if spec is None or spec.run_id in self._over:
            return  # of an earlier sweep, or too late
        guest = f"{event['guest']}@{event['host']}"
        if "kind" not in event or self._last.get(guest) != spec.run_id:
            self._last[guest] = spec.run_id
            self._observer.started(guest, spec, tuple(event.get("cores", ())))
        if "kind" in event:
            self._observer.message(guest, Message(kind=event["kind"], run_id=spec.run_id, body=event["body"]))
