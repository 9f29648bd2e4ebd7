"""One validator: a run that `verify` passes is read by every command, and what it says reaches tables and
pages as text that can be shown."""

import io
import json

import matplotlib as mpl
import pytest

from analysis.exchange.verify import verify
from analysis.pipeline import analyze
from analysis.report.report import write_report
from guest.records.codec import digest
from guest.records.run import HISTORY, RECORD, Metric
from tests.analysis.conftest import Fabricator

HOSTILE = "\x1b[2J\u202e"


@pytest.fixture
def study(tmp_path):
    made = Fabricator(tmp_path / "study")
    for cpus in (1, 2):
        for repetition in (1, 2):
            made.run(cpus, repetition, weights=f"w{cpus}", load=0.1, block=repetition, at_s=10 * repetition)
    return made.directory


def say(directory, *place, value):
    """Makes every record say this, with a checksum that fits."""
    for path in directory.glob(f"runs/*/*/*/*/{RECORD}"):
        record = json.loads(path.read_text())
        inside = record
        for key in place[:-1]:
            inside = inside[key]
        inside[place[-1]] = value
        record.pop("record_sha256")
        path.write_text(json.dumps(record | {"record_sha256": digest(record)}))


REFUSED = [
    ("spec", "study_id", HOSTILE),
    ("spec", "workload", "model", HOSTILE),
    ("spec", "workload", "dataset", "d" * 5000),
    ("spec", "workload", "metrics", ["accuracy", "accuracy"]),
    ("spec", "threads", "inter_op", 2**63),
    ("result", "hashes", "weights", HOSTILE),
    ("result", "timings", "wall_s", float("nan")),
    ("result", "timings", "wall_s", 1e308),
    ("result", "timings", "wall_s", 1e-320),
    ("result", "selected_epoch", 7),
    ("started_at", "2025-99-99T00:00:00"),
    ("finished_at", "0001-01-01T00:00:00+00:00"),
    ("finished_at", "2025-W01-1"),
]


@pytest.mark.parametrize("place", REFUSED, ids=lambda place: "-".join(map(repr, place))[:60])
def test_a_record_that_says_what_no_run_has_is_damaged(study, place):
    say(study, *place[:-1], value=place[-1])
    assert len(verify(study).damaged) == 4


READ = [
    ("guest", "name", "$\\frac{$"),
    ("guest", "provider", HOSTILE),
    ("result", "environment", "cpu", {"model": f"$\\frac{{${HOSTILE}"}),
    ("result", "last", "accuracy", 1e308),
    ("result", "load_by_others", 0.25),
    ("isolation", "contended", [HOSTILE]),
    ("isolation", "neighbours", [HOSTILE]),
    ("isolation", "cpuset", HOSTILE),
]


@pytest.mark.needs("studies", long=True)
def test_what_passes_can_be_analysed_drawn_and_shown(study, tmp_path):
    for place in READ:
        say(study, *place[:-1], value=place[-1])
    assert not verify(study).damaged
    write_report(analyze(study), tmp_path / "report")
    for path in (tmp_path / "report").rglob("*"):
        if path.suffix in (".csv", ".html", ".json", ".svg"):
            assert not {"\x1b", "\u202e"} & set(path.read_text()), path


@pytest.mark.needs("studies")
def test_a_cell_beyond_all_axes_is_that_of_a_training_that_diverged(study, tmp_path):
    import hashlib

    for path in study.glob(f"runs/*/*/*/*/{HISTORY}"):
        content = path.read_text().replace("0.5", "1e308").encode()
        path.write_bytes(content)
        entry = {"sha256": hashlib.sha256(content).hexdigest(), "size_bytes": len(content)}
        record = json.loads((path.parent / RECORD).read_text())
        record["result"]["artifacts"][HISTORY] = entry
        record.pop("record_sha256")
        (path.parent / RECORD).write_text(json.dumps(record | {"record_sha256": digest(record)}))
    assert not verify(study).damaged
    write_report(analyze(study), tmp_path / "report")


def test_a_run_of_other_metrics_than_its_workload_s_is_left_out_and_named(study):
    Fabricator(study).run(4, metrics=[Metric.F1_MACRO])
    assert not verify(study).damaged
    (problem,) = [each for each in analyze(study).study.problems if each.skipped]
    assert problem.path.endswith("cpus-4/0001")
    assert "no metric in common" in problem.what


def test_a_dollar_in_a_name_is_no_formula():
    from analysis.figures.style import STYLE

    with mpl.rc_context(STYLE):
        figure = mpl.figure.Figure()
        figure.text(0, 0, "$\\frac{$")
        figure.savefig(io.BytesIO())
