"""Two runs of a user's program at once, each in a copy of its folder and in a process of its own; their
operations are read side by side."""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import numpy as np

from guest.machine.folders import remove_folder
from guest.projects import notices, prepare, randomness
from guest.records import bounded
from guest.records.trace import OpNote, Outcome, Phase, TensorNote
from guest.replay import program
from guest.trace.wire import END, LIMIT, address
from orchestrator.cores.leases import host_cores
from orchestrator.errors import ProtocolError, UnmetError, UsageError
from orchestrator.experiments.trace_compare import equal_inputs, kind
from orchestrator.programs import folders
from orchestrator.programs.conditions import THREADS, Condition, Factor, given
from orchestrator.programs.try_runs import DISK_LIMIT_BYTES, control_of, environment, in_place

GROWTH_STEPS = 4
POLL_S = 0.1
EAGERLY = {
    "tensorflow": "TensorFlow's functions ran eagerly, one operation after the other: what a graph fuses is "
    "not seen",
    "jax": "JAX's functions ran without jit, one primitive after the other: what XLA fuses is not seen",
}
CUT = "the program ended without Python's own end (os._exit): its last operations were not seen"
BUSY = " (both sides run at once: let each take a free port, as `torchrun --standalone` does)"
NOTHING = "no operation of PyTorch, TensorFlow or JAX was seen, and others are not traced"
Line = tuple[bytes, bytes]  # what is compared, and where it was


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """What is traced, under two values of a factor. `seed` is that of all generators; None: the numbers that
    a first run draws are recorded, and given to the others. `steps` of optimizers at most; operations in
    `hold` run on one thread on both sides."""

    argv: tuple[str, ...]
    folder: Path
    factor: Factor
    seed: int | None
    steps: int
    hold: tuple[str, ...]
    timeout_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Logged:
    """One operation of one side; `step` are the optimizer steps before it."""

    step: int
    note: OpNote


@dataclass(frozen=True, slots=True, kw_only=True)
class Met:
    """Where two sides were when they were compared to the end, or to their first difference. `digests` are
    over all lines of a side up to there. A side that had ended is None."""

    outcome: Outcome
    index: int
    step: int
    sides: tuple[Logged | None, Logged | None]
    digests: tuple[str, str]


