"""Finished runs of `vbstudy harden -- PROGRAM`, kept until it ends: where it is stopped or killed, the same
command goes on."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from guest.machine import fingerprint
from guest.machine.folders import remove_folder
from guest.records.bounded import HISTORY, read_bounded
from guest.records.codec import RecordError, digest, seal, sha256_of, to_json, unseal
from orchestrator.agent import archive
from orchestrator.cores.leases import host_cores
from orchestrator.files import write_durably
from orchestrator.programs import folders
from orchestrator.programs.conditions import Condition
from orchestrator.programs.try_verdicts import Trial
from vbstudy import caches

SCHEMA_VERSION = 1
PROGRAMS = 20  # whose runs are kept
# Variables that a new terminal changes.
SESSION = re.compile(
    r"_|OLDPWD|PWD|SHLVL|COLUMNS|LINES|STY|WINDOWID|TERM|TERM_PROGRAM.*|TMUX|(?:DBUS|SSH|TMUX|VSCODE|XDG)_.*"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A run, what its processes reported, and notes for the user."""

    schema_version: int = SCHEMA_VERSION
    trial: Trial
    noticed: tuple[dict[str, Any], ...]
    remarks: tuple[str, ...]


class Kept:
    """Those of one program: of the same command, folder, environment, software and machine."""

    def __init__(
        self,
        argv: Sequence[str],
        folder: Path,
        seed: int | None,
        conditions: Sequence[Condition],
        software: Mapping[str, str],
    ) -> None:
        own = {name: value for name, value in os.environ.items() if not SESSION.fullmatch(name)}
        computed_by = [fingerprint.cpu(), host_cores(), software, archive.build().sha256]
        same = [argv, str(folder), _contents(folder), seed, own, computed_by, list(map(to_json, conditions))]
        self.folder = caches.state() / "harden" / digest(to_json(same))[:16]

    def read(self) -> dict[tuple[str, int], Run]:
        """By condition and repetition. What cannot be read is run again."""
        found = {}
        for path in self.folder.glob("*.json"):
            with contextlib.suppress(OSError, RecordError):
                run = unseal(Run, read_bounded(path, HISTORY), path.name, known=SCHEMA_VERSION, limit=HISTORY)
                found[run.trial.condition, run.trial.repetition] = run
        return found

    def add(self, run: Run) -> None:
        """A folder that cannot be written is no error of `harden`."""
        name = digest([run.trial.condition, run.trial.repetition])[:16]
        with contextlib.suppress(OSError):
            self.folder.mkdir(0o700, parents=True, exist_ok=True)
            write_durably(self.folder / f"{name}.json", seal(run), 0o600)  # output may hold what is private
            others = sorted(self.folder.parent.iterdir(), key=lambda path: path.stat().st_mtime_ns)
            for oldest in others[:-PROGRAMS]:
                remove_folder(oldest)

    def remove(self) -> None:
        """All were counted."""
        remove_folder(self.folder)


def _contents(folder: Path) -> list[tuple[str, int, str]]:
    """Path, mode and SHA-256 or a link's target of all that a run gets a copy of. Raises OSError."""
    found = []
    for path in folders.copied(folder):
        link = path.is_symlink()
        if link or not path.is_dir():
            what = str(path.readlink()) if link else sha256_of(path)
            found.append((path.relative_to(folder).as_posix(), path.lstat().st_mode, what))
    return found
