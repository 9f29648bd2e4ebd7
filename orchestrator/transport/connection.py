"""How the host talks to a guest: run a command, stream one, put and get files. One small protocol;
a local process sandbox here and SSH (`orchestrator.transport.ssh`) are its two ends."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import stat
import subprocess
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Protocol

from guest.machine import threads
from guest.machine.folders import remove_folder
from guest.machine.signals import how_ended
from guest.projects.command import descendants
from orchestrator.errors import STORAGE_ERRNOS, GuestError, storage_error
from orchestrator.files import make_private

STDERR_TAIL_BYTES = 8192
MAX_LINE_BYTES = 4 << 20  # as Python objects it may take 25 times as much
MAX_UNREAD_BYTES = 2 * MAX_LINE_BYTES
MAX_OUTPUT_BYTES = 16 << 20
PIECE_BYTES = 1 << 20
PIPE_BYTES = 1 << 15
INHERITED = frozenset(
    ("PATH", "LANG", "LC_ALL", "VBSTUDY_DATA", "VBSTUDY_EXACT_ISA", "http_proxy", "https_proxy", "no_proxy",
     "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")
)  # fmt: skip
LINE_OVERHEAD_BYTES = 100  # of an object that holds a line
POLL_S = 0.01
LAST_WORDS_S = 5.0  # status and stderr come after the end of stdout, on a busy machine much later


@dataclass(frozen=True, slots=True, kw_only=True)
class Completed:
    """A command that ended."""

    status: int
    stdout: str
    stderr: str


class Stream(Protocol):
    """A running command: lines in, lines out."""

    def send(self, line: str) -> None:
        """Writes one line to its stdin. Raises GuestError when it has ended."""

    def receive(self, timeout_s: float) -> bytes | None:
        """Its next line of stdout, b"" at the end of the output, None after `timeout_s`."""

    def kill(self) -> None:
        """Ends it, with everything it started. Safe to call twice, and from another thread."""

    def stderr(self) -> str:
        """The tail of what it wrote to stderr; waits up to `LAST_WORDS_S` for its end."""

    def how_it_ended(self) -> str:
        """`exit status 1`, `killed by SIGKILL`, or that it is not known; for messages."""


class Connection(Protocol):
    """One guest's end. Remote paths are relative to the guest's working folder."""

    python: str
    shares_files: bool
    """Whether the guest sees this machine's files; where not, data sets are put into it."""

    def run(self, argv: Sequence[str], env: Mapping[str, str], timeout_s: float) -> Completed: ...
    def open(self, argv: Sequence[str], env: Mapping[str, str]) -> Stream: ...
    def put(self, local: Path, remote: str) -> None: ...
    def get(self, remote: str, local: Path, max_bytes: int) -> None: ...
    def remove(self, remote: str) -> None: ...
    def close(self) -> None: ...

    def terminal(self, command: Sequence[str]) -> tuple[list[str], Path | None]:
        """What to run in the user's own terminal, and where, to run `command` (nothing: a shell) in
        the guest."""


@contextlib.contextmanager
def collecting(local: Path) -> Iterator[BinaryIO]:
    """A file to collect a guest's bytes in. Trouble with *this* disk is not the guest's fault, and
    another attempt would not help: StoreError."""
    try:
        with local.open("wb") as file:
            yield file
    except OSError as error:
        if error.errno not in STORAGE_ERRNOS:
            raise
        raise storage_error(local, error) from None


def _piece(file: BinaryIO, size: int, remote: str) -> bytes:
    try:
        return file.read(size)
    except OSError as error:  # `collecting` would blame the file to write
        raise GuestError(f"{remote}: cannot be read in the guest: {error.strerror}") from None


