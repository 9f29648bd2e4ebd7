"""The figure of all workloads: its numbers are those of the tables."""

from __future__ import annotations

import numpy as np
import pytest
from matplotlib.colors import to_rgb

from analysis.figures import figures
from analysis.figures.figures import boxes
from analysis.figures.overview import overview
from analysis.pipeline import analyze
from analysis.report.report import write_report
from tests.analysis.provenance.test_overrides import as_project


def _texts(axes):
    return [text.get_text() for text in axes.texts]


@pytest.mark.needs("studies")
def test_each_workload_has_a_line_with_its_results_a_seed(study):
    for workload in ("even", "odd"):
        for cpus in (1, 2, 4):
            for repetition in (1, 2):
                here = f"{workload} on {cpus}" if workload == "odd" else workload
                study.run(cpus, repetition, workload=workload, weights=here)
                study.run(cpus, repetition, workload=workload, variant="exact", weights=workload)
    left, right = overview(analyze(study.directory)).figure.axes
    assert [tick.get_text() for tick in left.get_yticklabels()] == ["even", "odd"]
    assert [tick.get_text() for tick in left.get_xticklabels()] == [
        "fixed-seed\nweights",
        "fixed-seed\npredictions",
        "fixed-seed\nmetric",
        "exact\nweights",
    ]
    assert _texts(left) == ["1", "1", "1", "1", "3", "1", "1", "1"]
    assert sum(len(line.get_xdata()) == 1 for line in right.lines) == 4  # two workloads, two variants
    assert right.get_xlim()[0] == 0


def _contrast(text, cell):
    """Of WCAG: from 1 to 21."""
    lights = []
    for colour in (text, cell):
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in to_rgb(colour)]
        lights.append(0.05 + float(np.dot((0.2126, 0.7152, 0.0722), linear)))
    return max(lights) / min(lights)


def test_numbers_can_be_read_on_every_blue_and_those_above_the_thread_counts_are_explained(study):
    for workload, distinct in (("even", 1), ("odd", 2)):
        for cpus in (1, 2):
            for repetition in (1, 2, 3):
                here = f"{cpus} {repetition}" if distinct == 2 else cpus
                study.run(cpus, repetition, workload=workload, weights=f"{workload} {here}")
    drawing = overview(analyze(study.directory))
    left = drawing.figure.axes[0]
    image = left.images[0]
    cells = {
        text.get_text(): _contrast(text.get_color(), image.to_rgba(image.get_array())[int(y), int(x), :3])
        for text in left.texts
        for x, y in [text.get_position()]
    }
    assert min(cells["2"], cells["6"]) > 4
    assert "a number above 2 is of results that differ within a thread count too" in drawing.caption


@pytest.mark.parametrize(
    ("variants", "empty", "see"),
    [
        (("control",), [], "on different thread counts; on the right, whether predictions change with"),
        (("default",), [0], "on the right, whether predictions change with the thread count and the seed."),
        (("fixed-seed", "default"), [], "with the thread count, and how much less than with the seed."),
        (("project",), [1], "then one seed gives several results on different thread counts."),
        (
            ("default", "algo"),
            [0],
            "on the right, whether predictions change with the thread count and the seed.",
        ),
    ],
)
def test_an_empty_half_is_called_so_and_no_words_are_of_it(study, variants, empty, see):
    for variant in variants:
        for workload in ("even", "odd"):
            for cpus in (1, 2):
                own = variant == "project"
                folder = study.run(
                    cpus, workload=workload, variant="fixed-seed" if own else variant, weights=f"{cpus}"
                )
                if own:
                    as_project(folder, predictions=False)
    drawing = overview(analyze(study.directory))
    halves = drawing.figure.axes
    assert [i for i in (0, 1) if _texts(halves[i]) == ["not measured"]] == empty
    assert see in drawing.see
    assert ("distinct results a seed" in drawing.caption) is (0 not in empty)
    assert ("different classes" in drawing.caption) is (1 not in empty)
    free = " and ".join(f"'{v}'" for v in variants if v in ("default", "algo"))
    assert (f"in {free} the seeds differ too" in drawing.caption) is bool(free)
    assert len(drawing.figure.legends) == (1 not in empty)


@pytest.mark.needs("studies")
def test_one_workload_has_no_overview_and_several_have_one_at_the_top_of_the_page(
    study, usual, tmp_path, monkeypatch
):
    monkeypatch.setattr(figures, "FIGURES", ())  # those of one workload each, which take the time
    write_report(usual, tmp_path / "one")
    assert not list(tmp_path.glob("one/figures/overview*"))
    for workload in ("lenet5", "mlp"):
        for cpus in (1, 2):
            study.run(cpus, workload=workload, weights=f"{cpus}")
    page = write_report(analyze(study.directory), tmp_path / "two").read_text()
    assert 0 < page.index("figures/overview.svg") < page.index('id="findings"')
    assert page.count("figures/overview.svg") == 1


def test_runs_that_failed_are_crosses_beside_their_box_and_a_hollow_mark_of_churn(study):
    for workload in ("even", "odd"):
        for cpus in (1, 2):
            for repetition in (1, 2, 3):
                accuracy = 0.5 if workload == "odd" and repetition == 1 else 0.75
                study.run(
                    cpus,
                    repetition,
                    workload=workload,
                    variant="default",
                    weights=f"{workload} {cpus} {repetition}",
                    accuracies=(0.5, accuracy),
                )
    analysis = analyze(study.directory)
    marks = [line for line in overview(analysis).figure.axes[1].lines if len(line.get_xdata()) == 1]
    assert [line.get_markerfacecolor() == "white" for line in marks] == [False, True]
    for workload, failed in (("even", 0), ("odd", 1)):
        drawing = boxes(analysis, workload)
        crosses = [line for line in drawing.figure.axes[0].lines if line.get_marker() == "x"]
        assert [len(line.get_xdata()) for line in crosses] == [failed, failed]
        assert len(drawing.figure.legends) == failed
        assert (", 2 of all 6 failed." in drawing.caption) is bool(failed)
    assert [text.get_text() for text in overview(analysis).figure.legends[0].get_texts()] == [
        "default",
        "hollow: some of its runs failed",
    ]


def test_a_long_name_of_a_workload_is_cut_and_whole_in_the_caption(study):
    name = "resnet-50-" + 7 * "of-somebody-"
    for workload in ("mlp", name):
        study.run(1, workload=workload)
        study.run(2, workload=workload)
    drawing = overview(analyze(study.directory))
    (_, cut) = [label.get_text() for label in drawing.figure.axes[0].get_yticklabels()]
    assert cut == "resnet-50-of-somebod…dy-of-somebody-"
    assert f"{cut} is {name}." in drawing.caption
