"""Findings decided on simulated studies: how often is a verdict wrong? One study is fabricated for each size,
and its numbers are drawn again. F2 states facts, hashes that are equal or not: nothing is drawn there but
its bound; of F3 the growth of the loss is."""

from __future__ import annotations

import dataclasses
import functools
import tempfile
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pandas as pd

from analysis.cost.times import times
from analysis.findings import bits, performance
from analysis.findings.bits import another_model
from analysis.findings.decision import Decision
from analysis.findings.performance import free_seeds, model_selection, more_threads
from analysis.inference.pairwise import comparisons
from analysis.load.study import StudyData, load_study
from analysis.results.model import Verdict
from tests.analysis.conftest import Fabricator
from tests.analysis.simulated.sources import Source

THREADS = (1, 2, 4)
EPOCHS = 4
SD = 0.004  # of the metric, whose margin is 0.01


@functools.lru_cache(maxsize=8)
def template(n: int, variant: str, shared: bool = False) -> StudyData:
    """n runs on each of THREADS, with different weights; `shared`: of n seeds, the same on each."""
    with tempfile.TemporaryDirectory() as folder:
        made = Fabricator(Path(folder))
        for cpus in THREADS:
            for repetition in range(1, n + 1):
                seed = repetition if shared else 100 * cpus + repetition if variant == "default" else 1
                made.run(
                    cpus, repetition, variant=variant, seed=seed, weights=f"{cpus} {repetition}",
                    losses=(1.0,) * EPOCHS, accuracies=(0.9,) * EPOCHS,
                )  # fmt: skip
        return load_study(Path(folder))


def _with(study: StudyData, **columns: Any) -> StudyData:
    return dataclasses.replace(study, runs=study.runs.assign(**columns))


def _drawn(rng: np.random.Generator, source: Source, n: int) -> np.ndarray:
    """(THREADS, n), where a training that failed is NaN."""
    found = np.full((len(THREADS), n), np.nan)
    for row, values in zip(found, source.sets(rng, n, len(THREADS)), strict=True):
        row[: len(values)] = values
    return found


def _f1(values: np.ndarray, shared: bool = False) -> Verdict:
    study = _with(template(values.shape[1], "default", shared), last_accuracy=(0.9 + SD * values).ravel())
    tables = {"tests": comparisons(study)}
    return next(iter(free_seeds(study, tables).values())).verdict


def f1_refuted(rng: np.random.Generator, source: Source, n: int) -> bool | None:
    return _f1(_drawn(rng, source, n)) is Verdict.NOT_SUPPORTED


def f1_refuted_of_seeds(rng: np.random.Generator, source: Source, n: int) -> bool | None:
    """The same seeds on every thread count; they differ as much as runs of one seed do."""
    values = _drawn(rng, source, n) + source.draw(rng, (1, n))
    return _f1(values, shared=True) is Verdict.NOT_SUPPORTED


def f1_supported(rng: np.random.Generator, source: Source, n: int) -> bool | None:
    """One thread count lies at the margin."""
    values = _drawn(rng, source, n)
    values[0] += 0.01 / SD
    return _f1(values) is Verdict.SUPPORTED


def f2_bound(rng: np.random.Generator, source: Source, n: int) -> bool | None:
    """Does the bound of the chance of another model exclude the true one, 0.1? Stated of equal runs."""
    return bool((rng.random(n - 1) >= 0.1).all()) and another_model(n - 1) < 0.1


def f3_grew(rng: np.random.Generator, source: Source, n: int) -> bool | None:
    """n seeds; the loss differs as much after the last epoch as after the first."""
    study = template(n, "fixed-seed", shared=True)
    losses = np.exp(0.01 * source.draw(rng, (len(study.epochs),)))
    study = dataclasses.replace(study, epochs=study.epochs.assign(train_loss=losses))
    verdict, _ = bits._grows(*bits._growth(study, "lenet5"))
    return verdict is not Verdict.INCONCLUSIVE


def _f4(rng: np.random.Generator, source: Source, n: int) -> Decision:
    """n seeds; selection chooses epochs at random."""
    study = template(n, "fixed-seed", shared=True)
    runs, epochs = study.runs, study.epochs
    values = 0.9 + SD * source.draw(rng, (len(runs), EPOCHS))
    long = pd.DataFrame(values, index=runs.run_id, columns=range(1, EPOCHS + 1)).stack()
    keys = pd.MultiIndex.from_arrays([epochs.run_id, epochs.epoch])
    chosen = values[np.arange(len(runs)), rng.integers(EPOCHS, size=len(runs))]
    made = dataclasses.replace(study, epochs=epochs.assign(test_accuracy=long.loc[keys].to_numpy()))
    made = _with(made, last_accuracy=values[:, -1], selected_accuracy=chosen)
    with mock.patch.object(performance, "DRAWN", 199):  # a permutation test holds with any number of draws
        (decision,) = model_selection(made, {}).values()
    return decision


def f4_decided(rng: np.random.Generator, source: Source, n: int) -> bool | None:
    return _f4(rng, source, n).verdict is not Verdict.INCONCLUSIVE


def f4_random_epochs(rng: np.random.Generator, source: Source, n: int) -> bool | None:
    """Beside the verdict: do the selected epochs seem to be no random ones?"""
    return bool(_f4(rng, source, n).numbers["random_p_holm"] < 0.05)


def f5_decided(rng: np.random.Generator, source: Source, n: int) -> bool | None:
    """All thread counts take equally long; one run of each is in each block. Failures do not concern
    times."""
    values = dataclasses.replace(source, fails=0.0).sets(rng, n, len(THREADS))
    study = template(n, "default")
    study = _with(study, wall_s=10 * np.exp(0.1 * np.concatenate(values)), block=study.runs.repetition)
    (decision,) = more_threads(study, {"time": times(study)}).values()
    return decision.verdict is not Verdict.INCONCLUSIVE
