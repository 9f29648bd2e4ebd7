"""`vbstudy trace -- COMMAND`: the first operation of a user's program that gives unequal outputs from equal
inputs on two thread counts, or under two values of another factor. Nothing is edited: the program runs in
copies of its folder, seeded from outside.

    first pass    both sides at once; their operations are compared in order, up to the first difference
    second pass   both again: each must repeat itself up to there; that operation's outputs are kept, and the
                  weights after some steps from there on
    same value    only where a side does not repeat itself, or where the difference came from outside: twice
                  the same value, to name what does not repeat"""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import IO

import numpy as np

from guest.probe import registry
from guest.projects import notices, prepare, randomness
from guest.records import bounded
from guest.records.run import RECORDING, Framework
from guest.records.trace import Growth, OpNote, Origin, Outcome, Phase, TensorNote
from guest.trace.wire import END, LIMIT, address
from orchestrator.agent import archive
from orchestrator.cores.leases import host_cores
from orchestrator.errors import ProtocolError, ScriptFailedError, UsageError
from orchestrator.experiments.trace import Apart, Say, shown
from orchestrator.experiments.trace_compare import hashes, kind
from orchestrator.programs import folders
from orchestrator.programs.conditions import Condition, Factor
from orchestrator.programs.try_runs import DISK_LIMIT_BYTES, control_of, environment

HOOK = "sitecustomize.py"
GROWTH_STEPS = 4
POLL_S = 0.1
EAGERLY = {
    "tensorflow": "TensorFlow's functions ran eagerly, one operation after the other: what a graph fuses is "
    "not seen",
    "jax": "JAX's functions ran without jit, one primitive after the other: what XLA fuses is not seen",
}
CUT = "the program ended without Python's own end (os._exit): its last operations were not seen"
NOTHING = (
    "no operation of PyTorch, TensorFlow or JAX was seen, and others are not traced; which library's thread "
    "pool matters: vbstudy try --which"
)


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
class ProgramTrace:
    """What was found. `step` counts the optimizer steps from 1; `operations` were equal. `at` are the two
    operations where the sides differ, where there is no `origin`."""

    command: tuple[str, ...]
    framework: str  # torch, tensorflow or jax: where two compute, the one that began last
    factor: str
    sides: tuple[str, ...]  # the factor's values
    threads: tuple[int, ...]
    seed: int | None  # None: replayed
    hold: tuple[str, ...]
    outcome: Outcome
    steps: int
    step: int | None
    operations: int
    origin: Origin | None
    at: tuple[str, ...]
    unrepeatable: str  # the side that does not repeat itself, else ""
    growth: tuple[Growth, ...]
    notes: tuple[str, ...]


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


def work(ask: Ask, apart: Apart, say: Say) -> ProgramTrace:
    """Raises UsageError for a folder that cannot be copied and for a program that has nothing to trace,
    ScriptFailedError when it fails."""
    folders.check_size(ask.folder)
    with folders.scratch("vbstudy-trace-", ask.argv) as scratch:
        return _Tracer(ask, scratch, archive.build().write(scratch), apart, say).trace()


