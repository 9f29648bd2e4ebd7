from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from statsmodels.stats.multitest import multipletests

from analysis.cost.times import leads, times
from analysis.load.study import View, load_study
from analysis.report.runs import runs_table
from analysis.stats.statistics import ratio

SECONDS = {1: (12.0, 12.1, 12.2), 2: (8.0, 8.1, 8.3), 4: (9.0, 9.2, 9.1), 8: (5.0, 5.1, 5.2)}


def fabricate(study, seconds=SECONDS, over=(8,), **options):
    for cpus, values in seconds.items():
        for repetition, wall_s in enumerate(values, start=1):
            study.run(cpus, repetition, wall_s=wall_s, oversubscribed=cpus in over, **options)
    return load_study(study.directory)


def lead_of(loaded):
    """Of a study with one workload and variant."""
    (lead,) = leads(times(loaded).frame.to_dict("records"))
    return SimpleNamespace(**lead)


def test_mean_speed_up_and_flags(study):
    fabricate(study, {1: SECONDS[1]}, load=0.44, neighbours=("cpus-2",))
    frame = times(fabricate(study, {2: SECONDS[2], 8: SECONDS[8]})).frame.set_index("threads")
    assert frame.wall_s["2"] == pytest.approx(24.4 / 3)
    assert frame.speed_up["2"] == pytest.approx(36.3 / 24.4, rel=1e-3)  # geometric means
    assert frame.train_s["1"] == pytest.approx(0.8 * 12.1)
    assert frame["flags"]["1"] == "co-located, load by others 0.4 cores"
    assert frame["flags"]["8"] == "oversubscribed"
    assert frame["flags"]["2"] == ""


def test_contended_runs_are_counted_and_the_reason_is_in_the_table_of_runs(study):
    reason = "on the host, others kept 0.50 of its cores busy"
    study.run(1, 1, contended=(reason, "its cores were slowed 2 times because of heat"))
    study.run(1, 2)
    loaded = load_study(study.directory)
    assert list(times(loaded).frame["flags"]) == ["contended (1 of 2 runs)"]
    assert list(runs_table(loaded, View.LAST).frame.contended) == [
        f"{reason}; its cores were slowed 2 times because of heat",
        "",
    ]


def test_a_set_partly_oversubscribed_is_marked_as_such(study):
    study.run(1, 1)
    study.run(1, 2, oversubscribed=True)
    frame = times(load_study(study.directory)).frame
    assert frame["flags"][0] == "oversubscribed (1 of 2 runs)"
    assert frame.oversubscribed[0]


def test_the_fastest_is_never_an_oversubscribed_one(study):
    loaded = fabricate(study)
    lead = lead_of(loaded)
    assert (lead.fastest, lead.lead, lead.decided) == ("2", "decided", True)
    assert lead.eligible == ["1", "2", "4"]
    assert lead.left_out == "8: oversubscribed"
    frame = times(loaded).frame.set_index("threads")
    assert list(frame.verdict) == [
        "",
        "faster; fastest, lead decided",
        "faster",
        "not compared: oversubscribed",
    ]


def test_verdicts_are_corrected_over_all_tests_of_the_table(study):
    frame = times(fabricate(study)).frame.set_index("threads")
    pairs = {"1 | 2": (1, 2), "1 | 4": (1, 4), "2 | 4": (2, 4)}  # 1 | 2 is a speed-up and a lead, one test
    p = [
        stats.ttest_ind(*(np.log(SECONDS[cpus]) for cpus in pair), equal_var=False).pvalue
        for pair in pairs.values()
    ]
    corrected = dict(zip(pairs, multipletests(p, method="holm")[1], strict=True))
    assert frame.speed_up_p_holm["2"] == frame.behind_p_holm["1"] == pytest.approx(corrected["1 | 2"])
    assert frame.speed_up_p_holm["4"] == pytest.approx(corrected["1 | 4"])
    assert frame.behind_p_holm["4"] == pytest.approx(corrected["2 | 4"])
    assert frame.speed_up_p_holm[["1", "8"]].isna().all(), "the reference, and an oversubscribed one"
    assert (frame.speed_up_low["4"], frame.speed_up_high["4"]) == pytest.approx(
        np.exp(stats.ttest_ind(*(np.log(SECONDS[n]) for n in (1, 4)), equal_var=False).confidence_interval())
    ), "intervals are not"


def test_times_of_an_emulator_are_shown_and_conclude_nothing(study):
    loaded = fabricate(study, accelerator="tcg")
    assert set(times(loaded).frame.excluded) == {"emulated"}
    assert times(loaded).frame["flags"][0] == "emulated"
    row = lead_of(loaded)
    assert (row.fastest, row.decided) == (None, None)
    assert row.left_out == "1, 2, 4, 8: emulated"


