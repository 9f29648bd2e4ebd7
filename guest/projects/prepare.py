"""What a project's command finds when it starts: its folder unpacked again, its interpreter, the study's
settings in its environment, and the start-up hook in its Python processes."""

from __future__ import annotations

import json
import os
import shutil
import tarfile
from pathlib import Path
from typing import Any

import vbstudy
from guest.machine import fingerprint
from guest.machine.folders import unfit_for_hooks
from guest.records.codec import sha256_of
from guest.records.run import ProjectFiles
from guest.replay.program import copy_hooks

WORK, HOOKS, NOTICED, REPORTED = "work", "hooks", "noticed", "reported"


class ProjectError(RuntimeError):
    """The project cannot be run as it came."""


def unpack(files: ProjectFiles, target: Path) -> Path:
    """Unpacks the project. Raises ProjectError when the archive is not the one that was announced."""
    path = Path(files.archive)
    if sha256_of(path) != files.archive_sha256:
        raise ProjectError(f"{path.name}: does not match its SHA-256")
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    with tarfile.open(path) as archive:
        members = archive.getmembers()
        for member in members:
            _require_inside(member)
        # Python before 3.11.4 has no such filter.
        safely: Any = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
        archive.extractall(target, members, **safely)  # noqa: S202  (each was checked)
    return target.resolve()


def _require_inside(member: tarfile.TarInfo) -> None:
    """Raises ProjectError for what is no plain file or folder below the folder, and no link to one."""
    there = os.path.normpath(Path(member.name).parent / member.linkname) if member.issym() else member.name
    paths = (member.name, member.linkname, there)
    if (
        not (member.isreg() or member.isdir() or member.issym())
        or any(path.startswith("/") for path in paths)
        or any(".." in Path(path).parts for path in (member.name, there))
    ):
        raise ProjectError(f"{member.name!r:.200} in the project's archive leads out of its folder")


def resolve(argv: tuple[str, ...], python: Path) -> list[str]:
    """The command with `python` and `python3` meaning the project's interpreter."""
    first, *rest = argv
    return [str(python) if first in ("python", "python3") else first, *rest]


def process_environment(intra_op: int, python: Path, hash_seed: str) -> dict[str, str]:
    """The command's environment: with the thread settings that this process was started with."""
    kept = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")}
    return kept | {
        "PATH": f"{python.parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
        "OPENBLAS_NUM_THREADS": str(intra_op),
        "PYTHONHASHSEED": hash_seed,
        "PYTHONUNBUFFERED": "1",
    }


def library() -> Path:
    """Where this process has the package `vbstudy` from: in a guest, the agent's zipapp."""
    return Path(vbstudy.__file__).absolute().parents[1]


def hook_settings(
    out: Path, work: Path, library: Path, *, watch: bool = False, paths: str = "", **settings: Any
) -> dict[str, str]:
    """Writes the start-up hook; returns the environment that makes its Python processes run it.
    They import `vbstudy` from `library` where it is not installed. `paths` to modules come after the hook.
    Raises ProjectError where they would not find it."""
    folder = out / HOOKS
    if unfit := unfit_for_hooks(folder):
        raise ProjectError(unfit)
    copy_hooks("guest.projects", folder)
    if settings.get("pools") is not None:
        import threadpoolctl

        shutil.copy(threadpoolctl.__file__, folder)
    for name in (NOTICED, REPORTED):
        (out / name).mkdir(exist_ok=True)
    intel = fingerprint.cpu()["vendor"] == "GenuineIntel"
    data = {
        "root": str(work),
        "folder": str(out / NOTICED),
        "library": str(library),
        # On Intel CPUs MKL's strict mode (guest.machine.threads) does the products; oneDNN has none.
        "onednn": not (settings["deterministic"] and intel),
        "watch": watch,
        **settings,
    }
    return {
        "VBSTUDY_HOOK": json.dumps(data),
        "VBSTUDY_REPORT": str(out / REPORTED),
        "PYTHONPATH": os.pathsep.join(filter(None, (str(folder), paths))),
    }
