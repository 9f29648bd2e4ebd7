"""Robustness tables, every number by hand."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import numpy as np
import pytest

from analysis.load.predictions import read_predictions
from analysis.load.study import load_study
from analysis.pipeline import analyze
from analysis.quality.robustness import flips, flips_by_class, perturbed, read_robustness, transfer
from analysis.results.model import ACROSS
from analysis.results.printing import Format, render
from analysis.stats import statistics
from guest.records.codec import seal
from guest.records.robustness import Point, Robustness, Transfer
from guest.records.run import RECORD, decode_record


def measure(folder: Any, noise: tuple[int, ...], transfer: tuple[Transfer, ...] = (), **changes: Any) -> str:
    """Stores a fabricated run's result: 10 samples, `noise` correct at 0, 0.1, ...; returns its weights."""
    record = decode_record((folder / RECORD).read_bytes())
    points = tuple(Point(strength=i / 10, correct=c, changed=10 - c) for i, c in enumerate(noise))
    values: dict[str, Any] = {
        "run_id": record.spec.run_id, "weights": record.result.hashes.weights, "seed": 1, "samples": 10,
        "noise": points, "fgsm": points[:1], "transfer": transfer,
    }  # fmt: skip
    target = folder.parents[4] / "robustness" / f"{record.spec.run_id}.json"
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(seal(Robustness(**(values | changes))))
    return record.result.hashes.weights


def test_flips_are_counted_by_class_with_the_confidence_of_flipped_samples():
    labels = np.array([[0, 0, 1, 1], [0, 1, 1, 1], [0, 0, 1, 0]])
    sure = np.array([[0.9, 0.5, 0.8, 0.6]] * 3)
    everything, zero, one = flips_by_class(labels, sure, np.array([0, 0, 1, 1]))
    assert (everything["true_class"], everything["n"], everything["samples"]) == ("all", 3, 4)
    assert (everything["flips"], everything["share"]) == (2, 0.5)
    assert everything["sure_flipped"] == pytest.approx(0.55)
    assert everything["sure_stable"] == pytest.approx(0.85)
    assert (zero["true_class"], zero["flips"], zero["sure_flipped"]) == ("0", 1, pytest.approx(0.5))
    assert (one["true_class"], one["flips"], one["sure_flipped"]) == ("1", 1, pytest.approx(0.6))


def test_a_study_tells_flips_within_and_across_with_the_softmax_of_its_logits(usual):
    frame = usual.tables["flips"].frame
    fixed = frame[(frame.variant == "fixed-seed") & (frame.view == "last") & (frame.true_class == "all")]
    assert dict(zip(fixed.scope, fixed.flips, strict=True)) == {"1": 0, "2": 0, "4": 0, ACROSS: 1}
    assert list(fixed.n) == [3, 3, 3, 9]
    # Logits are 1 for the predicted class and 0 for two others; on 4 threads too, for class 2 is there.
    assert fixed.sure_flipped.iloc[-1] == pytest.approx(np.e / (np.e + 2), abs=1e-6)


def test_runs_of_other_seeds_are_no_flips(study):
    predicted = {1: (0, 1, 2, 0), 2: (0, 1, 1, 0), 3: (1, 1, 2, 0)}
    for seed, labels in predicted.items():
        for cpus in (1, 2):
            for r in (1, 2):
                flipped = (*labels[:3], 1) if (seed, cpus) == (3, 2) else labels
                study.run(cpus, 2 * seed + r, seed=seed, weights=f"{seed} {flipped}", predicted=flipped)
    study.run(1, 20, seed=4, weights="alone", predicted=(1, 0, 0, 1))  # with no run to compare it with
    table = flips(*read_predictions(load_study(study.directory)))
    frame = table.frame
    rows = frame[(frame["view"] == "last") & (frame.true_class == "all")].set_index("scope")
    assert list(rows.index) == ["1", "2", ACROSS]
    assert list(rows.flips) == [0, 0, 1]
    assert rows.loc[ACROSS, ["n", "seeds", "samples"]].tolist() == [12, 3, 12]
    assert rows.loc[ACROSS].share == pytest.approx(1 / 12)
    assert rows.share_low.isna()[ACROSS], "three seeds carry no interval"
    assert "seeds" in [column.source for column in table.columns]


