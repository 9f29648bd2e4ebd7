"""Robustness: on which samples models disagree and how sure they were of them, from the stored predictions;
and how the stored models bear noise and attack, from what `vbstudy sweep --robustness` measured."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from analysis.load.predictions import Predictions
from analysis.load.runs import Problem, read_stored
from analysis.load.study import StudyData, View, by_seeds, by_threads
from analysis.results.model import (
    ACROSS,
    WHERE,
    Kind,
    Table,
    col,
    cols,
    count,
    counts,
    interval,
    several_seeds,
)
from analysis.stats import statistics
from analysis.stats.observations import SEEDS_NOTE, Observations, by_seed, distinct, over_seeds
from guest.records.codec import RecordError
from guest.records.robustness import Point, Robustness, Transfer, decode

ATTACKS = {"noise": "Gaussian noise", "fgsm": "FGSM"}
ALL_CLASSES = "all"


def read_robustness(study: StudyData) -> tuple[tuple[Robustness, ...], tuple[Problem, ...]]:
    """The results that belong to the study's models, and a reservation for each that does not."""
    weights = {
        study.directory / f"robustness/{run}.json": (run, sha256)
        for run, sha256 in zip(study.runs.run_id, study.runs.last_weights_sha256, strict=True)
    }

    def checked(content: bytes, path: Path) -> Robustness:
        result = decode(content)
        if (result.run_id, result.weights) != weights[path]:
            raise RecordError("was measured on another model than the run's")
        return result

    todo = "run `vbstudy sweep --robustness`: it measures the model again"
    return read_stored(study.directory, filter(Path.is_file, weights), checked, todo)


def robustness_tables(
    study: StudyData, predictions: Predictions, measured: Sequence[Robustness]
) -> tuple[Table, ...]:
    """Those that there is something for."""
    tables = []
    if any(len(runs) > 1 for _, _, runs in study.experiments()):
        tables.append(flips(study, predictions))
    if measured:
        by_run = {result.run_id: result for result in measured}
        tables += [perturbed(study, by_run), transfer(study, by_run)]
    return tuple(tables)


# ---- from predictions ----------------------------------------------------------------------------


