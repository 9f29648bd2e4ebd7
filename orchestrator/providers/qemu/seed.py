"""The small disk that makes a machine one study's: whom it lets in, and the host key it shows."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

from orchestrator.files import write_private
from orchestrator.providers import cloud_init
from orchestrator.providers.qemu import scripts
from orchestrator.providers.qemu.image import Image
from orchestrator.transport.keys import StudyKeys


def write(path: Path, hostname: str, keys: StudyKeys, image: Image) -> None:
    """Does nothing when the same seed is there already: a snapshot fits only the seed it was made with."""
    if image.boot is not None:
        _write_archive(path, hostname, keys)
        return
    mount = [["sh", "-c", scripts.MOUNT_LIBRARIES]] if image.libraries else []
    cloud_init.seed_iso(
        path,
        hostname=hostname,
        user="root",
        authorized_key=keys.client().public,
        host_private=keys.host().private.read_text(),
        host_public=keys.host().public,
        commands=mount,
    )


def _write_archive(path: Path, hostname: str, keys: StudyKeys) -> None:
    """For the image of our own making, whose boot script unpacks it."""
    files = [
        ("root/.ssh/authorized_keys", 0o600, keys.client().public + "\n"),
        ("etc/ssh/ssh_host_ed25519_key", 0o600, keys.host().private.read_text()),
        ("etc/ssh/ssh_host_ed25519_key.pub", 0o644, keys.host().public + "\n"),
        ("etc/hostname", 0o644, hostname + "\n"),
    ]
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for folder in ("root", "root/.ssh"):
            entry = tarfile.TarInfo(folder)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o700
            archive.addfile(entry)
        for name, mode, text in files:
            entry = tarfile.TarInfo(name)
            entry.mode, entry.size = mode, len(text.encode())
            archive.addfile(entry, io.BytesIO(text.encode()))
    write_private(path, buffer.getvalue())
