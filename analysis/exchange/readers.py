"""Reads the results of other programs: run results as CSV or JSON, predictions as .npy, .npz or .csv,
histories of Keras and of training loops, MLflow's file store. Nothing is unpickled."""

from __future__ import annotations

import io
import math
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from analysis.exchange.imported import CHECKSUM, SCHEMA_VERSION, Import, ImportedRun, decode
from analysis.load.predictions import UNREADABLE, claimed_bytes, refuse_larger_inside
from guest.records import bounded, plain_json
from guest.records.bounded import opened_bounded, read_bounded
from guest.records.codec import seal, sha256_of
from guest.records.printable import printable

COLUMNS = ("workload", "variant", "threads", "repetition", "wall_s", "epoch")
THREADS = re.compile(r"(?:threads?|cpus?|intra_?op)[-_= ]?(\d+)", re.IGNORECASE)
_NEXT = r"(?:workload|variant)[-_=]|(?:threads?|cpus?|intra_?op|rep|run|seed)[-_=]?\d"
NAMED = {
    key: re.compile(rf"(?:^|[/_.,-]){key}[-_=](.+?)(?=[_.,-](?:{_NEXT})|/|$)")
    for key in ("workload", "variant")
}
"""`workload-lenet5` in a path: the value ends with the folder, the file, or where the next name begins."""
FIELDS = ("workload", "variant", "threads", "repetition")
CLASSES_OF = ("predictions", "y_pred", "predicted", "prediction", "labels", "logits", "last")
TRUTH_OF = ("y_true", "truth", "labels_true")
PICKLES = (".pt", ".pth", ".pkl", ".pickle", ".joblib", ".h5", ".ckpt")
Found = tuple[list[ImportedRun], list[str]]


class ImportFormatError(ValueError):
    """What was given cannot be read; the text names the file and what is allowed."""


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
    if not runs:
        raise ImportFormatError(f"{source}: there is no result in it; see docs/import-and-export.md")
    return _numbered(source, runs, left_out, name=name, kind=kind, at=at)


def _numbered(
    source: Path, runs: Sequence[ImportedRun], left_out: Sequence[str], *, name: str, kind: str, at: str
) -> Import:
    """The runs with numbers, as they can be read again."""
    counted: Counter[tuple[str, str, int]] = Counter()
    numbered = []
    for run in runs:
        key = (run.workload, run.variant, run.threads)
        counted[key] += 1
        numbered.append(replace(run, repetition=run.repetition or counted[key]))
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


def _kind(source: Path) -> tuple[str, Callable[[Path, str], Found]]:
    if source.exists() and not source.is_dir() and not source.is_file():
        raise ImportFormatError(f"{source}: is neither a plain file nor a folder")
    if source.is_dir():
        if any(source.glob("**/meta.yaml")):
            return "mlflow", _mlflow
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
    rows = _table(source)
    if not isinstance(rows, pd.DataFrame):
        raise ImportFormatError(f"{source}: a list of objects is expected, one a run")
    named = [column for column in rows.columns if column in COLUMNS]
    if "threads" not in named:
        raise ImportFormatError(
            f"{source}: a column 'threads' is needed; there are {', '.join(rows.columns)}"
        )
    rows["workload"] = rows.workload.astype(str) if "workload" in named else name
    rows["variant"] = rows.variant.astype(str) if "variant" in named else "imported"
    values = rows.drop(columns=[c for c in COLUMNS if c in rows])
    metrics = [str(c) for c in values.columns if pd.api.types.is_numeric_dtype(values[c])]
    others = [c for c in values.columns if c not in metrics]
    left_out = [f"column {c}: not numbers" for c in others]
    for column in others:
        wrong = pd.to_numeric(values[column], errors="coerce").isna() & values[column].notna()
        if wrong.mean() < 0.5:  # a column of numbers, but for some cells
            row = int(wrong.to_numpy().argmax())
            cell = printable(str(values[column].iloc[row]), limit=40)
            raise ImportFormatError(f"{source}: column {column}, row {row + 1}: {cell!r} is no number")
    if "epoch" in named:
        if "repetition" not in named:
            raise ImportFormatError(f"{source}: with a column 'epoch', a column 'repetition' is needed too")
        keys = ["workload", "variant", "threads", "repetition"]
        groups = [run.sort_values("epoch") for _, run in rows.groupby(keys, sort=False, dropna=False)]
    else:
        groups = [rows.iloc[[i]] for i in range(len(rows))]
    sha256 = sha256_of(source)
    runs = []
    for group in groups:
        last = group.iloc[-1]
        wall_s = float(last.wall_s) if "wall_s" in named and math.isfinite(last.wall_s) else None
        values_of = {m: tuple(group[m].astype(float)) for m in metrics}
        run = _run(source, name, last, values_of, source=source.name, source_sha256=sha256, wall_s=wall_s)
        runs.append(run if "epoch" in named else replace(run, history={}))
    return runs, left_out