def flips(study: StudyData, predictions: Predictions) -> Table:
    """Samples that flip: not all runs put them in one class. By true class, with the mean confidence
    (softmax of the predicted class) over all runs, of samples that flip and of those that do not; of several
    fixed seeds seed by seed."""
    names = ("share", "sure_flipped", "sure_stable")
    measures: dict[str, tuple[str | None, float]] = dict.fromkeys(names, (None, 1.0))
    rows: list[dict[str, Any]] = []
    for head, view, runs in study.by_view():
        truth = predictions.truth[head["workload"]]
        parts = by_seeds(runs)
        scopes = {name: by_seeds(setting) for name, setting in by_threads(runs).items()}
        scopes[ACROSS] = [part for part in parts if part.label.nunique() > 1]
        for scope, groups in scopes.items():
            of_seeds = []
            for group in groups:
                if len(group) > 1:
                    labels = predictions.stack(view, group.run_id)
                    sure = np.stack([predictions.confidence[view][run] for run in group.run_id])
                    of_seeds.append(flips_by_class(labels, sure, truth))
            for classes in zip(*of_seeds, strict=True):
                fixed = bool(runs.seeds_fixed.all())
                found = over_seeds(classes, measures, ("n", "samples", "flips"), fixed=fixed)
                rows.append(head | {"scope": scope} | found)
    return Table.of(
        rows,
        *WHERE,
        col("view"),
        col("scope", "threads"),
        col("true_class"),
        count("n"),
        *several_seeds(rows),
        *counts("samples", "flips"),
        interval("share"),
        interval("sure_flipped", "confidence, flipped", Kind.RATIO),
        interval("sure_stable", "confidence, stable", Kind.RATIO),
        name="flips",
        title="Prediction stability: which samples flip, and how sure the models were of them",
        note="A sample flips when not all n runs put it in one class. Confidence is the softmax of the "
        "predicted class, averaged over runs and samples. Intervals of 95 % over the samples: Wilson's of "
        f"the share, Hall's transformed t of the confidence, from {statistics.MEAN_FROM} samples on. "
        f"{SEEDS_NOTE} Samples and flips are then those of all seeds.",
        hidden=["seeds"],
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
        row |= share.cells("share")
        for key, which in (("sure_flipped", flipped & mine), ("sure_stable", ~flipped & mine)):
            sure_of = statistics.mean(mean_sure[which], within=statistics.PROPORTION)
            row |= sure_of.cells(key)
        rows.append(row)
    return rows


# ---- from the measured models --------------------------------------------------------------------


def perturbed(study: StudyData, by_run: dict[str, Robustness]) -> Table:
    """Accuracy of the last models under noise and FGSM, across thread counts: SD and max-min of the
    thread counts' means, and the SD of the runs within each."""
    rows: list[dict[str, Any]] = []
    for workload, variant, runs in study.experiments():
        head = {"workload": workload, "variant": variant}
        sets = {
            name: setting[setting.run_id.isin(list(by_run))] for name, setting in by_threads(runs).items()
        }
        sets = {name: measured for name, measured in sets.items() if len(measured)}
        if not sets:
            continue
        models = distinct(pd.concat(sets.values()), View.LAST)
        results = [by_run[run] for run in models.run_id]
        reason = next((result.not_applicable for result in results), "")
        if reason:
            rows.append(head | {"attack": f"not applicable: {reason}", **_counts(sets)})
            continue
        for attack, title in ATTACKS.items():
            for i, point in enumerate(_points(results[0], attack)):
                row = head | {"attack": title, "strength": point.strength}
                rows.append(row | _across(sets, by_run, attack, i) | _changed(models, results, attack, i))
    return Table.of(
        rows,
        *WHERE,
        col("attack", "perturbation"),
        col("strength", kind=Kind.RATIO),
        col("threads"),
        count("n"),
        interval("mean", "accuracy by thread count", Kind.METRIC),
        interval("sd", "SD across"),
        col("range", "max-min across", Kind.SPREAD),
        interval("sd_within", "SD within", bounds="within"),
        interval("changed"),
        name="robustness",
        title="Accuracy of the last models under noise and attack, across thread counts",
        note="Strengths are in units of the pixels' range: the SD of the noise, the step of FGSM. All models "
        "see the same noise, and are evaluated on one thread. SD and max-min are those of the thread "
        "counts' means; 'changed' is the share of samples put in another class than unperturbed, over the "
        "distinct models of all thread counts. Over the distinct runs, for these test samples; where several "
        "seeds gave several models each, over the means of the seeds. Models of one seed on several thread "
        "counts carry no interval of 'changed'. " + statistics.INTERVALS_NOTE,
        hidden=["samples"],
    )


def _points(result: Robustness, attack: str) -> tuple[Point, ...]:
    return result.noise if attack == "noise" else result.fgsm


def _counts(sets: dict[str, pd.DataFrame]) -> dict[str, Any]:
    row: dict[str, Any] = {"threads": list(sets), "n": [len(runs) for runs in sets.values()]}
    row |= {"samples": None, "mean": [], "mean_low": [], "mean_high": []}
    row |= dict.fromkeys(("sd", "sd_low", "sd_high", "range"))
    return row | {"sd_within": [], "within_low": [], "within_high": []}


def _across(
    sets: dict[str, pd.DataFrame], by_run: dict[str, Robustness], attack: str, i: int
) -> dict[str, Any]:
    found = []
    for runs in sets.values():
        models = distinct(runs, View.LAST)
        results, seeds = [by_run[run] for run in models.run_id], models.seeds_used
        values = by_seed(np.array([_points(r, attack)[i].correct / r.samples for r in results]), seeds)
        found.append(Observations(values=values, runs=len(runs), distinct=len(results), failed=0))
    each = [one.mean(within=statistics.PROPORTION) for one in found]
    within = [one.sd() for one in found]
    means = np.array([mean.value for mean in each])
    across = statistics.sd(means)
    return _counts(sets) | {
        "samples": results[0].samples,
        "mean": means.tolist(),
        "mean_low": [mean.low for mean in each],
        "mean_high": [mean.high for mean in each],
        **across.cells("sd"),
        "range": float(means.max() - means.min()) if len(means) > 1 else None,
        "sd_within": [sd.value for sd in within],
        "within_low": [sd.low for sd in within],
        "within_high": [sd.high for sd in within],
    }


def _changed(models: pd.DataFrame, results: list[Robustness], attack: str, i: int) -> dict[str, Any]:
    """Of distinct models and their results."""
    shares = np.array([_points(result, attack)[i].changed / result.samples for result in results])
    found = statistics.mean(by_seed(shares, models.seeds_used), within=statistics.PROPORTION)
    if models.seeds_used.nunique() == 1 < models.threads.nunique():
        found = dataclasses.replace(found, low=None, high=None)
    return found.cells("changed")


def transfer(study: StudyData, by_run: dict[str, Robustness]) -> Table:
    """How many adversarial examples made on a model of one thread count also turn one of another."""
    rows: list[dict[str, Any]] = []
    for workload, variant, runs in study.experiments():
        threads = dict(zip(runs.run_id, runs.threads, strict=True))
        weights = dict(zip(runs.run_id, runs.last_weights_sha256, strict=True))
        seeds = dict(zip(runs.run_id, runs.seeds_used, strict=True))
        cells: dict[tuple[str, str, float], dict[tuple[str, str], tuple[Transfer, str, str]]] = {}
        for run in runs.run_id:
            for t in by_run[run].transfer if run in by_run else ():
                if weights.get(t.run_id) == t.weights:
                    key = (threads[run], threads[t.run_id], t.strength)
                    pair = (weights[run], t.weights)
                    cells.setdefault(key, {}).setdefault(pair, (t, seeds[run], seeds[t.run_id]))
        several = len(set(seeds.values())) > 1
        for (made_on, tried_on, strength), pairs in cells.items():
            each = [t for t, _, _ in pairs.values()]
            made = sum(t.made for t in each)
            shares = [t.transferred / t.made for t in each if t.made]
            ends = [(a, b) for _, a, b in pairs.values()] if several else list(pairs)
            groups = pd.DataFrame([(t.transferred, t.made) for t in each]).groupby(_linked(ends)).sum()
            low, high = statistics.ratio_of_sums(groups[0].tolist(), groups[1].tolist())
            rows.append(
                {
                    "workload": workload,
                    "variant": variant,
                    "strength": strength,
                    "made_on": made_on,
                    "tried_on": tried_on,
                    "n": len(pairs),
                    "copies": sum(a == b for a, b in pairs),
                    "made": made,
                    "share": sum(t.transferred for t in each) / made if made else None,
                    "low": low,
                    "high": high,
                    "least": min(shares) if shares else None,
                    "most": max(shares) if shares else None,
                }
            )
    return Table.of(
        rows,
        *WHERE,
        col("strength", kind=Kind.RATIO),
        *cols("made_on", "tried_on"),
        *counts("n", "copies"),
        count("made", "examples"),
        interval("share", "transferred", Kind.METRIC, bounds=""),
        *cols("least", "most", kind=Kind.METRIC),
        name="transfer",
        title="Do adversarial examples transfer to the models of other thread counts?",
        note="FGSM on samples that both models classify correctly; n different pairs of models with equal "
        "repetition (within a thread count: with the next), of which 'copies' are one model twice. The share "
        "transferred is over all examples, with a 95 % interval (ratio estimator, Student's t) over the "
        "pairs; those of one seed, and those that share a model or a seed, count as one. Least and most are "
        "those of single pairs.",
    )


def _linked(pairs: Sequence[tuple[str, str]]) -> np.ndarray:
    """(n,) a number for each pair, equal for those that are linked by what they have in common."""
    ends = pd.factorize(np.array(pairs, dtype=object).ravel())[0].reshape(-1, 2)
    size = int(ends.max()) + 1
    graph = coo_array((np.ones(len(ends)), (ends[:, 0], ends[:, 1])), shape=(size, size))
    return np.asarray(connected_components(graph, directed=False)[1][ends[:, 0]])
