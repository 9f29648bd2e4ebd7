import csv
import dataclasses
import hashlib
import io
from pathlib import Path

import numpy as np
import pytest

from analysis.findings.implications import hardware_sentence
from analysis.findings.steps import next_steps
from analysis.findings.summary import headline, which_threads
from analysis.load.study import View, load_study
from analysis.pipeline import analyze
from analysis.provenance.overrides import EFFECTS, effect, own_threads
from analysis.report.report import write_report
from guest.records.codec import seal
from guest.records.run import (
    HISTORY,
    LOG,
    PREDICTIONS,
    RECORD,
    RECORDING,
    SELECTED,
    WEIGHTS,
    Artifact,
    MetricSource,
    Override,
    ProjectResult,
    ProjectSpec,
    Random,
    RandomNumbers,
    Seeds,
    decode_record,
)
from tests.analysis.report.test_screen import shown

FREE_THREADS = Override(what="torch.set_num_threads", value="1", where="train.py:3", times=1)


def as_project(
    folder: Path,
    *,
    predictions=True,
    weights=True,
    overrides=(),
    notes=(),
    tree="t",
    values=None,
    truth=None,
    metric="accuracy",
    recording="",
    framework=True,
) -> None:
    """Makes a fabricated run one of somebody's own project: without steps, a selected model and losses, and
    without whatever else is named. It replays where there is a `recording`."""
    record = decode_record((folder / RECORD).read_bytes())
    project = ProjectSpec(
        source="../mine",
        commit="",
        command=("python", "train.py"),
        requirements="",
        metrics=(MetricSource(name=metric, pattern="acc (.*)"),),
        predictions="p.npy" if predictions else "",
        weights="w.pt" if weights else "",
        timeout_s=None,
        disk_limit_mib=1,
        random=Random.REPLAY if recording else Random.SEED,
    )
    workload = dataclasses.replace(
        record.spec.workload, framework=None, model="", dataset="", metrics=(), project=project
    )
    rows = list(csv.DictReader((folder / HISTORY).read_text().splitlines()))
    for row in rows:
        row |= {
            name: "nan" for name in row if "loss" in name or name.startswith(("validation", "selected_test"))
        }
        row |= {name: "" for name in row if name.endswith("sha256")} | {"step": "0", "selected_epoch": "0"}
    rows = [{name.replace("accuracy", metric): value for name, value in row.items()} for row in rows]
    text = io.StringIO()
    writer = csv.DictWriter(text, rows[0])
    writer.writeheader()
    writer.writerows(rows)
    (folder / HISTORY).write_text(text.getvalue())
    if values is not None:
        np.savez(folder / PREDICTIONS, last=values, **({} if truth is None else {"y_true": truth}))
    if recording:
        (folder / RECORDING).write_text(recording)
    kept = [
        HISTORY,
        LOG,
        *([RECORDING] if recording else []),
        *([PREDICTIONS] if predictions else []),
        *([WEIGHTS] if weights else []),
    ]
    for name in {PREDICTIONS, WEIGHTS, SELECTED} - set(kept):
        (folder / name).unlink()
    artifacts = {
        name: Artifact(sha256=hashlib.sha256((folder / name).read_bytes()).hexdigest(),
                       size_bytes=(folder / name).stat().st_size)
        for name in kept
    }  # fmt: skip
    old = record.result.hashes
    hashes = dataclasses.replace(
        old,
        weights=old.weights if weights else "",
        logits=old.logits if predictions else "",
        predictions=old.predictions if predictions else "",
        selected_weights="",
        selected_logits="",
        selected_predictions="",
    )
    result = dataclasses.replace(
        record.result,
        step_hashes={},
        selected_epoch=0,
        last={metric: record.result.last["accuracy"]},
        selected={},
        hashes=hashes,
        artifacts=artifacts,
        environment=record.result.environment if framework else {},
        project=ProjectResult(
            tree_sha256=tree,
            commit="",
            seed=1,
            overrides=tuple(overrides),
            absent=() if weights else ("weights: none declared",),
            notes=tuple(notes),
            packages=(),
            disk_bytes=1,
            weights_file_sha256="",
            random=RandomNumbers(how="replayed", draws=1, level="library") if recording else RandomNumbers(),
        ),
        **({"seeds_used": Seeds()} if recording else {}),
    )
    spec = dataclasses.replace(record.spec, workload=workload)
    (folder / RECORD).write_text(seal(dataclasses.replace(record, spec=spec, result=result)))


