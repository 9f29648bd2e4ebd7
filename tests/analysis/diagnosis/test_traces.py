"""Traces as numbers, text, tables and files."""

import numpy as np
import pytest

from analysis.diagnosis.trace_figures import growth_map, write
from analysis.diagnosis.traces import apart, growth_table, read_traces, started, summary, verdict
from analysis.figures.style import alone
from analysis.load.study import load_study
from analysis.pipeline import analyze
from guest.records.codec import RecordError, seal
from guest.records.run import Framework, ProjectSpec, ThreadSpec
from guest.records.trace import TRACE, Growth, Origin, Outcome, Phase, Side, Trace, decode
from tests import factories

ORIGIN = Origin(
    index=29, phase=Phase.BACKWARD, op="aten.convolution_backward.default", module="conv2",
    source="model.py:66 in forward", text="x = self.conv2(x)", inputs=("float32[64, 16, 10, 10]",),
    outputs=("float32[16, 6, 5, 5]",), differing=2246, elements=2400, max_ulp=1376, setting="oneDNN",
)  # fmt: skip


def growth(step, layer, l2):
    return Growth(
        step=step, layer=layer, elements=10, differing=int(l2 > 0) * 5, max_ulp=3, l2=l2, relative_l2=l2 / 2
    )


def trace(**changes):
    def side(n):
        threads = ThreadSpec(cpus=n, intra_op=n, inter_op=n)
        return Side(guest=f"cpus-{n}", threads=threads, run_id="", environment={})

    values = {
        "trace_id": "t",
        "created_at": "2026-01-01T00:00:00+00:00",
        "workload": factories.workload(),
        "variant": "fixed-seed",
        "sides": (side(1), side(4)),
        "outcome": Outcome.OPERATION,
        "steps": 8,
        "step": 1,
        "differs": "weights and gradients",
        "operations": 54,
        "origins": (ORIGIN,),
        "unknown": ("aten.new.default",),
        "growth": tuple(
            growth(s, n, l2) for s, l2 in ((1, 1e-8), (4, 1e-6)) for n in ("conv1.weight", "out.bias")
        ),
        "notes": ("a note",),
    }
    return Trace(**values | changes)


def test_distances_are_of_bits_and_of_numbers():
    a = np.array([1.0, 2.0, -0.0, np.nan], np.float32)
    b = np.array([np.nextafter(np.float32(1), np.float32(2)), 2.0, 0.0, 1.0], np.float32)
    differing, ulp, l2, relative = apart(a.view(np.uint32), b.view(np.uint32), "float32")
    assert (differing, ulp) == (3, 1)  # the zeros differ in a bit, and are equal as numbers
    assert l2 == pytest.approx(2**-23)
    assert relative == pytest.approx(2**-23 / np.sqrt(5))


def test_bfloat16_has_ulps_of_its_own():
    one, next_ = np.array([0x3F80], np.uint16), np.array([0x3F81], np.uint16)
    assert apart(one, next_, "bfloat16")[:2] == (1, 1)


def test_integers_have_no_ulps():
    a = np.array([1, 2], np.uint64)
    assert apart(a, a + 1, "int64") == (2, None, 0.0, 0.0)


def test_nothing_finite_leaves_the_bits():
    nan = np.array([np.nan], np.float32).view(np.uint32)
    assert apart(nan, nan + 1, "float32") == (1, 0, 0.0, 0.0)


def test_the_operation_that_started_it_is_said_whole():
    text = "\n".join(summary(trace()))
    for part in ("step 1", "convolution_backward", "conv2", "model.py:66", "2,246 of 2,400", "1,376 ULP",
                 "oneDNN",
                 "x = self.conv2(x)", "aten.new.default", "not to be called safe", "a note"):  # fmt: skip
        assert part in text


def test_equality_is_said_with_the_number_of_steps():
    found = trace(outcome=Outcome.EQUAL, step=None, origins=(), growth=())
    assert "equal to the last bit in 8 steps" in verdict(found)
    keras = factories.workload(framework=Framework.TENSORFLOW)
    assert "gradients" in verdict(found)
    assert "gradients" not in verdict(trace(outcome=Outcome.EQUAL, origins=(), workload=keras))


