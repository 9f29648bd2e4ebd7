"""When enough runs are done: the rules of `vbstudy sweep --until`, and how interim analyses keep their error.

A sweep has a fixed number K of interim analyses, planned before the first run: after `first` runs a set,
and then at even steps up to `most`. Testing again and again at the same level inflates the error
(Armitage, McPherson and Rowe, 1969: five analyses at 5 % are 14 %), so the error is spent over them in
equal parts, by Bonferroni: valid whatever their dependence, and a little wasteful beside Pocock (1977)
or Lan and DeMets (1983).

    intervals   at each one with confidence 1 - alpha/K: all K cover together with 1 - alpha, and so
                does the one at which the sweep stopped
    tests       as the analysis compares the two (`contrasts`): equal seeds in pairs, else as two
                sets. A pair's p value is K times the smallest of its p values so far, which is valid
                under its hypothesis wherever one stops. Holm corrects these over the family
                (workload, variant and view, all metrics), again at every one; both can only fall, so
                that what was decided stays decided; whether runs are copies is judged again at each

Everything is recomputed from the first n runs of each set, one by one. A sweep that was killed comes
to the same decisions without having kept any."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import combinations
from pathlib import Path

import numpy as np
import pandas as pd

from analysis.inference.contrasts import Contrast
from analysis.load.design import MARGIN
from analysis.load.predictions import read_predictions
from analysis.load.study import NothingToAnalyse, StudyData, View, load_study
from analysis.results.model import ALPHA
from analysis.stats import statistics
from analysis.stats.observations import by_seed, mark_failures, models_of, succeeded
from guest.records.printable import counted

LOOKS = 5
SD_FIRST = 20  # runs
NUMBER = r"((?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)"
COPIES, DIFFER, EQUIVALENT, NOT_CLEAR = "runs are copies", "differ", "equivalent", "not clear yet"
NO_MORE = "not clear with all its runs"
GRAMMAR = (
    "allowed are sd_halfwidth<X, mean_halfwidth<X, decided(tests) and decided(tests, margin=X), "
    "where X is a number above 0"
)


class RuleError(ValueError):
    """An expression that is no rule; the text names what is allowed."""


class What(StrEnum):
    SD = "sd_halfwidth"
    MEAN = "mean_halfwidth"
    TESTS = "decided(tests)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """What must be known before a set gets no more runs. `limit` is the half-width of the intervals, or the
    margin within which two thread counts count as equivalent; None: that of each metric."""

    what: What
    limit: float | None

    def __str__(self) -> str:
        if self.what is What.TESTS:
            return "decided(tests)" if self.limit is None else f"decided(tests, margin={self.limit:g})"
        return f"{self.what}<{self.limit:g}"


def parse(text: str) -> Rule:
    """`sd_halfwidth<0.002`, `mean_halfwidth<0.01`, `decided(tests)`, `decided(tests, margin=0.005)`."""
    squeezed = re.sub(r"\s+", "", text)
    found = re.fullmatch(rf"(sd_halfwidth|mean_halfwidth)<{NUMBER}", squeezed)
    if found:
        rule = Rule(what=What(found[1]), limit=float(found[2]))
    elif tested := re.fullmatch(rf"decided\(tests(?:,margin={NUMBER})?\)", squeezed):
        rule = Rule(what=What.TESTS, limit=float(tested[1]) if tested[1] else None)
    else:
        raise RuleError(f"{text!r} is not a rule: {GRAMMAR}")
    if rule.limit is not None and not (rule.limit > 0 and math.isfinite(rule.limit)):
        raise RuleError(f"{text!r}: {GRAMMAR}")
    return rule


def schedule(first: int, most: int) -> tuple[int, ...]:
    """The runs a set has at each interim analysis: `first`, then even steps up to `most`. At most LOOKS of
    them, fewer where there is no room for so many."""
    if most < first:
        raise ValueError(f"at most {counted(most, 'run')}: fewer than the first {first}")
    steps = min(LOOKS, most - first + 1)
    if steps == 1:
        return (most,)
    return tuple(first + round(i * (most - first) / (steps - 1)) for i in range(steps))


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One condition in one family. `values` are a metric's, by repetition (from 1); `weights` tell which
    runs are copies of each other, `fixed` whether seeds were set; `margin` is that of equivalence."""

    set_id: str
    family: tuple[str, ...]  # workload, variant, view
    metric: str
    values: Mapping[int, float]
    weights: Mapping[int, str] = field(default_factory=dict)
    seeds: Mapping[int, str] = field(default_factory=dict)  # runs with equal ones drew the same numbers
    fixed: bool = True
    margin: float | None = MARGIN
    at_most: int | None = None  # the runs that its variant may have

    def runs(self, n: int) -> int:
        """How many it has when others have n."""
        return n if self.at_most is None else min(n, self.at_most)

    def first(self, n: int) -> np.ndarray:
        """The finite values of the first n repetitions, of copies the first, and of several seeds with
        several models each the means of the seeds; a run or a training that failed is missing."""
        kept: dict[str, tuple[str, float]] = {}
        for seed, model, value in self._finite(n):
            kept.setdefault(model, (seed, value))
        seeds = pd.Series([seed for seed, _ in kept.values()], dtype=object)
        return by_seed(np.array([value for _, value in kept.values()]), seeds)

    def by_seed(self, n: int) -> dict[str, float]:
        """What each seed gave in the first n repetitions, in the mean: see `values_by_seed`."""
        cells: dict[str, dict[str, float]] = {}
        for seed, model, value in self._finite(n):
            cells.setdefault(seed, {}).setdefault(model, value)
        return {seed: float(np.mean(list(cell.values()))) for seed, cell in cells.items()}

    def _finite(self, n: int) -> Iterator[tuple[str, str, float]]:
        """Seed, model and value of each run, in order."""
        for r in sorted(self.values):
            if r <= n and math.isfinite(self.values[r]):
                yield self.seeds.get(r, ""), self.weights.get(r, f"repetition {r}"), self.values[r]

    def against(self, other: Sample, n: int) -> Contrast:
        """The first n repetitions of both as they are compared: see `contrasts`."""
        x, y = self.by_seed(n), other.by_seed(n)
        shared = [seed for seed in x if seed in y]
        matched = len(shared) > 1
        pair = [np.array([each[seed] for seed in shared]) for each in (x, y)]
        first, second = pair if matched else (self.first(n), other.first(n))
        return Contrast(a=self.set_id, b=other.set_id, x=first, y=second, n_a=n, n_b=n, matched=matched)

    def copies(self, n: int) -> bool:
        """Whether more repetitions would add nothing: the first n have begun to repeat seeds, and the runs
        of each seed are one model."""
        seeds = self.seeds if self.fixed else {}
        kept = [(seeds.get(r, ""), sha256) for r, sha256 in self.weights.items() if r <= n]
        return len(kept) > len({seed for seed, _ in kept}) == len(set(kept))

    def same_models(self, other: Sample, n: int) -> bool:
        """Whether each of the seeds that both have in the first n, several of them, gave the same models."""
        mine, theirs = self._models(n), other._models(n)
        shared = mine.keys() & theirs.keys()
        return len(shared) > 1 and all(mine[seed] == theirs[seed] for seed in shared)

    def _models(self, n: int) -> dict[str, set[str]]:
        """By seed."""
        models: dict[str, set[str]] = {}
        for r, sha256 in self.weights.items():
            if r <= n:
                models.setdefault(self.seeds.get(r, ""), set()).add(sha256)
        return models

    def one_model(self, n: int) -> bool:
        """Whether the first n repetitions are copies of one run."""
        return len({sha256 for r, sha256 in self.weights.items() if r <= n}) == 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One question and how it stands: of a set (`b` is empty) or of a pair. `value` is the half-width, or
    the smaller of the two corrected p values. `runs` is what a set of it had at its last analysis, `low` and
    `high` the bounds of its interval."""

    family: tuple[str, ...]
    metric: str
    a: str
    b: str
    clear: bool
    how: str
    value: float | None
    runs: int
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The decisions so far, and the sets that need more runs, and may have more."""

    answers: tuple[Answer, ...]
    open_sets: frozenset[str]