def _run(
    path: Path, name: str, where: Any, history: Mapping[str, tuple[float, ...]], **known: Any
) -> ImportedRun:
    """A run by what its source states: `where` has the fields, `history` a value an epoch. Metrics are the
    last values, and histories are kept, where they are finite."""
    return ImportedRun(
        workload=where.get("workload", name),
        variant=where.get("variant", "imported"),
        threads=_count(path, where["threads"], "threads"),
        repetition=_count(path, where["repetition"], "repetition") if "repetition" in where else 0,
        **{
            "metrics": {m: values[-1] for m, values in history.items() if math.isfinite(values[-1])},
            "history": {m: values for m, values in history.items() if np.isfinite(values).all()},
            **known,
        },
    )


def _table(source: Path) -> Any:
    """A CSV, or a list of objects in JSON, as a table; other JSON as it is."""
    content = read_bounded(source, bounded.IMPORTED)
    if source.suffix == ".csv":
        _bound_cells(source, content.count(b"\n") + 1, content.partition(b"\n")[0].count(b",") + 1)
        return pd.read_csv(io.BytesIO(content))
    data = plain_json.parse(content, bounded.IMPORTED)
    if not isinstance(data, list) or not data or not all(isinstance(row, dict) for row in data):
        return data
    _bound_cells(source, len(data), len({key for row in data for key in row}))
    return pd.DataFrame(data)


def _bound_cells(source: Path, rows: int, columns: int) -> None:
    """A table has all columns in all rows, also where its text has one each."""
    if rows * columns > bounded.IMPORTED.items:
        raise ImportFormatError(
            f"{source}: {rows} rows of {columns} columns; {bounded.IMPORTED.items} cells are read at most"
        )


def _count(source: Path, value: Any, what: str) -> int:
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not (1 <= number < 2**53 and number == int(number)):
        raise ImportFormatError(f"{source}: {what} = {value!r}; a whole number from 1 is expected")
    return int(number)


# ---- a folder of predictions and histories -----------------------------------------------------------


def path_pattern(text: str) -> re.Pattern[str]:
    """`{workload}/{variant}/t{threads}/{repetition}.npy` as a regular expression over relative paths; `*` is
    anything within a name. Raises ImportFormatError."""
    pieces = []
    for piece in re.split(r"(\{[^{}]*\}|\*)", text):
        if piece == "*":
            pieces.append("[^/]*")
        elif not piece.startswith("{"):
            pieces.append(re.escape(piece))
        elif piece[1:-1] not in FIELDS:
            allowed = ", ".join(f"{{{field}}}" for field in FIELDS)
            raise ImportFormatError(f"pattern {text}: {piece} is none of {allowed}")
        else:
            pieces.append(f"(?P<{piece[1:-1]}>{r'[0-9]+' if piece[1:-1] in FIELDS[2:] else '[^/]+?'})")
    if "{threads}" not in text or any(text.count(f"{{{field}}}") > 1 for field in FIELDS):
        raise ImportFormatError(f"pattern {text}: {{threads}} is needed, and each field at most once")
    return re.compile("".join(pieces))


