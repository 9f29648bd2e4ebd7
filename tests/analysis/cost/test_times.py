from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from analysis.cost.times import fastest, wall_time
from analysis.load.study import View, load_study
from analysis.report.runs import runs_table

SECONDS = {1: (12.0, 12.1, 12.2), 2: (8.0, 8.1, 8.3), 4: (9.0, 9.2, 9.1), 8: (5.0, 5.1, 5.2)}


def fabricate(study, seconds=SECONDS, over=(8,), **options):
    for cpus, values in seconds.items():
        for repetition, wall_s in enumerate(values, start=1):
            study.run(cpus, repetition, wall_s=wall_s, oversubscribed=cpus in over, **options)
    return load_study(study.directory)


def test_mean_speed_up_and_flags(study):
    fabricate(study, {1: SECONDS[1]}, load=0.44, neighbours=("cpus-2",))
    frame = wall_time(fabricate(study, {2: SECONDS[2], 8: SECONDS[8]})).frame.set_index("threads")
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
    assert list(wall_time(loaded).frame["flags"]) == ["contended (1 of 2 runs)"]
    assert list(runs_table(loaded, View.LAST).frame.contended) == [
        f"{reason}; its cores were slowed 2 times because of heat",
        "",
    ]


def test_a_set_partly_oversubscribed_is_marked_as_such(study):
    study.run(1, 1)
    study.run(1, 2, oversubscribed=True)
    frame = wall_time(load_study(study.directory)).frame
    assert frame["flags"][0] == "oversubscribed (1 of 2 runs)"
    assert frame.oversubscribed[0]


def test_the_fastest_is_never_an_oversubscribed_one(study):
    row = fastest(fabricate(study)).frame.iloc[0]
    assert (row.fastest, row.lead, row.decided) == ("2", "decided", True)
    assert row.others == ["1", "4"]
    assert row.left_out == "8: oversubscribed"
    p = stats.ttest_ind(np.log(SECONDS[2]), np.log(SECONDS[4]), equal_var=False).pvalue
    assert row.p_holm[1] == pytest.approx(p), "the larger of two is not multiplied"


def test_times_of_an_emulator_are_shown_and_conclude_nothing(study):
    loaded = fabricate(study, accelerator="tcg")
    assert set(wall_time(loaded).frame.excluded) == {"emulated"}
    assert wall_time(loaded).frame["flags"][0] == "emulated"
    row = fastest(loaded).frame.iloc[0]
    assert (row.fastest, row.decided) == (None, None)
    assert row.left_out == "1, 2, 4, 8: emulated"


def test_a_lead_within_the_noise_is_not_decided(study):
    row = fastest(fabricate(study, {1: (10.0, 12.0, 11.0), 2: (10.1, 11.8, 10.9)})).frame.iloc[0]
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
    assert fastest(fabricate(study, seconds, over)).frame.lead[0] == lead


def test_a_set_whose_cores_others_kept_busy_is_excluded_from_comparisons(study):
    for repetition in (1, 2, 3):
        study.run(1, repetition, wall_s=8.0 + repetition)
        study.run(2, repetition, wall_s=5.0 + repetition)
        study.run(4, repetition, wall_s=1.0 + repetition, load=0.8)
    row = fastest(load_study(study.directory)).frame.iloc[0]
    assert row.eligible == ["1", "2"]
    assert row.left_out == "4: contended"


def test_efficiency_is_the_speed_up_for_each_further_thread(study):
    for cpus, seconds in {2: 12.0, 4: 8.0, 8: 8.0}.items():
        study.run(cpus, wall_s=seconds)
    frame = wall_time(load_study(study.directory)).frame
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
    row = fastest(loaded).frame.iloc[0]
    assert (row.fastest, row.lead, row.blocks) == ("2", "decided", [5])
    logs = np.log([0.8 * noise for noise in (1.01, 0.99, 1.0, 1.01, 0.99)])
    assert row.p_holm[0] == pytest.approx(stats.ttest_1samp(logs, 0).pvalue)
    frame = wall_time(loaded).frame.set_index("threads")
    half = stats.t.ppf(0.975, 4) * logs.std(ddof=1) / 5**0.5
    assert frame.speed_up["2"] == pytest.approx(np.exp(-logs.mean()))
    assert frame.speed_low["2"] == pytest.approx(np.exp(-logs.mean() - half))
    assert frame.blocks["2"] == 5


def test_without_blocks_the_same_times_decide_nothing(study):
    for repetition, wall_s in enumerate(DRIFTING, 1):
        study.run(1, repetition, wall_s=wall_s)
        study.run(2, repetition, wall_s=0.8 * wall_s)
    row = fastest(load_study(study.directory)).frame.iloc[0]
    assert (row.lead, row.blocks) == ("not decided", [0])


def test_a_block_that_lacks_a_run_counts_for_no_pair(study):
    in_blocks(study)
    study.run(1, 6, wall_s=1.0, block=6)
    assert fastest(load_study(study.directory)).frame.blocks[0] == [5]