def decide(rule: Rule, looks: Sequence[int], done: int, samples: Sequence[Sample]) -> Decision:
    """Repeats the first `done` of all planned interim analyses. Sets that no open question needs
    take no part in the later ones."""
    active = frozenset(sample.set_id for sample in samples)
    state: dict[tuple[str, ...], Answer] = {}
    p_values: dict[tuple[str, ...], tuple[float, float]] = {}
    ended: set[str] = set()  # those that get no more runs, clear or not; both of a pair are of one variant
    for n in looks[:done]:
        going_on = [sample for sample in samples if sample.set_id in active]
        if rule.what is What.TESTS:
            state |= _tests(rule, n, len(looks), going_on, p_values)
            state = _corrected(state, p_values)
        else:
            state |= _intervals(rule, n, len(looks), going_on)
        ended |= {sample.set_id for sample in samples if sample.at_most is not None and sample.at_most <= n}
        active = frozenset(
            name for answer in state.values() if not answer.clear for name in (answer.a, answer.b) if name
        ).difference(ended)
        if not active:
            break
    answers = [
        dataclasses.replace(answer, how=NO_MORE) if not answer.clear and answer.a in ended else answer
        for answer in state.values()
    ]
    return Decision(answers=tuple(answers), open_sets=active)


# ---- intervals -----------------------------------------------------------------------------------


def _intervals(rule: Rule, n: int, looks: int, samples: Sequence[Sample]) -> dict[tuple[str, ...], Answer]:
    answers = {}
    for sample in samples:
        bounds = interval(rule.what, sample.first(n), 1 - ALPHA / looks)
        half = None if bounds is None else (bounds[1] - bounds[0]) / 2
        copies = sample.copies(n)
        clear = copies or (half is not None and rule.limit is not None and half < rule.limit)
        how = COPIES if copies else "narrow enough" if clear else "too wide"
        if half is None and not copies:
            least = SD_FIRST if rule.what is What.SD else statistics.MEAN_FROM
            what = "seeds whose runs" if len(set(sample.seeds.values())) > 1 else "runs that"
            how = f"no interval yet: needs {least} {what} did not fail, and unequal values"
        answers[*sample.family, sample.metric, sample.set_id] = Answer(
            family=sample.family, metric=sample.metric, a=sample.set_id, b="", clear=clear, how=how,
            value=0.0 if copies and sample.one_model(n) else half, runs=sample.runs(n),
            low=bounds and bounds[0], high=bounds and bounds[1],
        )  # fmt: skip
    return answers


