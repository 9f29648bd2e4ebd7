"""User projects: what they set themselves, and what they do not record."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import pandas as pd

from analysis.load.runs import Problem
from analysis.load.study import StudyData
from analysis.results.model import Table, col, cols, counts
from guest.records.run import Override

OVERRIDES = "the project overrides the study"
OWN_THREADS = "the program sets its own thread count"
PLACES = 2  # lines of a program that are named
WORKERS = "work outside the thread count of the study"
THREADS = "sets the thread count itself: read 'thread count' with care"
VARIABLES = "sets a thread setting itself, for what it starts or imports later"
SESSION = re.compile(r"intra_op_parallelism_threads=([1-9]\d{0,5})\b")  # of a ConfigProto
EFFECTS = {
    "seed": "sets its own seed: what the study fixes or leaves free is not what it says",
    "worker": WORKERS,
    "process": WORKERS,
    "environ": VARIABLES,
    "thread": THREADS,
    "configproto": THREADS,
    "": "sets what the study sets",
}
"""By a part of the name of what is overridden; the first counts."""


def effect(what: str) -> str:
    """What an override means for the study, in words."""
    return next(text for part, text in EFFECTS.items() if part in what.lower())


def own_threads(runs: pd.DataFrame) -> str:
    """Why these runs of one workload do not compare thread counts; empty when they do. Programs that set
    their own count ran with fewer different counts than the study asked for."""
    runs = runs[runs.project.notna()]
    if (known := runs.intra_op_in_force.notna()).any():  # not so of programs that were ended early
        runs = runs[known]
    asked, used, places = set(runs.intra_op), set(), dict[str, None]()
    for project, count, in_force in zip(runs.project, runs.intra_op, runs.intra_op_in_force, strict=True):
        own = _own_count(project.overrides, in_force)
        used.add(count if own is None else own)
        kinds = (THREADS,) if in_force > 0 else (THREADS, VARIABLES)
        where = [o.where for o in project.overrides if effect(o.what) in kinds and "inter" not in o.what]
        places |= dict.fromkeys(filter(None, where))
    if len(used) >= len(asked):
        return ""
    return OWN_THREADS + (f" ({', '.join(list(places)[:PLACES])})" if places else "")


def _own_count(overrides: Iterable[Override], in_force: float) -> int | None:
    """The intra-op threads that a program ran with: of its session of TensorFlow 1, else those in force in
    its framework at the end, else, without a framework, of the variables that it set; None where unknown."""
    sessions = [found for o in overrides if (found := SESSION.search(o.value))]
    if sessions:
        return int(sessions[-1][1])
    if in_force > 0:
        return int(in_force)
    of_variables = [o.value for o in overrides if o.where and o.what.endswith("NUM_THREADS']")]
    return next((int(value) for value in reversed(of_variables) if value.isdecimal()), None)


def overrides(study: StudyData) -> tuple[Table, ...]:
    """What projects themselves set, by workload, call and place; no table where there is no project."""
    if not study.projects:
        return ()
    rows: list[dict[str, Any]] = []
    for workload, runs in _projects(study):
        seen = Counter((o.what, o.value, o.where) for each in runs.project for o in each.overrides)
        rows += [
            {"workload": workload, "what": what, "value": value, "where": where}
            | {"runs": times, "n": len(runs), "effect": effect(what)}
            for (what, value, where), times in seen.items()
        ]
    table = Table.of(
        rows,
        *cols("workload", "what", "value", "where"),
        *counts("runs", "n"),
        col("effect"),
        name="overrides",
        title="What projects set themselves, against the study",
        note="Seen while the projects ran. A project that does nothing of the kind has no row.",
    )
    return (table,)


def project_reservations(study: StudyData) -> Iterator[Problem]:
    """What a reader should know of each project: what it overrides, what was noted, what is absent."""
    for _, runs in _projects(study):
        path = f"runs/{runs.workload_name.iloc[0]}"
        what = Counter(f"{o.what} = {o.value} ({o.where})" for each in runs.project for o in each.overrides)
        if what:
            told = "; ".join(f"{text} in {count} of {len(runs)} runs" for text, count in what.items())
            todo = "see the table of what projects set themselves"
            yield Problem(path=path, what=f"{OVERRIDES}: {told}", todo=todo, skipped=False)
        for text, times in Counter(note for each in runs.project for note in each.notes).items():
            todo = f"{times} of {len(runs)} runs; their logs say more"
            yield Problem(path=path, what=text, todo=todo, skipped=False)
        absent = dict.fromkeys(text for each in runs.project for text in each.absent)
        if absent:
            what_ = f"not reported by the project: {'; '.join(absent)}"
            todo = "declare it in [workload.artifacts] or [workload.metrics], or use vbstudy.report"
            yield Problem(path=path, what=what_, todo=todo, skipped=False)


def _projects(study: StudyData) -> Iterator[tuple[str, pd.DataFrame]]:
    """The runs whose record has what was seen of the project."""
    for workload, runs in study.runs[study.runs.project.notna()].groupby("workload", sort=False):
        if workload in study.projects:
            yield str(workload), runs
