"""What a probe found, as tables and figure."""

import json

import numpy as np
import pytest

from analysis.diagnosis.probe_figures import write
from analysis.diagnosis.probes import cells, numbers, summary, table
from analysis.results.printing import Format, render_tables
from guest.records.probe import Part, ProbeReport, ProbeRow
from guest.records.run import Framework


def row(operation="conv2d", part=Part.BACKWARD, size=32, threads=2, equal=True, unique=1, **changes):
    values = {
        "operation": operation,
        "part": part,
        "dtype": "float32",
        "size": size,
        "threads": threads,
        "equal": equal,
        "unique": unique,
        "runs": 3,
        "vs": None,
        "vermv": None if equal else 1e-6,
        "vc": None if equal else 0.5,
        "max_ulp": None if equal else 7,
        "seconds": 0.1,
        "ratio": 0.5,
    }
    return ProbeRow(**values | changes)


def report(*rows, **changes):
    values = {
        "framework": Framework.TORCH,
        "created_at": "2026-01-01T00:00:00+00:00",
        "threads": (1, 2, 4),
        "runs": 3,
        "rows": rows,
        "refused": {},
        "unknown": (),
        "environment": {
            "cpu": {"model": "a CPU"},
            "libraries": {"torch": "2.0"},
            "framework": {},
            "threads_in_force": {"visible_cpus": 2},
        },
    }
    return ProbeReport(**values | changes)


def test_the_numbers_are_those_of_the_formulas():
    a, b = np.array([2.0, 4.0], np.float32), np.array([2.0, 5.0], np.float32)
    vs, vermv, vc, ulp = numbers(a.view(np.uint32), b.view(np.uint32), "float32")
    assert (vs, vermv, vc) == (None, pytest.approx(0.125), 0.5)
    assert ulp == 2**21
    assert numbers(a[1:].view(np.uint32), b[1:].view(np.uint32), "float32")[0] == pytest.approx(-0.25)


def test_what_is_no_number_is_counted_by_its_bits():
    nan = np.array([np.nan, 1.0], np.float32).view(np.uint32)
    assert numbers(nan, nan + 1, "float32") == (None, None, 1.0, None)
    assert numbers(np.array([1], np.uint64), np.array([2], np.uint64), "int64") == (None, None, 1.0, None)


def test_the_size_from_which_an_operation_varies_is_said_and_such_come_first():
    made = report(
        row(operation="relu"), row(size=8), row(size=32, equal=False), row(size=128, threads=4, equal=False)
    )
    frame = table(made).frame
    assert list(frame.operation) == ["conv2d", "relu"]
    assert (frame.verdict[0], frame.differs_at[0]) == ("differs, first at size 32", "2, 4")
    assert (frame.verdict[1], frame.differs_at[1]) == ("same bits", "")


def test_run_to_run_is_another_question_than_across_threads():
    made = report(row(operation="index_put", unique=3, threads=4), row(equal=False))
    frame = table(made).frame.set_index("operation")
    assert frame.verdict["index_put"] == "same bits"
    assert frame.repeats["index_put"] == "up to 3 of 3 differ, at 4 threads"
    assert frame.repeats["conv2d"] == "equal (n=3)"
    text = "\n".join(summary(made))
    assert "1 of 2 operations give other bits" in text
    assert "1 of 2 do not repeat from run to run (n=3): index_put" in text


def test_the_header_names_cpu_and_versions():
    text = summary(report(row()))[0]
    assert "a CPU" in text
    assert "torch 2.0" in text


def test_what_is_unknown_or_refused_is_said():
    made = report(row(), unknown=("aten.new.default",), refused={"grid/8/float32": "not in torch"})
    text = "\n".join(summary(made))
    assert "not to be called safe: aten.new.default" in text
    assert "nothing of grid" in text


@pytest.mark.parametrize("form", list(Format))
def test_every_format_is_written(form):
    assert "conv2d" in render_tables([table(report(row()))], form)


def test_the_files_are_record_cells_and_heat_map(tmp_path):
    made = report(row(), row(equal=False, unique=2, threads=4), row(part=Part.FORWARD))
    write(made, tmp_path)
    kinds = ("csv", "json", "png", "svg")
    assert sorted(p.name for p in tmp_path.iterdir()) == [f"probe-torch.{kind}" for kind in kinds]
    assert len(json.loads((tmp_path / "probe-torch.json").read_text())["rows"]) == len(cells(made)) == 3