def test_without_results_there_are_no_tables_of_them(usual):
    assert not {"robustness", "transfer"} & set(usual.tables)


def test_accuracy_under_perturbation_is_compared_across_thread_counts(study):
    for cpus, correct in ((1, (9, 8)), (2, (9, 6))):
        for repetition in (1, 2):
            folder = study.run(cpus, repetition, weights=f"w{cpus}{repetition}")
            measure(folder, (correct[0], correct[1] - (repetition - 1) * (cpus - 1) * 2))
    frame = analyze(study.directory).tables["robustness"].frame
    clean, noisy, attacked = frame.to_dict("records")
    assert (clean["attack"], noisy["attack"], attacked["attack"]) == (
        "Gaussian noise",
        "Gaussian noise",
        "FGSM",
    )
    assert (clean["sd"], clean["range"]) == (0.0, 0.0)
    assert (noisy["strength"], noisy["threads"], noisy["n"]) == (0.1, ["1", "2"], [2, 2])
    assert noisy["mean"] == pytest.approx([0.8, 0.5])  # 2 threads: 0.6 and 0.4
    assert noisy["range"] == pytest.approx(0.3)
    assert noisy["sd"] == pytest.approx(0.3 / np.sqrt(2))
    assert noisy["sd_within"] == pytest.approx([0.0, 0.2 / np.sqrt(2)])
    assert noisy["changed"] == pytest.approx((0.2 + 0.2 + 0.4 + 0.6) / 4)


def test_transfer_is_pooled_over_pairs_and_copies_are_counted(study):
    one, two = (study.run(cpus, weights=f"w{cpus}") for cpus in (1, 2))
    again, copy = study.run(2, 2, weights="v2"), study.run(2, 3, weights="w2")
    folders = (one, two, again, copy)
    weights = {f: decode_record((f / RECORD).read_bytes()).result.hashes.weights for f in folders}

    def tried(folder: Any, made: int, transferred: int) -> Transfer:
        run = decode_record((folder / RECORD).read_bytes()).spec.run_id
        return Transfer(run_id=run, weights=weights[folder], strength=0.1, made=made, transferred=transferred)

    measure(one, (9,), (tried(two, 4, 3), tried(again, 6, 1), tried(copy, 4, 3)))
    measure(two, (9,), (tried(one, 0, 0), tried(copy, 5, 5)))
    frame = analyze(study.directory).tables["transfer"].frame.set_index(["made_on", "tried_on"])
    across = frame.loc[("1", "2")]
    assert (across.n, across.copies, across.made) == (2, 0, 10)
    assert (across.share, across.least, across.most) == pytest.approx((0.4, 1 / 6, 0.75))
    assert frame.loc[("2", "2")][["copies", "share"]].tolist() == [1, 1.0]
    assert np.isnan(frame.loc[("2", "1")].share)
    assert across.low is None or np.isnan(across.low), "both pairs have the model of one thread"


def results(study: Any, shares: dict[str, float]) -> tuple[Any, dict[str, Robustness]]:
    """A study, and for each of its runs 100 samples, of which the share of its seed is changed, and of its
    adversarial examples transfers to the other thread counts."""
    data, found = load_study(study.directory), {}
    runs = data.runs
    for run in runs.itertuples():
        count = round(100 * shares[run.seeds_used])
        points = (Point(strength=0.1, correct=100 - count, changed=count),)
        others = runs[(runs.repetition == run.repetition) & (runs.threads != run.threads)]
        found[run.run_id] = Robustness(
            run_id=run.run_id, weights=run.last_weights_sha256, seed=1, samples=100, noise=points,
            fgsm=points,
            transfer=tuple(
                Transfer(
                    run_id=o.run_id, weights=o.last_weights_sha256, strength=0.1, made=100, transferred=count
                )
                for o in others.itertuples()
            ),
        )  # fmt: skip
    return data, found


