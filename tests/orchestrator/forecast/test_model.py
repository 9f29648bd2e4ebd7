"""What a sweep will take: every number by hand."""

import dataclasses
import math
import random
import re
import statistics

import pytest
from rich.console import Console
from statsmodels.stats.power import TTestPower

from analysis.results.printing import Format, render_tables
from analysis.stats.power import Test, detectable, runs_for
from guest.records.run import Metric, ThreadSpec, Variant
from orchestrator.cores.leases import host_cores
from orchestrator.forecast.model import StoredRun, forecast, guest_cores, stored_run
from orchestrator.forecast.text import amount, answer, as_tables, totals
from orchestrator.study.schema import parse
from tests import factories


def specs(cpus=(1, 2, 4), runs=3, variant=Variant.FIXED_SEED, **changes):
    return [
        factories.spec(cpus=c, repetition=r, variant=variant, workload=factories.workload(**changes))
        for c in cpus
        for r in range(1, runs + 1)
    ]


def run(spec, run_s=10.0, size_bytes=1000, value=0.5):
    values = {("accuracy", "last"): value, ("accuracy", "selected"): value}
    return StoredRun(spec=spec, run_s=run_s, size_bytes=size_bytes, values=values)


def estimated(planned, stored=(), **changes):
    usual = {"views": ("last",), "cores": 2, "side_by_side": True, "free_bytes": 10, "difference": 0.01}
    return forecast(planned, list(stored), **(usual | {"sd": None} | changes))


def test_without_a_run_hours_disk_and_power_are_unknown_and_runs_are_counted():
    report = estimated(specs())
    assert (report.runs, report.to_do) == (9, 9)
    assert (report.hours, report.hours_low, report.hours_at_best, report.size_bytes) == (None,) * 4
    (family,) = report.families
    assert (family.tests, family.n, family.sd, family.detectable_u, family.needed_u) == (
        3,
        3,
        None,
        None,
        None,
    )
    text = "\n".join(totals(report))
    assert answer(report) == "9 of 9 planned runs are to do: time unknown until one run is done."
    assert "power   unknown until two runs" in text


def test_where_some_have_power_those_without_are_named():
    planned = specs(runs=3) + specs(name="other")
    done = [run(spec, value=0.5 + i / 10) for i, spec in enumerate(planned[:3])]
    (power,) = (line for line in totals(estimated(planned, done)) if line.startswith("power"))
    assert (
        power == "power   unknown of other until two runs of a condition are done; or give the SD with --sd"
    )


def test_a_short_time_is_told_in_minutes_or_seconds():
    for seconds, text in ((12.75, "51 s"), (60.0, "4 min")):
        planned = specs(cpus=(1,), runs=5)
        report = estimated(planned, [run(planned[0], run_s=seconds)])
        assert answer(report) == f"4 of 5 planned runs are to do: about {text}."
        assert totals(report)[0].startswith(f"time    {text} with one guest")


def test_hours_and_disk_are_those_of_the_runs_to_do_with_their_spread():
    planned = specs(cpus=(1, 2), runs=10)
    stored = [run(planned[0], run_s=8.0), run(planned[1], run_s=12.0), run(planned[10], run_s=30.0)]
    report = estimated(planned, stored)
    one, two = report.sets
    assert (one.to_do, one.run_s, one.basis, one.n_measured) == (8, 10.0, "this condition", 2)
    assert one.hours == pytest.approx(80 / 3600)
    assert (two.to_do, two.run_s, two.run_s_sd) == (9, 30.0, None)
    assert report.hours == pytest.approx((80 + 270) / 3600)
    assert report.hours_low is None, "one set has a single measured run"
    assert report.size_bytes == 17 * 1000
    full = estimated(planned, [*stored, run(planned[11], run_s=30.0)])
    t = 12.7062  # of one degree of freedom
    spread = t * math.sqrt((8 + 8**2 / 2) * 8.0) / 3600  # variance of 8 and 12 is 8; the other is 0
    assert full.hours is not None
    assert full.hours_high == pytest.approx(full.hours + spread, rel=1e-5)
    assert full.hours_low == pytest.approx(full.hours - spread)
    assert "as long as the others" not in totals(full)[0]


