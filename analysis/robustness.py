"""Robustness: on which samples models disagree and how sure they were of them, from the stored predictions;
and how the stored models bear noise and attack, from what `vbstudy sweep --robustness` measured."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from analysis import statistics
from analysis.load import Problem, Study, by_threads
from analysis.predictions import Predictions
from analysis.results import ACROSS, WHERE, Column, Kind, Table
from guest.records import RecordError
from guest.robustness_records import Point, Robustness, decode

ATTACKS = {"noise": "Gaussian noise", "fgsm": "FGSM"}
ALL_CLASSES = "all"
BOUNDS = ("", "_low", "_high")


def read_robustness(study: Study) -> tuple[tuple[Robustness, ...], tuple[Problem, ...]]:
    """The results that belong to the study's models, and a reservation for each that does not."""
    found, problems = [], []
    weights = dict(zip(study.runs.run_id, study.runs.last_weights_sha256, strict=True))
    for run, sha256 in weights.items():
        path = f"robustness/{run}.json"
        if not (study.directory / path).is_file():
            continue
        try:
            found.append(_checked(decode((study.directory / path).read_bytes()), run, sha256))
        except (OSError, RecordError, UnicodeDecodeError) as error:
            todo = "run `vbstudy sweep --robustness`: it measures the model again"
            problems.append(Problem(path=path, what=str(error), todo=todo, skipped=False))
    return tuple(found), tuple(problems)


def _checked(result: Robustness, run: str, sha256: str) -> Robustness:
    if (result.run_id, result.weights) != (run, sha256):
        raise RecordError("was measured on another model than the run's")
    return result


def robustness_tables(
    study: Study, predictions: Predictions, measured: Sequence[Robustness]
) -> tuple[Table, ...]:
    """Those that there is something for."""
    tables = []
    if any(len(runs) > 1 for _, _, runs in study.experiments()):
        tables.append(flips(study, predictions))
    if measured:
        by_run = {result.run_id: result for result in measured}
        tables += [disturbed(study, by_run), transfer(study, by_run)]
    return tuple(tables)


# ---- from predictions ----------------------------------------------------------------------------


def flips(study: Study, predictions: Predictions) -> Table:
    """Samples that flip: not all runs put them in one class. By true class, with the mean confidence
    (softmax of the predicted class) over all runs, of samples that flip and of those that do not."""
    rows: list[dict[str, Any]] = []
    for workload, variant, runs in study.experiments():
        truth = predictions.truth[workload]
        for view in study.views(workload):
            scopes = {name: setting for name, setting in by_threads(runs).items() if len(setting) > 1}
            if runs.label.nunique() > 1:
                scopes[ACROSS] = runs
            for scope, group in scopes.items():
                labels = predictions.stack(view, group.run_id)
                sure = np.stack([predictions.confidence[view][run] for run in group.run_id])
                head = {"workload": workload, "variant": variant, "view": view.value, "scope": scope}
                rows += [head | row for row in flips_by_class(labels, sure, truth)]
    columns = ["workload", "variant", "view", "scope", "true_class", "n", "samples", "flips", "share"]
    columns += [f"{name}{end}" for name in ("share", "sure_flipped", "sure_stable") for end in BOUNDS]
    columns = list(dict.fromkeys(columns))
    frame = pd.DataFrame(rows, columns=columns)
    shown = (
        *WHERE,
        Column(header="view", source="view"),
        Column(header="threads", source="scope"),
        Column(header="true class", source="true_class"),
        Column(header="n", source="n", kind=Kind.COUNT),
        Column(header="samples", source="samples", kind=Kind.COUNT),
        Column(header="flips", source="flips", kind=Kind.COUNT),
        Column(header="share", source="share", kind=Kind.SPREAD, low="share_low", high="share_high"),
        *(
            Column(
                header=f"confidence, {what}",
                source=key,
                kind=Kind.RATIO,
                low=f"{key}_low",
                high=f"{key}_high",
            )
            for what, key in (("flipped", "sure_flipped"), ("stable", "sure_stable"))
        ),
    )
    return Table(
        name="flips",
        title="Prediction stability: which samples flip, and how sure the models were of them",
        note="A sample flips when not all n runs put it in one class. Confidence is the softmax of the "
        "predicted class, averaged over runs and samples. Intervals of 95 % over the samples: Wilson's of "
        "the "
        "share, Student's t of the confidence.",
        frame=frame,
        columns=shown,
    )


