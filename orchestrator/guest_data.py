"""Data sets and projects on their way into guests."""

from __future__ import annotations

from pathlib import Path

from guest import datasets
from guest.records import ProjectFiles
from orchestrator import projects
from orchestrator.connection import Connection
from orchestrator.store import Store
from orchestrator.study import Study


def bring(study: Study, folders: tuple[Path, ...], connection: Connection) -> tuple[str, ...]:
    """Makes the study's data sets readable in the guest; returns the folders to look in. A file that
    is there already is not sent again."""
    if connection.shares_files:
        return tuple(map(str, folders))
    targets = []
    for name in dict.fromkeys(w.dataset for w in study.networks):
        for path in datasets.files(name, folders):
            target = f"data/{name}"
            connection.put(path, f"{target}/{path.name}")
            targets.append(target)
    return tuple(dict.fromkeys(targets))


def bring_projects(study: Study, store: Store, connection: Connection) -> dict[str, ProjectFiles]:
    """Makes the snapshots of the study's projects, and their wheels, readable in the guest."""
    found = {}
    for table in study.projects:
        kept = projects.read(store, table.name)
        archive, wheels = store.projects / f"{table.name}.tar", projects.wheels_folder(table, store)
        archive_there, wheels_there = str(archive.absolute()), str(wheels or "")
        if not connection.shares_files:
            archive_there = f"projects/{kept.archive_sha256[:16]}.tar"
            connection.put(archive, archive_there)
            wheels_there = f"projects/{kept.archive_sha256[:16]}-wheels" if wheels else ""
            for wheel in sorted(wheels.iterdir()) if wheels else []:
                connection.put(wheel, f"{wheels_there}/{wheel.name}")
        found[table.name] = ProjectFiles(
            archive=archive_there,
            archive_sha256=kept.archive_sha256,
            tree_sha256=kept.tree_sha256,
            commit=kept.commit,
            wheels=wheels_there,
        )
    return found
