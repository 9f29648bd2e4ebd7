"""The box of `vagrant/box`, built once and known to a Vagrant of the tests' own."""

import fcntl
import hashlib
import os
import subprocess
from pathlib import Path

from orchestrator.providers.vagrant.command import files

NAME = "vbstudy/debian"


def home() -> Path:
    """A VAGRANT_HOME that has the box; built where nobody has yet, which takes a minute."""
    parts = (path for path in (files() / "box").iterdir() if path.suffix != ".md")
    sources = [*sorted(parts), files() / "provision.sh"]
    identity = hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()[:16]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "vbstudy" / "boxes"
    cache.mkdir(parents=True, exist_ok=True)
    folder = cache / identity
    environment = {**os.environ, "VAGRANT_HOME": str(folder), "VAGRANT_CHECKPOINT_DISABLE": "1"}
    with (cache / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if (folder / "complete").exists():
            return folder
        box = cache / f"{identity}.box"
        subprocess.run([files() / "box" / "build", box], check=True, timeout=1200)
        subprocess.run(
            ["vagrant", "box", "add", "--force", "--name", NAME, box],
            check=True,
            env=environment,
            timeout=300,
        )
        box.unlink()
        (folder / "complete").touch()
    return folder


if __name__ == "__main__":  # where there is a network, before the tests run where there is none
    home()
