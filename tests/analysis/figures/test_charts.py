from __future__ import annotations

import dataclasses

import numpy as np
import pandas as pd
import pytest

from analysis.figures.charts import (
    _sessions,
    churn_map,
    churn_runs,
    class_ranges,
    front,
    reliability,
    shown_view,
    some_of,
    spans,
    timeline,
)
from analysis.figures.figures import boxes, times
from analysis.load.study import View, load_study
from analysis.pipeline import analyze
from guest.records.codec import seal
from guest.records.run import RECORD, decode_record
from tests.analysis.provenance.test_overrides import as_project


def test_the_heat_map_shows_the_churn_of_the_table(usual):
    axes = churn_map(usual, "lenet5").figure.axes[1]
    assert axes.get_title() == "fixed-seed"
    values = np.asarray(axes.images[0].get_array())
    assert values.tolist() == [[0, 0, 0.25], [0, 0, 0.25], [0.25, 0.25, 0]]


def test_class_ranges_are_drawn_from_the_worst_to_the_best_run(study):
    study.run(1, 1, truth=(0, 0, 1, 1), predicted=(0, 0, 1, 0))
    study.run(1, 2, truth=(0, 0, 1, 1), predicted=(0, 1, 1, 1))
    axes = class_ranges(analyze(study.directory), "lenet5").figure.axes[0]
    heights = [[y for _, y in segment] for segment in axes.collections[0].get_segments()]
    assert heights == [[0.5, 1.0], [0.5, 1.0]]


def test_the_front_joins_its_points_by_time(study):
    for cpus, wall_s, accuracy in ((1, 10.0, 0.9), (2, 5.0, 0.8), (4, 6.0, 0.7)):
        study.run(cpus, wall_s=wall_s, accuracies=(0.1, accuracy))
    axes = front(analyze(study.directory), "lenet5").figure.axes[0]
    assert axes.lines[0].get_xydata().tolist() == [[5.0, 0.8], [10.0, 0.9]]


def test_what_is_better_of_a_metric_is_said_only_where_it_is_known(study):
    for cpus in (1, 2):
        study.run(cpus, wall_s=10.0 / cpus)
        as_project(study.run(cpus, workload="mine", wall_s=10.0 / cpus), metric="mse")
    made = analyze(study.directory)
    ours, own = (front(made, workload) for workload in ("lenet5", "mine"))
    assert "Up and left is better." in ours.caption
    assert "whether a larger mse is better is not known" in own.caption
    assert "up and" not in own.see


def stamp(folder, started, finished):
    record = decode_record((folder / RECORD).read_bytes())
    changed = dataclasses.replace(record, started_at=started, finished_at=finished)
    (folder / RECORD).write_text(seal(changed))


def test_every_run_is_a_bar_on_its_guests_line_and_a_night_is_cut_out(study):
    stamp(study.run(1), "2026-03-01T22:00:00+00:00", "2026-03-01T22:00:10.500+00:00")
    stamp(study.run(2), "2026-03-02T09:00:00+01:00", "2026-03-02T09:00:20+01:00")
    drawing = timeline(analyze(study.directory))
    evening, morning = drawing.figure.axes
    assert [label.get_text() for label in evening.get_yticklabels()] == ["cpus-1", "cpus-2"]
    boxes = [
        path.get_extents() for axes in (evening, morning) for c in axes.collections for path in c.get_paths()
    ]
    assert [round(box.width * 86400, 1) for box in boxes] == [10.5, 20.0]
    assert [round(box.y0 + 0.35) for box in boxes] == [0, 1]
    assert "One long pause is cut out" in drawing.caption
    assert "2026-03-01 22:00 to 2026-03-02 08:00 UTC" in drawing.caption


def test_a_clock_that_was_set_back_gives_no_negative_run(study):
    stamp(study.run(1), "2026-03-01T22:00:00Z", "2026-03-01T21:00:00Z")
    begin, end = spans(load_study(study.directory))
    assert (end == begin).all()
    assert timeline(analyze(study.directory)).figure.axes


