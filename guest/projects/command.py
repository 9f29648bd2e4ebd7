"""Runs a project's command: its output is read line by line and kept, its time and what it writes are
limited, and whatever it started is ended with it."""

from __future__ import annotations

import collections
import contextlib
import ctypes
import os
import re
import resource
import shlex
import signal
import stat
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from guest.machine.signals import how_ended

PR_SET_CHILD_SUBREAPER = 36
LOG_LIMIT_BYTES = 32 << 20
LINE_LIMIT_BYTES = 1 << 16
LAST_LINES = 20
TRACEBACK, TRACEBACK_LINES = "Traceback (most recent call last):", 200
AGENT_FRAME = re.compile(r'^  File "[^"\n]*/agent-\w+\.pyz/.*\n(?:    .*\n)*', re.MULTILINE)
NO_GPU = re.compile(
    r"No CUDA GPUs are available|torch\.cuda\.is_available\(\) is False|no CUDA-capable device|platform CUDA"
)
COLOURS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")  # as in hooks/vbstudy_watch.py, which agents cannot import
POLL_S = 0.05
END_WITHIN_S = 30.0
LAST_WORDS_S = 2.0
DISK_EVERY_S = 1.0  # and at most a tenth of the time: looking at many files takes a while
OnLine = Callable[[str, float], None]  # the line, seconds since the start


class CommandError(RuntimeError):
    """The command failed; `kind` is how, the text states what to do and ends with the last lines.
    `stack` is of the process that ended it, where that is known."""

    def __init__(self, kind: str, message: str, stack: str = "") -> None:
        super().__init__(message)
        self.kind = kind
        self.stack = stack


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """A command that ended by itself; `status` is 0, or that of one that may fail."""

    wall_s: float
    cpu_s: float
    disk_bytes: int
    last_lines: str
    strays: int  # processes it left running, which were ended
    unended: int  # and those that could not be, as another user's
    status: int


@dataclass(slots=True, kw_only=True)
class Limits:
    """`check` is called while the command runs, and ends it by raising; `timeout_s` None: no limit of its
    own. The keys are what errors call the limits."""

    timeout_s: float | None
    disk_bytes: int
    timeout_key: str = "timeout_s"
    disk_key: str = "disk_limit_mib"
    check: Callable[[], None] = field(default=lambda: None)


def run(
    argv: Sequence[str],
    folder: Path,
    env: Mapping[str, str],
    log: IO[bytes],
    limits: Limits,
    on_line: OnLine,
    *,
    may_fail: bool = False,
) -> Ended:
    """Runs `argv` in `folder` to its end. Raises CommandError when it cannot be started, fails (unless it
    `may_fail`), takes too long or writes too much; an error that `on_line` raises ends the command and
    passes on."""
    adopt_orphans()
    others = set(descendants(os.getpid()))
    before = disk_use(folder)

    def written() -> int:
        return max(0, disk_use(folder) - before)

    most = before + limits.disk_bytes + 1  # of one file, which may have been there; a byte too many is seen
    began, cpu_began = time.monotonic(), _cpu_s()
    output = _Output(log, on_line, began)
    try:  # it runs before Popen returns, which a signal may interrupt
        process = _start(argv, folder, env)
        with contextlib.suppress(ProcessLookupError, PermissionError):  # it ended already
            resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (most, most))
        output.read(process)
        _wait(process, written, limits, output, began)
    finally:
        strays, unended = end_descendants(others)
        output.close(LAST_WORDS_S if unended else None)
        if unended:
            log.write(
                f"\n[vbstudy] processes that cannot be ended: {', '.join(map(str, unended))}\n".encode()
            )
    if output.error is not None:
        raise output.error
    used = written()
    if used > limits.disk_bytes:
        raise _disk_error(used, limits, output)
    if process.returncode != 0 and not may_fail:
        last = output.tail()
        raise CommandError(
            "ProjectFailed", f"{_how(process.returncode)}{_hint(last, argv)}; last lines:\n{last}"
        )
    return Ended(
        wall_s=time.monotonic() - began,
        cpu_s=_cpu_s() - cpu_began,
        disk_bytes=used,
        last_lines=output.tail(),
        strays=strays,
        unended=len(unended),
        status=process.returncode,
    )


