"""What is simulated: each case draws data of known truth once and says whether the product's statement holds.
None: nothing was stated, since so few runs cannot carry it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from scipy import stats

from analysis.inference import seeds
from analysis.stats import effects, groups, metrics, paired, power, statistics
from analysis.stats.crossed import crossed_mean, mcnemar
from analysis.stats.ranks import brunner_munzel
from tests.analysis.simulated import decisions
from tests.analysis.simulated.sources import SIZES, Source

Trial = Callable[[np.random.Generator, Source, int], bool | None]


class Promise(StrEnum):
    COVERS = "95 % interval covers"
    REJECTS = "5 % test or verdict is wrong"
    FINDS = "80 % power finds"


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """`sources` are those it is run with; `cost` is by how much fewer times it is run than others."""

    promise: Promise
    trial: Trial
    sources: tuple[str, ...] = ("normal", "discrete", "skewed", "failing")
    sizes: tuple[int, ...] = SIZES
    cost: int = 1


def _holds(low: float | None, high: float | None, truth: float) -> bool | None:
    return None if low is None or high is None else low <= truth <= high


def mean(rng: np.random.Generator, source: Source, n: int) -> bool | None:
    (values,) = source.sets(rng, n)
    found = statistics.mean(values)
    return _holds(found.low, found.high, 0.0)


def sd(rng: np.random.Generator, source: Source, n: int) -> bool | None:
    (values,) = source.sets(rng, n)
    found = statistics.sd(values)
    return _holds(found.low, found.high, 1.0)


def difference(rng: np.random.Generator, source: Source, n: int) -> bool | None:
    return _holds(*statistics.welch_bounds(*source.sets(rng, n, 2)), 0.0)


def _pairs(rng: np.random.Generator, source: Source, n: int) -> np.ndarray:
    """Differences of runs of the same seeds."""
    a, b = (source.draw(rng, (n,)) for _ in range(2))
    return np.asarray(a - b)


def difference_of_pairs(rng: np.random.Generator, source: Source, n: int) -> bool | None:
    return _holds(*paired.bounds(_pairs(rng, source, n)), 0.0)


def hedges_g(rng: np.random.Generator, source: Source, n: int) -> bool | None:
    a, b = source.sets(rng, n, 2)
    found = effects.hedges_g(a + 1, b)
    return _holds(found.low, found.high, 1.0)


def cliffs_delta(rng: np.random.Generator, source: Source, n: int) -> bool | None:
    found = effects.cliffs(*source.sets(rng, n, 2))
    return _holds(found.low, found.high, 0.0)


def failure_rate(rng: np.random.Generator, source: Source, n: int) -> bool | None:
    found = statistics.share(int((rng.random(n) < 0.1).sum()), n, method="beta")
    return _holds(found.low, found.high, 0.1)


def churn(rng: np.random.Generator, source: Source, n: int) -> bool | None:
    """Runs err on samples of two classes, each with a rate of its own around 0.2."""
    rates = np.clip(0.2 + 0.05 * source.draw(rng, (n, 1)), 0, 1)
    runs = (rng.random((n, 400)) < rates).astype(np.uint8)
    sums, pairs = n * metrics.churn_against(runs, metrics.class_counts(runs, 2), n), n * (n - 1) / 2
    found = statistics.mean_of_pairs(float(sums.sum()) / 2 / pairs, [sums / pairs], most=1.0)
    return _holds(found.low, found.high, 2 * 0.2 * 0.8)


def churn_across(rng: np.random.Generator, source: Source, n: int) -> bool | None:
    """As `churn`, of runs of two sets."""
    sets = [rng.random((n, 400)) < np.clip(0.2 + 0.05 * source.draw(rng, (n, 1)), 0, 1) for _ in range(2)]
    apart = (sets[0][:, None] != sets[1][None]).mean(axis=2) / n**2
    found = statistics.mean_of_pairs(float(apart.sum()), [apart.sum(axis=1), apart.sum(axis=0)], most=1.0)
    return _holds(found.low, found.high, 2 * 0.2 * 0.8)


def transferred(rng: np.random.Generator, source: Source, n: int) -> bool | None:
    """Of n pairs of models, each of which has some 50 adversarial examples; 40 % hold for the other model."""
    examples = 1 + rng.poisson(50, n)
    held = rng.binomial(examples, np.clip(0.4 + 0.1 * source.draw(rng, (n,)), 0, 1))
    return _holds(*statistics.ratio_of_sums(held.tolist(), examples.tolist()), 0.4)


def ratio_of_times(rng: np.random.Generator, source: Source, n: int) -> bool | None:
    a, b = (np.exp(0.1 * each) for each in source.sets(rng, n, 2))
    found = statistics.ratio(a, b)
    return _holds(found.low, found.high, 1.0)


APART = np.array([-0.5, 0.0, 0.5])  # of thread counts, in SDs of seeds
INTERACTION = 0.5


def threads_to_seeds(rng: np.random.Generator, source: Source, n: int) -> bool | None:
    """n seeds on three thread counts."""
    values = source.draw(rng, (n, 1)) + APART + INTERACTION * source.draw(rng, (n, 3))
    truth = math.sqrt((APART.var(ddof=1) + INTERACTION**2) / (1 + INTERACTION**2))
    found = seeds.split(values).bounds.get("ratio")
    return None if found is None else _holds(*found, truth)


def mean_of_other_samples(rng: np.random.Generator, source: Source, n: int) -> bool | None:
    """Runs with an ability each, samples with a difficulty each; right where ability exceeds it and noise."""
    score = 1.0 + 0.1 * source.draw(rng, (n, 1)) + rng.normal(size=(1, 500)) + 0.5 * rng.normal(size=(n, 500))
    truth = float(stats.norm.cdf(1.0 / math.sqrt(0.01 + 1 + 0.25)))
    found = crossed_mean(score > 0)
    return _holds(found.low, found.high, truth)


def _rejects(p: float | None) -> bool | None:
    return None if p is None else p < 0.05


def ranks(rng: np.random.Generator, source: Source, n: int) -> bool | None:
    return _rejects(brunner_munzel(*source.sets(rng, n, 2)).p)


def ranks_of_unequal_spread(rng: np.random.Generator, source: Source, n: int) -> bool | None:
    a, b = source.sets(rng, n, 2)
    return _rejects(brunner_munzel(a, 3 * b).p)


def sign_flips(rng: np.random.Generator, source: Source, n: int) -> bool | None:
    return _rejects(paired.sign_flips(_pairs(rng, source, n)).p)


def kruskal_wallis(rng: np.random.Generator, source: Source, n: int) -> bool | None:
    return _rejects(groups.kruskal_wallis(source.sets(rng, n, 3)).p)


def brown_forsythe(rng: np.random.Generator, source: Source, n: int) -> bool | None:
    return _rejects(groups.brown_forsythe(source.sets(rng, n, 3)).p)


def equivalence_at_the_margin(rng: np.random.Generator, source: Source, n: int) -> bool | None:
    a, b = source.sets(rng, n, 2)
    return _rejects(effects.tost(a + 0.5, b, 0.5).p)


def one_accuracy(rng: np.random.Generator, source: Source, n: int) -> bool | None:
    """McNemar's test of two models that are right on 90 % of 1,000 samples each."""
    difficulty = rng.normal(size=1000)
    a, b = (difficulty + 0.5 * rng.normal(size=1000) < 1.4 for _ in range(2))
    return _rejects(mcnemar(a, b))


