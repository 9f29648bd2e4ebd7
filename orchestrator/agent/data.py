"""Data sets, projects and exact mode's library on their way into guests."""

from __future__ import annotations

import dataclasses
import functools
import subprocess
import sys
from pathlib import Path

from guest.datasets import datasets
from guest.records.run import ProjectFiles
from orchestrator.store.store import Store
from orchestrator.study import snapshots
from orchestrator.study.schema import Study
from orchestrator.transport.connection import Connection


def bring(study: Study, folders: tuple[Path, ...], connection: Connection) -> tuple[str, ...]:
    """Makes the study's data sets readable in the guest, each in the subfolder where it is looked for: files
    of two sets may have the same names. Returns the folders to look in. A file that is there already is not
    sent again."""
    if connection.shares_files:
        return tuple(map(str, folders))
    found = False
    for name in dict.fromkeys(w.dataset for w in study.networks):
        for path in datasets.files(name, folders):
            connection.put(path, f"data/{name}/{path.name}")
            found = True
    return ("data",) if found else ()


def bring_projects(study: Study, store: Store, connection: Connection) -> dict[str, ProjectFiles]:
    """Makes the snapshots of the study's projects, and their wheels, readable in the guest."""
    found = {}
    for table in study.projects:
        found[table.name] = here = snapshots.files(table, store)
        if not connection.shares_files:
            there = f"projects/{here.archive_sha256[:16]}"
            wheels = f"{there}-wheels" if here.wheels else ""
            connection.put(Path(here.archive), f"{there}.tar")
            for wheel in sorted(Path(here.wheels).iterdir()) if wheels else []:
                connection.put(wheel, f"{wheels}/{wheel.name}")
            found[table.name] = dataclasses.replace(here, archive=f"{there}.tar", wheels=wheels)
    return found


def bring_exact_library(connection: Connection) -> None:
    """Puts exact mode's compiled libraries into the guest's cache, so that a guest with the same version of
    torch needs no compiler. Where this machine has no torch or no compiler, nothing is put there: the guest
    compiles the library itself, or reports what to install."""
    for library in _exact_libraries():
        connection.put(library, f".cache/vbstudy/exact/{library.name}")


@functools.cache
def _exact_libraries() -> tuple[Path, ...]:
    # torch, in a process of its own
    program = "from vbstudy.exact import compiled; print(*compiled.libraries(), sep=chr(10))"
    command = [sys.executable, "-P", "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return tuple(map(Path, done.stdout.splitlines())) if done.returncode == 0 else ()