def interval(what: What, values: np.ndarray, confidence: float) -> tuple[float, float] | None:
    """The bounds of the mean or the SD. Equal values of different models have none: their SD is not 0, it has
    not shown yet. Of an SD below SD_FIRST runs there are none, for an SD that is too
    small by chance has a narrow interval, and would end the sweep."""
    if what is What.SD and len(values) < SD_FIRST:
        return None
    estimate = (statistics.sd if what is What.SD else statistics.mean)(values, confidence)
    return None if estimate.low is None or estimate.high is None else (estimate.low, estimate.high)


# ---- tests ---------------------------------------------------------------------------------------


def _tests(
    rule: Rule,
    n: int,
    looks: int,
    samples: Sequence[Sample],
    p_values: dict[tuple[str, ...], tuple[float, float]],
) -> dict[tuple[str, ...], Answer]:
    """The pairs of the active sets, their p values joined with those of the analyses before."""
    answers = {}
    for a, b in combinations(samples, 2):
        if (a.family, a.metric) != (b.family, b.metric):
            continue
        key = (*a.family, a.metric, a.set_id, b.set_id)
        copies = (a.copies(n) and b.copies(n)) or a.same_models(b, n)
        before = p_values.setdefault(key, (1.0, 1.0))  # copies are not tested, but count in the family
        if not copies:
            both = a.against(b, n)
            margin = a.margin if rule.limit is None else rule.limit
            now = (both.test().p, None if margin is None else both.same(margin).p)
            joined = [old if p is None else min(old, looks * p) for p, old in zip(now, before, strict=True)]
            p_values[key] = (joined[0], joined[1])
        answers[key] = Answer(
            family=a.family, metric=a.metric, a=a.set_id, b=b.set_id, clear=copies,
            how=COPIES if copies else NOT_CLEAR, value=None, runs=a.runs(n),
        )  # fmt: skip
    return answers


def _corrected(
    state: dict[tuple[str, ...], Answer], p_values: dict[tuple[str, ...], tuple[float, float]]
) -> dict[tuple[str, ...], Answer]:
    """Holm's correction over each family, for the differences and for the equivalences."""
    result = dict(state)
    for family in dict.fromkeys(answer.family for answer in state.values()):
        keys = [key for key, answer in state.items() if answer.family == family and key in p_values]
        differ = statistics.holm([p_values[key][0] for key in keys])
        same = statistics.holm([p_values[key][1] for key in keys])
        for key, p, q in zip(keys, differ, same, strict=True):
            if p is None or q is None or state[key].how == COPIES:
                continue
            how = DIFFER if p < ALPHA else EQUIVALENT if q < ALPHA else NOT_CLEAR
            result[key] = dataclasses.replace(
                state[key], clear=how != NOT_CLEAR, how=how, value=p if p < ALPHA else min(p, q)
            )
    return result


# ---- from a study ----------------------------------------------------------------------------------


def samples_of(
    study: StudyData,
    views: Sequence[View],
    set_ids: frozenset[str],
    at_most: Mapping[str, int] | None = None,
) -> list[Sample]:
    """The samples of the named sets: each set in every view and metric of its workload. `at_most` is how
    many runs a set may have, by variant."""
    return [
        Sample(
            set_id=str(set_id),
            family=(workload, variant, view.value),
            metric=metric,
            values=_by_repetition(succeeded(runs, view, metric), view.metric(metric)),
            weights=dict(zip(runs.repetition, models_of(runs, view), strict=True)),
            seeds=dict(zip(runs.repetition, runs.seeds_used, strict=True)),
            fixed=bool(runs.seeds_fixed.all()),
            margin=study.margin(workload, metric),
            at_most=(at_most or {}).get(variant),
        )
        for workload, variant, experiment in study.experiments()
        for view in views
        if view in study.views(workload)
        for metric in study.metrics[workload]
        for set_id, runs in experiment.groupby("set_id", sort=False)
        if set_id in set_ids
    ]


def _by_repetition(runs: pd.DataFrame, column: str) -> dict[int, float]:
    return dict(zip(runs.repetition, runs[column], strict=True))


def decider(
    directory: Path,
    rule: Rule,
    looks: Sequence[int],
    views: Sequence[View],
    set_ids: frozenset[str],
    at_most: Mapping[str, int],
) -> Callable[[int], Decision]:
    """A function of the number of interim analyses done, which reads the study at every call."""

    def look(done: int) -> Decision:
        try:
            study = mark_failures(*read_predictions(load_study(directory)))
        except NothingToAnalyse:
            return Decision(answers=(), open_sets=set_ids)
        return decide(rule, looks, done, samples_of(study, views, set_ids, at_most))

    return look
