"""The agent as it travels: `guest` and `vbstudy` as one zipapp, named by its SHA-256. The same sources
give the same bytes, so a guest that has the file has this agent."""

from __future__ import annotations

import hashlib
import io
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path

from orchestrator.files import storage_errors

EPOCH = (1980, 1, 1, 0, 0, 0)  # the earliest time a zip file can hold
MAIN = "import sys\nfrom guest.agent import main\nsys.exit(main())\n"


@dataclass(frozen=True, slots=True)
class AgentArchive:
    """The zipapp's bytes, their hash, and the name it has in a guest."""

    data: bytes
    sha256: str

    @property
    def name(self) -> str:
        return f"agent-{self.sha256[:16]}.pyz"

    def write(self, folder: Path) -> Path:
        path = folder / self.name
        with storage_errors(path):
            path.write_bytes(self.data)
        return path


def build() -> AgentArchive:
    """Packs the packages that a guest needs. Stored, not compressed: they are small, and imports
    start faster."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        _add(archive, "__main__.py", MAIN.encode())
        for package in ("guest", "vbstudy"):
            for name, data in sorted(_files(resources.files(package), package)):
                _add(archive, name, data)
    data = buffer.getvalue()
    return AgentArchive(data, hashlib.sha256(data).hexdigest())


def _files(folder: Traversable, prefix: str) -> Iterator[tuple[str, bytes]]:
    for item in folder.iterdir():
        name = f"{prefix}/{item.name}"
        if item.is_dir():
            if item.name not in ("__pycache__", "_app"):
                yield from _files(item, name)
        elif not item.name.endswith(".pyc"):
            yield name, item.read_bytes()


def _add(archive: zipfile.ZipFile, name: str, data: bytes) -> None:
    entry = zipfile.ZipInfo(name, EPOCH)
    entry.external_attr = 0o644 << 16
    archive.writestr(entry, data)
