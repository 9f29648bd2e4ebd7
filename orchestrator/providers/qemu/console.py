"""Keeps the end of what a machine and its QEMU print. QEMU itself writes its logs without limit, so it writes
into pipes, which a process of its own empties: it outlives a killed orchestrator, and ends with its machine.

That process runs this file, which imports the standard library alone."""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

MOST_BYTES = 16 << 20  # of a log, as much as `vbstudy logs` shows; when it is full, its older half goes
PIECE_BYTES = 1 << 16


def start(folder: Path, mark: str, names: Sequence[str]) -> tuple[subprocess.Popen[bytes], list[int]]:
    """The process that keeps logs of these names in `folder`, with `mark` in its command line; and for each
    log the descriptor to write to, which the caller closes. They begin empty."""
    for name in names:
        (folder / name).write_bytes(b"")
    pipes = [os.pipe() for _ in names]
    sources = [f"{read}:{name}" for (read, _), name in zip(pipes, names, strict=True)]
    try:
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", __file__, mark, str(MOST_BYTES), *sources],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=[read for read, _ in pipes],
            start_new_session=True,
        )
    except OSError:
        for _, write in pipes:
            os.close(write)
        raise
    finally:
        for read, _ in pipes:
            os.close(read)
    return process, [write for _, write in pipes]


def keep(sources: dict[int, Path], most_bytes: int) -> None:
    """Appends what comes from each descriptor to its log, until all have ended."""
    while sources:
        for source in select.select(list(sources), [], [])[0]:
            piece = os.read(source, PIECE_BYTES)
            if not piece:
                del sources[source]
                continue
            with contextlib.suppress(OSError):  # a full disk: the machine is not to wait for it
                append(sources[source], piece, most_bytes)


def append(log: Path, piece: bytes, most_bytes: int) -> None:
    """Makes room where the log would have more than `most_bytes`."""
    with log.open("ab") as file:
        if file.tell() + len(piece) <= most_bytes:
            file.write(piece)
            return
    with log.open("rb") as file:
        file.seek(max(file.seek(0, os.SEEK_END) - most_bytes // 2, 0))
        kept = file.read() + piece
    part = log.with_name(f"{log.name}.part")
    part.write_bytes(kept[-most_bytes:])
    part.rename(log)


if __name__ == "__main__":
    pairs = (each.partition(":") for each in sys.argv[3:])
    keep({int(source): Path(name) for source, _, name in pairs}, int(sys.argv[2]))
