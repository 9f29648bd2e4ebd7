"""The line of evidence of each finding: what it rests on, read from its numbers."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from analysis.results.cells import spread
from analysis.results.model import Analysis, Finding, Verdict
from guest.records.printable import counted, series

ONE_LINE = 110  # characters of a line of evidence, which may be broken once at 80 columns


def names_of(workloads: list[str]) -> str:
    return series(workloads) if len(workloads) <= 3 else f"{len(workloads)} workloads"


def evidence(analysis: Analysis, finding: Finding) -> str:
    """What a finding over all workloads rests on: the workloads where they disagree, else their numbers."""
    each = [f for f in analysis.findings if f.id == finding.id and f.workload] or [finding]
    verdicts = [v for v in Verdict if any(f.verdict is v for f in each)]
    if len(verdicts) > 1:
        return "; ".join(f"{v}: {names_of([f.workload for f in each if f.verdict is v])}" for v in verdicts)
    if finding.id in BRIEFS:
        has, brief = BRIEFS[finding.id]
        if measured := [as_tested(analysis, f) for f in each if has(f.numbers)]:
            return brief(measured)
    return shortened(each[0].why, ONE_LINE)


def as_tested(analysis: Analysis, finding: Finding) -> Mapping[str, Any]:
    """A finding's numbers with its `workload`; for F1, `n` of the table `tests`: of pairs, where it compares
    pairs."""
    if finding.id != "F1":
        return finding.numbers
    metric, view = finding.numbers["metric"], finding.numbers["view"]
    workload = finding.workload or next(iter(analysis.study.metrics))
    rows = analysis.tables["tests"].rows_of(workload, variant="default", metric=metric, view=view)
    n = rows[["observations_a", "observations_b"]].to_numpy().ravel().tolist()
    return finding.numbers | {"workload": workload, "n": n}


def shortened(why: str, width: int) -> str:
    """A reason up to its first `;`; a longer one up to a bracket."""
    text = why.partition("; ")[0]
    text = text if len(text) <= width else text.partition(" (")[0]
    return textwrap.shorten(text, width, placeholder=" ...")


Numbers = Sequence[Mapping[str, Any]]  # of a finding, by workload


def _to(values: Iterable[Any]) -> str:
    """`6`, `6 to 12`."""
    low, *more = sorted(set(values))
    return f"{low} to {more[-1]}" if more else str(low)


def _free(each: Numbers) -> str:
    """With the names of the workloads whose runs are too few, where those of others are not, and of those
    whose trainings failed."""
    gaps = [n["largest_difference_of_means"] for n in each if n["largest_difference_of_means"] is not None]
    parts = [f"means lie up to {spread(max(gaps))} apart"] if gaps else []
    if near := [n["workload"] for n in each if n["significant_within_margin"]]:
        parts.append(f"significant, but smaller than the margin ({names_of(near)})")
    failed = [n for n in each if sum(n["failed"] + n["failed_attempts"])]
    few = [n for n in each if n["detectable"] is None and not n["constant"] and n not in failed]
    constant = [n for n in each if n["constant"] and n not in failed]
    able = [n for n in each if n["detectable"] is not None and n not in failed]
    if able:
        parts.append(f"n = {size_range(able)} can show {spread(max(n['detectable'] for n in able))} or more")
    if few:
        where = f" ({names_of([n['workload'] for n in few])})" if able else ""
        parts.append(f"n = {size_range(few)} is too few to show any{where}")
    if failed:
        parts.append(f"trainings failed ({names_of([n['workload'] for n in failed])})")
    if constant:
        parts.append(f"runs of a condition do not vary ({names_of([n['workload'] for n in constant])})")
    return "; ".join(parts)


def size_range(each: Numbers) -> str:
    return _to(k for n in each for k in n["n"])


def _fixed(each: Numbers) -> str:
    models, runs = (sum(n[key] for n in each) for key in ("models", "runs"))
    vectors = [n["prediction_vectors"] for n in each]  # None where predictions are not recorded
    one = sum(n["seeds"] for n in each)
    seeds = counted(one, "seed") if len(each) == 1 else f"the seeds of {len(each)} workloads"
    predicted = "" if None in vectors else f", {counted(sum(vectors), 'set')} of predictions"
    made = f"{counted(models, 'model')}{predicted} in {counted(runs, 'run')}"
    made += f"; {seeds} should give {counted(one, 'model')}"
    if not all("repetitions" in n for n in each):
        return made
    least = min(each, key=lambda n: n["repetitions"])
    bound, n, of = least["another_model_below"], least["repetitions"], least["repeated_seeds"]
    equal = f"{counted(n, 'equal run')} beside the first"
    equal = equal if of == 1 else f"{counted(n, 'equal repetition')} of {of} seeds, taken together"
    return f"{made}; chance that one more run differs: up to {bound:.2f} ({equal})"


def _starts(each: Numbers) -> str:
    """Of a project nothing but the operation is known."""
    held: dict[str, str] = {}
    for part in dict.fromkeys(part for n in each for part in n["parts"]):
        held[part] = "/".join(dict.fromkeys(n["parts"][part] for n in each if part in n["parts"]))
    if operations := "/".join(dict.fromkeys(n["operation"] for n in each if n["operation"])):
        held["an operation"] += f" ({operations})"
    return ", ".join(f"{part}: {text}" for part, text in held.items()).replace("starts in the ", "")


def _selection(each: Numbers) -> str:
    """Of the workload whose thread counts lie furthest apart at random epochs."""
    most = max(each, key=lambda n: n["random"])
    with_, without, random = (spread(most[key]) for key in ("with", "without", "random"))
    said = f"thread counts lie {with_} apart with selection, {without} without"
    if most["narrowing_low"] is not None:
        low, high = (spread(most[f"narrowing_{end}"]) for end in ("low", "high"))
        said += f", narrowed by {spread(most['narrowing'])} ({low} to {high})"
    return f"{said}; {random} at random epochs"


def _times(each: Numbers) -> str:
    """Of the variant whose lead is decided, as beside the question which thread count is fastest."""
    variants = [[v for v in n.values() if "seconds" in v] for n in each]
    timed = [min(mine, key=lambda v: v["decided"] is not True) for mine in variants]
    settings = ", ".join(dict.fromkeys(name for v in timed for name in v["seconds"]))
    return f"fastest: {tally(Counter(v['fastest'] for v in timed))} of {settings}"


def tally(names: Counter[str]) -> str:
    """`2`; of several workloads `16 (6 workloads), 8 (2 workloads)`."""
    if names.total() == 1:
        return next(iter(names))
    return ", ".join(f"{name} ({counted(n, 'workload')})" for name, n in names.most_common())


BRIEFS: dict[str, tuple[Callable[[Mapping[str, Any]], bool], Callable[[Numbers], str]]] = {
    "F1": (lambda n: "metric" in n, _free),
    "F2": (lambda n: "models" in n, _fixed),
    "F3": (lambda n: "parts" in n, _starts),
    "F4": (lambda n: "with" in n, _selection),
    "F5": (lambda n: any("seconds" in each for each in n.values()), _times),
}
"""By finding: whether a workload has the numbers, and the line about those that have."""
SHORT = {
    "F1": "Free seeds: thread counts are equivalent within the margin",
    "F2": "Equal seeds: one model within a thread count, others across",
    "F3": "It starts as rounding in the first steps, then grows",
    "F4": "Model selection narrows it",
    "F5": "More threads are not faster",
    "F6": "Projects state their software, few their hardware",
}
"""The statements of the findings in at most 60 characters."""
