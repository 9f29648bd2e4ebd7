from __future__ import annotations

import itertools
import math
import os
import subprocess
import sys
import warnings
from itertools import pairwise

import matplotlib as mpl
import pytest

from analysis.figures.charts import churn_map, churn_runs
from analysis.figures.figures import (
    _between_decades,
    _silent,
    boxes,
    epochs,
    loss_sd,
    sorted_runs,
    write_figures,
)
from analysis.figures.style import STYLE
from analysis.pipeline import analyze


def drawn(study, folder):
    folder.mkdir(exist_ok=True)
    return write_figures(analyze(study.directory), folder)


@pytest.mark.needs("studies")
def test_ten_figures_a_workload_and_a_timeline_in_both_forms_and_the_same_bytes_again(study, tmp_path):
    study.usual(runs=2)
    once, again = (drawn(study, tmp_path / name) for name in ("a", "b"))
    kinds = [
        "box",
        "sorted",
        "epochs",
        "loss-sd",
        "churn",
        "churn-runs",
        "classes",
        "reliability",
        "time",
        "front",
    ]
    assert [p.svg.stem for p in once] == [*(f"lenet5-{kind}" for kind in kinds), "timeline"]
    for a, b in zip(once, again, strict=True):
        assert a.svg.read_bytes() == b.svg.read_bytes()
        assert a.svg.read_text().startswith("<?xml")
        assert a.svg.with_suffix(".png").read_bytes().startswith(b"\x89PNG")
        assert "2 runs" in a.caption
        assert a.caption.startswith("To see: ")


@pytest.mark.needs("studies", long=True)
@pytest.mark.parametrize(
    "runs",
    [
        [{"cpus": 1}],
        [{"cpus": 1, "losses": (float("nan"), float("inf"))}, {"cpus": 2, "losses": (float("nan"), 1.0)}],
        [{"cpus": cpus, "wall_s": 0.0} for cpus in range(1, 13)],
        [{"cpus": 16, "intra_op": n, "inter_op": 1} for n in (1, 2, 4, 8, 16)],
        [{"cpus": 1, "variant": v} for v in ("default", "fixed-seed", "control")],
    ],
    ids=["one run", "not finite", "twelve thread counts", "crossed threads", "three variants"],
)
def test_odd_studies_are_drawn_without_a_warning(study, tmp_path, runs):
    for run in runs:
        study.run(**run)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(drawn(study, tmp_path / "figures")) == 11


@pytest.mark.needs("studies")
def test_a_diverged_workload_has_no_reliability_diagram_and_the_others_have_theirs(study, tmp_path):
    for cpus in (1, 2):
        study.run(cpus, workload="diverged", losses=(1.0, float("nan")), diverged=True)
        study.run(cpus, workload="sound")
    kinds = {name: set() for name in ("diverged", "sound")}
    for picture in drawn(study, tmp_path / "figures"):
        if picture.workload:
            kinds[picture.workload].add(picture.svg.stem.removeprefix(f"{picture.workload}-"))
    assert kinds["sound"] - kinds["diverged"] == {"reliability"}


def test_what_a_log_scale_cannot_show_is_said(usual):
    frame = usual.tables["loss_sd_by_epoch"].frame
    assert _silent(frame[frame.variant == "fixed-seed"]) == ["0 at every epoch: each thread count"]


def test_labels_of_a_log_scale_are_numbers(study):
    for cpus in (1, 2):
        for repetition in (1, 2):
            study.run(
                cpus, repetition, losses=(1.0, 0.5 + 0.01 * cpus * repetition), weights=f"{cpus} {repetition}"
            )
    with mpl.rc_context(STYLE):
        figure = loss_sd(analyze(study.directory), "lenet5").figure
        figure.draw_without_rendering()
        axes = figure.axes[0]
        labels = [tick.get_text() for tick in axes.get_yticklabels()]
    assert labels
    assert all(float(label) > 0 for label in labels)


def test_a_log_scale_within_a_decade_has_labels(study):
    for cpus in (1, 2):
        for repetition in (1, 2):
            gap = 0.006 * repetition
            study.run(cpus, repetition, losses=(1 + gap, 0.5 + 1.1 * gap), weights=f"{cpus} {repetition}")
    with mpl.rc_context(STYLE):
        figure = loss_sd(analyze(study.directory), "lenet5").figure
        figure.draw_without_rendering()
        axes = figure.axes[0]
        low, high = axes.get_ylim()
        texts = [tick.get_text() for tick in axes.get_yticklabels(minor=True)]
    assert high < 10 * low
    assert sum(low <= float(text) <= high for text in texts if text) >= 2


def test_labels_of_a_log_scale_of_almost_a_decade_do_not_overlap(study):
    for cpus in (1, 2):
        for repetition in (1, 2):
            losses = (1 + 0.002 * repetition, 0.5 + 0.013 * repetition)
            study.run(cpus, repetition, losses=losses, weights=f"{cpus} {repetition}")
    with mpl.rc_context(STYLE):
        drawing = loss_sd(analyze(study.directory), "lenet5")
        drawing.figure.draw_without_rendering()
        axis = drawing.figure.axes[0].yaxis
        ticks = [*axis.get_major_ticks(), *axis.get_minor_ticks()]
        labels = [tick.label1.get_window_extent() for tick in ticks if tick.label1.get_text()]
    labels.sort(key=lambda box: box.y0)
    assert len(labels) > 2
    assert all(a.y1 < b.y0 for a, b in pairwise(labels))
    assert "SD of the thread counts' means" in drawing.see