def test_short_pauses_are_kept_and_parts_are_few():
    def times(*seconds):
        return pd.Series(pd.Timestamp("2026-01-01") + pd.to_timedelta(list(seconds), unit="s"))

    assert len(_sessions(times(0, 30), times(20, 50))) == 1
    assert len(_sessions(times(0, 4000), times(20, 4020))) == 2
    starts = [10_000 * i for i in range(20)]
    assert len(_sessions(times(*starts), times(*(s + 10 for s in starts)))) == 6


def test_the_last_models_are_shown_unless_only_selected_ones_are_asked_for(study):
    study.run(1)
    assert shown_view(analyze(study.directory)) is View.LAST
    selected = analyze(study.directory, (View.SELECTED,))
    assert shown_view(selected) is View.SELECTED
    assert "best validation metric" in churn_map(selected, "lenet5").caption


@pytest.mark.needs("studies")
def test_churn_of_runs_is_ordered_by_thread_count_and_thinned_in_even_steps(study, monkeypatch):
    study.usual(runs=4)
    analysis = analyze(study.directory)
    axes = churn_runs(analysis, "lenet5").figure.axes[1]
    values = np.asarray(axes.images[0].get_array())
    assert values.shape == (12, 12)
    assert (values[:8, :8] == 0).all()
    assert (values[8:, :8] == 0.25).all()
    monkeypatch.setattr("analysis.figures.charts.SHOWN_RUNS", 6)
    drawing = churn_runs(analysis, "lenet5")
    assert np.asarray(drawing.figure.axes[1].images[0].get_array()).shape == (6, 6)
    assert "fixed-seed: 6 of 12 runs" in drawing.caption


def test_thinning_keeps_one_run_of_each_set_and_all_of_few():
    assert some_of(5, 5, 10).tolist() == [0, 1, 2, 3, 4]
    assert some_of(1, 1000, 10).tolist() == [0]
    assert some_of(500, 1000, 10).tolist()[::4] == [0, 499]


def test_the_reliability_diagram_shows_the_bins(usual):
    axes = reliability(usual, "lenet5").figure.axes[1]
    sure = np.e / (np.e + 2)
    points = [line.get_xydata().tolist()[0] for line in axes.lines[1:]]
    assert np.allclose(points, [[sure, 1], [sure, 1], [sure, 0.75]])


@pytest.mark.needs("studies")
def test_captions_name_intervals_and_lines_that_are_drawn_and_no_others(study):
    for repetition, weights in enumerate("abcde", start=1):
        study.run(
            1,
            repetition,
            variant="default",
            weights=weights,
            accuracies=(0.1, 0.7 + repetition / 100),
            wall_s=10 + repetition,
        )
        study.run(2, repetition, variant="default", weights=weights * 2, accuracies=(0.1, 0.6), wall_s=20.0)
        if repetition not in (3, 5):
            continue
        drawings = [draw(analyze(study.directory), "lenet5") for draw in (front, times)]
        for drawing in drawings:
            assert ("95 % interval" in drawing.caption) is (repetition == 5)
        assert "dashed line" not in drawings[0].words
        assert "Hollow" not in drawings[0].words


def test_captions_count_what_is_drawn(study, monkeypatch):
    """A line is of one variant, and the front shows one; of many runs no dot is drawn."""
    for repetition in (1, 2, 3):
        study.run(1, repetition)
        if repetition < 3:
            study.run(1, repetition, variant="default", weights=f"{repetition}")
    analysis = analyze(study.directory)
    caption = reliability(analysis, "lenet5").caption
    assert "n = 2 to 3 runs a condition. 4 or more predictions a line;" in caption
    assert front(analysis, "lenet5").caption.startswith("n = 2 runs a condition.")
    assert "lie level" in boxes(analysis, "lenet5").see
    assert "each dot one run" in boxes(analysis, "lenet5").caption
    monkeypatch.setattr("analysis.figures.figures.POINTS", 1)
    assert "dot" not in boxes(analysis, "lenet5").words
