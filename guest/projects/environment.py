"""The interpreter that a project runs with: the guest's own, or one with the project's requirements, built
once in a guest and kept."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from guest.records.codec import sha256_of
from guest.records.run import ProjectFiles, ProjectSpec

FOLDER = Path("environments")  # in the guest's working folder
COMPLETE = ".complete"
BUILD_TIMEOUT_S = 3600.0
COMMENT = re.compile(r"(^|\s)#.*")  # as pip's: an address may have a # in it
# Options (-r, -c, -e, --find-links), paths and archives, as pip knows them; a colon comes first in addresses.
LOCAL = re.compile(r"^[-.]|file:|^[^:]*/|^[^:]*\.(whl|zip|tar|tgz|tbz|txz|tlz)\b", re.IGNORECASE)


class RequirementsError(RuntimeError):
    """The environment cannot be built; the text has the last lines of the output."""


def interpreter(
    work: Path, project: ProjectSpec, files: ProjectFiles, folder: Path = FOLDER
) -> tuple[Path, list[str]]:
    """The interpreter for a project in `work`, and the packages of its own environment (`name==version`);
    none where it has the guest's. Where there are wheels nothing comes from the network. The environment of
    one that names a framework sees the guest's packages too, behind its own. Environments are kept in
    `folder`. Raises RequirementsError."""
    requirements, wheels, with_guests = project.requirements, files.wheels, project.framework is not None
    if not requirements:
        return Path(sys.executable), []
    file = work / requirements
    if not file.resolve().is_relative_to(work.resolve()) or not file.is_file():
        raise RequirementsError(f"requirements = {requirements!r}: the project has no such file")
    guests = _guests_packages() if with_guests else []
    text = file.read_text(encoding="utf-8", errors="replace")
    made = folder.absolute() / _key(text, wheels, files.tree_sha256, guests)
    python = made / "bin" / "python"
    if not (made / COMPLETE).is_file():
        shutil.rmtree(made, ignore_errors=True)  # a half-built one
        offline = ["--no-index", "--find-links", str(Path(wheels).absolute())] if wheels else []
        pip = _make(made, work, wheels)
        if with_guests:
            # Python adds the paths in such a file behind its own.
            (site,) = made.glob("lib/python*/site-packages")
            (site / "guests.pth").write_text("\n".join(_guests_paths()) + "\n")
        _run(
            [*pip, "install", *offline, "--requirement", requirements],
            work,
            f"pip install -r {requirements}",
            "" if wheels else f"; a guest without internet takes them from a folder: {_how_to_fill()}",
        )
        frozen = _run([*pip, "freeze", "--local"], work, "pip freeze")
        (made / COMPLETE).write_text(frozen)
    return python, (made / COMPLETE).read_text().split("\n")[:-1]


def _make(folder: Path, project: Path, wheels: str) -> list[str]:
    """An empty environment, and how pip is called for it: the guest's own pip where it has one, else the one
    among the wheels, which need not be installed."""
    quiet = ["--disable-pip-version-check", "--no-input"]
    venv = [sys.executable, "-m", "venv"]
    packed = sorted(Path(wheels).absolute().glob("pip-*.whl")) if wheels else []
    found = importlib.util.find_spec("pip") is not None
    if found or packed:
        _run([*venv, "--without-pip", str(folder)], project, "python -m venv")
        pip = ["-m", "pip"] if found else [str(packed[-1] / "pip")]
        return [sys.executable, *pip, "--python", str(folder / "bin" / "python"), *quiet]
    _run(
        [*venv, str(folder)],
        project,
        "python -m venv",
        f"; this guest has no pip: put it among the wheels ({_how_to_fill()}), "
        "or install it there (Debian: apt install python3-venv)",
    )
    return [str(folder / "bin" / "python"), "-m", "pip", *quiet]


def _how_to_fill() -> str:
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    return (
        'wheels = "wheels", filled by `pip download --dest wheels --only-binary=:all: '
        f"--python-version {version} pip -r requirements.txt`"
    )


def _guests_packages() -> list[str]:
    """What the guest's own interpreter has, and where, by names that have the versions in them: reading all
    of their metadata takes a minute in an emulated machine."""
    found = (info.name for path in _guests_paths() for info in Path(path).glob("*.*-info"))
    return sorted({*_guests_paths(), *found})


def _guests_paths() -> list[str]:
    given = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    return [*filter(None, given), *(p for p in sys.path if p.endswith(("site-packages", "dist-packages")))]


def _key(text: str, wheels: str, tree_sha256: str, guests: list[str]) -> str:
    """Two environments with one key are equal: the same interpreter, requirements, wheels, and packages of
    the guest. Requirements that name files of the project depend on all of it."""
    lines = [COMMENT.sub("", line).strip() for line in text.splitlines()]
    local = any(map(LOCAL.search, lines))
    parts = [sys.version, sys.executable, *filter(None, lines), tree_sha256 if local else "", *guests]
    if wheels:
        parts += [f"{path.name} {sha256_of(path)}" for path in sorted(Path(wheels).iterdir())]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def _run(argv: list[str], folder: Path, what: str, hint: str = "") -> str:
    """Its stdout. The thread counts of a run are no matter here; the user's settings for pip are."""
    env = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "PYTHONHASHSEED")}
    try:
        done = subprocess.run(
            argv, cwd=folder, env=env, capture_output=True, text=True, timeout=BUILD_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        raise RequirementsError(f"{what}: not done within {BUILD_TIMEOUT_S:.0f} s") from None
    if done.returncode != 0:
        output = "\n".join((done.stdout + done.stderr).strip().splitlines()[-12:])
        raise RequirementsError(f"{what} failed with status {done.returncode}{hint}:\n{output}")
    return done.stdout