def test_each_warm_worker_with_runs_to_do_imports_its_framework_once():
    planned = specs(cpus=(1, 2, 4), runs=3) + specs(cpus=(1,), runs=3, name="same worker")
    done = [dataclasses.replace(run(spec, run_s=1.0), import_s=4.0) for spec in planned[:4] + planned[-3:-1]]
    report = estimated(planned, done)
    assert [s.hours for s in report.sets] == pytest.approx(
        [0, (2 + 4) / 3600, (3 + 4) / 3600, (1 + 4) / 3600]
    )
    assert report.hours == pytest.approx(18 / 3600)
    again = estimated(planned, [*done[:2], *done[3:]])
    assert [s.hours for s in again.sets][::3] == pytest.approx([(1 + 4) / 3600, 1 / 3600])


def test_a_set_without_runs_is_estimated_from_the_workloads_others_and_says_so():
    planned = specs(cpus=(1, 2)) + specs(cpus=(1,), name="other")
    report = estimated(planned, [run(planned[0])])
    others = "other conditions of the workload"
    assert [s.basis for s in report.sets] == ["this condition", others, "nothing yet"]
    assert [s.hours is None for s in report.sets] == [False, False, True]
    assert report.hours is None


def test_sets_that_share_their_measured_runs_err_together():
    planned = specs(cpus=(1, 2, 4, 8), runs=10)
    stored = [run(spec, run_s=run_s) for spec, run_s in zip(planned, (90.0, 100.0, 110.0), strict=False)]
    report = estimated(planned, stored)
    assert (report.to_do, report.hours) == (37, pytest.approx(3700 / 3600))
    spread = 4.30265 * math.sqrt(37 * 10**2 + 37**2 * 10**2 / 3) / 3600  # t of two degrees of freedom
    assert report.hours_high == pytest.approx(report.hours + spread, rel=1e-5)
    assert ", if conditions without runs take as long as the others)" in totals(report)[0]


def test_about_95_percent_of_the_totals_are_in_the_interval_of_three_runs():
    rng, inside = random.Random(1), 0
    planned = specs(cpus=(1, 2, 4, 8), runs=10)
    for _ in range(400):
        report = estimated(planned, [run(spec, run_s=rng.gauss(100, 10)) for spec in planned[:3]])
        total = sum(rng.gauss(100, 10) for _ in range(report.to_do)) / 3600
        inside += report.hours_low <= total <= report.hours_high
    assert 0.93 <= inside / 400 <= 0.98


def test_side_by_side_is_bounded_by_the_busiest_guest_and_by_the_cores():
    planned = specs(cpus=(1, 2), runs=2)
    stored = [run(planned[0], run_s=3600.0), run(planned[2], run_s=3600.0)]
    assert estimated(planned, stored).hours == pytest.approx(2.0)
    assert estimated(planned, stored).hours_at_best == pytest.approx((1 * 1 + 1 * 2) / 2)
    assert estimated(planned, stored, cores=8).hours_at_best == pytest.approx(1.0)
    assert estimated(planned, stored, side_by_side=False).hours_at_best == pytest.approx(2.0)


SSH = '[provider]\nkind = "ssh"\nhosts = [{ host = "a", cpus = 8 }, { host = "b", cpus = 4 }]\n'


@pytest.mark.parametrize(
    ("text", "cores"), [("", len(host_cores())), (SSH, 12), ('[engine]\nkind = "dask"\n', 0)]
)
def test_guests_share_the_cores_of_this_machine_or_of_those_that_the_study_names(text, cores):
    assert guest_cores(parse(f'{text}[[workload]]\nmodel = "lenet1"\ndataset = "digits"\n')) == cores