def _where(relative: str, by: re.Pattern[str] | None) -> dict[str, str] | None:
    """What the path of a file states of its run, by field; None where it states no thread count."""
    if by is not None:
        found = by.fullmatch(relative)
        return None if found is None else found.groupdict()
    stem = relative.removesuffix(Path(relative).suffix)
    threads = THREADS.findall(stem)
    if not threads:
        return None
    named = {key: match.group(1) for key, pattern in NAMED.items() if (match := pattern.search(stem))}
    return named | {"threads": threads[-1]}


def _folder(source: Path, name: str, by: re.Pattern[str] | None = None) -> Found:
    """One run a file (or a history and predictions with one name), described by its path."""
    truth: np.ndarray | None = None
    parts: dict[str, list[ImportedRun]] = {}
    left_out: list[str] = []
    files = sorted((p for p in source.rglob("*") if p.is_file() and not p.is_symlink()), key=_natural)
    for path in files:
        if path.stem in TRUTH_OF and path.suffix in (".npy", ".csv"):
            truth = _classes(path)[0]
    for path in files:
        relative = path.relative_to(source).as_posix()
        where = _where(relative, by)
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
            run = _file(path, relative, name, where, truth)
            parts.setdefault(relative.removesuffix(path.suffix), []).append(run)
    return [_merged(group) for group in parts.values()], left_out


def _natural(path: Path) -> list[tuple[int, str]]:
    return [(int(t), "") if t.isdigit() else (-1, t) for t in re.split(r"(\d+)", path.as_posix())]


def _file(
    path: Path, relative: str, name: str, where: Mapping[str, str], truth: np.ndarray | None
) -> ImportedRun:
    read: dict[str, Any] = {"source": relative, "source_sha256": sha256_of(path)}
    if _is_history(path):
        return _run(path, name, where, read_history(path), **read)
    classes, own = _classes(path)
    known = truth if own is None else own
    if known is not None and known.shape != classes.shape:
        raise ImportFormatError(f"{path}: {len(classes)} predictions, but {len(known)} true classes")
    if known is not None:
        read["metrics"] = {"test_accuracy": float((classes == known).mean())}
    return _run(path, name, where, {}, predictions=tuple(int(c) for c in classes), **read)


def _merged(group: list[ImportedRun]) -> ImportedRun:
    """The parts of one run: its history and its predictions."""
    first, *others = group
    for other in others:
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
            columns = [c.strip().strip('"') for c in file.readline(65536).decode().split(",")]
        return "epoch" in columns or "loss" in columns
    return path.suffix == ".json"


def read_history(path: Path) -> dict[str, tuple[float, ...]]:
    """A history: what Keras has in `history.history` saved as JSON, or its CSVLogger's file; or the list of
    one object an epoch that training loops in torch write. Metric -> one value an epoch."""
    try:
        data = _table(path)
        columns = data.to_dict("list") if isinstance(data, pd.DataFrame) else data
        columns = columns.get("history", columns)
        named = {str(k): tuple(float(v) for v in each) for k, each in columns.items() if k not in COLUMNS}
    except (ValueError, TypeError, AttributeError) as error:
        raise ImportFormatError(f"{path}: not a history: {error}") from error
    if not named or len({len(each) for each in named.values()}) != 1 or not next(iter(named.values())):
        raise ImportFormatError(f"{path}: a history has the same number of epochs for every metric")
    return named


