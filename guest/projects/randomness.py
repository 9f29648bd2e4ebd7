"""Where the random numbers of a project's run come from: its generators are seeded from outside; or what it
draws by itself is recorded, or given back from the recording of an earlier run."""

from __future__ import annotations

import contextlib
import hashlib
import secrets
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from guest.projects.command import CommandError
from guest.records import RECORDING, RandomNumbers, RunRequest
from guest.replay import program, recording, streams
from guest.replay.library import LibraryUnavailableError, library
from guest.replay.recording import Level, Recording

FOLDER = "random"  # beside the project, where draws are kept while it runs
CACHE = Path("replay")  # in the guest's working folder: the library, compiled once a guest


class RandomnessError(RuntimeError):
    """The recording cannot be used in this guest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Control:
    """Of one run. `seed` is what the hooks set (None: they leave all generators alone), `hash_seed` Python's
    own. `why` says why there is no library. `replayed` is what is given back; None: it is recorded."""

    seed: int | None
    hash_seed: str
    root: str = ""  # the project's folder
    folder: Path | None = None  # None: seeded
    level: Level = "python"
    why: str = ""
    replayed: Recording | None = None

    def environment(self, env: Mapping[str, str]) -> dict[str, str]:
        """What the command needs beside `env`. Raises RandomnessError."""
        if self.folder is None:
            return {}
        mode: Literal["record", "replay"] = "record" if self.replayed is None else "replay"
        draws = () if self.replayed is None else self.replayed.draws
        try:
            return program.prepare(
                self.folder, mode, self.level, self.hash_seed, env, draws, CACHE.absolute()
            )
        except LibraryUnavailableError as error:
            raise RandomnessError(f"the recording was made with the library, and here {error}") from None

    def check(self) -> None:
        """Raises CommandError when a process of the project was ended, because it asked for other numbers."""
        trouble = None if self.folder is None else program.trouble(self.folder, self.root)
        if trouble is not None:
            kind = "RecordError" if self.replayed is None else "ReplayError"
            raise CommandError(kind, f"{trouble.text}\n{trouble.stack}".strip())

    @contextlib.contextmanager
    def told_first(self) -> Iterator[None]:
        """A command that fails because of `check` says less of it than that."""
        try:
            yield
        except CommandError:
            self.check()
            raise
        self.check()


def begin(request: RunRequest, seed: int | None, work: Path, out: Path) -> Control:
    """Raises RandomnessError for a recording that is not the one that was announced."""
    if not request.spec.workload.replays:
        return Control(seed=seed, hash_seed=str(seed))
    folder, root = out / FOLDER, str(work)
    if request.recording is None:
        level, why = _best_level()
        drawn = "random" if level == "library" else str(secrets.randbelow(2**32))
        return Control(seed=None, hash_seed=drawn, root=root, folder=folder, level=level, why=why)
    content = Path(request.recording.path).read_bytes()
    if hashlib.sha256(content).hexdigest() != request.recording.sha256:
        raise RandomnessError(f"{request.recording.path}: does not match its SHA-256")
    recorded = recording.parse(content, RECORDING)
    return Control(
        seed=None,
        hash_seed=recorded.header.python_hash_seed or "random",
        root=root,
        folder=folder,
        level=recorded.header.level,
        replayed=recorded,
    )


def finish(
    control: Control, request: RunRequest, argv: Sequence[str], out: Path
) -> tuple[RandomNumbers, list[str]]:
    """After the command ended well: leaves the recording in `out`, and says what was done, and what a reader
    should know of it. Raises CommandError when less was asked for than was recorded."""
    if control.folder is None:
        return RandomNumbers(), []
    told, target = program.listen(control.folder), out / RECORDING
    notes = program.remarks(told, control.level, control.why)
    if control.replayed is None or request.recording is None:
        draws = streams.collect(control.folder)
        header = program.header(control.level, argv, 0, control.hash_seed.replace("random", ""), told)
        recording.write(target, Recording(header=header, draws=draws))
        return RandomNumbers(how="recorded", draws=len(draws), level=control.level), notes
    less = program.too_little(control.folder)
    if less:
        raise CommandError("ReplayError", less)
    idle = streams.never_ran(control.folder)
    if idle:
        notes.append(f"recorded processes that did not run this time: {', '.join(idle)}")
    shutil.copyfile(request.recording.path, target)
    return RandomNumbers(how="replayed", draws=len(control.replayed.draws), level=control.level), notes


def _best_level() -> tuple[Level, str]:
    """The library, where this guest can compile it; else Python alone, and why."""
    try:
        library(CACHE.absolute())
    except LibraryUnavailableError as error:
        return "python", str(error)
    return "library", ""