def flips_by_class(labels: np.ndarray, sure: np.ndarray, truth: np.ndarray) -> list[dict[str, Any]]:
    """A row for all samples and one for each true class. `labels` and `sure` are (R, N), `truth` (N,)."""
    flipped = ~(labels == labels[0]).all(axis=0)
    mean_sure = sure.astype(np.float64).mean(axis=0)
    rows = []
    for name in (ALL_CLASSES, *np.unique(truth)):
        mine = np.ones(len(truth), bool) if name is ALL_CLASSES else truth == name
        count = int((flipped & mine).sum())
        share = statistics.share(count, int(mine.sum()))
        row = {"true_class": str(name), "n": len(labels), "samples": int(mine.sum()), "flips": count}
        row |= {"share": share.value, "share_low": share.low, "share_high": share.high}
        for key, which in (("sure_flipped", flipped & mine), ("sure_stable", ~flipped & mine)):
            sure_of = statistics.mean(mean_sure[which])
            row |= {key: sure_of.value, f"{key}_low": sure_of.low, f"{key}_high": sure_of.high}
        rows.append(row)
    return rows


# ---- from the measured models --------------------------------------------------------------------


def disturbed(study: Study, by_run: dict[str, Robustness]) -> Table:
    """Accuracy of the last models under noise and FGSM, across thread counts: SD and max-min of the
    thread counts' means, and the SD of the runs within each."""
    rows: list[dict[str, Any]] = []
    for workload, variant, runs in study.experiments():
        head = {"workload": workload, "variant": variant}
        sets = {
            name: [by_run[run] for run in setting.run_id if run in by_run]
            for name, setting in by_threads(runs).items()
        }
        sets = {name: results for name, results in sets.items() if results}
        if not sets:
            continue
        reason = next((r.not_applicable for results in sets.values() for r in results), "")
        if reason:
            rows.append(head | {"attack": f"not applicable: {reason}", **_counts(sets)})
            continue
        for attack, title in ATTACKS.items():
            for i, point in enumerate(_points(next(iter(sets.values()))[0], attack)):
                rows.append(head | {"attack": title, "strength": point.strength} | _across(sets, attack, i))
    columns = ["workload", "variant", "attack", "strength", "threads", "n", "samples", "mean"]
    columns += ["mean_low", "mean_high", "sd", "sd_low", "sd_high", "range", "sd_within", "within_low"]
    columns += ["within_high", "changed", "changed_low", "changed_high"]
    return Table(
        name="robustness",
        title="Accuracy of the last models under noise and attack, across thread counts",
        note="Strengths are in units of the pixels' range: the SD of the noise, the step of FGSM. All models "
        "see the same noise, and are evaluated on one thread. SD and max-min are those of the thread "
        "counts' means; 'changed' is the share of samples put in another class than undisturbed. Intervals "
        "of "
        "95 % over the runs, of SD across over the thread counts (mean: Student's t, SD: chi-square).",
        frame=pd.DataFrame(rows, columns=columns),
        columns=(
            *WHERE,
            Column(header="disturbance", source="attack"),
            Column(header="strength", source="strength", kind=Kind.RATIO),
            Column(header="threads", source="threads"),
            Column(header="n", source="n", kind=Kind.COUNT),
            Column(
                header="accuracy by thread count",
                source="mean",
                kind=Kind.METRIC,
                low="mean_low",
                high="mean_high",
            ),
            Column(header="SD across", source="sd", kind=Kind.SPREAD, low="sd_low", high="sd_high"),
            Column(header="max-min across", source="range", kind=Kind.SPREAD),
            Column(
                header="SD within", source="sd_within", kind=Kind.SPREAD, low="within_low", high="within_high"
            ),
            Column(
                header="changed", source="changed", kind=Kind.SPREAD, low="changed_low", high="changed_high"
            ),
        ),
    )


def _points(result: Robustness, attack: str) -> tuple[Point, ...]:
    return result.noise if attack == "noise" else result.fgsm