@dataclass(slots=True)
class _Tracer:
    ask: Ask
    scratch: Path
    library: Path
    apart: Apart
    say: Say
    notes: list[str] = field(default_factory=list, init=False)
    framework: str = field(default="", init=False)
    recording: Path | None = field(default=None, init=False)

    def trace(self) -> ProgramTrace:
        a, b = self.ask.factor.conditions
        if self.ask.seed is None:
            self.say("a first run, whose random numbers are recorded")
            recording = self.scratch / RECORDING
            with _Side(self, "recorded", a, None) as first:
                first.drain()
                first.check()
                randomness.finish(first.control, self.ask.argv, recording)
            self.recording = recording
        self.say(f"both run: {a.label} and {b.label}")
        with _Pair(self, (a, b)) as pair:
            met = pair.meet()
            self.framework = pair.framework
        if met.outcome is Outcome.EQUAL:
            return self._found(met)
        self.say(f"operation {met.index + 1:,} differs; again, to see whether both repeat themselves")
        if met.outcome is Outcome.UNLOCATED:
            return next(filter(None, map(self._unrepeatable, (a, b))), None) or self._found(met)
        with _Pair(self, (a, b), keep=met.index) as pair:
            digests = pair.digests_at(met.index)
            if digests == met.digests:
                if met.outcome is Outcome.SEQUENCE:
                    return self._found(met)
                pair.drain()
                origin = self._origin(pair, met)
                return self._found(met, origin=origin, growth=tuple(self._growth(pair, met)))
        side = a if digests[0] != met.digests[0] else b
        again = self._unrepeatable(side)
        if again is None:
            self.notes.append(
                f"the second run with {side.label} differed from the first, and two more did not; named are "
                "the operations where the two sides differed"
            )
            again = self._found(met, Outcome.UNREPEATABLE, unrepeatable=side.label)
        return again

    def _unrepeatable(self, side: Condition) -> ProgramTrace | None:
        """What differs between two runs of one side; None where nothing does."""
        self.say(f"twice with {side.label}")
        with _Pair(self, (side, side)) as pair:
            met = pair.meet()
        if met.outcome is Outcome.EQUAL:
            return None
        return self._found(met, Outcome.UNREPEATABLE, unrepeatable=side.label)

    def _found(
        self,
        met: Met,
        outcome: Outcome | None = None,
        *,
        unrepeatable: str = "",
        origin: Origin | None = None,
        growth: tuple[Growth, ...] = (),
    ) -> ProgramTrace:
        equal = met.outcome is Outcome.EQUAL
        return ProgramTrace(
            command=self.ask.argv,
            framework=self.framework,
            factor=self.ask.factor.name,
            sides=tuple(each.label for each in self.ask.factor.conditions),
            threads=tuple(each.threads for each in self.ask.factor.conditions),
            seed=self.ask.seed,
            hold=self.ask.hold,
            outcome=outcome or met.outcome,
            steps=met.step,
            step=None if equal else met.step + 1,
            operations=met.index,
            origin=origin,
            at=() if equal or origin else tuple(map(_place, met.sides)),
            unrepeatable=unrepeatable,
            growth=growth,
            notes=tuple(self.notes),
        )

    def _origin(self, pair: _Pair, met: Met) -> Origin:
        logged = met.sides[0]
        assert logged is not None  # noqa: S101  (Outcome.OPERATION has both)
        note = logged.note
        compared = [
            (self.apart(x, y, dtype)[:2], x.size)
            for (_, dtype), x, y in pair.arrays("outputs")
            if x.shape == y.shape
        ]
        (differing, ulp), elements = max(compared, key=lambda each: each[0][0], default=((0, None), 0))
        if elements and not differing:
            self.notes.append(f"the first {elements:,} elements are compared; those behind them differ")
        return Origin(
            index=note.index,
            phase=note.phase,
            op=note.op,
            module=note.module,
            source=note.source,
            text=note.text,
            inputs=tuple(map(shown, note.inputs)),
            outputs=tuple(map(shown, note.outputs)),
            differing=differing,
            elements=elements,
            max_ulp=ulp,
            setting=_setting(self.framework, note.op),
        )

    def _growth(self, pair: _Pair, met: Met) -> Iterator[Growth]:
        """All weights of the optimizer that made the step, as one."""
        for step in range(met.step + 1, met.step + GROWTH_STEPS + 1):
            every = [
                (x.size, *self.apart(x, y, dtype), x, y, dtype)
                for (_, dtype), x, y in pair.arrays(f"weights-{step}")
                if x.shape == y.shape
            ]
            if not every:
                return
            l2 = float(np.sqrt(sum(each[3] ** 2 for each in every)))
            length = float(np.sqrt(sum((each[3] / each[4]) ** 2 if each[4] else 0.0 for each in every)))
            yield Growth(
                step=step,
                layer="",
                elements=sum(each[0] for each in every),
                differing=sum(each[1] for each in every),
                max_ulp=max((each[2] for each in every if each[2] is not None), default=None),
                l2=l2,
                relative_l2=l2 / length if length else 0.0,
            )


