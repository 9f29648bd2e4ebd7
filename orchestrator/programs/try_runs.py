"""Runs a user's program under several conditions, each time in a fresh copy of its folder, and reads what it
printed and wrote: what `vbstudy try` and `vbstudy harden -- PROGRAM` do. The program is not edited, and not
declared anywhere."""

from __future__ import annotations

import hashlib
import itertools
import os
import shlex
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from guest.machine import fingerprint, threads
from guest.machine.folders import remove_folder
from guest.projects import command, notices, prepare, randomness
from guest.projects.hooks.vbstudy_watch import last_state, pairs
from guest.projects.numbers import MetricError, reported
from guest.records.printable import counted
from guest.records.run import RECORDING, Framework, Override
from orchestrator.agent import archive
from orchestrator.cores.leases import host_cores
from orchestrator.errors import PrerequisiteError, UnmetError
from orchestrator.programs import folders
from orchestrator.programs.conditions import Condition, notes_of_gpus
from orchestrator.programs.kept import Kept, Run
from orchestrator.programs.try_files import FileSeen, Role, by_name, numbers, read, role_of
from orchestrator.programs.try_verdicts import REPORTED, WARNING, Trial, comparable, passes
from orchestrator.programs.watcher import watched
from orchestrator.study.plan import program_spec
from orchestrator.study.snapshots import SKIPPED
from orchestrator.text import Say
from vbstudy.exact import launch