def _counts(sets: dict[str, list[Robustness]]) -> dict[str, Any]:
    lists = ("mean", "mean_low", "mean_high", "sd_within", "within_low", "within_high")
    empty: dict[str, Any] = {name: [] for name in lists}
    return empty | {"threads": list(sets), "n": [len(results) for results in sets.values()]}


def _across(sets: dict[str, list[Robustness]], attack: str, i: int) -> dict[str, Any]:
    accuracies = [
        np.array([_points(r, attack)[i].correct / r.samples for r in results]) for results in sets.values()
    ]
    changed = [_points(r, attack)[i].changed / r.samples for results in sets.values() for r in results]
    means = np.array([statistics.mean(values).value for values in accuracies])
    each = [statistics.mean(values) for values in accuracies]
    within = [statistics.sd(values) for values in accuracies]
    across, moved = statistics.sd(means), statistics.mean(changed)
    return _counts(sets) | {
        "samples": next(iter(sets.values()))[0].samples,
        "mean": means.tolist(),
        "mean_low": [mean.low for mean in each],
        "mean_high": [mean.high for mean in each],
        "sd": across.value,
        "sd_low": across.low,
        "sd_high": across.high,
        "range": float(means.max() - means.min()) if len(means) > 1 else None,
        "sd_within": [sd.value for sd in within],
        "within_low": [sd.low for sd in within],
        "within_high": [sd.high for sd in within],
        "changed": moved.value,
        "changed_low": moved.low,
        "changed_high": moved.high,
    }


def transfer(study: Study, by_run: dict[str, Robustness]) -> Table:
    """How many adversarial examples made on a model of one thread count also turn one of another."""
    rows: list[dict[str, Any]] = []
    for workload, variant, runs in study.experiments():
        threads = dict(zip(runs.run_id, runs.threads, strict=True))
        weights = dict(zip(runs.run_id, runs.last_weights_sha256, strict=True))
        cells: dict[tuple[str, str, float], list[tuple[int, int, bool]]] = {}
        for run in runs.run_id:
            for t in by_run[run].transfer if run in by_run else ():
                if weights.get(t.run_id) == t.weights:
                    key = (threads[run], threads[t.run_id], t.strength)
                    cells.setdefault(key, []).append((t.made, t.transferred, t.weights == weights[run]))
        for (made_on, tried_on, strength), counts in cells.items():
            made = sum(m for m, _, _ in counts)
            shares = [transferred / m for m, transferred, _ in counts if m]
            low, high = statistics.ratio_of_sums([t for _, t, _ in counts], [m for m, _, _ in counts])
            rows.append(
                {
                    "workload": workload,
                    "variant": variant,
                    "strength": strength,
                    "made_on": made_on,
                    "tried_on": tried_on,
                    "n": len(counts),
                    "copies": sum(same for _, _, same in counts),
                    "made": made,
                    "share": sum(t for _, t, _ in counts) / made if made else None,
                    "low": low,
                    "high": high,
                    "least": min(shares) if shares else None,
                    "most": max(shares) if shares else None,
                }
            )
    columns = ["workload", "variant", "strength", "made_on", "tried_on", "n", "copies", "made", "share"]
    columns += ["low", "high"]
    return Table(
        name="transfer",
        title="Do adversarial examples transfer to the models of other thread counts?",
        note="FGSM on samples that both models classify correctly; n pairs of models with equal repetition "
        "(within a thread count: with the next), of which 'copies' are one model twice. The share "
        "transferred is over all examples, with a 95 % interval over the pairs (ratio estimator, Student's "
        "t); "
        "least and most are those of single pairs.",
        frame=pd.DataFrame(rows, columns=[*columns, "least", "most"]),
        columns=(
            *WHERE,
            Column(header="strength", source="strength", kind=Kind.RATIO),
            Column(header="made on", source="made_on"),
            Column(header="tried on", source="tried_on"),
            Column(header="n", source="n", kind=Kind.COUNT),
            Column(header="copies", source="copies", kind=Kind.COUNT),
            Column(header="examples", source="made", kind=Kind.COUNT),
            Column(header="transferred", source="share", kind=Kind.METRIC, low="low", high="high"),
            Column(header="least", source="least", kind=Kind.METRIC),
            Column(header="most", source="most", kind=Kind.METRIC),
        ),
    )