def _setting(framework: str, op: str) -> str:
    known = framework in tuple(Framework)
    return (registry.setting_of(Framework(framework), op) or "") if known else ""


def _place(logged: Logged | None) -> str:
    if logged is None:
        return "the program has ended"
    note = logged.note
    inputs = ", ".join(map(shown, note.inputs))
    where = " ".join(filter(None, (note.module, f"at {note.source}" if note.source else "")))
    return f"{note.op} ({note.phase} {where}) of {inputs or 'nothing'}"


# ---- two runs at once ----------------------------------------------------------------------


class _Pair:
    """Both sides, running; their lines are read side by side. Ended and removed when the block ends."""

    def __init__(
        self, tracer: _Tracer, conditions: tuple[Condition, Condition], keep: int | None = None
    ) -> None:
        self._tracer = tracer
        self._conditions = conditions
        self._keep = keep

    def __enter__(self) -> _Pair:
        self._stack = ExitStack()
        try:
            self._sides = [
                self._stack.enter_context(_Side(self._tracer, letter, condition, self._keep))
                for letter, condition in zip("ab", self._conditions, strict=True)
            ]
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

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
                    return self._met(Outcome.EQUAL, index, a.steps, (None, None))
                both = tuple(None if line is None else _logged(line, index) for line in (one, other))
                step = next(logged.step for logged in both if logged is not None)
                return self._met(Outcome.SEQUENCE, index, step, both)  # type: ignore[arg-type]
            a.digest.update(one[0])
            b.digest.update(other[0])
            if one[0] != other[0]:
                x, y = _logged(one, index), _logged(other, index)
                if kind(x.note) != kind(y.note):
                    outcome = Outcome.SEQUENCE
                elif hashes(x.note.inputs) != hashes(y.note.inputs):
                    outcome = Outcome.UNLOCATED
                else:
                    outcome = Outcome.OPERATION
                return self._met(outcome, index, x.step, (x, y))
            index += 1

    def _met(
        self, outcome: Outcome, index: int, step: int, sides: tuple[Logged | None, Logged | None]
    ) -> Met:
        a, b = self._sides
        return Met(
            outcome=outcome,
            index=index,
            step=step,
            sides=sides,
            digests=(a.digest.hexdigest(), b.digest.hexdigest()),
        )

    def digests_at(self, index: int) -> tuple[str, str]:
        for _ in range(index + 1):
            for side in self._sides:
                line = side.read()
                if line is not None:
                    side.digest.update(line[0])
        a, b = self._sides
        return a.digest.hexdigest(), b.digest.hexdigest()

    @property
    def framework(self) -> str:
        """Of the operations that were read; with two in one program, the one that began last."""
        return self._sides[0].frameworks[-1]

    def drain(self) -> None:
        """To the end of both."""
        readers = [threading.Thread(target=side.drain) for side in self._sides]
        for reader in readers:
            reader.start()
        for reader in readers:
            reader.join()

    def arrays(self, name: str) -> Iterator[tuple[tuple[str, str], np.ndarray, np.ndarray]]:
        """What both sides kept by this name: (place, dtype), and the bits."""
        paths = [side.out / f"{name}.npz" for side in self._sides]
        if not all(path.exists() for path in paths):
            return
        with np.load(paths[0]) as a, np.load(paths[1]) as b:
            for key in a.files:
                place, _, dtype = key.partition(" ")
                if key in b.files and a[key].size:
                    yield (place, dtype), a[key], b[key]


Line = tuple[bytes, bytes]  # what is compared, and where it was