def own(study, *, cpus=(1, 2), runs=2, workload="mine", **changes) -> None:
    """A project whose thread counts part in their weights, and one sample's class."""
    for count in cpus:
        for repetition in range(1, runs + 1):
            folder = study.run(
                count,
                repetition,
                workload=workload,
                weights=str(count),
                predicted=(0, 1, 2, 0 if count == 1 else 1),
            )
            as_project(folder, **changes)


def rows(analysis, table: str, **where):
    frame = analysis.tables[table].frame
    for column, value in where.items():
        frame = frame[frame[column] == value]
    return frame.to_dict("records")


def test_a_project_that_tells_everything_has_the_verdicts_of_any_workload(study):
    own(study)
    analysis = analyze(study.directory)
    (across,) = rows(analysis, "verdicts", scope="across thread counts")
    assert (across["view"], across["weights"], across["predictions"], across["metric"]) == (
        "last", "differ", "differ", "identical",
    )  # fmt: skip
    assert [row["churn"] for row in rows(analysis, "churn", kind="across")] == [0.25]
    assert rows(analysis, "distance", scope="across thread counts")[0]["l2"] == 1.0
    assert {f.verdict.value for f in analysis.findings if f.id == "F2"} == {"supported"}


def test_only_the_last_model_of_a_project_is_looked_at_and_tests_count_it_once(study):
    own(study)
    analysis = analyze(study.directory)
    assert analysis.study.views("mine") == (View.LAST,)
    for name in (
        "verdicts",
        "performance",
        "tests",
        "max_difference",
        "churn",
        "distance",
        "effects",
        "components",
    ):
        if name in analysis.tables:
            assert set(analysis.tables[name].frame["view"]) == {"last"}, name
    (finding,) = [f for f in analysis.findings if f.id == "F4" and f.workload == "mine"]
    assert finding.why == "of a project only the last model is known"


def test_levels_that_were_not_recorded_are_not_given(study):
    own(study, predictions=False, weights=False)
    analysis = analyze(study.directory)
    for row in rows(analysis, "verdicts"):
        assert (row["weights"], row["predictions"]) == ("not recorded", "not recorded")
        assert row["metric"] == "identical"
    assert not {"churn", "by_class", "subgroups", "loss_sd_by_epoch", "convergence"} & set(analysis.tables)
    (finding,) = [f for f in analysis.findings if f.id == "F2" and f.workload]
    assert "weights were not recorded" in finding.why
    assert any(
        "not reported by the project: weights: none declared" in str(p) for p in analysis.study.problems
    )


@pytest.mark.needs("studies")
def test_a_network_and_a_project_in_one_study_each_have_the_tables_they_can(study, tmp_path):
    own(study, predictions=False, weights=False)
    for count in (1, 2):
        study.run(count, 1)
        study.run(count, 2)
    analysis = analyze(study.directory)
    assert {row["workload"] for row in rows(analysis, "verdicts")} == {"lenet5", "mine"}
    for name in ("churn", "by_class", "loss_sd_by_epoch", "convergence"):
        assert {row["workload"] for row in rows(analysis, name)} == {"lenet5"}, name
    assert {row["view"] for row in rows(analysis, "performance", workload="lenet5")} == {"last", "selected"}
    page = write_report(analysis, tmp_path / "report").read_text()
    assert "the project mine as it is (tree t" in page