def test_hosts_that_are_not_known_yet_have_no_time_side_by_side():
    report = estimated(planned := specs(cpus=(1, 2), runs=2), [run(planned[0])], cores=0)
    assert report.hours_at_best == report.hours
    assert "side by side" not in "".join(totals(report))


def test_a_finished_study_takes_nothing_more():
    planned = specs(cpus=(1,), runs=2)
    report = estimated(planned, [run(spec) for spec in planned])
    assert (report.to_do, report.hours, report.hours_low, report.size_bytes) == (0, 0, 0, 0)


def test_the_family_counts_every_pair_of_settings_in_every_metric():
    planned = specs(metrics=(Metric.ACCURACY, Metric.F1_MACRO))
    first, second = estimated(planned).families
    assert (first.metric, second.metric) == ("accuracy", "f1_macro")
    assert first.tests == second.tests == 3 * 2
    (alone,) = estimated(specs(cpus=(1,))).families
    assert alone.tests == 0
    assert "nothing to compare" in text_of(estimated(specs(cpus=(1,))))


def test_the_sd_is_pooled_within_sets_and_what_is_given_comes_first():
    planned = specs(cpus=(1, 2), runs=3)
    values = (0.5, 0.7, 0.9, 0.1, 0.1, 0.1)
    stored = [run(spec, value=value) for spec, value in zip(planned, values, strict=True)]
    (family,) = estimated(planned, stored).families
    assert family.sd == pytest.approx(math.sqrt((2 * 0.04 + 0) / 4))
    assert family.n_sd == 6
    assert family.detectable_u == detectable(3, family.sd, 1, Test.RANKS)
    assert family.detectable_welch == detectable(3, family.sd, 1, Test.WELCH)
    assert family.needed_u == runs_for(0.01, family.sd, 1, Test.RANKS)
    (given,) = estimated(planned, stored, sd=0.02).families
    assert (given.sd, given.n_sd, given.needed_u) == (0.02, 0, runs_for(0.01, 0.02, 1, Test.RANKS))


def test_a_variant_does_not_take_another_ones_sd():
    fixed, free = specs(cpus=(1, 2)), specs(cpus=(1, 2), variant=Variant.DEFAULT)
    stored = [run(spec, value=0.1 * i) for i, spec in enumerate(fixed)]
    first, second = estimated(fixed + free, stored).families
    assert first.sd is not None
    assert second.sd is None


def test_what_is_used_of_a_stored_run(tmp_path):
    record = factories.record(factories.spec(), factories.result(factories.fill(tmp_path)))
    files = sum(path.stat().st_size for path in tmp_path.iterdir())
    found = stored_run(record, 100)
    assert (found.run_s, found.size_bytes) == (3.0, files + 100)
    assert found.values == {("accuracy", "last"): 0.5, ("accuracy", "selected"): 0.5}


@pytest.mark.parametrize(("wall_s", "warm", "run_s"), [(2.0, True, 2.0), (2.1, True, 3.0), (2.0, False, 3.0)])
def test_the_import_that_the_first_run_of_a_worker_waited_for_is_not_counted(tmp_path, wall_s, warm, run_s):
    record = factories.record(factories.spec(), factories.result(factories.fill(tmp_path)))
    times = dataclasses.replace(record.result.timings, import_s=1.0, wall_s=wall_s, warm=warm)
    waited = dataclasses.replace(record, result=dataclasses.replace(record.result, timings=times))
    found = stored_run(waited, 100)
    assert (found.run_s, found.import_s) == (run_s, float(warm))


def test_cpu_models_are_families_of_their_own():
    threads = ThreadSpec(cpus=1, intra_op=1, inter_op=1)
    planned = [
        dataclasses.replace(factories.spec(), threads=threads, cpu_model=model)
        for model in ("Haswell", "EPYC")
    ]
    assert [f.workload for f in estimated(planned).families] == ["lenet5@Haswell", "lenet5@EPYC"]


def test_amounts_are_in_units_of_1024():
    assert [amount(v) for v in (None, 12, 1536, 2.5 * 2**20, 3 * 2**30)] == [
        "unknown",
        "12 B",
        "1.5 KiB",
        "2.5 MiB",
        "3 GiB",
    ]


