from __future__ import annotations

import json

import pytest

from analysis.exchange.comparison import imported_tables
from analysis.exchange.imported import Import, ImportedRun, read_imports, write_import
from analysis.exchange.verify import verify
from analysis.pipeline import analyze
from guest.records.codec import NewerSchemaError


def run(threads, repetition, accuracy, predictions=None):
    return ImportedRun(
        workload="w",
        variant="imported",
        threads=threads,
        repetition=repetition,
        metrics={"accuracy": accuracy},
        history={"loss": (1.0, 0.1 + 0.2)},
        predictions=predictions,
        source="r.csv",
        source_sha256="0" * 64,
    )


def imported(*runs, name="a"):
    return Import(
        schema_version=1,
        name=name,
        kind="results",
        imported_at="2026-01-01T00:00:00Z",
        runs=runs,
        left_out=("x",),
    )


def test_an_import_is_read_back_as_it_was(tmp_path):
    original = imported(run(1, 1, 0.1 + 0.2, (0, 1)), run(2, 1, 0.5))
    path = write_import(tmp_path, original)
    assert read_imports(tmp_path) == ([original], [])
    with pytest.raises(FileExistsError, match="exists already"):
        write_import(tmp_path, original)
    assert [p.name for p in path.parent.iterdir()] == ["a.json"]


@pytest.mark.parametrize("damage", [lambda t: t.replace("0.5", "0.6"), lambda t: t[:-5], lambda _: "[]"])
def test_a_damaged_import_is_a_problem_and_not_a_result(tmp_path, damage):
    path = write_import(tmp_path, imported(run(2, 1, 0.5)))
    path.write_text(damage(path.read_text()))
    imports, (problem,) = read_imports(tmp_path)
    assert imports == []
    assert problem.path == "imported/a.json"


def test_a_copy_of_an_import_is_a_problem_and_its_runs_count_once(tmp_path):
    path = write_import(tmp_path, imported(run(2, 1, 0.5)))
    (path.parent / "copy.json").write_bytes(path.read_bytes())
    imports, (problem,) = read_imports(tmp_path)
    assert [each.name for each in imports] == ["a"]
    assert (problem.path, problem.what) == (
        "imported/copy.json",
        "the import inside is 'a': it belongs elsewhere",
    )
    assert verify(tmp_path).damaged == (problem,)


def test_a_newer_import_says_upgrade(tmp_path):
    path = write_import(tmp_path, imported(run(2, 1, 0.5)))
    path.write_text(json.dumps(json.loads(path.read_text()) | {"schema_version": 9}))
    with pytest.raises(NewerSchemaError, match="upgrade"):
        read_imports(tmp_path)


def test_thread_counts_are_compared_with_n_and_intervals():
    runs = [run(t, r, 0.5 + t / 10 + r / 100) for t in (2, 1) for r in (1, 2, 3)]
    tables = imported_tables([imported(*runs)])
    sets = tables["imported"].frame
    assert list(sets.threads) == [1, 2]
    assert list(sets.n) == [3, 3]
    assert sets["mean"].tolist() == pytest.approx([0.62, 0.72])
    assert sets["sd"].tolist() == pytest.approx([0.01, 0.01])
    assert sets.sd_low.isna().all(), "three values carry no interval of an SD"
    (test,) = tables["imported_tests"].frame.to_dict("records")
    assert (test["n_a"], test["n_b"], test["u"], test["p"]) == (3, 3, 0.0, pytest.approx(0.1))
    assert test["delta"] == -1.0


def test_runs_that_all_gave_one_value_may_be_copies_and_are_not_tested():
    runs = [run(1, r, 0.5) for r in range(1, 7)] + [run(2, r, 0.5 + r / 100) for r in range(1, 7)]
    (test,) = imported_tables([imported(*runs)])["imported_tests"].frame.to_dict("records")
    assert (test["n_a"], test["n_b"], test["p"], test["delta"]) == (1, 6, None, -1.0)
    assert test["method"] == "fewer than two observations in a condition"


def test_intervals_need_distinct_values():
    runs = [run(1, r, 0.5 + r % 4 / 100) for r in range(12)]
    runs += [run(2, r, 0.5 + r % 9 / 100) for r in range(12)] + [run(4, r, 0.5 + r / 100) for r in range(12)]
    rows = imported_tables([imported(*runs)])["imported"].frame
    assert rows["values"].tolist() == [4, 9, 12]
    assert rows.mean_low.notna().tolist() == rows.mean_high.notna().tolist() == [False, True, True]
    assert rows.sd_low.notna().tolist() == rows.sd_high.notna().tolist() == [False, False, True]


def test_churn_is_told_of_runs_with_predictions():
    runs = [run(1, 1, 0.5, (0, 1, 2, 3)), run(1, 2, 0.5, (0, 1, 2, 0)), run(2, 1, 0.5, (0, 1, 2, 3))]
    rows = imported_tables([imported(*runs, run(4, 1, 0.5))])["imported_churn"].frame
    assert list(zip(rows.threads, rows.n, rows.distinct, strict=True)) == [
        ("1", 2, 2),
        ("2", 1, 1),
        ("1 | 2", 3, 2),
    ]
    assert rows.churn.tolist()[0::2] == [0.25, 0.125]


def test_predictions_of_unlike_samples_are_not_compared():
    runs = [run(1, 1, 0.5, (0, 1)), run(2, 1, 0.5, (0, 1, 2))]
    assert imported_tables([imported(*runs)])["imported_churn"].frame.empty


def test_without_imports_there_are_no_such_tables(study):
    study.run(1)
    assert not any(name.startswith("imported") for name in analyze(study.directory).tables)


def test_imports_have_tables_in_the_analysis_and_no_part_in_its_findings(study):
    for cpus in (1, 2):
        study.run(cpus, weights=f"{cpus}")
    before = analyze(study.directory)
    write_import(study.directory, imported(run(1, 1, 0.9), run(2, 1, 0.1)))
    after = analyze(study.directory)
    assert {"imported", "imported_tests", "imported_churn"} == set(after.tables) - set(before.tables)
    assert after.findings == before.findings