def test_of_a_project_the_operations_are_said_to_be_equal_which_are_what_was_compared():
    project = ProjectSpec(
        source=".", commit="", command=("python", "t.py"), requirements="", metrics=(), predictions="",
        weights="w.pt", timeout_s=None, disk_limit_mib=1,
    )  # fmt: skip
    workload = factories.workload(framework=None, model="", dataset="", project=project)
    found = trace(outcome=Outcome.EQUAL, step=None, steps=0, origins=(), workload=workload)
    assert verdict(found).endswith("equal to the last bit in all 54 operations")


@pytest.mark.parametrize("outcome", [Outcome.SEQUENCE, Outcome.UNLOCATED, Outcome.UNREPEATABLE])
def test_every_outcome_is_said_without_an_operation(outcome):
    assert "step 1" in verdict(trace(outcome=outcome, origins=()))


def test_an_operation_that_the_registry_does_not_know_is_said_to_be_unknown():
    import dataclasses

    assert "does not know" in started(trace(origins=(dataclasses.replace(ORIGIN, setting=""),)))


def test_the_files_are_the_record_the_numbers_and_the_figure(tmp_path):
    write(trace(), tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["growth.csv", "growth.png", "growth.svg", TRACE]
    assert decode((tmp_path / TRACE).read_bytes()) == trace()
    assert len((tmp_path / "growth.csv").read_text().splitlines()) == 1 + len(growth_table(trace()).frame)


def test_the_picture_beside_a_trace_says_what_it_shows_and_of_how_many():
    drawing = alone(growth_map(trace()))
    title, caption = (text.get_text().replace("\n", " ") for text in drawing.figure.texts)
    assert (title, caption) == (drawing.title, drawing.words)
    assert "n = 2 models" in drawing.caption


def test_a_flipped_byte_shows():
    with pytest.raises(RecordError, match="checksum"):
        decode(seal(trace()).replace("conv2", "conv3"))


def test_the_trace_of_a_newer_vbstudy_is_not_read():
    with pytest.raises(RecordError, match="upgrade"):
        decode(seal(trace(version=99)))


# ---- in a study ----


def parted(study):
    for cpus in (1, 4):
        steps = {1: f"w{cpus}", 2: f"v{cpus}"}
        for repetition in (1, 2):
            study.run(cpus, repetition=repetition, variant="fixed-seed", weights=f"w{cpus}", steps=steps)
    return load_study(study.directory)


def stored(study, found, name="t"):
    folder = study.directory / "trace" / name
    folder.mkdir(parents=True)
    (folder / TRACE).write_text(seal(found))


def own_workload(study):
    from guest.records.run import RECORD, decode_record

    path = next((study.directory / "runs").glob(f"*/*/*/*/{RECORD}"))
    return decode_record(path.read_bytes()).spec.workload


def test_f3_names_the_operation_of_a_stored_trace(study):
    parted(study)
    stored(study, trace(workload=own_workload(study)))
    found = analyze(study.directory)
    (f3,) = [f for f in found.findings if f.id == "F3" and not f.workload]
    assert "aten.convolution_backward.default (backward of conv2" in f3.why
    assert list(found.tables["traces"].frame.op) == ["aten.convolution_backward.default"]


def test_f3_says_how_to_find_it_without_a_trace(study):
    parted(study)
    found = analyze(study.directory)
    assert "`vbstudy trace` finds" in next(f for f in found.findings if f.id == "F3").why
    assert "traces" not in found.tables


def test_a_trace_of_other_settings_is_left_out_and_reported(study):
    loaded = parted(study)
    stored(study, trace())
    traces, problems = read_traces(loaded)
    assert traces == ()
    assert "other settings" in problems[0].what


def test_a_damaged_trace_is_left_out_and_reported(study):
    loaded = parted(study)
    stored(study, trace(workload=own_workload(study)))
    (study.directory / "trace" / "t" / TRACE).write_text("{}")
    traces, problems = read_traces(loaded)
    assert traces == ()
    assert problems[0].path == f"trace/t/{TRACE}"