def text_of(report) -> str:
    return render_tables(as_tables(report), Format.TABLE, Console(width=250))


def test_the_tables_say_what_each_number_is_from():
    planned = specs(cpus=(1, 2), runs=2)
    text = text_of(estimated(planned, [run(planned[0], value=0.4), run(planned[1], value=0.6)]))
    assert "this condition, n = 2" in text
    assert "other conditions of the workload, n = 2" in text
    assert re.search(r"0\.14 \[0\.063, 4\.5\] +n = 2", text)


@pytest.mark.parametrize("runs", [1, 2])
def test_of_one_run_or_equal_runs_no_power_is_claimed(runs):
    planned = specs(cpus=(1, 2), runs=2)
    report = estimated(planned, [run(spec) for spec in planned if spec.repetition <= runs])
    (family,) = report.families
    assert (family.detectable_u, family.needed_u, family.needed_welch) == (None, None, None)
    (line,) = (line for line in totals(report) if line.startswith("power"))
    assert ("runs so far have one value (SD 0)" in line) == (runs == 2)
    assert line.startswith("power   unknown")
    power = as_tables(report)[-1].frame
    assert set(power[["ranks", "welch", "runs_ranks", "runs_welch"]].iloc[0]) == {"–"}


def test_before_the_first_run_the_table_says_what_is_planned_and_no_more():
    (table,) = as_tables(estimated(specs(cpus=(1, 2), runs=3)))
    assert table.frame[["planned", "setting"]].values.tolist() == [[6, "cpus-1, cpus-2"]]


def test_conditions_are_listed_in_order_though_runs_are_planned_in_another():
    planned = specs(cpus=(1, 2, 4), runs=2)
    (table,) = as_tables(estimated(planned[::-1]))
    assert table.frame[["planned", "setting"]].values.tolist() == [[6, "cpus-1, cpus-2, cpus-4"]]


def crossed(seeds=10, cpus=(1, 2, 4)):
    """Each seed once on every thread count."""
    return [
        dataclasses.replace(
            planned, seeds=dataclasses.replace(planned.seeds, initialisation=planned.repetition)
        )
        for planned in specs(cpus=cpus, runs=seeds)
    ]


def test_seeds_on_all_thread_counts_are_planned_as_pairs():
    planned = crossed()
    # Seeds lie far apart; of one seed the thread counts differ by 0.01 on every second seed.
    stored = [
        run(spec, value=0.1 * spec.repetition + 0.01 * (spec.threads.cpus == 2) * (spec.repetition % 2))
        for spec in planned
        if spec.threads.cpus < 4
    ]
    (family,) = estimated(planned, stored).families
    sd = statistics.stdev([0.01, 0.0] * 5)
    assert (family.n, family.matched, family.n_sd) == (10, True, 10)
    assert family.sd == pytest.approx(sd)
    assert family.sd_high == pytest.approx(sd * math.sqrt(9 / 2.700), rel=1e-3)
    expected = TTestPower().solve_power(nobs=10, alpha=0.05 / 3, power=0.8) * sd
    assert expected < family.detectable_u < 1.08 * expected, "sign flips of few pairs show less than t"
    assert family.detectable_welch == pytest.approx(expected, rel=1e-4)
    needed = math.ceil(TTestPower().solve_power(effect_size=0.01 / sd, alpha=0.05 / 3, power=0.8))
    assert (family.needed_u, family.needed_welch) == (7, needed), "six seeds have no p below 0.05 / 3"
    assert "10 seeds" in text_of(estimated(planned, stored))


def test_few_shared_seeds_can_show_nothing_by_sign_flips():
    (family,) = estimated(crossed(seeds=5), sd=0.01, difference=0.1).families
    assert family.detectable_u is None, "3 tests, and no p below 2 / 32"
    assert family.detectable_welch is not None
    assert family.needed_u == 7, "the first n with 3 * 2 / 2**n below 0.05"
