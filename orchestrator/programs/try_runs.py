"""Runs a user's program on several thread counts, each time in a fresh copy of its folder, and reads what it
printed and wrote: what `vbstudy try` does. The program is not edited, and not declared anywhere."""

from __future__ import annotations

import os
import shlex
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from guest.machine import fingerprint, threads
from guest.projects import command, notices, prepare, randomness
from guest.projects.hooks.vbstudy_watch import pairs
from guest.records.printable import counted
from guest.records.run import RECORDING, Override, ThreadSpec
from orchestrator.agent import archive
from orchestrator.cores.leases import host_cores
from orchestrator.errors import ScriptFailedError, UsageError
from orchestrator.programs.try_files import FileSeen, Role, read, role_of
from orchestrator.programs.try_verdicts import LevelVerdict, Trial, decide
from orchestrator.study.plan import program_spec
from orchestrator.study.snapshots import SKIPPED

COPY_LIMIT_BYTES = 2 << 30
DISK_LIMIT_BYTES = 10 << 30
LINES_SHOWN = 5
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The results of a program's trial."""

    command: tuple[str, ...]
    threads: tuple[int, ...]
    repetitions: int
    seed: int | None  # None: the random numbers of the first run were given to the others
    oversubscribed: tuple[int, ...]  # thread counts above the cores there are: their times are invalid
    verdicts: tuple[LevelVerdict, ...]
    wall_s: dict[str, float]  # mean of each thread count
    overrides: tuple[Override, ...]
    notes: tuple[str, ...]
    last_lines: tuple[str, ...]  # of what the first run printed


def run(
    argv: Sequence[str],
    folder: Path,
    counts: Sequence[int],
    repetitions: int,
    seed: int | None,
    timeout_s: float | None,
    say: Say,
) -> Report:
    """`seed` is that of all generators; None: the numbers that the program draws are recorded in the first
    run, and given to the others. Raises UsageError for a folder that cannot be copied, ScriptFailedError when
    the program fails."""
    _check_size(folder)
    trials, found, notes = [], [], dict[str, None]()
    with tempfile.TemporaryDirectory(prefix="vbstudy-try-") as scratch:
        library = archive.build().write(Path(scratch))
        # Repetitions alternate between thread counts, so that drift is not taken for a thread effect.
        order = [(count, number) for number in range(1, repetitions + 1) for count in counts]
        for i, (count, number) in enumerate(order, 1):
            say(f"run {i} of {len(order)}: {counted(count, 'thread')}")
            out = Path(scratch) / "run"  # the same path each time: programs write paths into their files
            shutil.rmtree(out, ignore_errors=True)
            recording = Path(scratch) / RECORDING
            trial, noticed, random_notes = _once(
                argv, folder, out, library, count, number, seed, timeout_s, recording
            )
            say(f"  {trial.wall_s:.1f} s, {len(trial.metrics)} named numbers, {len(trial.files)} files")
            trials.append(trial)
            found += [n for n in noticed if n["kind"] in ("override", "trouble")]
            asked = ThreadSpec(cpus=count, intra_op=count, inter_op=count)
            notes |= dict.fromkeys([*notices.remarks(noticed, asked), *random_notes])
    cores = len(host_cores())
    return Report(
        command=tuple(argv),
        threads=tuple(counts),
        repetitions=repetitions,
        seed=seed,
        oversubscribed=tuple(count for count in counts if count > cores),
        verdicts=decide(trials),
        wall_s={str(n): sum(t.wall_s for t in trials if t.threads == n) / repetitions for n in counts},
        overrides=notices.overrides(found),
        notes=tuple(notes),
        last_lines=tuple(trials[0].last_lines.splitlines()[-LINES_SHOWN:]),
    )


