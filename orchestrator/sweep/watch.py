"""The state of a study at one moment: guests, progress of conditions, failures, time left. Reads the file of
the sweep (`orchestrator.sweep.live`) and names of folders; changes nothing and takes no lock, so that it
works during a sweep, after it, and on a study that another machine sweeps."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from guest.records.codec import to_json
from guest.records.run import RunSpec
from orchestrator.errors import VbstudyError
from orchestrator.forecast.model import at_best
from orchestrator.inventory import read_inventory
from orchestrator.store.store import Store
from orchestrator.study.plan import conditions, planned
from orchestrator.study.schema import Study
from orchestrator.sweep.failures import Failure, failures
from orchestrator.sweep.live import ElapsedTotal, Live, Running, age_s, is_alive, read_live
from orchestrator.sweep.status import SetStatus, set_status

FAILURES = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class SetNow(SetStatus):
    """A condition. `left_s` is estimated from finished runs of this sweep; None: unknown."""

    running: int
    left_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """One moment for programs: `watch --json`."""

    study: str
    alive: bool  # whether a sweep is at work
    silent_s: float | None  # since something was heard of it; None: longer than is known
    sweep: Live | None  # what the last one left
    guests: tuple[str, ...]  # of the inventory
    sets: tuple[SetNow, ...]
    planned: int
    done: int
    eta_s: float | None  # None where it cannot be estimated
    failures: tuple[Failure, ...]

    @property
    def running(self) -> tuple[Running, ...]:
        return self.sweep.running if self.sweep is not None and self.alive else ()


class Watcher:
    """Reads the state repeatedly. A sweep is alive by its beat, not by two machines' clocks."""

    def __init__(self, study: Study, store: Store) -> None:
        self._study = study
        self._store = store
        self._specs = conditions(study)
        self._beat = -1
        self._heard = 0.0

    def look(self) -> Watched:
        """Raises nothing that a running sweep could cause."""
        live = read_live(self._store.live_file)
        silent_s = self._silence(live)
        alive = live is not None and is_alive(live, silent_s)
        running = live.running if live is not None and alive else ()
        sets = tuple(self._set(spec, live if alive else None, running) for spec in self._specs)
        return Watched(
            study=self._study.name,
            alive=alive,
            silent_s=round(silent_s, 1) if math.isfinite(silent_s) else None,
            sweep=live,
            guests=self._guests(),
            sets=sets,
            planned=sum(each.planned for each in sets),
            done=sum(each.done for each in sets),
            eta_s=self._eta_s(live, sets) if live is not None and alive else None,
            failures=tuple(islice(failures(self._store), FAILURES)),
        )

    def _silence(self, live: Live | None) -> float:
        """Seconds since the file was written: by its own time at first, then by the clock of this process."""
        at = time.monotonic()
        if live is None:
            return 0.0
        if live.beat != self._beat:
            first, self._beat = self._beat == -1, live.beat
            self._heard = at - (age_s(live.updated_at) if first else 0.0)
        return at - self._heard

    def _set(self, spec: RunSpec, live: Live | None, running: Sequence[Running]) -> SetNow:
        wanted = live.planned.get(spec.set_id) if live is not None else None
        status = set_status(self._store, spec.set_id, wanted or planned(self._study, spec.variant))
        mine = [run for run in running if run.set_id == spec.set_id]
        run_s = _run_s(live.took, spec) if live is not None else None
        left_s = None
        if status.to_do == 0:
            left_s = 0.0
        elif run_s is not None:
            left_s = max(status.to_do * run_s - sum(min(run.running_s, run_s) for run in mine), 0.0)
        return SetNow(**dataclasses.asdict(status), running=len(mine), left_s=left_s)

    def _guests(self) -> tuple[str, ...]:
        try:
            return tuple(read_inventory(self._store.guests_file).by_name())
        except VbstudyError:
            return ()  # `status` and `sweep` report what is wrong with it

    def _eta_s(self, live: Live, sets: Sequence[SetNow]) -> float | None:
        """At best. On many hosts a guest may be there many times: there, all core seconds over the cores that
        are at work."""
        known = zip(self._specs, (each.left_s for each in sets), strict=True)
        left = [(spec, left_s) for spec, left_s in known if left_s is not None]
        if len(left) < len(sets):
            return None
        total_s = sum(left_s for _, left_s in left)
        if total_s and not live.cores:
            at_work = sum(len(run.cores) for run in live.running)
            return sum(left_s * spec.threads.cpus for spec, left_s in left) / at_work if at_work else None
        return at_best(left, live.cores) if total_s and self._study.engine.side_by_side else total_s


def _run_s(took: dict[str, ElapsedTotal], spec: RunSpec) -> float | None:
    """What a run of a set takes: by its own finished runs, else by those of the same workload."""
    own = took.get(spec.set_id)
    like = [own] if own else [t for s, t in took.items() if s.startswith(f"{spec.workload.name}/")]
    runs = sum(each.runs for each in like)
    return sum(each.seconds for each in like) / runs if runs else None


def as_json(frame: Watched) -> Any:
    """What is not finite is null, as JSON knows no other way; epochs of a project are left out."""
    data = to_json(frame)
    for run in data["sweep"]["running"] if data["sweep"] else ():
        if not run["epochs"]:
            run.pop("epochs")
            if not run["epoch"]:
                run.pop("epoch")
    return _finite(data)


def _finite(data: Any) -> Any:
    if isinstance(data, dict):
        return {key: _finite(value) for key, value in data.items()}
    if isinstance(data, list):
        return [_finite(value) for value in data]
    return None if isinstance(data, float) and not math.isfinite(data) else data
