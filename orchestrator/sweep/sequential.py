"""Sweeps that add runs until the answer is clear. Which conditions are still open is decided by
`analysis.inference.sequential`; here runs are added, and the plan of interim analyses is kept."""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from guest.records import bounded, plain_json
from guest.records.bounded import read_bounded
from guest.records.run import RunSpec
from orchestrator.engine import Engine, Observer, Summary
from orchestrator.errors import StoreError, UsageError
from orchestrator.files import write_durably
from orchestrator.forecast.model import views
from orchestrator.inventory import guest_for
from orchestrator.store.store import Store
from orchestrator.study.plan import conditions, plan
from orchestrator.study.schema import Study
from orchestrator.sweep.pipeline import run_missing
from orchestrator.text import Say

if TYPE_CHECKING:
    from analysis.inference.sequential import Decision


@dataclass(frozen=True, slots=True, kw_only=True)
class Sequential:
    """A rule by which runs are added, the runs of each condition at its planned interim analyses, and the
    function that decides at each."""

    rule: str
    interim: tuple[int, ...]
    decide: Callable[[int], Decision]


@dataclass(frozen=True, slots=True, kw_only=True)
class Interim:
    """How far the interim analyses came. `open_sets` are the conditions that need more runs than the
    cap, and may have more; those `without_runs` were in no analysis."""

    rule: str
    interim: tuple[int, ...]
    interim_done: int = 0
    answers: tuple[dict[str, Any], ...] = ()
    open_sets: tuple[str, ...] = ()
    without_runs: tuple[str, ...] = ()


def parse_rule(study: Study, store: Store, runs: int | None, until: str, max_runs: int | None) -> Sequential:
    """The rule of --until, which begins with `runs` of each condition. Raises UsageError."""
    from analysis.inference import sequential as rules  # here, because other sweeps need no statistics
    from analysis.load.study import View

    first = runs or study.repetitions
    try:
        rule = rules.parse(until)
        study.require_end(max_runs or first)
        interim = rules.schedule(first, max_runs or max(30, first))
    except rules.RuleError as error:
        raise UsageError(f"--until {error}") from None
    except ValueError as error:
        raise UsageError(f"--max-runs: {error}") from None
    selected = tuple(map(View, views(study.model_selection)))
    sets = frozenset(spec.set_id for spec in conditions(study))
    at_most = {variant.value: most for variant, most in study.repetitions_at_most.items()}
    decide = rules.decider(store.directory, rule, interim, selected, sets, at_most)
    return Sequential(rule=str(rule), interim=interim, decide=decide)


def keep_plan(store: Store, interim: Sequence[int], rule: str) -> None:
    """Stores the plan of the interim analyses, or compares it with the stored one."""
    require_plan(store, interim, rule)
    if not store.sequential_file.exists():
        asked = {"until": rule, "interim": list(interim)}
        write_durably(store.sequential_file, json.dumps({"plan": asked}, indent=1) + "\n")


def require_plan(store: Store, interim: Sequence[int], rule: str) -> None:
    """Raises UsageError where another plan of interim analyses is stored: the error rate holds only for the
    analyses that were planned."""
    if not store.sequential_file.exists():
        return
    asked = {"until": rule, "interim": list(interim)}
    begun = _read(store).get("plan")
    if begun != asked:
        text = json.dumps(begun)
        raise UsageError(
            f"{store.sequential_file}: this study has another plan of interim analyses ({text}); use that, "
            "or remove the file to begin again: the stated error rate holds for one plan"
        )


def keep_answers(store: Store, interim_done: int, answers: Any) -> None:
    """Stores the results of the interim analyses with their plan."""
    kept = {"plan": _read(store).get("plan"), "interim_done": interim_done, "answers": answers}
    write_durably(store.sequential_file, json.dumps(kept, indent=1) + "\n")


def _read(store: Store) -> dict[str, Any]:
    try:
        data = plain_json.parse(read_bounded(store.sequential_file, bounded.RECORD), bounded.RECORD)
    except (OSError, ValueError) as error:
        raise StoreError(f"{store.sequential_file}: {error}; remove it to begin again") from None
    if not isinstance(data, dict):
        raise StoreError(f"{store.sequential_file}: is not an object; remove it to begin again")
    plan = data.get("plan")
    if isinstance(plan, dict) and "looks" in plan:  # the key before it was renamed
        data["plan"] = {"until": plan.get("until"), "interim": plan["looks"]}
    return data


def sweep_until(
    study: Study,
    store: Store,
    engine: Engine,
    observer: Observer,
    rule: Sequential,
    report: Say,
) -> tuple[Summary, Interim]:
    """Adds runs to the open conditions up to each interim analysis, until none is open or the last one is
    done. Only runs are kept: a killed sweep repeats the same analyses, and finds their runs done."""
    require_plan(store, rule.interim, rule.rule)
    starting = functools.partial(keep_plan, store, rule.interim, rule.rule)
    total, outcome = Summary(), Interim(rule=rule.rule, interim=rule.interim)
    active: frozenset[str] | None = None
    before = 0
    for done, n in enumerate(rule.interim, start=1):
        wanted = [
            s for s in plan(study, n) if s.repetition > before and (active is None or s.set_id in active)
        ]
        added, left = list[RunSpec](), list[RunSpec]()
        for spec in wanted:
            runs = active is None or engine.has_guest(guest_for(spec)) or store.has(spec)
            (added if runs else left).append(spec)
        _add(total, Summary(without_guest=list(dict.fromkeys(map(guest_for, left)))))
        if not added:
            break
        _add(total, run_missing(added, store, engine, observer, starting))
        decision = rule.decide(done)
        active, before = decision.open_sets, n
        answers = tuple(dataclasses.asdict(answer) for answer in decision.answers)
        keep_answers(store, done, answers)
        outcome = dataclasses.replace(
            outcome,
            interim_done=done,
            answers=answers,
            open_sets=tuple(sorted(active)),
            without_runs=tuple(s.set_id for s in conditions(study) if not store.repetitions(s.set_id)),
        )
        report(
            f"interim analysis {done} of {len(rule.interim)}, {n} runs each: "
            f"{sum(answer.clear for answer in decision.answers)} of {len(answers)} questions clear"
        )
        if not active:
            break
    return total, outcome


def _add(total: Summary, part: Summary) -> None:
    total.planned += part.planned
    total.done_before += part.done_before
    total.done_now += part.done_now
    total.failed += part.failed
    total.quarantined += part.quarantined
    total.without_guest += [name for name in part.without_guest if name not in total.without_guest]
    total.elapsed_s += part.elapsed_s
