"""When enough runs are done: grammar, known answers, and the error over repeated looks, simulated."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pytest
from scipy import stats

from analysis.inference.contrasts import contrasts
from analysis.inference.sequential import (
    COPIES,
    EQUIVALENT,
    NO_MORE,
    NOT_CLEAR,
    Rule,
    RuleError,
    Sample,
    What,
    decide,
    decider,
    interval,
    parse,
    samples_of,
    schedule,
)
from analysis.load.study import View, load_study
from analysis.stats import statistics
from analysis.stats.paired import sign_flips
from analysis.stats.ranks import brunner_munzel

FAMILY = ("net", "default", "last")


def halfwidth(what: What, values: np.ndarray, confidence: float) -> float:
    low, high = interval(what, values, confidence)
    return (high - low) / 2


def sample(name: str, values: Any, weights: Any = None) -> Sample:
    kept = dict(enumerate(map(float, values), start=1))
    models = {r: str(r) if weights is None else weights for r in kept}
    return Sample(set_id=name, family=FAMILY, metric="accuracy", values=kept, weights=models)


def normal(seed: int, n: int = 30, mean: float = 0.0, sd: float = 1.0) -> np.ndarray:
    return np.random.default_rng(seed).normal(mean, sd, n)


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("sd_halfwidth<0.002", Rule(what=What.SD, limit=0.002)),
        (" mean_halfwidth < 1e-3 ", Rule(what=What.MEAN, limit=0.001)),
        ("decided(tests)", Rule(what=What.TESTS, limit=None)),
        ("decided( tests, margin = .5 )", Rule(what=What.TESTS, limit=0.5)),
    ],
)
def test_a_rule_is_read_and_written(text, rule):
    assert parse(text) == rule
    assert parse(str(rule)) == rule


@pytest.mark.parametrize(
    ("text", "margin", "how"),
    [
        ("decided(tests)", 0.1, EQUIVALENT),
        ("decided(tests)", None, NOT_CLEAR),
        ("decided(tests, margin=0.1)", None, EQUIVALENT),
        ("decided(tests, margin=1e-9)", 0.1, NOT_CLEAR),
    ],
)
def test_the_margin_of_the_metric_counts_where_none_is_named(text, margin, how):
    both = [sample(name, normal(seed, sd=0.004)) for seed, name in enumerate("ab")]
    given = [dataclasses.replace(each, margin=margin) for each in both]
    (answer,) = decide(parse(text), (30,), 1, given).answers
    assert answer.how == how


@pytest.mark.parametrize(
    "text",
    ["", "sd_halfwidth", "sd_halfwidth>0.1", "sd_halfwidth<0", "sd_halfwidth<-1", "sd_halfwidth<nan", "sd<1",
     "mean_halfwidth<1e999", "decided(test)", "decided(tests, margin=0)", "decided(tests) or x", "1 < 2"],
)  # fmt: skip
def test_what_is_no_rule_is_told_what_is_allowed(text):
    with pytest.raises(RuleError, match=r"allowed are sd_halfwidth<X, mean_halfwidth<X, decided\(tests\)"):
        parse(text)


@pytest.mark.parametrize(
    ("first", "most", "looks"),
    [(3, 30, (3, 10, 17, 23, 30)), (3, 5, (3, 4, 5)), (3, 3, (3,)), (1, 2, (1, 2))],
)
def test_looks_go_in_even_steps_from_the_first_to_the_cap(first, most, looks):
    assert schedule(first, most) == looks


def test_a_cap_below_the_first_look_is_refused():
    with pytest.raises(ValueError, match="at most 2 runs: fewer than the first 3"):
        schedule(3, 2)


def test_halfwidths_are_those_of_the_formulas():
    values = np.arange(1.0, 21.0)
    s = values.std(ddof=1)
    assert halfwidth(What.MEAN, values, 0.99) == pytest.approx(stats.t.ppf(0.995, 19) * s / np.sqrt(20))
    found = statistics.sd(values, 0.99)
    assert halfwidth(What.SD, values, 0.99) == pytest.approx((found.high - found.low) / 2)


def test_an_sd_needs_twenty_runs_before_it_can_end_a_sweep():
    values = 1e-9 * normal(3, n=30)
    rule = Rule(what=What.SD, limit=1.0)
    early = decide(rule, (19, 30), 1, [sample("a", values)])
    assert early.open_sets == {"a"}
    assert early.answers[0].how.startswith("no interval yet: needs 20 runs")
    late = decide(rule, (20, 30), 1, [sample("a", values)])
    assert not late.open_sets
    (answer,) = late.answers
    assert 0 < answer.low < values[:20].std(ddof=1) < answer.high


def test_copies_among_the_runs_count_once_and_failures_not_at_all():
    values = {1: 0.5, 2: 0.5, 3: math.nan, 4: 0.7}
    one = Sample(
        set_id="a", family=FAMILY, metric="accuracy", values=values, weights={1: "w", 2: "w", 4: "v"}
    )
    assert one.first(4).tolist() == [0.5, 0.7]


def test_only_the_sets_whose_interval_is_wide_get_more_runs():
    narrow, wide = sample("narrow", 0.001 * normal(1)), sample("wide", normal(2))
    decision = decide(Rule(what=What.MEAN, limit=0.01), (10, 20, 30), 1, [narrow, wide])
    assert decision.open_sets == {"wide"}
    assert {a.a: (a.clear, a.runs) for a in decision.answers} == {"narrow": (True, 10), "wide": (False, 10)}


def test_a_set_that_was_clear_at_an_early_look_is_not_looked_at_again():
    values = [0.0, 0.001, 0.0, 0.001, 0.0, 100.0]  # the last run would open it again
    decision = decide(
        Rule(what=What.MEAN, limit=0.01), (5, 6), 2, [sample("a", values), sample("b", normal(3))]
    )
    assert decision.open_sets == {"b"}


def test_intervals_of_five_looks_are_as_wide_as_those_at_1_percent():
    values = normal(4, n=10)
    rule = Rule(what=What.MEAN, limit=1.0)
    (answer,) = decide(rule, (10, 20, 30, 40, 50), 1, [sample("a", values)]).answers
    assert answer.value == pytest.approx(halfwidth(What.MEAN, values, 0.99))
    (once,) = decide(rule, (10,), 1, [sample("a", values)]).answers
    assert once.value == pytest.approx(halfwidth(What.MEAN, values, 0.95))


def test_copies_are_clear_at_once_and_equal_values_of_unlike_models_are_not():
    copies, chance = sample("copies", [0.5] * 3, weights="w"), sample("chance", [0.5] * 3)
    for what in (What.SD, What.MEAN):
        decision = decide(Rule(what=what, limit=0.01), (3, 6), 1, [copies, chance])
        assert decision.open_sets == {"chance"}, what
    pair = [copies, sample("others", [0.7] * 3, weights="v")]
    assert not decide(Rule(what=What.TESTS, limit=0.01), (3, 6), 1, pair).open_sets


def test_seeds_that_begin_to_repeat_as_copies_leave_nothing_to_add():
    kept = dict(enumerate((0.5, 0.7, 0.5, 0.7), start=1))
    seeds, models = {1: "a", 2: "b", 3: "a", 4: "b"}, {1: "v", 2: "w", 3: "v", 4: "w"}

    def made(weights):
        return Sample(set_id="s", family=FAMILY, metric="accuracy", values=kept, weights=weights, seeds=seeds)

    crossed = made(models)
    assert [crossed.copies(n) for n in (1, 2, 3, 4)] == [False, False, True, True]
    assert not made(models | {3: "x"}).copies(4)
    answer = decide(Rule(what=What.MEAN, limit=0.001), (4, 6), 1, [crossed]).answers[0]
    assert answer.clear
    assert answer.value is None, "two seeds are two observations, which carry no interval"


def test_a_pair_whose_seeds_gave_the_same_models_in_both_is_clear():
    kept = {1: 0.5, 2: 0.7, 3: 0.6}
    seeds, models = {1: "a", 2: "b", 3: "c"}, {1: "u", 2: "v", 3: "w"}

    def against(other):
        pair = [
            Sample(set_id=name, family=FAMILY, metric="accuracy", values=kept, weights=weights, seeds=seeds)
            for name, weights in (("a", models), ("b", other))
        ]
        return [decide(parse("decided(tests)"), (n, 9), 1, pair).answers[0].how for n in (1, 2, 3)]

    assert against(models) == [NOT_CLEAR, COPIES, COPIES]
    assert against(models | {3: "x"}) == [NOT_CLEAR, COPIES, NOT_CLEAR]


@pytest.mark.parametrize("rule", ["mean_halfwidth<0.01", "decided(tests, margin=0.001)"])
def test_sets_that_may_have_no_more_runs_are_not_open_and_have_those_that_they_have(rule):
    few = [dataclasses.replace(sample(name, normal(seed, n=3)), at_most=3) for seed, name in enumerate("ab")]
    more = [
        dataclasses.replace(sample(name, normal(seed)), family=("net", "control", "last"))
        for seed, name in enumerate("cd")
    ]
    looks = (2, 5, 9)
    both = [decide(parse(rule), looks, done, few + more) for done in (1, 2, 3)]
    assert [decision.open_sets for decision in both] == [{"a", "b", "c", "d"}, {"c", "d"}, {"c", "d"}]
    last = {(answer.a in "ab"): (answer.runs, answer.clear, answer.how) for answer in both[2].answers}
    assert last[True] == (3, False, NO_MORE)
    assert last[False][:2] == (9, False)


def test_seeds_whose_repetitions_differ_are_one_observation_each():
    kept = dict(enumerate((0.5, 0.7, 0.52, 0.72, 0.51, 0.71), start=1))
    seeds = {r: "ab"[(r - 1) % 2] for r in kept}
    weights = {r: f"{r}" for r in kept}
    several = Sample(set_id="s", family=FAMILY, metric="accuracy", values=kept, weights=weights, seeds=seeds)
    assert several.first(2).tolist() == [0.5, 0.7]
    assert several.first(6) == pytest.approx([0.51, 0.71])
    answer = decide(Rule(what=What.MEAN, limit=1.0), (6,), 1, [several]).answers[0]
    assert answer.how.startswith("no interval yet: needs 5 seeds")
    one = dataclasses.replace(several, seeds=dict.fromkeys(kept, "a"))
    assert len(one.first(6)) == 6


def test_one_run_a_set_decides_nothing():
    for what in What:
        samples = [sample("a", [0.1]), sample("b", [0.9])]
        assert decide(Rule(what=what, limit=0.5), (1, 9), 1, samples).open_sets == {"a", "b"}, what


def test_far_sets_differ_near_sets_are_equivalent_and_the_rest_stays_open():
    near, same, far = (
        sample(name, normal(seed, 30, mean, 0.01))
        for name, seed, mean in (("near", 7, 0), ("same", 8, 0), ("far", 9, 1))
    )
    vague = sample("vague", normal(10, 30, 0.0, 0.2))
    decision = decide(Rule(what=What.TESTS, limit=0.05), (30,), 1, [near, same, far, vague])
    how = {(a.a, a.b): a.how for a in decision.answers}
    assert how["near", "same"] == "equivalent"
    assert how["near", "far"] == how["same", "far"] == how["far", "vague"] == "differ"
    assert how["near", "vague"] == "not clear yet"
    assert decision.open_sets == {"near", "same", "vague"}


def test_p_values_are_spent_over_the_looks_and_corrected_by_holm():
    a, b, c = sample("a", normal(11)), sample("b", normal(12, mean=0.6)), sample("c", normal(13, mean=0.3))
    rule, looks = Rule(what=What.TESTS, limit=1e-9), (10, 20, 30)
    decision = decide(rule, looks, 2, [a, b, c])
    pairs = [(a, b), (a, c), (b, c)]
    spent = [min(1.0, *(3 * brunner_munzel(x.first(n), y.first(n)).p for n in (10, 20))) for x, y in pairs]
    assert [answer.value for answer in decision.answers] == pytest.approx(statistics.holm(spent))


def test_equal_seeds_are_compared_in_pairs():
    """What seeds differ by hides the difference of two sets, not that within the seeds."""
    base, noise = 0.8 + 0.02 * normal(1), 0.0003 * normal(2)
    seeds = {r: f"seed {r}" for r in range(1, 31)}
    made = (sample("a", base), sample("b", base + 0.003 + noise))
    a, b = (
        dataclasses.replace(each, seeds=seeds, weights={r: f"{each.set_id} {r}" for r in seeds})
        for each in made
    )
    rule = parse("decided(tests)")
    (answer,) = decide(rule, (10, 15, 20, 25, 30), 1, [a, b]).answers
    assert answer.how == "differ"
    assert answer.value == pytest.approx(5 * sign_flips(a.first(10) - b.first(10)).p)
    other = dataclasses.replace(b, seeds={r: f"other {r}" for r in seeds})
    assert decide(rule, (10, 15, 20, 25, 30), 5, [a, other]).answers[0].how == "not clear yet"


def test_pairs_are_those_of_the_analysis(study):
    """Copies count once, failures not at all, and what a seed gives more than once with its mean."""
    for cpus in (1, 2):
        for r in range(1, 10):
            accuracy = math.nan if r == 7 else 0.5 + 0.01 * (cpus * r * r % 11)
            model = f"{cpus} {5 if r == 6 else r}"
            study.run(cpus, r, seed=(r + 1) // 2, weights=model, accuracies=(accuracy,), losses=(1.0,))
    loaded = load_study(study.directory)
    a, b = samples_of(loaded, (View.LAST,), frozenset(loaded.runs.set_id))
    (expected,) = contrasts(loaded.runs, View.LAST, "accuracy")
    found = a.against(b, 9)
    assert found.matched
    assert (found.x.tolist(), found.y.tolist()) == (expected.x.tolist(), expected.y.tolist())


def test_what_was_decided_stays_decided():
    first = np.r_[normal(14, 20), normal(15, 20, 5.0)]  # apart at first, together later
    second = np.r_[normal(16, 20, 5.0), normal(17, 20)]
    rule = Rule(what=What.TESTS, limit=0.01)
    samples = [sample("a", first), sample("b", second), sample("c", normal(18, 40, 2.5, 5))]
    early, late = (decide(rule, (20, 40), done, samples) for done in (1, 2))
    assert early.answers[0].how == late.answers[0].how == "differ"
    assert brunner_munzel(first, second).p > 0.05, "all runs together would say otherwise"


@pytest.mark.needs("studies", long=True)
def test_repeated_looks_keep_the_error_where_naive_ones_do_not():
    """Three sets of one distribution, 120 studies: the share in which any pair is said to differ."""
    rule, looks = Rule(what=What.TESTS, limit=1e-9), (6, 12, 18, 24, 30)
    generator = np.random.default_rng(2025)
    studies, wrong, naive = 120, 0, 0
    for _ in range(studies):
        samples = [sample(name, generator.normal(size=30)) for name in "abc"]
        wrong += any(a.how == "differ" for a in decide(rule, looks, len(looks), samples).answers)
        naive += any(
            a.how == "differ" for n in looks for a in decide(rule, (n,), 1, samples).answers
        )  # every look at the full level
    assert wrong / studies <= 0.05 + 2 * np.sqrt(0.05 * 0.95 / studies)
    assert naive / studies > 0.08


def test_sets_at_the_margin_are_seldom_called_equivalent():
    rule, looks = Rule(what=What.TESTS, limit=1.0), (6, 12, 18, 24, 30)
    generator = np.random.default_rng(2026)
    studies = 120
    wrong = 0
    for _ in range(studies):
        pair = [sample("a", generator.normal(size=30)), sample("b", generator.normal(1.0, 1, 30))]
        wrong += decide(rule, looks, 5, pair).answers[0].how == "equivalent"
    assert wrong / studies <= 0.05


@pytest.mark.needs("studies", long=True)
@pytest.mark.parametrize("what", [What.MEAN, What.SD])
def test_intervals_at_the_look_that_stopped_cover_the_truth(what):
    """Sampling until the interval is narrow: the last interval holds the true value in 95 % or more."""
    looks, limit, truth = (5, 10, 15, 20, 25), 0.55, (0.0 if what is What.MEAN else 1.0)
    generator = np.random.default_rng(2027)
    estimate = statistics.mean if what is What.MEAN else statistics.sd
    studies, covered = 300, 0
    for _ in range(studies):
        one = sample("a", generator.normal(size=25))
        for done in range(1, 6):
            decision = decide(Rule(what=what, limit=limit), looks, done, [one])
            if not decision.open_sets:
                break
        found = estimate(one.first(decision.answers[0].runs), 1 - 0.05 / 5)
        assert found.low is not None
        assert found.high is not None
        covered += found.low <= truth <= found.high
    assert covered / studies >= 0.95


def test_samples_of_a_study_are_its_sets_in_every_view_and_metric(study):
    for cpus in (1, 2):
        for repetition in (1, 2):
            study.run(
                cpus,
                repetition,
                variant="default",
                weights=f"{cpus}{repetition}",
                accuracies=(0.5, 0.1 * cpus + 0.01 * repetition),
            )
    wanted = frozenset({"lenet5/default/cpus-1", "lenet5/default/cpus-2"})
    found = samples_of(load_study(study.directory), (View.LAST,), wanted)
    assert [s.set_id for s in found] == sorted(wanted)
    assert found[1].values == pytest.approx({1: 0.21, 2: 0.22})
    assert {each.margin for each in found} == {0.01}
    assert {each.at_most for each in found} == {None}
    bounded = samples_of(load_study(study.directory), (View.LAST,), wanted, {"default": 3, "exact": 2})
    assert {each.at_most for each in bounded} == {3}
    (study.directory / "study.toml").write_text("[analysis]\nmargin = 0.03\n")
    declared = samples_of(load_study(study.directory), (View.LAST,), wanted)
    assert {each.margin for each in declared} == {0.03}
    assert not found[0].copies(2)
    assert len(samples_of(load_study(study.directory), tuple(View), wanted - {"lenet5/default/cpus-1"})) == 2


def test_runs_of_one_seed_that_recorded_no_weights_and_are_equal_are_copies(study):
    for cpus in (1, 2):
        for repetition in range(1, 5):
            accuracy = 0.9 if cpus == 1 else 0.8 + 0.01 * repetition
            study.run(cpus, repetition, accuracies=(accuracy,), losses=(1.0,), predicted=(0, 1, 2, cpus))
    loaded = load_study(study.directory)
    runs = loaded.runs.assign(last_weights_sha256=None, last_logits_sha256=None)
    found = samples_of(
        dataclasses.replace(loaded, runs=runs), (View.LAST,), frozenset(loaded.runs.set_id.unique())
    )
    assert [each.copies(4) for each in found] == [True, False]
    assert [len(each.first(4)) for each in found] == [1, 4]


def test_a_study_without_runs_leaves_every_set_open(tmp_path):
    look = decider(tmp_path, parse("decided(tests)"), (3, 6), tuple(View), frozenset({"a"}), {})
    assert look(1).open_sets == {"a"}