def test_a_lead_within_the_noise_is_not_decided(study):
    row = lead_of(fabricate(study, {1: (10.0, 12.0, 11.0), 2: (10.1, 11.8, 10.9)}))
    assert row.lead == "not decided"


@pytest.mark.parametrize(
    ("seconds", "over", "lead"),
    [
        ({1: (9.0,), 2: (8.0,)}, (), "inconclusive: too few runs, or times that do not vary"),
        ({1: (9.0, 9.1)}, (), "inconclusive: one thread count only"),
        ({1: (9.0, 9.1), 2: (8.0, 8.1)}, (2,), "inconclusive: only 1 has comparable times"),
        (
            {1: (9.0, 9.1), 2: (8.0, 8.1)},
            (1, 2),
            "inconclusive: no thread count has comparable times",
        ),
    ],
)
def test_an_inconclusive_lead_names_the_reason(study, seconds, over, lead):
    assert lead_of(fabricate(study, seconds, over)).lead == lead


def test_a_set_whose_cores_others_kept_busy_is_excluded_from_comparisons(study):
    for repetition in (1, 2, 3):
        study.run(1, repetition, wall_s=8.0 + repetition)
        study.run(2, repetition, wall_s=5.0 + repetition)
        study.run(4, repetition, wall_s=1.0 + repetition, load=0.8)
    row = lead_of(load_study(study.directory))
    assert row.eligible == ["1", "2"]
    assert row.left_out == "4: contended"


def test_one_slow_run_makes_no_other_thread_count_the_fastest(study):
    seconds = {
        1: [11 + 0.01 * (r % 3) for r in range(30)],
        2: [8 + 0.02 * (r % 5) for r in range(29)] + [100],
    }
    loaded = fabricate(study, seconds)
    frame = times(loaded).frame.set_index("threads")
    assert frame.wall_s["1"] < frame.wall_s["2"], "by the mean"
    assert list(frame.verdict) == ["", "faster; fastest, lead decided"]
    row = lead_of(loaded)
    assert (row.fastest, row.lead) == ("2", "decided")


def test_a_lead_is_not_decided_by_a_test_that_favours_another(study):
    """Blocks that one of two lacks count against the smallest, not between the two."""
    for block, slow in enumerate((1.0, 1.0, 1.0, 1.1, 0.9, 1.05), 1):
        study.run(1, block, wall_s=10.0 * slow, block=block)
        study.run(2, block, wall_s=(5.0 if block < 4 else 1.0) * slow**2, block=block)
        if block < 4:
            study.run(4, block, wall_s=4.0 * (1 + 0.001 * block), block=block)
    loaded = load_study(study.directory)
    frame = times(loaded).frame.set_index("threads")
    row = lead_of(loaded)
    assert (row.fastest, row.decided) == ("2", False)
    assert frame.behind["4"] < 1
    assert frame.behind_p_holm["4"] < 0.05


def test_efficiency_is_the_speed_up_for_each_further_thread(study):
    for cpus, seconds in {2: 12.0, 4: 8.0, 8: 8.0}.items():
        study.run(cpus, wall_s=seconds)
    frame = times(load_study(study.directory)).frame
    assert list(frame.speed_up) == pytest.approx([1, 1.5, 1.5])
    assert list(frame.efficiency) == pytest.approx([1, 0.75, 0.375])


DRIFTING = (10.0, 12.0, 15.0, 19.0, 24.0)  # seconds of one thread in five blocks


def in_blocks(study):
    """Two threads take 0.8 of the time of one, give or take a percent, while all get slower and slower."""
    for block, (wall_s, noise) in enumerate(zip(DRIFTING, (1.01, 0.99, 1.0, 1.01, 0.99), strict=True), 1):
        study.run(1, block, wall_s=wall_s, block=block)
        study.run(2, block, wall_s=0.8 * wall_s * noise, block=block)
    return load_study(study.directory)


def test_times_are_compared_within_blocks_where_these_are_recorded(study):
    loaded = in_blocks(study)
    row = lead_of(loaded)
    assert (row.fastest, row.lead) == ("2", "decided")
    logs = np.log([0.8 * noise for noise in (1.01, 0.99, 1.0, 1.01, 0.99)])
    frame = times(loaded).frame.set_index("threads")
    assert frame.behind_p_holm["1"] == pytest.approx(stats.ttest_1samp(logs, 0).pvalue)
    half = stats.t.ppf(0.975, 4) * logs.std(ddof=1) / 5**0.5
    assert frame.speed_up["2"] == pytest.approx(np.exp(-logs.mean()))
    assert frame.speed_up_low["2"] == pytest.approx(np.exp(-logs.mean() - half))
    assert frame.speed_up_blocks["2"] == 5