DISK_LIMIT_BYTES = 10 << 30
IN_MEMORY = "weights in memory at the end"
UNSEEN = (
    "a process that trained ended without Python's own end (as by os._exit): its weights are compared as far "
    "as files hold them"
)
COPY = "run"
OURS = (prepare.HOOKS, prepare.NOTICED, prepare.REPORTED, randomness.FOLDER)  # beside the copy
LINES_SHOWN = 5
EXACT_SAYS = "vbstudy exact: "  # what its hook prints before it ends a program
TEXTS = (".log", ".txt", ".out", ".yaml", ".yml", ".md")
LINES_COMPARED = 100_000
LONG = (
    f"of the output the first {LINES_COMPARED:,} lines, at most {command.LOG_LIMIT_BYTES >> 20} MiB, were "
    f"compared, and the numbers in its last {command.LAST_LINES} lines"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """What is to be run, and how often under each condition. `seed` is that of all generators; None: the
    numbers that the program draws are recorded in the first run, and given to the others."""

    argv: tuple[str, ...]
    folder: Path
    repetitions: int
    seed: int | None
    timeout_s: float | None = None
    disk_bytes: int = DISK_LIMIT_BYTES
    needs_exact: bool = False  # nothing is asked where exact mode cannot start


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """All runs, in their order, and what was noticed in them. `software` are versions that the program
    imported. `varied` is False where it computed with one thread count of its own, whatever was asked."""

    trials: tuple[Trial, ...]
    overrides: tuple[Override, ...]
    notes: tuple[str, ...]
    last_lines: tuple[str, ...]  # of what the first run printed
    software: dict[str, str]
    varied: bool
    noticed: tuple[notices.Notice, ...] = field(repr=False)


def run(ask: Ask, conditions: Sequence[Condition], say: Say, kept: Kept | None = None) -> Seen:
    """With `kept`, each run is kept, and those that are there already are not run again. A run that fails
    with exact mode alone is the last one with it. Raises UsageError for a folder that cannot be copied,
    UnmetError when the program fails: in its first run, or otherwise than by its exit status; where it
    `needs_exact`, PrerequisiteError when exact mode itself cannot start."""
    folders.check_size(ask.folder)
    trials: list[Trial] = []
    noticed: list[notices.Notice] = []
    notes = dict.fromkeys(notes_of_gpus(conditions))
    statuses: set[int] = set()  # of the runs without exact mode
    exact_fails = False
    in_force: dict[int, set[tuple[int, ...]]] = {}  # by the thread count that was asked
    with folders.scratch("vbstudy-try-", ask.argv) as scratch, watched() as mark:
        library = archive.build().write(scratch)
        # Repetitions alternate between conditions, forwards and backwards, so that drift of the machine is
        # not taken for an effect.
        order = [
            (condition, number)
            for number in range(1, ask.repetitions + 1)
            for condition in (conditions if number % 2 else reversed(conditions))
        ]
        asked = {(condition.label, number) for condition, number in order}
        there = {key: run for key, run in kept.read().items() if key in asked} if kept else {}
        if kept and there:
            say(f"{len(there)} of {len(order)} runs are kept in {kept.folder}, and are not run again")
        for i, (condition, number) in enumerate(order, 1):
            if condition.exact and exact_fails:
                continue
            done = there.get((condition.label, number))
            if done is None:
                say(f"run {i} of {len(order)}: {condition.label}")
                done = _once(ask, scratch, library, condition, number, mark, first=i == 1)
                trial = done.trial
                if ask.needs_exact and condition.exact:
                    _check_started(trial)
                seen = f"{counted(len(trial.metrics), 'named number')}, {counted(len(trial.files), 'file')}"
                say(f"  {trial.wall_s:.1f} s, {seen}")
                if kept:
                    kept.add(done)
            trials.append(done.trial)
            noticed += done.noticed
            if condition.exact:
                exact_fails = done.trial.status not in {0, *statuses}
                if exact_fails:
                    last = next(filter(None, reversed(done.trial.lines)), "it printed nothing")
                    notes[f"with exact mode it ended with status {done.trial.status}: {last}"] = None
            else:  # exact mode has pools of its own
                statuses.add(done.trial.status)
                in_force.setdefault(condition.threads, set()).add(notices.intra_op(done.noticed))
            notes |= dict.fromkeys(done.remarks)
        copy = (scratch / COPY / prepare.WORK).resolve()
        others = (file for file in _outside(noticed, copy) if role_of(file[0]) is Role.OTHER)
        notes |= dict.fromkeys(folders.notes_of_others(others))
    if once := _written_once(trials):
        trials[0] = replace(trials[0], files={k: v for k, v in trials[0].files.items() if k not in once})
        notes |= dict.fromkeys(folders.notes_of_downloads(once))
    versions = {name: version for notice in noticed for name, version in notice.get("versions", {}).items()}
    return Seen(
        trials=tuple(trials),
        overrides=notices.overrides(noticed),
        notes=tuple(notes),
        last_lines=tuple(filter(None, trials[0].lines))[-LINES_SHOWN:],
        software=versions,
        varied=len(in_force) < 2 or len(frozenset().union(*in_force.values()) - {()}) != 1,
        noticed=tuple(noticed),
    )


def _check_started(trial: Trial) -> None:
    """Raises PrerequisiteError when exact mode ended the program, as without a compiler."""
    begins = [i for i, line in enumerate(trial.lines) if line.startswith(EXACT_SAYS)]
    if trial.status == PrerequisiteError.exit_code and begins:
        first, *rest = trial.lines[begins[-1] :]
        raise PrerequisiteError(f"--exact: {first.removeprefix(EXACT_SAYS)}", evidence="\n".join(rest))


def _once(
    ask: Ask,
    scratch: Path,
    library: Path,
    condition: Condition,
    number: int,
    mark: dict[str, str],
    *,
    first: bool,
) -> Run:
    out = scratch / COPY  # the same path each time: programs write paths into their files
    remove_folder(out)
    out.mkdir()
    recording = scratch / RECORDING
    work = folders.copy(ask.folder, out / prepare.WORK)
    before = folders.stamps(work)
    control = control_of(ask.seed, recording, work, out)
    env = environment(condition, ask.seed, control, out, work, library, watch=True)
    limits = command.Limits(
        timeout_s=ask.timeout_s,
        disk_bytes=ask.disk_bytes,
        timeout_key="--timeout",
        disk_key="--disk-limit",
        check=control.check,
    )
    random_notes: list[str] = []
    try:
        env |= control.environment(env) | mark
        cores = threads.on_cores(host_cores()[: condition.threads])
        with (out / "log.txt").open("wb") as log, cores, control.errors_first():
            ended = command.run(
                in_place(ask.argv, ask.folder),
                work,
                env,
                log,
                limits,
                lambda *_: None,
                may_fail=not first and control.folder is None,
            )
        if ended.status == 0:
            _, random_notes = randomness.finish(control, ask.argv, recording)
    except command.CommandError as error:
        why = str(error).replace(f"{work}/", "")  # paths relative to the program
        where = condition.label if condition.env or condition.hook else counted(condition.threads, "thread")
        raise UnmetError(f"{shlex.join(ask.argv)}: on {where}: {why}") from None
    noticed = notices.read(out / prepare.NOTICED)
    lines, whole = _lines(out / "log.txt")
    last = () if whole else ended.last_lines.splitlines()
    # What is not printed by Python's own means has names alone: where is unknown.
    metrics = _metrics(noticed)
    metrics |= by_name(_unnoticed(noticed, (*lines, *last)))
    unread: list[str] = []
    try:
        told = [(name, repr(value.value)) for name, value in reported(out / prepare.REPORTED)]
        metrics |= by_name((f"{REPORTED}: {name}", value) for name, value in told)
    except MetricError as error:
        unread.append(f"{REPORTED}: {error}")
    files: dict[str, FileSeen] = {}
    for name, path in folders.written(work, before).items():
        role = role_of(name)
        values, words = ({}, None) if role is Role.PREDICTIONS else numbers(path)
        metrics |= {f"{name}: {key}": each for key, each in values.items()}
        if words or all(passes(key, in_file=True) for key in values):
            files[name] = words or _text(path, role) or read(path, role)
    files |= dict(_reported(out / prepare.REPORTED))
    for name, path in _outside(noticed, work):  # before the next run overwrites them
        if (role := role_of(name)) is not Role.OTHER:
            files[name] = read(path, role)
    files |= _in_memory(noticed)
    stray = [f"child processes left running, and ended: {ended.strays}"] if ended.strays else []
    stray += [f"child processes left running that cannot be ended: {ended.unended}"] if ended.unended else []
    trial = Trial(
        condition=condition.label,
        threads=condition.threads,
        repetition=number,
        wall_s=ended.wall_s,
        metrics=metrics,
        files=files,
        lines=lines,
        status=ended.status,
    )
    # Exact mode sets pools of its own.
    remarks = [] if condition.exact else notices.remarks(noticed, condition.asked)
    kinds = [notice["kind"] for notice in noticed]
    unseen = [UNSEEN] if kinds.count("optimizer") > kinds.count("weights") else []
    long = [] if whole else [LONG]
    remarks = [*remarks, *random_notes, *unread, *unseen, *stray, *long]
    return Run(trial=trial, noticed=tuple(noticed), remarks=tuple(remarks))


def _text(path: Path, role: Role) -> FileSeen | None:
    """A file of text, by what is comparable in it; None for another file."""
    if role is not Role.OTHER or path.suffix not in TEXTS or path.stat().st_size > command.LOG_LIMIT_BYTES:
        return None
    try:
        lines = path.read_text("utf-8").splitlines()
    except UnicodeDecodeError:
        return None
    digest = hashlib.sha256("\n".join(filter(None, map(comparable, lines))).encode()).hexdigest()
    caveat = "compared line by line, but for times and thread counts"
    return FileSeen(role=role, digest=digest, parsed=False, caveat=caveat)


def in_place(argv: Sequence[str], folder: Path) -> list[str]:
    """A program that no copy of its folder has, as `.venv/bin/python`, where it lies."""
    if os.sep not in argv[0]:
        return [*argv]
    lies = os.path.abspath(folder / argv[0])  # noqa: PTH100  (an environment's python is a link, kept as it is)
    outside = not Path(os.path.realpath(lies)).is_relative_to(folder.resolve())
    above = any(folders.is_environment(folder / parent) for parent in Path(argv[0]).parents)
    absent = outside or above or not SKIPPED.isdisjoint(Path(argv[0]).parts)
    return [lies if absent and os.access(lies, os.X_OK) else argv[0], *argv[1:]]


def environment(
    condition: Condition,
    seed: int | None,
    control: randomness.Control,
    out: Path,
    work: Path,
    library: Path,
    *,
    watch: bool = False,
    hooks: str = "",
) -> dict[str, str]:
    """The environment of a program's run: the user's own, with the start-up hook and under the condition.
    Further `hooks` lie in a folder."""
    # What the user's own shell has set still holds.
    own = dict(os.environ) | dict(condition.env)
    hook = prepare.hook_settings(
        out,
        work,
        library,
        watch=watch,
        paths=os.pathsep.join(filter(None, (hooks, own.get("PYTHONPATH", "")))),
        **condition.hook_settings(control.seed),
    )
    asked = condition.asked
    spec = program_spec("program", asked, seed)
    env = (
        own
        | threads.environment(spec, cpu_vendor=fingerprint.cpu()["vendor"])
        | {
            **hook,
            "OPENBLAS_NUM_THREADS": str(asked.intra_op),
            "PYTHONHASHSEED": control.hash_seed,
            "PYTHONUNBUFFERED": "1",
        }
        | {name: value for name, value in condition.env.items() if name != "PYTHONPATH"}
    )
    return launch.environment(env) if condition.exact else env


def control_of(seed: int | None, recording: Path | None, work: Path, out: Path) -> randomness.Control:
    """The random numbers of one run: without a seed replayed where there is a recording, else recorded."""
    if seed is not None:
        return randomness.seeded(seed)
    if recording is not None and recording.exists():
        return randomness.player(recording, work, out, None)
    return randomness.recorder(work, out, None)


def _reported(folder: Path) -> Iterator[tuple[str, FileSeen]]:
    for name, role in (("weights", Role.WEIGHTS), ("predictions", Role.PREDICTIONS)):
        path = folder / f"{name}.npz"
        if path.is_file():
            yield f"vbstudy.report.{name}", read(path, role)


def _outside(noticed: Sequence[notices.Notice], work: Path) -> Iterator[tuple[str, Path]]:
    """The files that Python wrote outside of the copy, by names that do not depend on where that lies."""
    ours = {work.parent / name for name in OURS}
    for path in sorted({Path(str(n.get("path"))) for n in noticed if n["kind"] == "file"}):
        if ours.isdisjoint(path.parents) and os.path.isfile(path):  # noqa: PTH113  (no error for a bad name)
            yield os.path.relpath(path, work) if path.is_relative_to(work.parent) else str(path), path


def _written_once(trials: Sequence[Trial]) -> list[str]:
    """The files outside of all copies that were written in the first run alone; none where later runs wrote
    others: these may be the same by changing names."""
    first, *later = ({name for name in trial.files if name.startswith(os.sep)} for trial in trials)
    others = set[str]().union(*later)
    return sorted(first - others) if later and others <= first else []


def _in_memory(noticed: Sequence[notices.Notice]) -> dict[str, FileSeen]:
    """The weights that were trained: a file may have those of before, or not be read."""
    held = sorted((n for n in noticed if n["kind"] == "weights"), key=lambda notice: str(notice["digest"]))
    if not held:
        return {}
    digest = " ".join(str(notice["digest"]) for notice in held)  # of several processes, in no order
    count = sum(int(notice["count"]) for notice in held)
    return {IN_MEMORY: FileSeen(role=Role.WEIGHTS, digest=digest, parsed=True, caveat="", count=count)}


def _lines(log: Path) -> tuple[tuple[str, ...], bool]:
    """What was printed, line by line; of a progress bar its last state. And whether that is all of it."""
    with log.open("rb") as file:
        lines = tuple(
            last_state(raw.decode(errors="replace").rstrip())[: command.LINE_LIMIT_BYTES]
            for raw in itertools.islice(file, LINES_COMPARED)
        )
        return lines, not file.read(1) and log.stat().st_size < command.LOG_LIMIT_BYTES


def _metrics(noticed: Sequence[notices.Notice]) -> dict[str, tuple[str, ...]]:
    """Values by name and place of printing."""
    return by_name(
        (f"{name} @ {notice['where']}" if notice.get("where") else name, value)
        for notice in noticed
        if notice["kind"] == "numbers"
        for name, value in notice["pairs"]
    )


def _unnoticed(noticed: Sequence[notices.Notice], lines: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Named numbers in the output that no hook reported, as those of a shell. Handlers put words before
    what is logged: `info accuracy`."""
    known: dict[str, set[str]] = {}
    for notice in noticed:
        for name, value in notice["pairs"] if notice["kind"] == "numbers" else ():
            known.setdefault(value, set()).add(name)
    for line in lines:
        for name, value in () if WARNING.search(line) else pairs(line):
            if not name.endswith(tuple(known.get(value, ()))):
                yield name, value


def framework_of(software: Collection[str]) -> Framework | None:
    """The one that a program computes with, by what it imported."""
    return next((each for each in Framework if each in software), None)


def times(trials: Sequence[Trial]) -> dict[str, list[float]]:
    """Seconds of each run by condition, in order; the first run of all, which read everything from disk and
    compiled what was to be compiled, is left out."""
    found: dict[str, list[float]] = {trial.condition: [] for trial in trials}
    for trial in trials[1:]:
        found[trial.condition].append(trial.wall_s)
    return found