def _once(
    argv: Sequence[str],
    folder: Path,
    out: Path,
    library: Path,
    count: int,
    number: int,
    seed: int | None,
    timeout_s: float | None,
    recording: Path,
) -> tuple[Trial, list[notices.Notice], list[str]]:
    work = out / prepare.WORK
    shutil.copytree(folder, work, symlinks=True, ignore=_left_out)
    work = work.resolve()
    before = {name: _stamp(work / name) for name in _names(work)}
    settings = threads.environment(program_spec("try", count, seed), cpu_vendor=fingerprint.cpu()["vendor"])
    control = _control(seed, recording, work, out)
    paths = os.environ.get("PYTHONPATH", "")  # what the user's own shell has set still holds
    hook = prepare.hook_settings(
        out,
        work,
        library,
        watch=True,
        paths=paths,
        seed=control.seed,
        intra_op=count,
        inter_op=count,
        deterministic=False,
    )
    env = os.environ | settings | hook | {"PYTHONUNBUFFERED": "1"}
    env |= {"OPENBLAS_NUM_THREADS": str(count), "PYTHONHASHSEED": control.hash_seed}
    limits = command.Limits(
        timeout_s=timeout_s,
        disk_bytes=DISK_LIMIT_BYTES,
        timeout_key="--timeout",
        disk_key="vbstudy try",
        check=control.check,
    )
    printed: list[tuple[str, str]] = []

    def on_line(line: str, _elapsed_s: float) -> None:
        printed.extend(pairs(line))

    try:
        env |= control.environment(env)
        with (out / "log.txt").open("wb") as log, _cores(count), control.errors_first():
            ended = command.run(argv, work, env, log, limits, on_line)
        _, random_notes = randomness.finish(control, argv, recording)
    except command.CommandError as error:
        why = str(error).replace(f"{work}/", "")  # paths relative to the program
        raise ScriptFailedError(f"{shlex.join(argv)}: on {counted(count, 'thread')}: {why}") from None
    noticed = notices.read(out / prepare.NOTICED)
    written = [name for name in _names(work) if before.get(name) != _stamp(work / name)]
    files = dict(_files(work, written)) | dict(_reported(out / prepare.REPORTED))
    files |= dict(_outside(noticed))
    return (
        Trial(
            threads=count,
            repetition=number,
            wall_s=ended.wall_s,
            last_lines=ended.last_lines,
            metrics=_metrics(noticed) or _by_name(printed),
            files=files,
        ),
        noticed,
        random_notes,
    )


def _control(seed: int | None, recording: Path, work: Path, out: Path) -> randomness.Control:
    if seed is not None:
        return randomness.seeded(seed)
    if recording.exists():
        return randomness.player(recording, work, out, None)
    return randomness.recorder(work, out, None)


def _left_out(folder: str, names: list[str]) -> set[str]:
    """What no run gets a copy of: leavings of Python and tools; pipes, sockets and devices."""
    left = shutil.ignore_patterns(*SKIPPED, "*.pyc")(folder, names)
    modes = {name: os.lstat(Path(folder) / name).st_mode for name in names}
    kinds = (stat.S_ISREG, stat.S_ISDIR, stat.S_ISLNK)
    return left | {name for name, mode in modes.items() if not any(kind(mode) for kind in kinds)}


def _check_size(folder: Path) -> None:
    total = 0
    for parent, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if name not in SKIPPED]
        total += sum(os.lstat(Path(parent) / name).st_size for name in files)
        if total > COPY_LIMIT_BYTES:
            raise UsageError(
                f"{folder}: holds more than {COPY_LIMIT_BYTES >> 30} GiB, and every run gets a copy; "
                "run it from a folder that has the program alone, with its data named by an absolute path"
            )


def _names(work: Path) -> Iterator[str]:
    for parent, _, files in os.walk(work):
        yield from ((Path(parent) / name).relative_to(work).as_posix() for name in files)


def _stamp(path: Path) -> tuple[int, int]:
    seen = path.lstat()
    return seen.st_size, seen.st_mtime_ns


def _files(work: Path, names: Sequence[str]) -> Iterator[tuple[str, FileSeen]]:
    for name in sorted(names):
        role, path = role_of(name), work / name
        if role is not None and path.is_file() and not path.is_symlink():
            yield name, read(path, role)


def _reported(folder: Path) -> Iterator[tuple[str, FileSeen]]:
    for name, role in (("weights", Role.WEIGHTS), ("predictions", Role.PREDICTIONS)):
        path = folder / f"{name}.npz"
        if path.is_file():
            yield f"vbstudy.report.{name}", read(path, role)


def _outside(noticed: Sequence[notices.Notice]) -> Iterator[tuple[str, FileSeen]]:
    """Files that Python wrote elsewhere, by an absolute path; read before the next run overwrites them."""
    for name in sorted({str(n.get("path")) for n in noticed if n["kind"] == "file"}):
        role, path = role_of(name), Path(name)
        if role is not None and path.is_file():
            yield name, read(path, role)


def _metrics(noticed: Sequence[notices.Notice]) -> dict[str, tuple[str, ...]]:
    """Values by name and place of printing."""
    return _by_name(
        (f"{name} @ {notice['where']}" if notice.get("where") else name, value)
        for notice in noticed
        if notice["kind"] == "numbers"
        for name, value in notice["pairs"]
    )


def _by_name(named: Iterable[tuple[str, str]]) -> dict[str, tuple[str, ...]]:
    """A program that is not Python has names alone: where it prints is unknown."""
    found: dict[str, list[str]] = {}
    for name, value in named:
        found.setdefault(name, []).append(value)
    return {name: tuple(values) for name, values in found.items()}


@contextmanager
def _cores(count: int) -> Iterator[None]:
    """What is started inside gets this many cores, as far as there are."""
    kept = os.sched_getaffinity(0)
    os.sched_setaffinity(0, set(host_cores()[:count]))
    try:
        yield
    finally:
        os.sched_setaffinity(0, kept)
