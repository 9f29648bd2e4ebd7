"""`make` tells which Python it cannot make the environment with."""

import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]


def make_install(python: Path, venv: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["make", "install", f"PYTHON={python}", f"VENV={venv}"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )


def another(folder: Path, version: str) -> Path:
    """A Python that takes itself for this version."""
    python = folder / "python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} -c "import sys; sys.version_info = {version}; $2"\n')
    python.chmod(0o755)
    return python


@pytest.mark.parametrize("version", ["(3, 10, 9)", "(3, 14, 0)"])
def test_a_python_without_the_locked_packages_is_refused(tmp_path, version):
    done = make_install(another(tmp_path, version), tmp_path / "venv")
    assert done.returncode == 2
    assert "is missing, older than 3.11, or newer than 3.13" in done.stderr
    assert not (tmp_path / "venv").exists()


def test_an_environment_of_another_version_than_the_python_that_was_named_is_refused(tmp_path):
    (tmp_path / "venv/bin").mkdir(parents=True)
    (tmp_path / "venv/bin/python").symlink_to(sys.executable)
    (tmp_path / "venv/.installed").touch()
    done = make_install(another(tmp_path, "(3, 10, 9)"), tmp_path / "venv")
    assert done.returncode == 2
    assert f"{tmp_path}/python is missing, or {tmp_path}/venv has another version of Python" in done.stderr
    assert make_install(Path(sys.executable), tmp_path / "venv").returncode == 0
