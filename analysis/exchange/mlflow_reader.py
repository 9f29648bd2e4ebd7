"""Reads MLflow's file store: a folder `mlruns`, by its plain files."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from pathlib import Path

from analysis.exchange.files import ImportFormatError
from analysis.exchange.imported import Found, ImportedRun, run_of
from guest.records import bounded
from guest.records.bounded import read_bounded
from guest.records.codec import sha256_of

CROSSED = ("cpus", "inter_op_threads")  # what `vbstudy export mlruns` names beside threads


def read_mlflow(source: Path, name: str) -> Found:
    """Runs below a folder `mlruns`, by its plain files: a parameter (or tag) `threads`, and all metrics. With
    several experiments, runs that log no workload have the name of theirs."""
    found, left_out = [], []
    for meta in sorted(source.glob("**/meta.yaml")):
        folder = meta.parent
        if not (folder / "metrics").is_dir():
            continue  # an experiment
        said = [p for part in ("tags", "params") for p in sorted((folder / part).glob("*"))]
        named = {p.name: _text(p).strip() for p in said if p.is_file()}
        where = folder.relative_to(source).as_posix()
        about = dict(re.findall(r"^(status|lifecycle_stage): *['\"]?(\w+)", _text(meta), re.MULTILINE))
        if about.get("lifecycle_stage") == "deleted" or where.startswith(".trash/"):
            left_out.append(f"{where}: deleted")
            continue
        if about.get("status", "3") not in ("3", "FINISHED"):
            left_out.append(f"{where}: did not finish")
            continue
        if "threads" not in named:
            left_out.append(f"{where}: no parameter 'threads'")
            continue
        found.append((folder, named))
    several = len({folder.parent for folder, _ in found}) > 1
    runs = []
    for folder, named in found:
        if several:
            named.setdefault("workload", _experiment(folder.parent))
        logged = sorted(p for p in (folder / "metrics").rglob("*") if p.is_file())
        history = {p.relative_to(folder / "metrics").as_posix(): _metric(p) for p in logged}
        history = {m: values for m, values in history.items() if values}
        seconds = history.pop("wall_s", None)
        known = {"source": folder.relative_to(source).as_posix(), "wall_s": seconds[-1] if seconds else None}
        known["source_sha256"] = sha256_of(folder / "meta.yaml")
        runs.append(run_of(folder, name, named, history, **known))
    return _distinguished(runs, [named for _, named in found]), [*left_out, "artifacts of MLflow runs"]


def _experiment(folder: Path) -> str:
    """Its name, or that of its folder, which is its number."""
    about = folder / "meta.yaml"
    text = _text(about) if about.is_file() else ""
    named = re.search(r"^name: *['\"]?(.+?)['\"]? *$", text, re.MULTILINE)
    return named[1] if named else folder.name


def _distinguished(runs: list[ImportedRun], named: list[dict[str, str]]) -> list[ImportedRun]:
    """In a crossed study several conditions have one thread count: their other settings become part of the
    variant, as few as do."""
    for setting in CROSSED:
        counts = Counter((r.workload, r.variant, r.threads, r.repetition) for r in runs if r.repetition)
        crossed = {key[:2] for key, times in counts.items() if times > 1}
        runs = [
            replace(run, variant=f"{run.variant} {setting}-{its[setting]}")
            if (run.workload, run.variant) in crossed and setting in its
            else run
            for run, its in zip(runs, named, strict=True)
        ]
    return runs


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