@pytest.mark.parametrize(
    ("limits", "labels"),
    [
        ((2.5e-3, 6.5e-3), ["3e-03", "4e-03", "5e-03"]),
        ((2.5e-3, 9.5e-3), ["3e-03", "", "5e-03"]),
        ((1.5e-3, 9e-2), ["", "", "5e-03"]),
        ((9e-4, 1.1e-2), ["", "", ""]),
    ],
)
def test_labels_between_powers_of_ten_are_as_many_as_there_is_room_for(limits, labels):
    label = _between_decades(*limits)
    assert [label(value) for value in (0.003, 0.004, 0.005)] == labels


@pytest.mark.parametrize("draw", [sorted_runs, epochs])
def test_a_thread_count_has_the_colour_of_the_legend_in_every_variant(study, draw):
    for cpus in (1, 2):
        study.run(cpus, variant="default")
    study.run(2)
    figure = draw(analyze(study.directory), "lenet5").figure
    (legend,) = figure.legends
    colours = dict(zip((text.get_text() for text in legend.get_texts()), legend.legend_handles, strict=True))
    fixed = next(axes for axes in figure.axes if axes.get_title().startswith("fixed-seed"))
    assert [line.get_color() for line in fixed.lines] == [colours["2"].get_color()]


@pytest.mark.parametrize(("most", "variants"), [(3, ("default", "fixed-seed")), (8, ("default",))])
def test_labels_of_many_settings_do_not_overlap_and_leave_the_panels_their_size(study, most, variants):
    for threads, inter_op in itertools.product(range(1, most + 1), (1, 2)):
        for variant in variants:
            study.run(8, variant=variant, intra_op=threads, inter_op=inter_op)
    analysis = analyze(study.directory)
    with mpl.rc_context(STYLE):
        for draw in (boxes, epochs, churn_map, churn_runs):
            figure = draw(analysis, "lenet5").figure
            figure.draw_without_rendering()
            panels = [axes for axes in figure.axes if axes.get_title()]
            assert min(axes.get_window_extent().height for axes in panels) > 1.2 * figure.dpi, draw
            for axes in panels:
                labels = axes.get_xticklabels()
                (angle,) = {label.get_rotation() for label in labels}
                places = [label.get_window_extent() for label in labels]
                ends = [box.x1 if angle else (box.x0, box.x1) for box in places]
                if angle:  # as lines at this angle they are so far apart
                    apart = min(b - a for a, b in pairwise(ends)) * math.sin(math.radians(angle))
                    assert apart > axes.xaxis.label.get_fontsize() * figure.dpi / 72, draw
                else:
                    assert all(a[1] < b[0] for a, b in pairwise(ends)), draw


def test_failed_runs_are_in_no_line_of_epochs_and_a_missing_value_hides_none(study):
    truth, nan = [0, 1, 2] * 4, float("nan")
    for repetition, accuracies in enumerate([(0.3, 0.8), (nan, 0.9), (0.3, 1 / 3)], start=1):
        guessed = [0] * 12 if repetition == 3 else truth
        study.run(
            1,
            repetition,
            variant="default",
            seed=repetition,
            weights=str(repetition),
            truth=truth,
            predicted=guessed,
            accuracies=accuracies,
        )
    drawing = epochs(analyze(study.directory), "lenet5")
    (line,) = drawing.figure.axes[0].lines
    assert line.get_ydata() == pytest.approx([0.3, 0.85])
    assert "Line: mean of the runs that did not fail;" in drawing.caption


def test_curves_of_equal_accuracies_are_not_called_equal_runs(study):
    for cpus in (1, 2):
        study.run(cpus, weights=f"{cpus}")
    words = sorted_runs(analyze(study.directory), "lenet5").words
    assert "a thread count whose runs all have one accuracy" in words
    assert "runs of equal accuracy; their models may differ (table verdicts)" in words


def test_one_epoch_has_a_bar_beside_each_other_and_a_mark_across_thread_counts(study):
    for cpus in (1, 2):
        for repetition in (1, 2, 3):
            value = 0.5 + 0.1 * cpus + 0.01 * repetition
            study.run(
                cpus, repetition, accuracies=(value,), losses=(1 / value,), weights=f"{cpus} {repetition}"
            )
    analysis = analyze(study.directory)
    with mpl.rc_context(STYLE):
        drawings = [draw(analysis, "lenet5") for draw in (epochs, loss_sd)]
        for drawing in drawings:
            drawing.figure.draw_without_rendering()
            axes = drawing.figure.axes[0]
            low, high = axes.get_xlim()
            assert [tick for tick in axes.get_xticks() if low <= tick <= high] == [1]
    by_epoch, spread = (drawing.figure.axes[0] for drawing in drawings)
    first, second = by_epoch.containers
    assert first.lines[0].get_xdata() < 1 < second.lines[0].get_xdata()
    (bar,) = first.lines[2][0].get_segments()
    assert [y for _, y in bar] == pytest.approx([0.61, 0.63])
    assert drawings[0].caption.endswith("Mark: mean of the runs; bar: one standard deviation.")
    assert all(line.get_marker() for line in spread.lines)
    assert len(spread.lines) == 3


def test_a_matplotlibrc_that_asks_for_tex_is_not_followed(study, monkeypatch):
    study.usual(runs=2)
    monkeypatch.setitem(mpl.rcParams, "text.usetex", True)
    with mpl.rc_context(STYLE):
        boxes(analyze(study.directory), "lenet5").figure.draw_without_rendering()


@pytest.mark.parametrize(
    "module",
    [
        "analysis.report.report",
        "analysis.report.page",
        "analysis.diagnosis.trace_figures",
        "analysis.diagnosis.probe_figures",
    ],
)
def test_a_backend_that_is_not_known_matters_to_no_figure_and_is_left_to_other_programs(module):
    code = f"import os, {module}; print(os.environ['MPLBACKEND'])"
    environment = {**os.environ, "MPLBACKEND": "Qt4Agg"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("Qt4Agg\n", "")
