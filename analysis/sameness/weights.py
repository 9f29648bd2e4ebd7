"""How far the weights of runs lie apart. Weights files are large: they are read when a table asks for
them, each distinct model once, and checked against the SHA-256 in the run's record."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from safetensors import SafetensorError
from safetensors.numpy import load

from analysis.load.runs import checked_bytes
from analysis.load.study import StudyData, View, by_seeds, by_threads
from analysis.results.model import ACROSS
from analysis.stats.numerics import l2_of_units
from analysis.stats.observations import of_pairs, over_seeds
from guest.records.codec import RecordError
from guest.records.run import SELECTED, WEIGHTS

FILES = {View.LAST: WEIGHTS, View.SELECTED: SELECTED}
ALL_PAIRS_UP_TO = 200  # runs in a row of the table; above it pairs are drawn
DRAWN = 500
MEASURES = {"l2": math.inf, "l2_unit": 2.0, "differing": 1.0}  # the most that each can be
NUMBERS_COMPARED = 30_000_000  # weights, for a row of the table: fewer pairs of large networks
NUMBERS_HELD = 100_000_000  # weights held in memory
SEED = 1


def read_weights(path: Path, sha256: str) -> np.ndarray:
    """(D,) all floating-point weights of a safetensors file, tensors in the order of their names, in
    the type that holds them all. Integers (counters) are no weights. Raises RecordError when the file is
    not the one the record names, is not safetensors, or holds no weights or ones that are not finite."""
    try:
        data = checked_bytes(path.parent, path.name, sha256)
        tensors = load(data)
    except RecordError:
        raise
    except (OSError, SafetensorError, ValueError, KeyError) as error:
        raise RecordError(f"{path.name}: {error}") from error
    floats = [tensors[name].ravel() for name in sorted(tensors) if tensors[name].dtype.kind == "f"]
    if not floats:
        raise RecordError(f"{path.name} holds no weights")
    vector = np.concatenate(floats)
    if not np.isfinite(vector).all():
        raise RecordError(f"{path.name} holds weights that are not finite")
    return vector


def weight_rows(study: StudyData) -> Iterator[dict[str, Any]]:
    """L2 distance of the weights, raw and of unit vectors, the mean over pairs of runs within each set
    and across thread counts (Zhuang et al., MLSys 2022, section 3.2), with the share of weights that
    differ."""
    for head, view, runs in study.by_view():
        models = _Models(study.directory, view)
        sets = by_threads(runs)
        scopes = [(name, setting, False) for name, setting in sets.items()]
        scopes += [(ACROSS, runs, True)] if len(sets) > 1 else []
        for scope, mine, across in scopes:
            if parts := [part for part in by_seeds(mine) if not across or part.threads.nunique() > 1]:
                yield head | {"scope": scope} | _over_seeds(models, parts, across)


def _over_seeds(models: _Models, parts: list[pd.DataFrame], across: bool) -> dict[str, Any]:
    each = [_distances(models, part, across, NUMBERS_COMPARED // len(parts)) for part in parts]
    measures = {name: (None, most) for name, most in MEASURES.items()}
    fixed = bool(parts[0].seeds_fixed.all())
    row = over_seeds(each, measures, ("pairs", "of_pairs"), fixed=fixed)
    drawn = f"{row['pairs']} of {row['of_pairs']}" if row["pairs"] < row["of_pairs"] else str(row["pairs"])
    alone = "" if row["pairs"] else "one run" if len(parts) == 1 else "one run of each seed"
    remark = next((part["remark"] for part in each if part["remark"]), alone)
    return row | {"pairs_text": drawn if row["pairs"] else "", "remark": remark}


class _Models:
    """The models of a view, by run and hash of the file. What is read is held while it is small."""

    def __init__(self, directory: Path, view: View) -> None:
        self.directory, self.view = directory, view
        self.held: dict[tuple[str, str], tuple[np.ndarray, float]] = {}

    def vector(self, run: str, sha256: str) -> tuple[np.ndarray, float]:
        """The weights (D,) and their length."""
        if (run, sha256) not in self.held:
            vector = read_weights(self.directory / "runs" / run / FILES[self.view], sha256)
            while len(self.held) > 1 and (len(self.held) + 1) * vector.size > NUMBERS_HELD:
                del self.held[next(iter(self.held))]
            self.held[run, sha256] = vector, _length(vector)
        return self.held[run, sha256]


def distances(a: np.ndarray, b: np.ndarray, length_a: float, length_b: float) -> tuple[float, float, float]:
    """`numerics.l2`, `l2_of_units` and `vc` in one pass, for finite vectors (D,) whose lengths are known:
    |a/|a| - b/|b||^2 = (|a-b|^2 - (|a|-|b|)^2) / (|a| |b|), which keeps its digits while the lengths are of
    one magnitude; else the definition is used. Raises RecordError for different sizes."""
    if a.shape != b.shape:
        raise RecordError(f"models of {a.size} and {b.size} weights are not compared")
    apart = np.subtract(a, b, dtype=np.float64)
    square = float(np.einsum("i,i->", apart, apart))
    if 0.1 * length_a < length_b < 10 * length_a:
        unit = (max(0.0, square - (length_a - length_b) ** 2) / (length_a * length_b)) ** 0.5
    else:
        unit = l2_of_units(a, b)
    return square**0.5, unit, np.count_nonzero(apart) / a.size


def _length(vector: np.ndarray) -> float:
    wide = vector.astype(np.float64)  # not through BLAS: its threads cost more than they save here
    return math.sqrt(float(np.einsum("i,i->", wide, wide)))


def _distances(models: _Models, runs: pd.DataFrame, across: bool, numbers: int) -> dict[str, Any]:
    """Of the runs of one seed, or of free seeds, by comparing about so many numbers at most."""
    row: dict[str, Any] = {"pairs": 0, "of_pairs": 0, "pairs_text": "", "weights": None}
    row |= {f"{name}{end}": None for name in MEASURES for end in ("", "_low", "_high")} | {"remark": ""}
    if len(runs) < 2:
        return row
    hashes = runs[models.view.sha256("weights")].to_numpy()
    files = runs[f"{models.view}_weights_file_sha256"].to_numpy()
    first: dict[str, tuple[str, str]] = {}
    for run, model, file in zip(runs.run_id, hashes, files, strict=True):
        first.setdefault(model, (run, file))
    threads = runs.threads.to_numpy()
    try:
        size = models.vector(*first[hashes[0]])[0].size
        pairs, total = _pairs(threads, len(first), max(10, numbers // size), across)
        known: dict[tuple[str, str], tuple[float, float, float]] = {}
        for i, j in pairs:
            pair = hashes[i], hashes[j]
            if pair not in known:
                same = pair[0] == pair[1]
                known[pair] = (0.0,) * 3 if same else _between(models, first[pair[0]], first[pair[1]])
        found = [known[hashes[i], hashes[j]] for i, j in pairs]
    except RecordError as error:
        return row | {"remark": f"not measured: {error}"}
    row |= {"pairs": len(pairs), "of_pairs": total, "weights": size}
    weighted = np.array(found).T * (_weights(pairs, threads) if across else 1.0)
    for name, values in zip(MEASURES, weighted, strict=True):
        counts = [(int(mine.sum()), len(set(hashes[mine]))) for mine in _sets(threads, across)]
        parts = _by_run(values, pairs, threads, across)
        row |= of_pairs(float(values.mean()), parts, counts, most=MEASURES[name]).cells(name)
    return row


def _weights(pairs: list[tuple[int, int]], threads: np.ndarray) -> np.ndarray:
    """(P,) of pairs across thread counts, 1 in the mean: those drawn of two thread counts stand for all of
    these, of which unequal sets have other shares."""
    both = [frozenset((threads[i], threads[j])) for i, j in pairs]
    runs, drawn = Counter(threads), Counter(both)
    every = {names: math.prod(runs[name] for name in names) for names in drawn}
    total = sum(every.values())
    return np.array([every[names] * len(pairs) / (drawn[names] * total) for names in both])


def _by_run(
    values: np.ndarray, pairs: list[tuple[int, int]], threads: np.ndarray, across: bool
) -> list[np.ndarray]:
    """What the pairs of each drawn run add to the mean, for each set of runs: as if all runs of a set met
    equally many of each other set, lest these numbers count as variance."""
    sets = np.array(_sets(threads, across))
    met = np.array(pairs)[:, ::-1].ravel()
    cells = np.array(pairs).ravel() * len(sets) + sets.argmax(axis=0)[met]
    shape = len(threads), len(sets)
    times = np.bincount(cells, minlength=math.prod(shape)).reshape(shape)
    sums = np.bincount(cells, np.repeat(values, 2), math.prod(shape)).reshape(shape) / len(values)
    drawn = [mine & times.any(axis=1) for mine in sets]
    return [(sums[d] * times[d].mean(axis=0) / np.maximum(times[d], 1)).sum(axis=1) for d in drawn]


def _sets(threads: np.ndarray, across: bool) -> list[np.ndarray]:
    """Which runs are of each set, (R,) bool: one a thread count, or all together."""
    return [threads == name for name in dict.fromkeys(threads)] if across else [np.ones(len(threads), bool)]


def _between(models: _Models, a: tuple[str, str], b: tuple[str, str]) -> tuple[float, float, float]:
    (x, length_x), (y, length_y) = models.vector(*a), models.vector(*b)
    return distances(x, y, length_x, length_y)


def _pairs(
    threads: np.ndarray, models: int, affordable: int, across: bool
) -> tuple[list[tuple[int, int]], int]:
    """The pairs to measure, and how many there are: all of them, or where the runs are many or the distinct
    models too large to compare each with each, a sample in which the runs of a set are about equally often:
    whole turns, and at least one pair of every two thread counts."""
    groups = [np.flatnonzero(threads == name) for name in dict.fromkeys(threads)]
    total = math.comb(len(threads), 2)
    if across:
        total -= sum(math.comb(len(group), 2) for group in groups)
    if len(threads) <= ALL_PAIRS_UP_TO and min(total, math.comb(models, 2)) <= affordable:
        every = combinations(range(len(threads)), 2)
        return [(i, j) for i, j in every if not across or threads[i] != threads[j]], total
    most = min(total, DRAWN, affordable)
    rng = np.random.default_rng(SEED)
    if across:
        each = max(1, most // math.comb(len(groups), 2))
        turns = _between_sets([rng.permutation(group)[:each] for group in groups])
    else:
        turns = _around(rng.permutation(len(threads))[:most])
    found = next(turns)
    for turn in turns:
        if len(found) + len(turn) > most:
            break
        found += turn
    return sorted((int(min(pair)), int(max(pair))) for pair in found), total


def _around(runs: np.ndarray) -> Iterator[list[tuple[int, int]]]:
    """Every pair once, in turns. The runs in a circle, each with its neighbour, then with the next but one,
    and so on: in a turn all are equally often in a pair."""
    n = len(runs)
    for step in range(1, n // 2 + 1):
        yield [(runs[i], runs[(i + step) % n]) for i in range(n if 2 * step < n else n // 2)]


def _between_sets(groups: list[np.ndarray]) -> Iterator[list[tuple[int, int]]]:
    """Every pair of runs of two groups once, in turns: in a turn each run meets one of every other group,
    of a smaller one some runs more than once."""
    for turn in range(max(map(len, groups))):
        found: list[tuple[int, int]] = []
        for a, b in combinations(groups, 2):
            few, many = sorted((a, b), key=len)
            if turn < len(few):
                found += [(few[(i + turn) % len(few)], run) for i, run in enumerate(many)]
        yield found
