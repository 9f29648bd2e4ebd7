"""Data sets on their way into guests that do not see this machine's files."""

from __future__ import annotations

from pathlib import Path

from guest import datasets
from orchestrator.connection import Connection
from orchestrator.study import Study


def bring(study: Study, folders: tuple[Path, ...], connection: Connection) -> tuple[str, ...]:
    """Makes the study's data sets readable in the guest; returns the folders to look in. A file that
    is there already is not sent again."""
    if connection.shares_files:
        return tuple(map(str, folders))
    targets = []
    for name in dict.fromkeys(w.dataset for w in study.workload):
        for path in datasets.files(name, folders):
            target = f"data/{name}"
            connection.put(path, f"{target}/{path.name}")
            targets.append(target)
    return tuple(dict.fromkeys(targets))
