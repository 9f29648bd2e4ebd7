"""Reads the results of other programs: run results as CSV or JSON, predictions as .npy, .npz or .csv,
histories of Keras and of training loops, MLflow's file store. Nothing is unpickled."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from analysis.exchange.files import TRUTH_OF, UNNAMED, ImportFormatError, NotFiniteError, classes, table
from analysis.exchange.imported import CHECKSUM, SCHEMA_VERSION, Found, Import, ImportedRun, decode, run_of
from analysis.exchange.mlflow_reader import read_mlflow
from analysis.exchange.paths import natural, path_pattern, stated
from analysis.load.predictions import UNREADABLE
from analysis.load.runs import is_hidden
from guest.records import bounded
from guest.records.bounded import opened_bounded
from guest.records.codec import seal, sha256_of
from guest.records.printable import counted, printable

COLUMNS = ("workload", "variant", "threads", "repetition", "wall_s", "epoch")
PICKLES = (".pt", ".pth", ".pkl", ".pickle", ".joblib", ".h5", ".ckpt")


class NoHistoryError(ImportFormatError):
    """A file of another kind, such as a configuration."""


def read_results(source: Path, name: str, at: str, by: str = "") -> Import:
    """Reads a file or a folder of results, by what it is. `name` is the workload's where the source
    names none; `at` is the time, ISO 8601; `by` a pattern for the paths of a folder (`path_pattern`). Raises
    ImportFormatError."""
    try:
        return _read(source, name, at, by)
    except ImportFormatError:
        raise
    except UNREADABLE as error:
        raise ImportFormatError(f"{source}: cannot be read: {error!s:.300}") from error


def _read(source: Path, name: str, at: str, by: str) -> Import:
    kind, read = _kind(source)
    if not by:
        runs, left_out = read(source, name)
    elif kind == "folder":
        runs, left_out = _folder(source, name, path_pattern(by))
    else:
        raise ImportFormatError(f"{source}: a pattern for paths needs a folder of results")
    if not any(run.metrics or run.history or run.predictions or run.wall_s is not None for run in runs):
        why = f": {left_out[0]}" if left_out else ""
        raise ImportFormatError(f"{source}: there is no result in it{why}; see docs/import-and-export.md")
    return _numbered(source, runs, left_out, name=name, kind=kind, at=at)


def _numbered(
    source: Path, runs: Sequence[ImportedRun], left_out: Sequence[str], *, name: str, kind: str, at: str
) -> Import:
    """The runs with numbers, as they can be read again; what is not finite cannot, and is listed."""
    left_out = [*left_out, *_not_finite(runs)]
    seen: Counter[tuple[str, str, int]] = Counter()
    numbered = []
    for run in runs:
        key = (run.workload, run.variant, run.threads)
        seen[key] += 1
        numbered.append(
            replace(
                run,
                repetition=run.repetition or seen[key],
                metrics={name: value for name, value in run.metrics.items() if math.isfinite(value)},
                history={name: each for name, each in run.history.items() if np.isfinite(each).all()},
                wall_s=run.wall_s if math.isfinite(run.wall_s or 0) else None,
            )
        )
    _check_unique(source, numbered)
    made = Import(
        schema_version=SCHEMA_VERSION,
        name=name,
        kind=kind,
        imported_at=at,
        runs=tuple(numbered),
        left_out=tuple(dict.fromkeys(left_out)),
    )
    return decode(seal(made, checksum=CHECKSUM, indent=None))


def _not_finite(runs: Sequence[ImportedRun]) -> Iterator[str]:
    """In how many runs of each condition a metric, the time or a history is not finite, or not given."""
    conditions: dict[tuple[str, str, int], list[ImportedRun]] = {}
    for run in runs:
        conditions.setdefault((run.workload, run.variant, run.threads), []).append(run)
    several = len({(run.workload, run.variant) for run in runs}) > 1
    for (workload, variant, threads), mine in conditions.items():
        where = f"{workload}, {variant}, threads {threads}" if several else f"threads {threads}"
        broken: Counter[tuple[str, str]] = Counter()
        for run in mine:
            last = run.metrics | {"wall_s": run.wall_s or 0.0}
            broken.update((name, "no finite value") for name, v in last.items() if not math.isfinite(v))
            broken.update(
                (f"history of {name}", "epochs without a finite value")
                for name, values in run.history.items()
                if not np.isfinite(values).all() and math.isfinite(last.get(name, 0.0))
            )
        for (name, what), count in broken.items():
            has = "has" if count == 1 else "have"
            yield f"{name}: {count} of {counted(len(mine), 'run')} at {where} {has} {what}"


def _kind(source: Path) -> tuple[str, Callable[[Path, str], Found]]:
    if source.exists() and not source.is_dir() and not source.is_file():
        raise ImportFormatError(f"{source}: is neither a plain file nor a folder")
    if source.is_dir():
        if any(source.glob("**/meta.yaml")):
            return "mlflow", read_mlflow
        return "folder", _folder
    if source.suffix in (".csv", ".json"):
        return "results", _results
    raise ImportFormatError(f"{source}: a .csv, a .json or a folder is expected{_why_not(source)}")


def _why_not(path: Path) -> str:
    if path.suffix in PICKLES:
        return "; this kind of file can run code when it is read: save the numbers as .npy, .csv or .json"
    return ""


def _check_unique(source: Path, runs: Sequence[ImportedRun]) -> None:
    counts = Counter((r.workload, r.variant, r.threads, r.repetition) for r in runs)
    (first, times), *_ = counts.most_common(1)
    if times > 1:
        raise ImportFormatError(
            f"{source}: workload {first[0]}, variant {first[1]}, threads {first[2]}, repetition {first[3]} "
            f"is there {times} times"
        )


# ---- run results, one line a run or one line an epoch ----------------------------------------------


def _results(source: Path, name: str) -> Found:
    rows = table(source)
    if not isinstance(rows, pd.DataFrame):
        raise ImportFormatError(f"{source}: a list of objects is expected, one a run")
    for column in map(str, rows.columns):
        if column not in COLUMNS and column.lower() in COLUMNS:
            raise ImportFormatError(f"{source}: column {column}: write {column.lower()}")
    named = [column for column in rows.columns if column in COLUMNS]
    if "threads" not in named:
        raise ImportFormatError(
            f"{source}: a column 'threads' is needed; there are {', '.join(rows.columns)}"
        )
    rows["workload"] = rows.workload.replace("", name) if "workload" in named else name
    rows["variant"] = rows.variant.replace("", "imported") if "variant" in named else "imported"
    metrics, left_out = [], []
    for column in (str(name) for name in rows.columns if name not in COLUMNS):
        if UNNAMED.fullmatch(column):  # as pandas writes its index
            left_out.append(f"column {list(rows.columns).index(column) + 1}: has no name")
            continue
        numbers, known = _numbers(rows[column]), rows[column].notna()
        wrong = numbers.isna() & known
        if wrong.sum() * 2 >= known.sum():  # texts, or nothing
            left_out.append(f"column {column}: not numbers")
        elif wrong.any():
            raise _no_number(source, column, rows[column], wrong)
        else:
            rows[column] = numbers
            metrics.append(column)
    if "wall_s" in named:
        rows["wall_s"] = _all_numbers(source, "wall_s", rows.wall_s, rows.wall_s.notna())
    for column in ("threads", "repetition"):
        if column in named:
            _all_numbers(source, column, rows[column], True)
    if "epoch" in named:
        if "repetition" not in named:
            raise ImportFormatError(f"{source}: with a column 'epoch', a column 'repetition' is needed too")
        rows["epoch"] = _all_numbers(source, "epoch", rows.epoch, True)
        keys = ["workload", "variant", "threads", "repetition"]
        twice = rows[rows.duplicated([*keys, "epoch"])]
        if len(twice):
            first = twice.iloc[0]
            where = ", ".join(f"{key} {first[key]}" for key in keys) + f", epoch {first.epoch:g}"
            raise ImportFormatError(f"{source}: {where} is there more than once; number the repetitions")
        groups = [run.sort_values("epoch") for _, run in rows.groupby(keys, sort=False, dropna=False)]
        lasts = [group.iloc[-1].to_dict() for group in groups]
        histories = [{m: tuple(group[m].astype(float)) for m in metrics} for group in groups]
    else:
        lasts, histories = rows.to_dict("records"), [{} for _ in range(len(rows))]
    sha256 = sha256_of(source)
    runs = []
    for last, history in zip(lasts, histories, strict=True):
        seconds = last.get("wall_s", math.nan)
        run = run_of(
            source,
            name,
            last,
            history,
            metrics={m: float(last[m]) for m in metrics},
            wall_s=None if math.isnan(seconds) else seconds,
            source=source.name,
            source_sha256=sha256,
        )
        runs.append(run)
    return runs, left_out


def _numbers(column: pd.Series) -> pd.Series:
    return pd.to_numeric(column, errors="coerce").astype(float)


def _all_numbers(source: Path, column: str, cells: pd.Series, needed: pd.Series | bool) -> pd.Series:
    """The cells as numbers. Raises ImportFormatError for one that is `needed` and is none."""
    numbers = _numbers(cells)
    if (wrong := numbers.isna() & needed).any():
        raise _no_number(source, column, cells, wrong)
    return numbers


def _no_number(source: Path, column: str, cells: pd.Series, wrong: pd.Series) -> ImportFormatError:
    row = int(wrong.to_numpy().argmax())
    cell = printable(str(cells.iloc[row]), limit=40)
    return ImportFormatError(f"{source}: column {column}, row {row + 1}: {cell!r} is no number")


# ---- a folder of predictions and histories -----------------------------------------------------------


def _folder(source: Path, name: str, by: re.Pattern[str] | None = None) -> Found:
    """One run a file (or a history and predictions with one name), described by its path."""
    truths: dict[Path, np.ndarray] = {}  # by the folder below which they count
    used: set[Path] = set()
    parts: dict[str, list[ImportedRun]] = {}
    # Hidden folders have copies: .ipynb_checkpoints.
    found = [path for path in sorted(source.rglob("*"), key=natural) if not is_hidden(path, source)]
    files = [path for path in found if path.is_file() and not path.is_symlink()]
    links = [path.relative_to(source).as_posix() for path in found if path.is_symlink()]
    left_out = [f"{link}: a link, which is not followed; put a copy there" for link in links]
    for path in files:
        if path.stem in TRUTH_OF and path.suffix in (".npy", ".csv"):
            truths[path.parent] = classes(path)[0]
    for path in files:
        relative = path.relative_to(source).as_posix()
        where = stated(relative, by)
        if path.suffix not in (".npy", ".npz", ".csv", ".json"):
            left_out.append(f"{relative}: not read{_why_not(path)}")
        elif where is None:
            if path.stem not in TRUTH_OF:
                why = (
                    "no thread count in its path (threads-4, cpus-4)"
                    if by is None
                    else "does not match the pattern"
                )
                left_out.append(f"{relative}: {why}")
        else:
            above = next((folder for folder in path.parents if folder in truths), source)
            used.add(above)
            try:
                run = _file(path, relative, name, where, truths.get(above))
            except NoHistoryError:
                left_out.append(f"{relative}: not a history")
                continue
            except NotFiniteError as error:
                left_out.append(f"{relative}: {error}")
                continue
            parts.setdefault(relative.removesuffix(path.suffix), []).append(run)
    unused = [folder.relative_to(source).as_posix() for folder in truths if folder not in used]
    left_out += [f"{folder}: true classes, and no predictions below their folder" for folder in unused]
    return [_merged(group) for group in parts.values()], left_out


def _file(
    path: Path, relative: str, name: str, where: Mapping[str, str], truth: np.ndarray | None
) -> ImportedRun:
    read: dict[str, Any] = {"source": relative, "source_sha256": sha256_of(path)}
    if _is_history(path):
        return run_of(path, name, where, read_history(path), **read)
    predicted, own = classes(path)
    known = truth if own is None else own
    if known is not None and known.shape != predicted.shape:
        raise ImportFormatError(f"{path}: {len(predicted)} predictions, but {len(known)} true classes")
    if known is not None:
        read["metrics"] = {"test_accuracy": float((predicted == known).mean())}
    return run_of(path, name, where, {}, predictions=tuple(int(c) for c in predicted), **read)


def _merged(group: list[ImportedRun]) -> ImportedRun:
    """The parts of one run: its history and its predictions."""
    first, *others = group
    for other in others:
        if bool(first.history and other.history) or bool(first.predictions and other.predictions):
            raise ImportFormatError(
                f"{first.source} and {other.source} have one name, so they are of one run: keep one of them"
            )
        first = replace(
            first,
            metrics=first.metrics | other.metrics,
            history=first.history | other.history,
            predictions=first.predictions if other.predictions is None else other.predictions,
            source=f"{first.source} + {other.source}",
            source_sha256=f"{first.source_sha256} + {other.source_sha256}",
        )
    return first


def _is_history(path: Path) -> bool:
    if path.suffix == ".csv":
        with opened_bounded(path, bounded.IMPORTED) as file:
            columns = [c.strip().strip('"') for c in file.readline(65536).decode("utf-8-sig").split(",")]
        return "epoch" in columns or "loss" in columns
    return path.suffix == ".json"


def read_history(path: Path) -> dict[str, tuple[float, ...]]:
    """A history: what Keras has in `history.history` saved as JSON, or its CSVLogger's file; or the list of
    one object an epoch that training loops in torch write. Metric -> one value an epoch."""
    try:
        data = table(path)
        columns = data.to_dict("list") if isinstance(data, pd.DataFrame) else data
        columns = columns.get("history", columns)
        named = {
            str(k): tuple(float(v) for v in each)
            for k, each in columns.items()
            if k not in COLUMNS and not UNNAMED.fullmatch(str(k))
        }
    except (ValueError, TypeError, AttributeError) as error:
        raise NoHistoryError(f"{path}: not a history: {error}") from error
    if not named or len({len(each) for each in named.values()}) != 1 or not next(iter(named.values())):
        raise NoHistoryError(f"{path}: a history has the same number of epochs for every metric")
    return named