def _detected(test: power.Test, tests: int) -> Trial:
    def trial(rng: np.random.Generator, source: Source, n: int) -> bool | None:
        units = power.detectable(n, 1.0, tests, test)
        if units is None:
            return None
        if test is power.Test.SIGN_FLIPS:
            flipped = paired.sign_flips(source.draw(rng, (n,), units)).p
            return flipped is not None and flipped <= 0.05 / tests
        a, b = source.sets(rng, n, 2, shift=units)
        found = brunner_munzel(a, b).p if test is power.Test.RANKS else statistics.welch(a, b)
        return found is not None and found <= 0.05 / tests

    return trial


def _decision(trial: Trial, *sources: str, cost: int = 4) -> Case:
    """A finding that is decided wrongly when `trial` says so."""
    return Case(promise=Promise.REJECTS, trial=trial, sources=sources, cost=cost)


EVERY = ("normal", "discrete", "skewed", "failing", "blocks")
CASES = {
    "mean": Case(promise=Promise.COVERS, trial=mean),
    "SD": Case(promise=Promise.COVERS, trial=sd),
    "difference of means": Case(
        promise=Promise.COVERS,
        trial=difference,
        sources=EVERY,
    ),
    "difference of pairs": Case(
        promise=Promise.COVERS, trial=difference_of_pairs, sources=("normal", "discrete", "skewed")
    ),
    "Hedges' g": Case(promise=Promise.COVERS, trial=hedges_g),
    "Cliff's delta": Case(promise=Promise.COVERS, trial=cliffs_delta),
    "failure rate": Case(promise=Promise.COVERS, trial=failure_rate, sources=("failing",)),
    "churn": Case(promise=Promise.COVERS, trial=churn, sources=("normal", "skewed")),
    "churn across two conditions": Case(
        promise=Promise.COVERS, trial=churn_across, sources=("normal", "skewed")
    ),
    "share of transferred examples": Case(
        promise=Promise.COVERS, trial=transferred, sources=("normal", "skewed")
    ),
    "ratio of times": Case(
        promise=Promise.COVERS, trial=ratio_of_times, sources=("normal", "skewed", "blocks")
    ),
    "SD of thread counts to seeds": Case(
        promise=Promise.COVERS, trial=threads_to_seeds, sources=("normal", "discrete", "skewed"), cost=4
    ),
    "mean, other test samples": Case(
        promise=Promise.COVERS, trial=mean_of_other_samples, sources=("normal", "skewed")
    ),
    "Brunner-Munzel": Case(
        promise=Promise.REJECTS,
        trial=ranks,
        sources=EVERY,
        cost=2,
    ),
    "Brunner-Munzel, one SD three times the other": Case(
        promise=Promise.REJECTS, trial=ranks_of_unequal_spread, sources=("normal",)
    ),
    "sign flips of pairs": Case(
        promise=Promise.REJECTS, trial=sign_flips, sources=("normal", "discrete", "skewed"), cost=2
    ),
    "Kruskal-Wallis": Case(promise=Promise.REJECTS, trial=kruskal_wallis, cost=2),
    "Brown-Forsythe": Case(promise=Promise.REJECTS, trial=brown_forsythe, cost=2),
    "TOST at the margin": Case(promise=Promise.REJECTS, trial=equivalence_at_the_margin),
    "McNemar": Case(promise=Promise.REJECTS, trial=one_accuracy, sources=("normal",), sizes=(1,)),
    "F1 refuted, of equal thread counts": _decision(decisions.f1_refuted, *EVERY, cost=8),
    "F1 supported, of one at the margin": _decision(decisions.f1_supported, "normal", "skewed", cost=8),
    "F1 refuted, of equal thread counts and shared seeds": _decision(
        decisions.f1_refuted_of_seeds, "normal", "skewed", cost=8
    ),
    "F2: its bound excludes the truth": _decision(decisions.f2_bound, "normal", cost=1),
    "F3: the loss spreads or narrows, where it does neither": _decision(
        decisions.f3_grew, "normal", "skewed"
    ),
    "F4 decided, of random epochs": _decision(decisions.f4_decided, "normal", "skewed"),
    "F4: selected epochs differ from random ones": _decision(decisions.f4_random_epochs, "normal", "skewed"),
    "F5 decided, of equal times": _decision(decisions.f5_decided, "normal", "skewed", "blocks"),
    "ranks": Case(
        promise=Promise.FINDS, trial=_detected(power.Test.RANKS, 1), sources=("normal", "discrete")
    ),
    "ranks, of three tests": Case(
        promise=Promise.FINDS, trial=_detected(power.Test.RANKS, 3), sources=("normal",)
    ),
    "Welch, of three tests": Case(
        promise=Promise.FINDS, trial=_detected(power.Test.WELCH, 3), sources=("normal",)
    ),
    "sign flips of pairs, of three tests": Case(
        promise=Promise.FINDS, trial=_detected(power.Test.SIGN_FLIPS, 3), sources=("normal",), cost=2
    ),
}