def test_what_a_project_overrides_is_a_warning_and_a_table(study):
    own(study, overrides=[FREE_THREADS], notes=["torch ended with intra_op = 1, the study asked for 2"])
    analysis = analyze(study.directory)
    (row,) = rows(analysis, "overrides")
    assert (row["what"], row["where"], row["runs"], row["n"]) == ("torch.set_num_threads", "train.py:3", 4, 4)
    told = [str(problem) for problem in analysis.study.problems]
    assert any(
        "overrides the study: torch.set_num_threads = 1 (train.py:3) in 4 of 4 runs" in text for text in told
    )
    assert any("torch ended with intra_op = 1" in text and "4 of 4 runs" in text for text in told)


def test_two_trees_of_one_project_are_not_compared_silently(study):
    own(study, cpus=(1,))
    own(study, cpus=(2,), tree="other")
    told = [str(problem) for problem in analyze(study.directory).study.problems]
    assert any("2 settings of the workload in one comparison" in text for text in told)


@pytest.mark.needs("studies")
def test_runs_that_replay_one_recording_are_compared_and_runs_of_two_are_not(study, tmp_path):
    own(study, cpus=(1,), recording="a")
    own(study, cpus=(2,), recording="a")
    own(study, cpus=(1,), recording="a", workload="mixed")
    own(study, cpus=(2,), recording="b", workload="mixed")
    analysis = analyze(study.directory)
    found = {f.workload: f for f in analysis.findings if f.id == "F2"}
    assert found["mine"].verdict.value == "supported"
    assert found["mixed"].verdict.value == "inconclusive"
    assert found["mixed"].why == "the runs used different seeds on different thread counts"
    page = write_report(analysis, tmp_path / "report").read_text()
    assert "random numbers recorded once and replayed" in page


def test_numbers_that_are_no_classes_are_compared_by_their_hash_alone(study):
    own(study, values=np.array([0.5, 1.25]))
    analysis = analyze(study.directory)
    assert "churn" not in analysis.tables
    (across,) = rows(analysis, "verdicts", scope="across thread counts")
    assert across["predictions"] == "differ"


@pytest.mark.parametrize(
    ("what", "kind"),
    [
        ("torch.set_num_threads", "thread"),
        ("tf.compat.v1.ConfigProto", "thread"),
        ("numpy.random.seed", "seed"),
        ("DataLoader worker processes", "worker"),
        ("os.environ['OMP_NUM_THREADS']", "environ"),
        ("something new", ""),
    ],
)
def test_the_effect_of_an_override_is_said(what, kind):
    assert effect(what) == EFFECTS[kind]


def test_a_record_of_a_project_without_what_was_seen_of_it_counts_where_it_can(study):
    own(study)
    path = next(study.directory.glob("runs/**/run.json"))
    record = decode_record(path.read_bytes())
    path.write_text(
        seal(dataclasses.replace(record, result=dataclasses.replace(record.result, project=None)))
    )
    found = analyze(study.directory)
    assert len(found.study.runs) == len(list(study.directory.glob("runs/**/run.json")))
    assert {row["n"] for row in rows(found, "overrides")} <= {len(found.study.runs) - 1}


def with_threads(
    study, in_force, *, cpus=(1, 2), overrides=(FREE_THREADS,), variant="fixed-seed", weights=None
):
    """Runs of a project that ended with `in_force` threads, a number by count; 0: it has no framework."""
    for count, used in zip(cpus, in_force, strict=True):
        for repetition in (1, 2):
            folder = study.run(count, repetition, workload="mine", variant=variant, weights=weights or "w")
            as_project(folder, overrides=overrides)
            record = decode_record((folder / RECORD).read_bytes())
            seen = {"torch": {"intra_op": used}} if used else {}
            environment = record.result.environment | {"threads_in_force": seen}
            result = dataclasses.replace(record.result, environment=environment)
            (folder / RECORD).write_text(seal(dataclasses.replace(record, result=result)))