def _start(argv: Sequence[str], folder: Path, env: Mapping[str, str]) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(
            list(argv),
            cwd=folder,
            env={**env, "PWD": str(folder)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
    except OSError as error:
        why = not_started(argv[0], folder, error)
        raise CommandError("CommandNotFound", f"{argv[0]}: {why}") from None


def not_started(name: str, folder: Path, error: OSError) -> str:
    """Why a command could not be started in its folder, and what to write instead."""
    if (folder / name).is_file():
        if name.endswith(".ipynb"):
            return f"is a notebook; make it a script first: jupyter nbconvert --to script {name}"
        interpreter = {".py": "python", ".sh": "bash"}.get(Path(name).suffix)
        hint = (
            f"write: {interpreter} {name}" if interpreter else "name its interpreter, as in python train.py"
        )
        return f"is a file that cannot be executed; {hint}"
    if isinstance(error, FileNotFoundError):
        quoted = "; a command and its arguments go without quotes around them" if " " in name else ""
        return f"command not found, neither in the folder that it runs in nor in PATH{quoted}"
    return f"cannot be started: {error.strerror}"


def _wait(
    process: subprocess.Popen[bytes],
    written: Callable[[], int],
    limits: Limits,
    output: _Output,
    began: float,
) -> None:
    """Until the command has ended."""
    looked, took = time.monotonic(), 0.0
    while process.poll() is None:
        time.sleep(POLL_S)
        now = time.monotonic()
        if output.error is not None:
            return
        limits.check()
        if limits.timeout_s is not None and now - began > limits.timeout_s:
            over = f"{limits.timeout_key} = {limits.timeout_s:g}"
            last = output.tail()
            raise CommandError("Timeout", f"not done within {over}; last lines:\n{last or '(none)'}")
        if now - looked > max(DISK_EVERY_S, 10 * took):
            used = written()
            looked = time.monotonic()
            took = looked - now
            if used > limits.disk_bytes:
                raise _disk_error(used, limits, output)


def _disk_error(used: int, limits: Limits, output: _Output) -> CommandError:
    return CommandError(
        "DiskLimit",
        f"wrote {used / 2**20:.0f} MiB into its folder, {limits.disk_key} allows "
        f"{limits.disk_bytes / 2**20:.0f}; last lines:\n{output.tail()}",
    )


def _how(status: int) -> str:
    if status >= 0:
        return f"the command ended with status {status}"
    hint = " (out of memory?)" if -status == signal.SIGKILL else ""
    hint = " (a file larger than what it may write in all?)" if -status == signal.SIGXFSZ else hint
    return f"the command was {how_ended(status)}{hint}"


def _hint(last_lines: str, argv: Sequence[str]) -> str:
    """What is different here from the user's own shell, where that may be why a program failed."""
    if "EOFError" in last_lines:
        return " (its standard input is empty)"
    if "Inappropriate ioctl" in last_lines or "not a tty" in last_lines:
        return " (it runs without a terminal)"
    if "get_ipython" in last_lines:
        return " (it was a notebook: remove the lines with get_ipython())"
    if "ModuleNotFoundError" in last_lines:
        return " (the Python that ran it lacks a module: install it there; one of your own needs PYTHONPATH)"
    if NO_GPU.search(last_lines):
        return " (GPUs are hidden from it by CUDA_VISIBLE_DEVICES=-1: have it compute on the CPU)"
    if "not a git repository" in last_lines or "InvalidGitRepositoryError" in last_lines:
        return " (it runs in a copy of its folder, without .git: set GIT_DIR to the absolute path of .git)"
    if "No such file or directory" in last_lines:
        above = shlex.join(["sh", "-c", f"cd FOLDER && {shlex.join(argv)}"])
        hint = f", or run it from the folder above: {above}" if "../" in last_lines else ""
        return f" (it runs in a copy of its folder: what lies elsewhere needs an absolute path{hint})"
    return ""


class _Output:
    """A thread that reads what the command prints. Lines end with a newline or, as those of progress bars,
    a carriage return; `on_line` gets them without colours."""

    def __init__(self, log: IO[bytes], on_line: OnLine, began: float) -> None:
        self.error: BaseException | None = None
        self._log, self._on_line, self._began = log, on_line, began
        self._last: collections.deque[str] = collections.deque(maxlen=TRACEBACK_LINES)
        self._written, self._closed = 0, False
        self._process: subprocess.Popen[bytes] | None = None

    def read(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None  # noqa: S101  (opened with a pipe)
        self._thread = threading.Thread(target=self._read, args=(process.stdout,), daemon=True)
        self._thread.start()
        self._process = process

    def tail(self) -> str:
        """The last lines; a traceback from where it begins, but for what the agent does in it."""
        lines = list(self._last)
        begins = (i for i, line in enumerate(lines) if TRACEBACK in line)
        first = min(max(begins, default=len(lines)), max(0, len(lines) - LAST_LINES))
        return AGENT_FRAME.sub("", "\n".join(lines[first:]))

    def close(self, timeout_s: float | None) -> None:
        """Reads what is left; nothing more after `timeout_s`, while a process may keep the pipe open."""
        if self._process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):  # it cannot be ended
                self._process.wait(timeout_s)
            self._thread.join(timeout_s)
        self._closed = True

    def _read(self, stdout: IO[bytes]) -> None:
        rest = b""
        with stdout as pipe:
            while piece := pipe.read1(1 << 16):  # type: ignore[attr-defined]
                if self._closed:
                    return
                self._keep(piece)
                *lines, rest = (rest + piece).replace(b"\r", b"\n").split(b"\n")
                for line in lines:
                    self._line(line)
                if len(rest) > LINE_LIMIT_BYTES:
                    self._line(rest)
                    rest = b""
        self._line(rest)

    def _keep(self, piece: bytes) -> None:
        room = LOG_LIMIT_BYTES - self._written
        if room <= 0:
            return
        self._written += len(piece)
        try:
            self._log.write(piece[:room])
            if self._written >= LOG_LIMIT_BYTES:
                self._log.write(f"\n[the log ends here: more than {LOG_LIMIT_BYTES >> 20} MiB]\n".encode())
            self._log.flush()  # it is read while the command runs, and when it was killed
        except (OSError, ValueError) as error:  # a full disk; or closed, as Ctrl-C ended `close`
            self.error = self.error or error

    def _line(self, line: bytes) -> None:
        text = line.decode(errors="replace").rstrip()
        if not text or self.error is not None:
            return
        self._last.append(text[:500])
        try:
            self._on_line(COLOURS.sub("", text), time.monotonic() - self._began)
        except Exception as error:  # noqa: BLE001  (raised again where the command is waited for)
            self.error = error


def disk_use(folder: Path) -> int:
    """Bytes of the plain files below a folder, without holes. Files that vanish meanwhile are ignored."""
    total, waiting = 0, [str(folder)]
    while waiting:
        try:
            entries = list(os.scandir(waiting.pop()))
        except OSError:
            continue
        for entry in entries:
            with contextlib.suppress(OSError):
                seen = entry.stat(follow_symlinks=False)
                if stat.S_ISDIR(seen.st_mode):
                    waiting.append(entry.path)
                elif stat.S_ISREG(seen.st_mode):
                    total += min(seen.st_size, seen.st_blocks * 512)
    return total


# ---- what the command started ---------------------------------------------------------------------


def adopt_orphans() -> None:
    """Processes that lose their parent become children of this one, not of init."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def end_descendants(others: set[int]) -> tuple[int, list[int]]:
    """Kills all processes below this one, however deep, but for `others`: how many still ran and were ended,
    and those that cannot be: another user's (`sudo`), or not within `END_WITHIN_S`."""
    ended: set[int] = set()
    refused: set[int] = set()
    deadline = time.monotonic() + END_WITHIN_S
    while left := {pid: state for pid, state in descendants(os.getpid()).items() if pid not in others}:
        for pid, state in left.items():
            if state == "Z":  # it has ended, and its parent is this process or will be
                with contextlib.suppress(ChildProcessError):
                    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG)
                continue
            ended.add(pid)
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
            except PermissionError:
                refused.add(pid)
        if left.keys() <= refused or time.monotonic() > deadline:
            break
        time.sleep(0.01)
    return len(ended - left.keys()), sorted(pid for pid, state in left.items() if state != "Z")


def descendants(*roots: int) -> dict[int, str]:
    """The state (R, S, Z, ...) of every process below `roots`."""
    children: dict[int, list[tuple[int, str]]] = {}
    for process in Path("/proc").glob("[0-9]*"):  # a pattern below it fails for one that ends meanwhile
        with contextlib.suppress(OSError):
            state, parent, *_ = (process / "stat").read_text().rpartition(")")[2].split()
            children.setdefault(int(parent), []).append((int(process.name), state))
    found: dict[int, str] = {}
    waiting = [*roots]
    while waiting:
        for pid, state in children.get(waiting.pop(), []):
            found[pid] = state
            waiting.append(pid)
    return found


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
