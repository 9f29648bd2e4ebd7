import dataclasses
import math

import pytest

from analysis.diagnosis.hardening import judge
from analysis.pipeline import analyze
from analysis.report import report
from analysis.report.report import write_report
from analysis.stats.paired import ratio
from guest.records.codec import seal
from guest.records.harden import Hardening, Profile, Proof, decode
from guest.records.run import Tier
from tests import factories
from tests.analysis.diagnosis.test_traces import own_workload
from tests.analysis.provenance.test_overrides import as_project


def trained(tier, cpus, repetition, **changes):
    return factories.measurement(tier=tier, cpus=cpus, repetition=repetition, **changes)


def everything(**by_tier):
    """Two trainings on 1 and 2 CPUs of each tier; a tier's value is called with (cpus, repetition)."""
    return [
        trained(Tier(tier.replace("_", "-")), cpus, repetition, **make(cpus, repetition))
        for tier, make in by_tier.items()
        for cpus in (1, 2)
        for repetition in (1, 2)
    ]


def results(hardening: Hardening):
    return {result.tier: result for result in judge(hardening).results}


def plain(cpus, repetition):
    return {"weights": f"w{cpus}", "train_s": 2.0}


def test_a_tier_is_proved_by_equal_bits_on_all_cpu_counts_in_all_trainings():
    made = factories.hardening(
        everything(seeds=plain, exact=lambda c, r: {"train_s": 3.0}), cpus=(1, 2), repetitions=2
    )
    found = results(made)
    assert (found[Tier.SEEDS].proof, found[Tier.SEEDS].models) == (Proof.DIFFERS, 2)
    assert (found[Tier.EXACT].proof, found[Tier.EXACT].models, found[Tier.EXACT].n) == (Proof.PROVED, 1, 4)
    assert found[Tier.EXACT].mean_cost == pytest.approx(1.5)
    assert judge(made).cheapest is Tier.EXACT


def test_what_a_project_does_not_record_is_not_said_to_be_equal(study):
    as_project(study.run(1))
    predictions = {"weights": "", "step_hashes": {}}
    made = factories.hardening(
        everything(exact=lambda c, r: predictions), cpus=(1, 2), repetitions=2, workload=own_workload(study)
    )
    assert results(made)[Tier.EXACT].why == "predictions equal on 1, 2 CPUs, 4 trainings"


@pytest.mark.parametrize("what", ["weights", "logits", "step_hashes"])
def test_one_unlike_hash_of_any_kind_is_enough_to_differ(what):
    def make(cpus, repetition):
        odd = (cpus, repetition) == (2, 2)
        return {what: ({"1": "other"} if what == "step_hashes" else "other")} if odd else {}

    made = factories.hardening(everything(seeds=make), cpus=(1, 2), repetitions=2)
    found = results(made)[Tier.SEEDS]
    assert (found.proof, found.models) == (Proof.DIFFERS, 2)
    assert "within a CPU count too" in found.why
    assert judge(made).cheapest is Tier.NONE


def test_what_was_not_seen_is_not_proved():
    done = everything(seeds=plain, exact=lambda c, r: {})
    assert (
        results(factories.hardening(done[:-1], cpus=(1, 2), repetitions=2))[Tier.EXACT].proof
        is Proof.INCOMPLETE
    )
    assert (
        results(factories.hardening(done, cpus=(1, 2, 4), repetitions=2))[Tier.EXACT].proof
        is Proof.INCOMPLETE
    )
    nothing = results(factories.hardening([], cpus=(1, 2), repetitions=2))[Tier.EXACT]
    assert (nothing.proof, nothing.n, nothing.costs) == (Proof.INCOMPLETE, 0, ())


def test_a_failed_training_and_a_tier_that_does_not_apply_are_reported_with_their_reasons():
    failed = [*everything(seeds=plain), trained(Tier.EXACT, 1, 1, error="ExactError: no", weights="")]
    made = factories.hardening(
        failed, cpus=(1, 2), repetitions=2, not_applicable={"environment": "not an Intel CPU"},
        tiers=(Tier.SEEDS, Tier.ENVIRONMENT, Tier.EXACT),
    )  # fmt: skip
    found = results(made)
    assert (found[Tier.EXACT].proof, found[Tier.EXACT].why) == (Proof.FAILED, "ExactError: no")
    assert found[Tier.ENVIRONMENT].proof is Proof.NOT_APPLICABLE
    assert found[Tier.ENVIRONMENT].why == "not an Intel CPU"


def test_the_cheapest_is_the_proved_tier_with_the_lowest_cost():
    made = factories.hardening(
        everything(
            seeds=plain, environment=lambda c, r: {"train_s": 6.0}, exact=lambda c, r: {"train_s": 2.2},
            one_thread=lambda c, r: {"train_s": 2.0 * c},
        ),
        cpus=(1, 2), repetitions=2, tiers=(Tier.SEEDS, Tier.ENVIRONMENT, Tier.EXACT, Tier.ONE_THREAD),
    )  # fmt: skip
    assert judge(made).cheapest is Tier.EXACT
    assert results(made)[Tier.ONE_THREAD].mean_cost == pytest.approx(math.sqrt(2))