def test_without_blocks_the_same_times_decide_nothing(study):
    for repetition, wall_s in enumerate(DRIFTING, 1):
        study.run(1, repetition, wall_s=wall_s)
        study.run(2, repetition, wall_s=0.8 * wall_s)
    loaded = load_study(study.directory)
    assert lead_of(loaded).lead == "not decided"
    assert (times(loaded).frame.speed_up_blocks == 0).all()


def test_a_block_that_lacks_a_run_counts_for_no_pair(study):
    in_blocks(study)
    study.run(1, 6, wall_s=1.0, block=6)
    assert times(load_study(study.directory)).frame.speed_up_blocks[1] == 5


def test_the_overhead_is_a_ratio_with_an_interval(study):
    for repetition, (plain, switched) in enumerate([(10.0, 19.0), (10.5, 21.0), (9.5, 20.0)], start=1):
        study.run(1, repetition, variant="default", wall_s=plain)
        study.run(1, repetition, variant="algo", wall_s=switched)
        study.run(2, repetition, variant="default", wall_s=plain)
        study.run(2, repetition, variant="algo", wall_s=switched, accelerator="tcg")
    frame = times(load_study(study.directory)).frame
    one, two = frame[frame.variant == "algo"].itertuples()
    x, y = np.log([19.0, 21.0, 20.0]), np.log([10.0, 10.5, 9.5])
    expected = stats.ttest_ind(x, y, equal_var=False).confidence_interval(0.95)
    assert one.overhead == pytest.approx(np.exp(x.mean() - y.mean()))
    assert (one.overhead_low, one.overhead_high) == (
        pytest.approx(np.exp(expected.low)),
        pytest.approx(np.exp(expected.high)),
    )
    assert (one.n, one.verdict) == (3, "determinism costs time")
    assert two.verdict == "not compared: emulated"


def test_the_overhead_needs_both_variants_and_repetitions(study):
    study.run(1, 1, variant="control", wall_s=10.0)
    assert times(load_study(study.directory)).frame.overhead.isna().all()
    study.run(1, 1, wall_s=8.0)
    row = times(load_study(study.directory)).frame.set_index("variant").loc["control"]
    assert row.overhead == pytest.approx(1.25)
    assert (row.verdict, pd.isna(row.overhead_low)) == ("", True)


@pytest.mark.parametrize(("plain", "switched"), [("default", "algo"), ("fixed-seed", "exact")])
def test_overheads_are_ratios_within_blocks_where_these_are_recorded(study, plain, switched):
    for block, wall_s in enumerate((10.0, 20.0, 40.0, 80.0), 1):
        study.run(1, block, variant=plain, wall_s=wall_s, block=block)
        study.run(1, block, variant=switched, wall_s=wall_s * (1.1 + 0.01 * (block % 2)), block=block)
    row = times(load_study(study.directory)).frame.set_index("variant").loc[switched]
    assert row.overhead_blocks == 4
    assert 1.09 < row.overhead_low < row.overhead < row.overhead_high < 1.12
    assert row.verdict == "determinism costs time"


def test_the_interval_of_the_ratio_covers_as_often_as_it_says():
    rng = np.random.default_rng(41)
    found = [ratio(2 * rng.lognormal(0, 0.1, 6), rng.lognormal(0, 0.1, 9)) for _ in range(600)]
    assert 0.93 < np.mean([each.low <= 2 <= each.high for each in found]) < 0.975
    assert ratio(np.array([0.0, 1.0]), np.array([1.0])).value is None


def test_times_of_thread_counts_on_different_machines_are_shown_and_not_compared(study):
    for cpus in (1, 2):
        for repetition in (1, 2, 3):
            on = "Fast CPU" if cpus == 1 else "Slow CPU"
            study.run(cpus, repetition, wall_s=8.0 * cpus + 0.1 * repetition, cpu_model=on)
            study.run(
                cpus, repetition, variant="control", wall_s=9.0 + 0.1 * repetition, cpu_model="Slow CPU"
            )
    table = times(load_study(study.directory))
    rows = table.frame.set_index(["variant", "threads"])
    assert set(rows.verdict["fixed-seed"]) == {"not compared: 2 CPU models (Fast CPU, Slow CPU)"}
    assert rows.speed_up["fixed-seed", "2"] < 0.6
    assert rows.overhead_p_holm["control"].isna()["1"], "of two CPU models"
    assert not rows.overhead_p_holm["control"].isna()["2"]
    fixed, control = leads(table.frame.to_dict("records"))
    assert (fixed["fastest"], fixed["left_out"]) == (None, "1, 2: 2 CPU models (Fast CPU, Slow CPU)")
    assert control["fastest"] is not None