class LocalConnection:
    """A process sandbox: own working folder, own environment, and only the given cores.

    `cgroup_procs` is the file that a process must be written to in order to join the guest's
    cgroup, or None; processes are started with the cores as their affinity in any case. `mark` is
    an environment variable by which the guest's processes are found again after a crash. `temporary` is
    the programs' TMPDIR, where it is not in the working folder."""

    shares_files = True

    def __init__(
        self,
        folder: Path,
        python: str,
        cores: tuple[int, ...],
        cgroup_procs: Path | None,
        mark: Mapping[str, str],
        temporary: Path | None = None,
    ) -> None:
        self.python = python
        self._folder = folder.absolute()  # HOME and TMPDIR are seen from within it
        self._temporary = (temporary or folder / "tmp").absolute()
        self._cores = cores
        self._cgroup_procs = cgroup_procs
        self._mark = dict(mark)
        self._streams: list[LocalStream] = []

    def run(self, argv: Sequence[str], env: Mapping[str, str], timeout_s: float) -> Completed:
        return self._start(argv, env).complete(argv[0], timeout_s)

    def open(self, argv: Sequence[str], env: Mapping[str, str]) -> Stream:
        stream = self._start(argv, env)
        self._streams.append(stream)  # point: stream opened
        return stream

    def put(self, local: Path, remote: str) -> None:
        target = self._folder / remote
        target.parent.mkdir(parents=True, exist_ok=True)
        part = target.with_name(target.name + ".part")
        shutil.copyfile(local, part)  # point: file put
        part.rename(target)  # point: put file renamed

    def get(self, remote: str, local: Path, max_bytes: int) -> None:
        try:  # a link is not followed, a pipe not waited for
            descriptor = os.open(self._folder / remote, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError:
            raise GuestError(f"{remote}: is not a plain file in the guest") from None
        too_large = f"{remote}: is larger than the {max_bytes} bytes that were announced"
        with os.fdopen(descriptor, "rb") as file:
            found = os.fstat(descriptor)
            if not stat.S_ISREG(found.st_mode):
                raise GuestError(f"{remote}: is not a plain file in the guest")
            if found.st_size > max_bytes:
                raise GuestError(too_large)
            left = max_bytes
            with collecting(local) as target:
                while left >= 0 and (piece := _piece(file, min(left + 1, PIECE_BYTES), remote)):
                    left -= len(piece)
                    target.write(piece)  # point: piece written
        if left < 0:  # it grew while it was read
            local.unlink()
            raise GuestError(too_large)

    def remove(self, remote: str) -> None:
        remove_folder(self._folder / remote)

    def close(self) -> None:
        for stream in self._streams:
            stream.kill()

    def terminal(self, command: Sequence[str]) -> tuple[list[str], Path | None]:
        settings = [f"{name}={value}" for name, value in self._base_environment().items()]
        limit = ["taskset", "-c", ",".join(map(str, self._cores))]
        program = list(command) or [os.environ.get("SHELL", "/bin/sh")]
        terminal = [f"TERM={os.environ.get('TERM', 'dumb')}"]
        return [*limit, "env", "-i", *settings, *terminal, *program], self._folder

    def _start(self, argv: Sequence[str], env: Mapping[str, str]) -> LocalStream:
        try:
            with threads.on_cores(self._cores):
                # point: process started
                process = subprocess.Popen(
                    list(argv),
                    cwd=self._folder,
                    env={**self._base_environment(), **env},
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    start_new_session=True,
                )
        except OSError as error:
            raise GuestError(f"{argv[0]}: cannot be started: {error.strerror}") from None
        stream = LocalStream(process)  # point: stream made
        if self._cgroup_procs is not None:
            try:
                self._cgroup_procs.write_text(str(process.pid))
            except ProcessLookupError:
                return stream  # it ended already; its status shows why
            except OSError as error:
                stream.kill()
                raise GuestError(f"the guest was stopped: {self._cgroup_procs}: {error.strerror}") from None
        return stream

    def _base_environment(self) -> dict[str, str]:
        """Nothing is inherited but what finds programs, names the locale, and finds what is downloaded."""
        make_private(self._temporary)
        kept = {k: v for k, v in os.environ.items() if k in INHERITED or k.startswith("PIP_")}
        return {
            **kept,
            **self._mark,
            "HOME": str(self._folder),
            "TMPDIR": str(self._temporary),
            "KERAS_HOME": str(self._folder / ".keras"),
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONNOUSERSITE": "1",
        }


class Lines:
    """What a command wrote and nobody has read yet: filled by one thread, read by another."""

    def __init__(self) -> None:
        self._lines: deque[bytes] = deque()
        self._held_bytes = 0
        self._ended = self._closed = False
        self._changed = threading.Condition()

    def put(self, line: bytes) -> None:
        """b"" is the end. Waits while too much is unread: who writes too fast is held up, too."""
        with self._changed:
            self._changed.wait_for(lambda: self._held_bytes < MAX_UNREAD_BYTES or self._closed or line == b"")
            if line == b"":
                self._ended = True
            elif not self._closed:
                self._lines.append(line)
                self._held_bytes += len(line) + LINE_OVERHEAD_BYTES
            self._changed.notify_all()

    def close(self) -> None:
        """Nobody reads any more: nothing more is kept, and who waits to put goes on."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def receive(self, timeout_s: float) -> bytes | None:
        """As `Stream.receive`."""
        with self._changed:
            self._changed.wait_for(lambda: bool(self._lines) or self._ended, max(timeout_s, 0))
            if not self._lines:
                return b"" if self._ended else None
            line = self._lines.popleft()
            self._held_bytes -= len(line) + LINE_OVERHEAD_BYTES
            self._changed.notify_all()
            return line


def read_all(stream: Stream, name: str, timeout_s: float) -> bytes:
    """Everything a command prints until it ends. Kills it, and raises GuestError, when that takes too long or
    is too much."""
    output, deadline = bytearray(), time.monotonic() + timeout_s
    while (line := stream.receive(deadline - time.monotonic())) != b"":
        if line is None:
            stream.kill()
            raise GuestError(f"{name} did not end within {timeout_s:.0f} s")
        output += line
        if len(output) > MAX_OUTPUT_BYTES:
            stream.kill()
            raise GuestError(f"{name} prints more than {MAX_OUTPUT_BYTES} bytes")
    return bytes(output)


class ReadStream:
    """What streams have in common: two threads that read what the command writes, a piece at a time."""

    def __init__(self, stdout: Iterator[bytes], stderr: Iterator[bytes]) -> None:
        self._lines = Lines()
        self._tail = bytearray()
        self._killed = threading.Event()
        self._readers = [
            threading.Thread(target=read, args=(pieces,), daemon=True)
            for read, pieces in ((self._read_stdout, stdout), (self._read_stderr, stderr))
        ]
        for reader in self._readers:
            reader.start()

    def receive(self, timeout_s: float) -> bytes | None:
        return self._lines.receive(timeout_s)

    def stderr(self) -> str:
        self._readers[1].join(LAST_WORDS_S)
        return bytes(self._tail).decode(errors="replace")

    def _read_stdout(self, pieces: Iterator[bytes]) -> None:
        held = bytearray()
        for piece in pieces:
            held += piece
            while (end := held.find(b"\n") + 1) or len(held) >= MAX_LINE_BYTES:
                cut = min(end or MAX_LINE_BYTES, MAX_LINE_BYTES)
                self._lines.put(bytes(held[:cut]))
                del held[:cut]
        if held:
            self._lines.put(bytes(held))
        self._lines.put(b"")

    def _read_stderr(self, pieces: Iterator[bytes]) -> None:
        for piece in pieces:
            self._tail += piece
            del self._tail[:-STDERR_TAIL_BYTES]


class LocalStream(ReadStream):
    """A process."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        super().__init__(_pieces(process.stdout), _pieces(process.stderr))

    def complete(self, name: str, timeout_s: float) -> Completed:
        """Everything it prints until it ends. Raises GuestError when that takes too long, or is too much."""
        assert self.process.stdin is not None  # noqa: S101  (opened with a pipe)
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        try:
            output = read_all(self, name, timeout_s)
            status = self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise GuestError(f"{name} closed its output and did not end") from None
        finally:
            self.kill()
        return Completed(status=status, stdout=output.decode(errors="replace"), stderr=self.stderr())

    def send(self, line: str) -> None:
        assert self.process.stdin is not None  # noqa: S101  (opened with a pipe)
        try:
            self.process.stdin.write(line.encode() + b"\n")  # point: line sent
            self.process.stdin.flush()
        except (BrokenPipeError, ValueError):
            raise GuestError("the agent has ended", evidence=self.stderr()) from None

    def kill(self) -> None:
        if not self._killed.is_set():  # once: a reaped process's number may be given to another
            self._killed.set()
            self._lines.close()
            if self.process.poll() is None:
                self._kill_descendants()
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)  # point: process group killed
        self.process.wait()
        if self.process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):  # what was not read will not be
                self.process.stdin.close()

    def _kill_descendants(self) -> None:
        """In other sessions, too, which a signal to its group does not reach. It is stopped first, and starts
        no others; an agent of projects has become the parent of what lost its own."""
        self.process.send_signal(signal.SIGSTOP)
        refused: set[int] = set()  # as another user's
        deadline = time.monotonic() + LAST_WORDS_S
        while time.monotonic() < deadline:
            found = descendants(self.process.pid).items()
            left = {pid for pid, state in found if state != "Z"} - refused
            if not left:
                return
            for pid in left:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue
                except PermissionError:
                    refused.add(pid)
            time.sleep(POLL_S)

    def how_it_ended(self) -> str:
        try:
            status = self.process.wait(LAST_WORDS_S)
        except subprocess.TimeoutExpired:
            return "it closed its output and still runs"
        return how_ended(status)


def _pieces(pipe: Any) -> Iterator[bytes]:
    with pipe:
        while piece := pipe.read1(PIPE_BYTES):
            yield piece
