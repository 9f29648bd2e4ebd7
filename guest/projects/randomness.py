"""Where the random numbers of a project's run come from: its generators are seeded from outside; or what it
draws by itself is recorded, or replayed from the recording of an earlier run."""

from __future__ import annotations

import contextlib
import secrets
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from guest.projects.command import CommandError
from guest.records.codec import RecordError, sha256_of
from guest.records.run import RandomNumbers, RunRequest
from guest.replay import program, recording, streams
from guest.replay.library import LibraryUnavailableError
from guest.replay.recording import Level, Recording

FOLDER = "random"  # next to the project: the draws while it runs
CACHE = Path("replay")  # in the guest's working folder: the library, compiled once a guest


class RandomnessError(RuntimeError):
    """The recording cannot be used in this guest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Control:
    """Of one run. `seed` is what the hooks set (None: they leave all generators alone), `hash_seed` Python's
    own. `why` says why there is no library. `replayed` is what to replay; None: the run is recorded."""

    seed: int | None
    hash_seed: str
    root: str = ""  # the project's folder
    folder: Path | None = None  # None: seeded
    cache: Path | None = None  # of the library; None: the user's
    level: Level = "python"
    why: str = ""
    replayed: Recording | None = None
    source: Path | None = None  # its file

    def environment(self, env: Mapping[str, str]) -> dict[str, str]:
        """What to add to `env` for the command. Raises RandomnessError."""
        if self.folder is None:
            return {}
        mode: Literal["record", "replay"] = "record" if self.replayed is None else "replay"
        draws = () if self.replayed is None else self.replayed.draws
        try:
            return program.prepare(self.folder, mode, self.level, self.hash_seed, env, draws, self.cache)
        except LibraryUnavailableError as error:
            raise RandomnessError(f"the recording was made with the library, and here {error}") from None

    def check(self) -> None:
        """Raises CommandError when a process of the project was ended, because it asked for other numbers."""
        trouble = None if self.folder is None else program.trouble(self.folder, self.root)
        if trouble is not None:
            kind = "RecordError" if self.replayed is None else "ReplayError"
            raise CommandError(kind, trouble.text, trouble.stack)

    @contextlib.contextmanager
    def errors_first(self) -> Iterator[None]:
        """The error of `check` replaces the one of the command that failed because of it."""
        try:
            yield
        except CommandError:
            self.check()
            raise
        self.check()


def begin(request: RunRequest, seed: int | None, work: Path, out: Path) -> Control:
    """Raises RandomnessError for a recording that is not the one that was announced."""
    if not request.spec.workload.replays:
        return seeded(seed)
    if request.recording is None:
        return recorder(work, out, CACHE.absolute())
    path = Path(request.recording.path)
    if sha256_of(path) != request.recording.sha256:
        raise RandomnessError(f"{path}: does not match its SHA-256")
    return player(path, work, out, CACHE.absolute())


def seeded(seed: int | None) -> Control:
    """A run whose generators are seeded from outside."""
    return Control(seed=seed, hash_seed=str(seed))


def recorder(work: Path, out: Path, cache: Path | None) -> Control:
    """A run of the project in `work` that is recorded: with the library, where it can be compiled here, else
    in Python alone."""
    level, why = program.best_level(cache)
    hash_seed = "random" if level == "library" else str(secrets.randbelow(2**32))
    return Control(
        seed=None, hash_seed=hash_seed, root=str(work), folder=out / FOLDER, cache=cache, level=level, why=why
    )


def player(path: Path, work: Path, out: Path, cache: Path | None) -> Control:
    """A run that is given what a recording has. Raises RecordError for what is none."""
    recorded = recording.read(path)
    return Control(
        seed=None,
        hash_seed=recorded.header.python_hash_seed or "random",
        root=str(work),
        folder=out / FOLDER,
        cache=cache,
        level=recorded.header.level,
        replayed=recorded,
        source=path,
    )


def finish(control: Control, argv: Sequence[str], target: Path) -> tuple[RandomNumbers, list[str]]:
    """After the command succeeded: what was done, and notes for the user; writes the recording, if any, to
    `target`. Raises CommandError when less was asked for than was recorded, or more was drawn than can be
    replayed."""
    if control.folder is None:
        return RandomNumbers(), []
    summary = program.read_summary(control.folder)
    notes = program.remarks(summary, control.level, control.why)
    if control.replayed is None or control.source is None:
        draws = streams.collect(control.folder)
        header = program.header(control.level, argv, 0, control.hash_seed.replace("random", ""), summary)
        if not draws:
            notes.append("the program drew no random numbers that can be seen")
        try:
            recording.write(target, Recording(header=header, draws=draws))
        except RecordError as error:
            raise CommandError("RecordError", str(error)) from None
        return RandomNumbers(how="recorded", draws=len(draws), level=control.level), notes
    less = program.too_little(control.folder)
    if less:
        raise CommandError("ReplayError", less)
    notes += program.idle(control.folder)
    if target != control.source:
        shutil.copyfile(control.source, target)
    return RandomNumbers(how="replayed", draws=len(control.replayed.draws), level=control.level), notes