@dataclass(slots=True, kw_only=True)
class Runs:
    """What all runs of a program share. `notes` are for the user."""

    ask: Ask
    scratch: Path
    library: Path
    recording: Path | None = None  # of the first run's random numbers, once there is one
    notes: list[str] = field(default_factory=list)
    held: set[str] = field(default_factory=set)  # of what is to be held, what ran

    @contextmanager
    def pair(self, *conditions: Condition, keep: int | None = None) -> Iterator[Pair]:
        """Both sides, running; ended and removed when the block ends. `keep` is the number of the operation
        whose outputs are wanted."""
        with ExitStack() as stack:
            sides = (
                stack.enter_context(self.side(letter, condition, keep))
                for letter, condition in zip("ab", conditions, strict=True)
            )
            yield Pair(*sides)

    @contextmanager
    def side(self, letter: str, condition: Condition, keep: int | None = None) -> Iterator[Side]:
        """One run."""
        out = self.scratch / letter
        work = folders.copy(self.ask.folder, out / prepare.WORK)
        control = control_of(self.ask.seed, self.recording, work, out)
        job = {
            "argv": in_place(self.ask.argv, self.ask.folder),
            "work": str(work),
            "log": str(out / "log.txt"),
            "stop": str(out / "stop"),
            "env": self._environment(condition, control, out, work, keep),
            "random": str(control.folder or ""),
            "cores": host_cores()[: condition.threads],
            "timeout_s": self.ask.timeout_s,
            "disk_bytes": DISK_LIMIT_BYTES,
        }
        with socket.socket(socket.AF_UNIX) as listener:
            with address(out) as path:
                listener.bind(path)
            listener.listen()
            listener.settimeout(POLL_S)
            process = subprocess.Popen(
                [sys.executable, "-m", "guest.trace.side"],
                env=os.environ | {"PYTHONPATH": str(self.library)},
                cwd=out,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            assert process.stdin is not None  # noqa: S101
            assert process.stdout is not None  # noqa: S101
            side = Side(self, condition, control, out, listener, process)
            try:
                with process.stdin as stdin:
                    json.dump(job, stdin)
                yield side
            finally:
                out.mkdir(parents=True, exist_ok=True)  # the program may have removed it
                (out / "stop").touch()
                side.close()
                listener.close()
                process.wait()
                process.stdout.close()
                side.note()
                remove_folder(out)

    def _environment(
        self, condition: Condition, control: randomness.Control, out: Path, work: Path, keep: int | None
    ) -> dict[str, str]:
        hooks = out / "trace-hooks"
        program.copy_hooks("guest.trace", hooks)
        settings = {
            "library": str(self.library),
            "folder": str(out),
            "root": str(work),
            "steps": sys.maxsize if control.folder and not control.replayed else self.ask.steps,
            "keep": keep,
            "growth": GROWTH_STEPS,
            "hold": list(self.ask.hold),
            "loading": "workers" not in condition.hook,
        }
        env = environment(condition, self.ask.seed, control, out, work, self.library, hooks=str(hooks)) | {
            "VBSTUDY_TRACE": json.dumps(settings),
            "TORCH_COMPILE_DISABLE": "1",  # compiled functions run eagerly: what they fuse is not seen
        }
        return env | control.environment(env)


class Pair:
    """Two sides at work."""

    def __init__(self, a: Side, b: Side) -> None:
        self._sides = a, b

    def meet(self) -> Met:
        """Reads until the sides differ, or end."""
        a, b = self._sides
        index = 0
        while True:
            one, other = a.read(), b.read()
            if one is None or other is None:
                for side in self._sides:
                    side.check()
                if one is other:
                    return self._met(Outcome.EQUAL, index, a.steps, None, None)
                x, y = (None if line is None else _logged(line, index) for line in (one, other))
                step = next(logged.step for logged in (x, y) if logged is not None)
                return self._met(Outcome.SEQUENCE, index, step, x, y)
            if one[0] != other[0]:
                x, y = _logged(one, index), _logged(other, index)
                if kind(x.note) != kind(y.note):
                    outcome = Outcome.SEQUENCE
                elif not equal_inputs(x.note, y.note):
                    outcome = Outcome.UNLOCATED
                else:
                    outcome = Outcome.OPERATION
                return self._met(outcome, index, x.step, x, y)
            index += 1

    def _met(self, outcome: Outcome, index: int, step: int, x: Logged | None, y: Logged | None) -> Met:
        return Met(outcome=outcome, index=index, step=step, sides=(x, y), digests=self._digests())

    def _digests(self) -> tuple[str, str]:
        a, b = self._sides
        return a.digest.hexdigest(), b.digest.hexdigest()

    def digests_at(self, index: int) -> tuple[str, str]:
        """Reads up to there."""
        for _ in range(index + 1):
            for side in self._sides:
                side.read()
        return self._digests()

    @property
    def framework(self) -> str:
        """Of the operations that were read; with two in one program, the one that began last."""
        return self._sides[0].frameworks[-1]

    @property
    def limited(self) -> bool:
        """Whether they were ended after as many steps as were asked for."""
        return any(side.limit for side in self._sides)

    def drain(self) -> None:
        """To the end of both."""
        readers = [threading.Thread(target=side.drain) for side in self._sides]
        for reader in readers:
            reader.start()
        for reader in readers:
            reader.join()

    def arrays(self, name: str) -> Iterator[tuple[np.ndarray, np.ndarray, str]]:
        """What both sides kept by this name and of one shape: bits, bits, type."""
        paths = [side.out / f"{name}.npz" for side in self._sides]
        if not all(path.exists() for path in paths):
            return
        with np.load(paths[0]) as a, np.load(paths[1]) as b:
            for key in a.files:
                if key in b.files and a[key].size and a[key].shape == b[key].shape:
                    yield a[key], b[key], key.partition(" ")[2]


class Side:
    """One run, and what it sends."""

    def __init__(
        self,
        runs: Runs,
        condition: Condition,
        control: randomness.Control,
        out: Path,
        listener: socket.socket,
        process: subprocess.Popen[str],
    ) -> None:
        self.out = out
        self.control = control
        self.digest = hashlib.sha256()  # over what is compared of all lines that were read
        self.steps = 0
        self.limit = False
        self.frameworks: list[str] = []
        self._runs, self._condition, self._listener, self._process = runs, condition, listener, process
        self._ended, self._whole = False, True  # whole: with a last line
        self._lines: IO[bytes] | None = None

    def close(self) -> None:
        if self._lines is not None:
            self._lines.close()

    def read(self) -> Line | None:
        """The next operation; None after the last one."""
        while not self._ended:
            if self._lines is None and not self._accept():
                return None
            assert self._lines is not None  # noqa: S101
            line = self._lines.readline(bounded.MESSAGE.bytes)
            if not line.startswith((b"[", b"{")):
                why, _, steps = line.partition(b" ")
                self._ended, self.limit, self._whole = True, why == LIMIT, why in (END, LIMIT)
                self.steps = int(steps) if self._whole and steps.strip().isdigit() else self.steps
                return None
            if line.startswith(b"["):
                compared, _, where = line.partition(b"\t")
                self.digest.update(compared)
                return compared, where
            with _of_the_hook():
                follows = json.loads(line)
                if "held" in follows:
                    self._runs.held |= set(follows["held"]) & set(self._runs.ask.hold)
                else:
                    self._begins(follows["framework"])
        return None

    def _begins(self, framework: str) -> None:
        """Operations of this framework follow."""
        self.frameworks.append(framework)
        if framework not in EAGERLY:
            return
        if self._runs.ask.hold:
            raise UsageError(f"--hold: {framework} runs no operation on one thread alone; PyTorch does")
        if EAGERLY[framework] not in self._runs.notes:
            self._runs.notes.append(EAGERLY[framework])

    def drain(self) -> None:
        while self.read() is not None:
            pass

    def _accept(self) -> bool:
        """Whether the program has begun to compute; waits until it has, or has ended."""
        while True:
            over = self._process.poll() is not None
            try:
                connection, _ = self._listener.accept()
            except TimeoutError:
                if not over:
                    continue
                self._ended = True
                return False
            self._listener.close()
            connection.setblocking(True)
            with connection:
                self._lines = connection.makefile("rb")
            return True

    def check(self) -> None:
        """Raises when the side ended otherwise than a program to trace does."""
        if not self._ended:
            return
        assert self._process.stdout is not None  # noqa: S101
        kind_ = text = ""
        if not self.limit:
            kind_, text = json.loads(self._process.stdout.read() or '["Lost", "was ended from outside"]')
        command = shlex.join(self._runs.ask.argv)
        if kind_:
            why = text.replace(f"{self.out / prepare.WORK}/", "")
            eagerly = "; ".join(EAGERLY[each] for each in self.frameworks if each in EAGERLY)
            why += f" ({eagerly})" if eagerly else ""
            why += BUSY if "Address already in use" in text or "EADDRINUSE" in text else ""
            raise UnmetError(f"{command}: with {self._condition.label}: {why}")
        if not self.frameworks:
            untraced = _untraced(notices.read(self.out / prepare.NOTICED))
            raise UsageError(f"{command}: {untraced[0] if untraced else self._pools()}")

    def note(self) -> None:
        """Notes what was not traced, of a process that has ended or was ended."""
        noticed = notices.read(self.out / prepare.NOTICED)
        remarks = _untraced(noticed)
        if not self._condition.exact:
            remarks += notices.own_threads(noticed, self._condition.asked)
        if not self._whole:
            remarks.append(f"with {self._condition.label} {CUT}")
        self._runs.notes += [note for note in dict.fromkeys(remarks) if note not in self._runs.notes]

    def _pools(self) -> str:
        """What to do with a program of which nothing can be traced."""
        ask = self._runs.ask
        counts = [each.threads for each in ask.factor.conditions] if ask.factor.name == THREADS else []
        again = ("--which --replay" if ask.seed is None else "--which") + given(counts, ask.seed)
        program = shlex.join(ask.argv)
        return f"{NOTHING}; to see which library's threads matter, next: vbstudy try {again} -- {program}"


def _untraced(noticed: Sequence[notices.Notice]) -> list[str]:
    return [str(notice["what"]) for notice in noticed if notice["kind"] == "untraced"]


@contextmanager
def _of_the_hook() -> Iterator[None]:
    """Raises ProtocolError for lines that our hook does not write: the program may write there, too."""
    try:
        yield
    except (ValueError, LookupError, TypeError, RecursionError):
        raise ProtocolError(
            "the program wrote into the log of its own operations: it cannot be traced"
        ) from None


@_of_the_hook()
def _logged(line: Line, index: int) -> Logged:
    op, phase, *tensors = json.loads(line[0])
    step, module, source, text, *names = json.loads(line[1])
    inputs, outputs = (
        tuple(
            TensorNote(dtype=dtype, shape=tuple(shape), layout=layout, hash=digest, name=name)
            for (dtype, shape, layout, digest), name in zip(tensors[i], names[i], strict=True)
        )
        for i in (0, 1)
    )
    note = OpNote(
        index=index,
        phase=Phase(phase),
        op=op,
        module=module,
        source=source,
        text=text,
        inputs=inputs,
        outputs=outputs,
    )
    return Logged(step=step, note=note)