@pytest.mark.parametrize("repeats", [True, False])
def test_intervals_of_several_fixed_seeds_are_over_the_seeds(study, repeats):
    counts = (10, 25, 30, 50, 35)
    for seed in range(1, 6):
        for r in (1, 2):
            for cpus in (1, 2, 4):
                model = f"{cpus} {seed}" if repeats else f"{cpus} {seed} {r}"
                study.run(cpus, 2 * seed + r, seed=seed, weights=model)
    names = load_study(study.directory).runs.seeds_used.unique()
    data, found = results(study, {name: n / 100 for name, n in zip(names, counts, strict=True)})
    over_seeds = statistics.mean(np.array(counts) / 100)
    row = perturbed(data, found).frame.iloc[0]
    assert (row.changed, row.changed_low, row.changed_high) == pytest.approx(
        (0.3, over_seeds.low, over_seeds.high)
    )
    assert row.mean_low[0] == pytest.approx(1 - over_seeds.high)
    pairs = transfer(data, found).frame
    assert set(pairs.n) == {5 if repeats else 10}
    low, high = statistics.ratio_of_sums(counts, [100] * 5)
    assert pairs.share.tolist() == pytest.approx([0.3] * 6)
    assert pairs.low.tolist() == pytest.approx([low] * 6)
    assert pairs.high.tolist() == pytest.approx([high] * 6)


def test_models_of_one_seed_on_several_thread_counts_carry_no_interval(study):
    for cpus in (1, 2, 4, 6, 8):
        study.run(cpus, weights=f"{cpus}")
    data, found = results(study, {load_study(study.directory).runs.seeds_used.iloc[0]: 0.3})
    found = {
        name: dataclasses.replace(each, noise=(Point(strength=0.1, correct=70 - i, changed=30 + i),))
        for i, (name, each) in enumerate(found.items())
    }
    row = perturbed(data, found).frame.iloc[0]
    assert row.changed == pytest.approx(0.32)
    assert row.changed_low is None or np.isnan(row.changed_low)


def test_results_of_other_models_and_damaged_ones_are_named_and_left_out(study):
    first, second, third = (study.run(cpus) for cpus in (1, 2, 4))
    measure(first, (9,))
    measure(second, (9,), weights="f" * 64)
    measure(third, (9,))
    path = study.directory / "robustness/lenet5/fixed-seed/cpus-4/0001.json"
    path.write_text(path.read_text().replace('"samples": 10', '"samples": 99'))
    found, problems = read_robustness(load_study(study.directory))
    assert [result.run_id for result in found] == ["lenet5/fixed-seed/cpus-1/0001"]
    assert [p.what for p in problems] == [
        "was measured on another model than the run's", "it does not match its own checksum",
    ]  # fmt: skip
    analysis = analyze(study.directory)
    assert set(problems) <= set(analysis.study.problems)
    assert len(analysis.study.runs) == 3, "the runs themselves are sound"


def test_words_are_not_applicable_in_every_format(study):
    for cpus in (1, 2):
        measure(study.run(cpus), (), fgsm=(), samples=0, not_applicable="headlines is text data")
    analysis = analyze(study.directory)
    assert analysis.tables["robustness"].frame.attack.tolist() == ["not applicable: headlines is text data"]
    for form in Format:
        text = render(analysis, form)
        assert "not applicable" in text or form in (Format.CSV, Format.TABLE)
        assert "nan" not in text.lower().replace("nano", "")
    assert json.loads(render(analysis, Format.JSON))["tables"]["robustness"][0]["n"] == [1, 1]


def test_a_result_of_no_samples_is_damaged(study):
    measure(study.run(1), (0,), samples=0)
    found, (problem,) = read_robustness(load_study(study.directory))
    assert found == ()
    assert "on 0 samples" in problem.what