class _Side:
    """One run, in a process of its own."""

    def __init__(self, tracer: _Tracer, letter: str, condition: Condition, keep: int | None) -> None:
        self.out = tracer.scratch / letter
        self.digest = hashlib.sha256()
        self.steps = 0
        self.limit = False
        self.frameworks: list[str] = []
        self._ended, self._whole = False, True  # whole: with a last line
        self._tracer, self._condition, self._keep = tracer, condition, keep
        self._error: list[str] | None = None
        self._lines: IO[bytes] | None = None

    def __enter__(self) -> _Side:
        ask, out = self._tracer.ask, self.out
        work = folders.copy(ask.folder, out / prepare.WORK)
        self.control = control = control_of(ask.seed, self._tracer.recording, work, out)
        self._listener = socket.socket(socket.AF_UNIX)
        with address(out) as path:
            self._listener.bind(path)
        self._listener.listen()
        self._listener.settimeout(POLL_S)
        job = {
            "argv": ask.argv,
            "work": str(work),
            "log": str(out / "log.txt"),
            "stop": str(out / "stop"),
            "env": self._environment(control, work),
            "random": str(control.folder or ""),
            "cores": host_cores()[: self._condition.threads],
            "timeout_s": ask.timeout_s,
            "disk_bytes": DISK_LIMIT_BYTES,
        }
        self._process = subprocess.Popen(
            [sys.executable, "-m", "guest.trace.side"],
            env=os.environ | {"PYTHONPATH": str(self._tracer.library)},
            cwd=out,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdin is not None  # noqa: S101
        with self._process.stdin as stdin:
            json.dump(job, stdin)
        return self

    def _environment(self, control: randomness.Control, work: Path) -> dict[str, str]:
        ask = self._tracer.ask
        hooks = self.out / "trace-hooks"
        hooks.mkdir()
        hook_file = resources.files("guest.trace") / "hooks" / HOOK
        (hooks / HOOK).write_bytes(hook_file.read_bytes())
        hook = prepare.hook_settings(
            self.out,
            work,
            self._tracer.library,
            paths=os.pathsep.join(filter(None, (str(hooks), os.environ.get("PYTHONPATH", "")))),
            **self._condition.hook_settings(control.seed),
        )
        settings = {
            "library": str(self._tracer.library),
            "folder": str(self.out),
            "root": str(work),
            "steps": sys.maxsize if control.folder and not control.replayed else ask.steps,
            "keep": self._keep,
            "growth": GROWTH_STEPS,
            "hold": list(ask.hold),
        }
        env = environment(self._condition, ask.seed, control.hash_seed, hook) | {
            "VBSTUDY_TRACE": json.dumps(settings),
            "TORCH_COMPILE_DISABLE": "1",  # compiled functions run eagerly: what they fuse is not seen
        }
        return env | control.environment(env)

    def __exit__(self, *_: object) -> None:
        self.out.mkdir(parents=True, exist_ok=True)  # the program may have removed it
        (self.out / "stop").touch()
        if self._lines is not None:
            self._lines.close()
        self._listener.close()
        self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()
        folders.remove(self.out)

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
                return compared, where
            with _of_the_hook():
                self._begins(json.loads(line)["framework"])
        return None

    def _begins(self, framework: str) -> None:
        """Operations of this framework follow."""
        self.frameworks.append(framework)
        if framework not in EAGERLY:
            return
        if self._tracer.ask.hold:
            raise UsageError(f"--hold: {framework} runs no operation on one thread alone; PyTorch does")
        if EAGERLY[framework] not in self._tracer.notes:
            self._tracer.notes.append(EAGERLY[framework])

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
        if self.limit or not self._ended:
            return
        if self._error is None:
            assert self._process.stdout is not None  # noqa: S101
            self._error = json.loads(self._process.stdout.read() or '["Lost", "was ended from outside"]')
            self._process.wait()
        ask = self._tracer.ask
        kind_, text = self._error
        if kind_:
            why = text.replace(f"{self.out / prepare.WORK}/", "")
            raise ScriptFailedError(f"{shlex.join(ask.argv)}: with {self._condition.label}: {why}")
        noticed = notices.read(self.out / prepare.NOTICED)
        remarks = [str(notice["what"]) for notice in noticed if notice["kind"] == "untraced"]
        if not self.frameworks:
            raise UsageError(f"{shlex.join(ask.argv)}: {remarks[0] if remarks else NOTHING}")
        if not self._whole:
            remarks.append(f"with {self._condition.label} {CUT}")
        self._tracer.notes += [note for note in remarks if note not in self._tracer.notes]


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
