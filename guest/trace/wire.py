"""From a user's program to the tracer: every operation, in order, as a line.

A line is what is compared, a tab, and where it was. The tracer reads the lines of two processes at the same
time; the pipe between holds back the faster one, so that neither side's memory grows."""

from __future__ import annotations

import atexit
import hashlib
import json
import linecache
import os
import socket
from collections.abc import Callable, Iterator, Sequence, Set
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, TypedDict

import numpy as np

from guest.records.trace import Phase, TensorNote
from guest.trace.log import Arrays, Where
from guest.trace.source import line_outside

TENSORS = 1000  # of an operation, as of a stack of rows, that are compared one by one
KEPT_BYTES = 64 << 20  # of an operation's outputs, and of the weights after one step
GROWTH_OPERATIONS = 20_000  # after the kept one or a step, where no step follows
OTHER_PROCESS = (
    "another process of the program makes optimizer steps: only the first process that computes is traced"
)
END, LIMIT = b"end", b"limit"  # the last line: the program's end, or that of what is traced


class Settings(TypedDict):
    """`keep` is the number of the operation whose outputs are wanted, and `growth` the steps after it;
    operations named in `hold` run on one thread; `loading`: also what a DataLoader computes in the process
    itself is traced."""

    library: str
    folder: str  # outside the program's: socket, kept arrays
    root: str
    steps: int
    keep: int | None
    growth: int
    hold: list[str]
    loading: bool


@contextmanager
def address(folder: Path) -> Iterator[str]:
    """The path of a folder's socket, short enough for one (107 bytes) wherever the folder is."""
    descriptor = os.open(folder, os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{descriptor}/socket"
    finally:
        os.close(descriptor)


class Wire:
    """The first process of the program that computes anything, of several ranks rank 0, is traced; `write`
    notes that others train, too."""

    def __init__(self, settings: Settings, write: Callable[..., None]) -> None:
        self.settings = settings
        self.on = True
        self._write_notice = write
        self._other = False  # another process is traced, and no notice says so
        self._to: socket.socket | None = None
        self._lines: list[bytes] = []
        self._waiting = 0  # bytes in these lines
        self._index = 0
        self._steps = 0
        self._kept_at: int | None = None  # the number of steps then
        self._grown_at = 0  # the number of operations then, or at the last step since
        self._frameworks: list[str] = []  # that have computed something
        self._held: set[str] = set()
        os.register_at_fork(after_in_child=self._abandon)
        atexit.register(self.close, END)

    def _abandon(self) -> None:
        """In a forked process: what it computes is its own."""
        self.on, self._other = False, True

    def line(self, frame: FrameType | None, packages: tuple[str, ...]) -> tuple[str, str]:
        """The innermost line of the user's own files; without one, the innermost outside the packages."""
        root, own = self.settings["root"] + os.sep, frame
        while own is not None:
            file = own.f_code.co_filename
            if file.startswith(root) and "/site-packages/" not in file:
                text = linecache.getline(file, own.f_lineno, own.f_globals).strip()
                return f"{file[len(root) :]}:{own.f_lineno} in {own.f_code.co_name}", text
            own = own.f_back
        return line_outside(frame, packages)

    def operation(
        self,
        framework: str,
        op: str,
        phase: Phase,
        where: Where,
        inputs: Sequence[TensorNote],
        outputs: Sequence[TensorNote],
        arrays: Arrays,
    ) -> None:
        """One that has been executed; `arrays` gives its outputs if they are wanted."""
        inputs, outputs = _few(inputs), _few(outputs)
        compared = [op, phase, [_compared(n) for n in inputs], [_compared(n) for n in outputs]]
        names = [[note.name for note in inputs], [note.name for note in outputs]]
        if framework not in self._frameworks:
            self._frameworks.append(framework)
            self._send(_bytes({"framework": framework}))
        self._send(_bytes(compared) + b"\t" + _bytes([self._steps, *where, *names]))
        if not self.on:  # another process is traced
            return
        if self._index == self.settings["keep"]:
            self._write("outputs", arrays())
            self._kept_at, self._grown_at = self._steps, self._index
        if self._kept_at is not None and self._index >= self._grown_at + GROWTH_OPERATIONS:
            self._finish()
        self._index += 1

    def held(self, names: Set[str]) -> None:
        """What follows runs on one thread, by these names of `hold`."""
        if new := names - self._held:
            self._held |= new
            self._send(_bytes({"held": sorted(new)}))

    def step(self, weights: Arrays) -> None:
        """An optimizer has made a step; `weights` gives its weights if they are wanted."""
        self._steps += 1
        self._grown_at = self._index
        if self._other:
            self._write_notice("untraced", what=OTHER_PROCESS)
            self._other = False
        if not self.on:
            return
        if self._kept_at is not None:
            self._write(f"weights-{self._steps}", weights())
            if self._steps >= self._kept_at + self.settings["growth"]:
                self._finish()
        elif self._steps >= self.settings["steps"]:
            self._finish()

    def _write(self, name: str, kept: Sequence[tuple[str, np.ndarray]]) -> None:
        """Their bits, as far as there is room; complete once the file has its name."""
        arrays, left = {}, KEPT_BYTES
        for i, (dtype, bits) in enumerate(kept):
            part = bits[: left // bits.itemsize]
            left -= part.nbytes
            arrays[f"{i} {dtype}"] = part
        path = Path(self.settings["folder"]) / f"{name}.npz"
        with path.with_suffix(".part").open("wb") as file:
            np.savez(file, allow_pickle=False, **arrays)
        path.with_suffix(".part").rename(path)

    def _send(self, line: bytes) -> None:
        if self._to is None:
            if os.environ.get("RANK", "0") != "0":  # of several ranks that begin at once, the same each time
                self.on = False
                return
            self._to = socket.socket(socket.AF_UNIX)
            try:
                (Path(self.settings["folder"]) / "claimed").touch(exist_ok=False)
                with address(Path(self.settings["folder"])) as path:
                    self._to.connect(path)
            except OSError:  # another process of the program was first
                self.on, self._other = False, True
                return
        self._lines.append(line)
        self._waiting += len(line)
        if self._waiting > 1 << 15:
            self._flush()

    def _flush(self) -> None:
        lines, self._lines, self._waiting = b"".join(line + b"\n" for line in self._lines), [], 0
        try:
            if self._to is not None:
                self._to.sendall(lines)
        except OSError:  # the tracer is gone: this run has no other purpose
            os._exit(1)

    def close(self, why: bytes) -> None:
        if self.on and self._to is not None:
            self._lines.append(why + b" %d" % self._steps)
            self._flush()
            self.on = False  # nobody reads what a later atexit handler computes

    def _finish(self) -> None:
        """Waits to be ended."""
        self.close(LIMIT)
        if self._to is not None:
            self._to.recv(1)
        os._exit(0)


def _few(notes: Sequence[TensorNote]) -> Sequence[TensorNote]:
    """Of more tensors than a line has room for, one note for all behind the first."""
    if len(notes) <= TENSORS:
        return notes
    rest = json.dumps([_compared(note) for note in notes[TENSORS:]], default=int).encode()
    joined = TensorNote(shape=(len(notes) - TENSORS,), dtype="tensors", hash=hashlib.sha256(rest).hexdigest())
    return [*notes[:TENSORS], joined]


def _compared(note: TensorNote) -> list[Any]:
    return [note.dtype, note.shape, note.layout, note.hash]


def _bytes(value: Any) -> bytes:
    # Under torch.jit.trace sizes are tensors.
    return json.dumps(value, separators=(",", ":"), default=int).encode()
