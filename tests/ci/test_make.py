"""`make` tells which Python it cannot make the environment with."""

import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]


@pytest.mark.parametrize("version", ["(3, 10, 9)", "(3, 14, 0)"])
def test_a_python_without_the_locked_packages_is_refused(tmp_path, version):
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} -c "import sys; sys.version_info = {version}; $2"\n')
    python.chmod(0o755)
    done = subprocess.run(
        ["make", "install", f"PYTHON={python}", f"VENV={tmp_path}/venv"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "is missing, older than 3.11, or newer than 3.13" in done.stderr
    assert not (tmp_path / "venv").exists()