def test_the_interval_of_a_tiers_mean_cost_is_that_of_its_repetitions():
    def make(cpus, repetition):
        return {"train_s": 2.0 * cpus**0.5 * (1 + repetition / 10)}

    third = [
        trained(tier, cpus, 3, **value(cpus, 3))
        for tier, value in ((Tier.SEEDS, plain), (Tier.EXACT, make))
        for cpus in (1, 2)
    ]
    done = [*everything(seeds=plain, exact=make), *third]
    found = results(factories.hardening(done, cpus=(1, 2), repetitions=3))[Tier.EXACT]
    by_repetition = [2**0.25 * 1.1, 2**0.25 * 1.2, 2**0.25 * 1.3]
    expected = ratio(by_repetition)
    assert (found.mean_cost, found.mean_low, found.mean_high) == pytest.approx(
        (expected.value, expected.low, expected.high)
    )
    assert found.mean_low < found.mean_cost < found.mean_high


def test_without_fit_times_the_cheapest_is_the_one_with_the_lowest_estimate():
    def contended(train_s):
        return lambda cpus, repetition: {"load_by_others": 1.0, "train_s": train_s}

    made = factories.hardening(
        everything(seeds=plain, environment=contended(6.0), exact=contended(2.2)), cpus=(1, 2), repetitions=2,
        tiers=(Tier.SEEDS, Tier.ENVIRONMENT, Tier.EXACT),
    )  # fmt: skip
    assert judge(made).cheapest is Tier.EXACT
    assert results(made)[Tier.EXACT].mean_cost is None
    assert {cost.excluded for cost in results(made)[Tier.EXACT].costs} == {"contended"}


def test_one_unfit_cpu_count_leaves_the_mean_cost_unknown():
    def make(cpus, repetition):
        return {"load_by_others": 1.0 if cpus == 2 else 0.0}

    made = factories.hardening(everything(seeds=plain, one_thread=make), cpus=(1, 2), repetitions=2,
                               tiers=(Tier.SEEDS, Tier.ONE_THREAD))  # fmt: skip
    found = results(made)[Tier.ONE_THREAD]
    assert [cost.excluded for cost in found.costs] == ["", "contended"]
    assert found.mean_cost is None


def test_runs_that_were_not_asked_for_this_time_are_left_out():
    done = [*everything(seeds=plain), trained(Tier.SEEDS, 4, 1, weights="w4")]
    assert results(factories.hardening(done, cpus=(1, 2), repetitions=1))[Tier.SEEDS].n == 2


@pytest.fixture
def hardened(study):
    for cpus in (1, 2):
        study.run(cpus, weights=f"w{cpus}")
    made = factories.hardening(
        everything(seeds=plain, exact=lambda c, r: {"train_s": 2.4 + r / 10}), cpus=(1, 2), repetitions=2,
        profile=Profile(traces=("t",), varying=("aten.mm.default",), unknown=()),
        workload=own_workload(study),
    )  # fmt: skip
    folder = study.directory / "harden"
    folder.mkdir()
    (folder / "lenet5.json").write_text(seal(made))
    return study


def test_the_report_has_tables_and_a_figure_of_the_tiers(hardened, tmp_path, monkeypatch):
    monkeypatch.setattr(report, "write_figures", lambda _analysis, _folder: [])  # the others, which take long
    analysis = analyze(hardened.directory)
    proofs, costs = analysis.tables["hardening"].frame, analysis.tables["tier_costs"].frame
    assert proofs.proof.tolist() == ["differs", "proved"]
    assert proofs.cheapest.tolist() == ["", "cheapest"]
    assert proofs.profile.tolist() == ["1 vary, 0 unknown"] * 2
    assert costs.n.tolist() == [2] * 4
    assert costs.ratio.tolist()[2:] == pytest.approx([math.sqrt(1.25 * 1.3)] * 2)
    page = write_report(analysis, tmp_path / "report")
    figures = {path.name for path in (page.parent / "figures").iterdir()}
    assert figures >= {"lenet5-hardening.svg", "lenet5-hardening.png"}
    assert "what equal models on all thread counts cost" in page.read_text()


def test_a_damaged_file_is_a_reservation_and_nothing_else_is_lost(hardened):
    (hardened.directory / "harden" / "other.json").write_text("{}")
    analysis = analyze(hardened.directory)
    assert "hardening" in analysis.tables
    assert any("harden/other.json" in str(problem) for problem in analysis.study.problems)


@pytest.mark.parametrize("changes", [{"epochs": 3}, {"name": "other"}])
def test_a_hardening_of_other_settings_is_left_out_and_reported(hardened, changes):
    path = hardened.directory / "harden" / "lenet5.json"
    stored = decode(path.read_bytes())
    other = dataclasses.replace(stored.workload, **changes)
    path.write_text(seal(dataclasses.replace(stored, workload=other)))
    analysis = analyze(hardened.directory)
    assert "hardening" not in analysis.tables
    assert any("other settings" in p.what for p in analysis.study.problems if p.path == "harden/lenet5.json")


def test_a_study_that_was_not_hardened_has_no_such_table(study):
    study.run(1)
    assert not {"hardening", "tier_costs"} & set(analyze(study.directory).tables)


def test_repetitions_that_were_planned_and_not_measured_take_no_time():
    made = factories.hardening(everything(seeds=plain, exact=plain), cpus=(1, 2), repetitions=10**15)
    assert judge(made).results[1].costs[0].n == 2