def _classes(path: Path) -> tuple[np.ndarray, np.ndarray | None]:
    """(predicted classes (N,), true classes (N,) or None). Scores (N, C) count by their largest."""
    try:
        if path.suffix == ".csv":
            frame = _table(path)
            named: Mapping[str, np.ndarray] = {str(c): frame[c].to_numpy() for c in frame.columns}
        else:
            named = _arrays(path)
    except UNREADABLE as error:
        raise ImportFormatError(f"{path}: {error!s:.300}") from error
    own = next((np.asarray(named[key]) for key in TRUTH_OF if key in named), None)
    rest = [key for key in named if key not in TRUTH_OF]
    key = next((key for key in CLASSES_OF if key in named), rest[0] if len(rest) == 1 else None)
    if key is None and own is not None and not rest:
        return _whole(path, own), None
    if key is None:
        raise ImportFormatError(
            f"{path}: which of {', '.join(named)} are the predictions? Name one predictions"
        )
    return _whole(path, named[key]), None if own is None else _whole(path, own)


def _arrays(path: Path) -> dict[str, np.ndarray]:
    """The arrays of a file of numpy's: the one in an .npy as `predictions`."""
    with opened_bounded(path, bounded.ARRAY) as file:
        if path.suffix == ".npz":
            refuse_larger_inside(file, bounded.ARRAY.bytes)
            file.seek(0)
            with np.load(file, allow_pickle=False) as arrays:
                return {key: arrays[key] for key in arrays.files}
        if claimed_bytes(file, path.name) > bounded.ARRAY.bytes:
            raise ValueError(f"says it has more than {bounded.ARRAY.bytes} bytes")
        file.seek(0)
        return {CLASSES_OF[0]: np.load(file, allow_pickle=False)}


def _whole(path: Path, values: np.ndarray) -> np.ndarray:
    """Classes, from classes or scores."""
    if values.ndim == 2 and values.shape[1] > 1 and np.issubdtype(values.dtype, np.number):
        return np.asarray(values.argmax(axis=1))
    flat = values.reshape(-1)
    whole = np.issubdtype(flat.dtype, np.number) and len(flat) and bool((flat == np.floor(flat)).all())
    if not whole or flat.min() < 0 or flat.max() >= 2**31:
        raise ImportFormatError(f"{path}: classes as whole numbers from 0 are expected, or scores (N, C)")
    return flat.astype(np.int64)


# ---- MLflow's file store -----------------------------------------------------------------------------


def _mlflow(source: Path, name: str) -> Found:
    """Runs below a folder `mlruns`, by its plain files: a parameter (or tag) `threads`, and all metrics."""
    runs, left_out = [], []
    for meta in sorted(source.glob("**/meta.yaml")):
        folder = meta.parent
        if not (folder / "metrics").is_dir():
            continue  # an experiment
        said = [p for part in ("tags", "params") for p in sorted((folder / part).glob("*"))]
        named = {p.name: _text(p).strip() for p in said if p.is_file()}
        where = folder.relative_to(source).as_posix()
        if "threads" not in named:
            left_out.append(f"{where}: no parameter 'threads'")
            continue
        history = {p.name: _metric(p) for p in sorted((folder / "metrics").glob("*")) if p.is_file()}
        history = {m: values for m, values in history.items() if values}
        seconds = history.pop("wall_s", None)
        wall_s, sha256 = seconds[-1] if seconds else None, sha256_of(meta)
        runs.append(_run(folder, name, named, history, source=where, source_sha256=sha256, wall_s=wall_s))
    return runs, [*left_out, "artifacts of MLflow runs"]


def _text(path: Path) -> str:
    return read_bounded(path, bounded.MESSAGE).decode()


def _metric(path: Path) -> tuple[float, ...]:
    """`timestamp value step`, one line a logged value; in order of the steps."""
    try:
        lines = [line.split() for line in _text(path).splitlines() if line.strip()]
        lines.sort(key=lambda line: int(line[2]) if len(line) > 2 else 0)
        return tuple(float(line[1]) for line in lines)
    except (ValueError, IndexError) as error:
        raise ImportFormatError(f"{path}: not a metric of MLflow: {error}") from error