def test_nothing_is_claimed_on_thread_counts_that_the_program_sets_itself(study):
    with_threads(study, (2, 2))
    analysis = analyze(study.directory)
    why = "the program sets its own thread count (train.py:3)"
    found = {f.id: f for f in analysis.findings if f.workload}
    assert (found["F2"].verdict.value, found["F2"].why) == ("inconclusive", why)
    assert found["F5"].verdict.value == "inconclusive"
    assert headline(analysis) == (
        "One seed, 2 thread counts: whether models are the same is inconclusive "
        "(the program sets its own thread count)."
    )
    answers = dict(which_threads(analysis))
    assert answers["same model?"] == "the program sets its own thread count: inconclusive"
    assert answers["do not trust"] == f"times of 1, 2: {why}"
    assert answers["advice"].startswith("not known: let the program take the study's thread count")
    (across,) = rows(analysis, "verdicts", scope="across thread counts")
    assert across["weights"] == across["metric"] == "the program sets its own thread count: inconclusive"
    assert {row["weights"] for row in rows(analysis, "verdicts", scope="1")} == {"identical"}
    text = " ".join(shown(analysis).split())
    assert text.startswith("THE PROGRAM SETS ITS OWN THREAD COUNT (train.py:3): mine. ")
    assert "note: runs/mine: the project overrides the study: torch.set_num_threads = 1 (train.py:3)" in text
    assert "some with a thread count that the program sets itself" in hardware_sentence(analysis.study)


def test_free_seeds_and_exact_mode_claim_nothing_either(study):
    with_threads(study, (2, 2), variant="default")
    with_threads(study, (2, 2), variant="exact")
    analysis = analyze(study.directory)
    (free,) = [f for f in analysis.findings if f.id == "F1" and f.workload]
    assert free.why == "the program sets its own thread count (train.py:3)"
    assert "The variant exact is not compared: the program sets its own thread count" in headline(analysis)


def test_models_that_differ_are_no_matter_of_counts_that_the_program_sets_itself(study):
    with_threads(study, (2,), cpus=(1,), weights="a")
    with_threads(study, (2,), cpus=(2,), weights="b")
    analysis = analyze(study.directory)
    assert "inconclusive (the program sets its own thread count)" in headline(analysis)
    assert not any("trace" in step for step, _ in next_steps(analysis))


@pytest.mark.parametrize(
    ("in_force", "what", "value", "compared"),
    [
        ((1, 2), "torch.set_num_threads", "n", True),
        ((2, 3), "torch.set_num_threads", "n", True),
        ((2, 2), "torch.set_num_threads", "2", False),
        ((1, 2), "os.environ['OMP_NUM_THREADS']", "2", True),
        ((0, 0), "os.environ['OMP_NUM_THREADS']", "2", False),
        ((0, 0), "os.environ['MKL_CBWR']", "2", True),
        ((1, 2), "tf.compat.v1.ConfigProto", "intra_op_parallelism_threads=2", False),
        ((1, 2), "tf.compat.v1.ConfigProto", "inter_op_parallelism_threads=2", True),
    ],
)
def test_thread_counts_are_compared_where_runs_had_several(study, in_force, what, value, compared):
    with_threads(study, in_force, overrides=[Override(what=what, value=value, where="train.py:3", times=1)])
    reason = own_threads(load_study(study.directory).runs)
    assert reason == ("" if compared else "the program sets its own thread count (train.py:3)")


def test_a_run_whose_threads_are_unknown_does_not_hide_those_of_others(study):
    with_threads(study, (2, 2))
    path = study.directory / "runs/mine/fixed-seed/cpus-1/0001" / RECORD
    record = decode_record(path.read_bytes())
    path.write_text(
        seal(dataclasses.replace(record, result=dataclasses.replace(record.result, environment={"cpu": {}})))
    )
    assert own_threads(load_study(study.directory).runs).startswith("the program sets its own thread count")


def test_pools_that_exact_mode_fixes_are_no_override(study):
    with_threads(study, (8, 8), overrides=(), variant="exact")
    for path in study.directory.glob("runs/**/run.json"):
        record = decode_record(path.read_bytes())
        environment = {"threads_in_force": {"tensorflow": {"intra_op": 8}}}
        result = dataclasses.replace(record.result, environment=environment)
        path.write_text(seal(dataclasses.replace(record, result=result)))
    assert own_threads(load_study(study.directory).runs) == ""
