"""Environments of Python for tests of what is installed, and of what is not."""

import shutil
import subprocess
import sys
from pathlib import Path


def make(folder: Path) -> Path:
    """The Python of a new environment that has the packages of this one behind its own, but no vbstudy."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    # Plain paths: the .pth files in them, through which a clone is installed, are not read.
    packages = [path for path in sys.path if path.endswith("site-packages")]
    (site_packages(folder) / "packages.pth").write_text("\n".join(packages) + "\n")
    return folder / "bin" / "python"


def site_packages(folder: Path) -> Path:
    (found,) = folder.glob("lib/python*/site-packages")
    return found


def bring_exact_library(home: Path) -> None:
    """Puts exact mode's library into the cache of a home folder, where compiling it would take a while."""
    from vbstudy.exact import compiled

    cache = home / ".cache" / "vbstudy" / "exact"
    cache.mkdir(parents=True)
    for library in compiled.libraries():
        shutil.copy(library, cache)
