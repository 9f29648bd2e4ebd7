"""What `vbstudy trace` does: trains in two guests that differ in their threads alone, and finds the first
step, and in it the first operation, from which on they diverge.

    steps        in windows that grow, until a step's hashes differ
    operations   of that step, in both; the logs are compared
    tensors      what the operations gave that part by themselves: how many elements, how far
    weights      after some steps from there on: how the difference grows

Every task trains from the start; a side whose steps do not repeat is reported, for nothing follows from
it."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open

from analysis.diagnosis.traces import apart
from guest.probe import registry
from guest.records import bounded
from guest.records.codec import from_json
from guest.records.plain_json import parse
from guest.records.printable import counted
from guest.records.run import RunSpec
from guest.records.trace import (
    OPERATIONS,
    TENSORS,
    Growth,
    OpNote,
    Origin,
    Outcome,
    Side,
    StepNote,
    Task,
    Trace,
    TraceAnswer,
)
from guest.trace.hash import hash_arrays
from orchestrator.errors import ProtocolError
from orchestrator.experiments.trace_compare import compare, dtype_of, first_difference, origin_of
from orchestrator.experiments.trace_guests import TraceGuest, sides
from orchestrator.store.store import Store, now
from orchestrator.study.schema import Study
from orchestrator.text import Say

FIRST_WINDOW = 8
GROWTH_STEPS = 12
GROWTH_BYTES = 1 << 30  # of weights that are fetched from each side
ORIGINS = 40  # operations whose outputs are fetched; the first one is what started it


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceScope:
    """What is traced. `steps` at most; `after` steps are known to be equal; `stored` are both stored runs'
    own step hashes, or empty."""

    steps: int
    after: int = 0
    stored: tuple[dict[str, str], ...] = ()
    run_ids: tuple[str, ...] = ("", "")


def work(
    study: Study,
    store: Store,
    specs: Sequence[RunSpec],
    scope: TraceScope,
    write: Callable[[Trace, Path], None],
    say: Say,
) -> Trace:
    """Traces, and publishes what was found as `trace/<id>/`. The caller holds the study's lock."""
    store.clear_incoming()
    trace_id = store.new_trace_id(specs[0].workload.name, [spec.threads.label for spec in specs])
    with store.new_trace(trace_id) as folder, sides(study, store, specs, say) as both:
        found = Tracer(trace_id, both, scope, folder, say).trace()
        write(found, folder)
    return found


@dataclass(slots=True)
class Tracer:
    """Two sides at work, one after the other: neither disturbs the other, both may have all cores.
    `_irreproducible` are guests that give other weights than are stored."""

    trace_id: str
    sides: Sequence[TraceGuest]
    scope: TraceScope
    folder: Path
    say: Say
    _notes: list[str] = field(default_factory=list, init=False)
    _answers: list[TraceAnswer] = field(default_factory=list, init=False)
    _as_written: bool = field(default=True, init=False)
    _unrepeatable: bool = field(default=False, init=False)
    _irreproducible: set[str] = field(default_factory=set, init=False)

    def trace(self) -> Trace:
        return dataclasses.replace(self._traced(), notes=tuple(self._notes))

    def _traced(self) -> Trace:
        last, steps = self._steps()
        found = self._equal(last)
        differing = first_difference(*steps)
        if differing is None:
            return found
        step, differs = differing
        self.say(f"step {step} is the first that differs, in its {differs}")
        logs, again = self._operations(step)
        growth = tuple(self._growth(step, steps))
        found = dataclasses.replace(
            found, outcome=Outcome.UNREPEATABLE, step=step, differs=differs, growth=growth
        )
        if self._unrepeatable:
            return found
        for side, before, after in zip(self.sides, steps, again, strict=True):
            expected = next(note for note in before if note.step == step)
            other = first_difference([expected], [after])
            if other is None:
                continue
            if self._as_written:
                self._notes.append(f"{side.guest} does not repeat itself: {other[1]} of step {step}")
                return found
            self._notes.append(
                f"{side.guest}: run one operation at a time, step {step} gives other {other[1]} than as "
                "one graph, which fuses operations"
            )
        compared = compare(*logs)
        if compared.at is not None:
            self._notes.append(
                f"the operations are not the same from number {compared.at} on: "
                f"{_first_pair(logs, compared.at)}"
            )
        return dataclasses.replace(
            found,
            outcome=compared.outcome,
            operations=len(logs[0]),
            origins=tuple(self._origins(step, logs, compared.origins)),
            unknown=tuple(sorted({n.op for log in logs for n in log if self._setting(n) is None})),
        )

    # ---- the tasks ---------------------------------------------------------------------------

    def _steps(self) -> tuple[int, list[tuple[StepNote, ...]]]:
        """The number of steps compared, and the notes of the last window."""
        first, last = self.scope.after + 1, min(self.scope.steps, self.scope.after + FIRST_WINDOW)
        while True:
            self.say(f"steps {first} to {last}")
            self._answers = [self._ask(side, Task.STEPS, (first, last)) for side in self.sides]
            notes = [answer.steps for answer in self._answers]
            if len(notes[0]) != len(notes[1]):
                raise ProtocolError(f"the guests answered for {len(notes[0])} and {len(notes[1])} steps")
            self._reproduced(notes)
            reached = notes[0][-1].step if notes[0] else first - 1
            if first_difference(*notes) or reached < last or last == self.scope.steps:
                return reached, notes
            first, last = last + 1, min(self.scope.steps, 4 * last)

    def _operations(self, step: int) -> tuple[list[list[OpNote]], list[StepNote]]:
        self.say(f"the operations of step {step}")
        logs, again = [], []
        for side, letter in zip(self.sides, "ab", strict=True):
            answer = self._ask(side, Task.OPERATIONS, (step,))
            path = self.folder / f"operations-{letter}.jsonl"
            (self.folder / OPERATIONS).rename(path)
            logs.append(_read_log(path, side.guest))
            again.append(answer.steps[0])
            self._as_written = answer.as_written
        return logs, again

    def _origins(self, step: int, logs: list[list[OpNote]], positions: Sequence[int]) -> Iterator[Origin]:
        if not positions:
            return
        wanted = tuple(positions[:ORIGINS])
        if len(positions) > ORIGINS:
            self._notes.append(
                f"{len(positions)} operations diverge by themselves; the first {ORIGINS} are listed"
            )
        self.say(f"what {counted(len(wanted), 'operation')} gave")
        with self._fetched(Task.TENSORS, (step,), wanted) as (a, b):
            for position in wanted:
                note = logs[0][position]
                outputs = (
                    (a.get_tensor(f"{position}/{i}"), b.get_tensor(f"{position}/{i}"), output.dtype)
                    for i, output in enumerate(note.outputs)
                )
                yield origin_of(note, outputs, self._setting(note) or "")

    def _growth(self, step: int, notes: Sequence[tuple[StepNote, ...]]) -> Iterator[Growth]:
        size = max(answer.weights_bytes for answer in self._answers)
        steps = growth_steps(
            step,
            min(self.scope.steps, self._answers[0].training_steps),
            max(1, min(GROWTH_STEPS, GROWTH_BYTES // max(size, 1))),
        )
        self.say(f"the weights after {len(steps)} steps")
        with self._fetched(Task.WEIGHTS, steps) as (a, b):
            for side, file, mine in zip(self.sides, (a, b), notes, strict=True):
                again = {
                    _layer(k): file.get_tensor(k) for k in sorted(file.keys()) if k.startswith(f"{step}/")
                }
                if hash_arrays(again) != next(note.weights for note in mine if note.step == step):
                    self._notes.append(f"{side.guest} does not repeat itself: weights of step {step}")
                    self._unrepeatable = True
            for key in sorted(a.keys(), key=lambda k: [int(part) for part in k.split("/")[:2]]):
                x, y = a.get_tensor(key), b.get_tensor(key)
                if x.dtype.kind != "f":
                    continue
                bits = np.dtype(f"u{x.itemsize}")
                differing, ulp, l2, relative = apart(x.view(bits), y.view(bits), x.dtype.name)
                yield Growth(
                    step=int(key.partition("/")[0]),
                    layer=_layer(key),
                    elements=x.size,
                    differing=differing,
                    max_ulp=ulp,
                    l2=l2,
                    relative_l2=relative,
                )

    @contextlib.contextmanager
    def _fetched(
        self, task: Task, steps: tuple[int, ...], indices: tuple[int, ...] = ()
    ) -> Iterator[list[Any]]:
        """Both sides' arrays, opened; their files are removed afterwards."""
        with contextlib.ExitStack() as stack:
            opened = []
            for side, letter in zip(self.sides, "ab", strict=True):
                self._ask(side, task, steps, indices)
                path = self.folder / f"{letter}-{TENSORS}"
                (self.folder / TENSORS).rename(path)
                stack.callback(path.unlink)
                with _well_formed(TENSORS, side.guest):
                    opened.append(stack.enter_context(safe_open(path, "numpy")))
            # They may lack what was asked for, or have it in other shapes.
            with _well_formed(TENSORS, *(side.guest for side in self.sides)):
                yield opened

    def _ask(
        self, side: TraceGuest, task: Task, steps: tuple[int, ...], operations: tuple[int, ...] = ()
    ) -> TraceAnswer:
        """The answer, which is about the steps that were asked for, or the first of them where the training
        ends earlier. Raises ProtocolError."""
        answer = side.ask(self.folder, task, steps, operations)
        seen = tuple(note.step for note in answer.steps)
        asked = tuple(range(steps[0], steps[-1] + 1))
        if (task is Task.STEPS and seen != asked[: len(seen)]) or (task is Task.OPERATIONS and seen != asked):
            raise ProtocolError(f"guest {side.guest}: answered for other steps than those asked for")
        if seen and answer.training_steps < seen[-1]:
            raise ProtocolError(f"guest {side.guest}: answered for steps after the end of the training")
        return answer

    # ---- the result --------------------------------------------------------------------------

    def _setting(self, note: OpNote) -> str | None:
        """Of an operation; None: the registry does not know it."""
        return registry.setting_of(self.sides[0].spec.workload.network_framework, note.op, dtype_of(note))

    def _reproduced(self, notes: list[tuple[StepNote, ...]]) -> None:
        """Whether the stored runs' own hashes come out again."""
        for side, mine, recorded in zip(self.sides, notes, self.scope.stored, strict=False):
            wrong = next((n.step for n in mine if _contradicts(n, recorded)), None)
            if wrong is not None and side.guest not in self._irreproducible:
                self._irreproducible.add(side.guest)
                self._notes.append(
                    f"{side.spec.run_id}: repeated in {side.guest}, its weights after step {wrong} "
                    "are not those stored: another machine, or other versions"
                )

    def _equal(self, last: int) -> Trace:
        """The trace where nothing differs."""
        spec = self.sides[0].spec
        return Trace(
            trace_id=self.trace_id,
            created_at=now(),
            workload=spec.workload,
            variant=spec.variant,
            sides=tuple(
                Side(
                    guest=side.guest, threads=side.spec.threads, run_id=run_id, environment=answer.environment
                )
                for side, run_id, answer in zip(self.sides, self.scope.run_ids, self._answers, strict=True)
            ),
            outcome=Outcome.EQUAL,
            steps=last,
            step=None,
            differs="",
            operations=0,
            origins=(),
            unknown=(),
            growth=(),
            notes=(),
        )


def _read_log(path: Path, guest: str) -> list[OpNote]:
    notes = []
    with path.open("rb") as file, _well_formed(OPERATIONS, guest):
        while line := file.readline(bounded.MESSAGE.bytes + 1):  # a longer one is refused by `parse`
            notes.append(from_json(OpNote, parse(line, bounded.MESSAGE), path.name))
    return notes


@contextlib.contextmanager
def _well_formed(what: str, *guests: str) -> Iterator[None]:
    """Raises ProtocolError where a file of guests is not what its readers expect."""
    try:
        yield
    except (SafetensorError, ValueError, LookupError, TypeError) as error:
        raise ProtocolError(f"{what} of {' and '.join(guests)} is malformed: {error}") from error


def _contradicts(note: StepNote, recorded: dict[str, str]) -> bool:
    return note.weights_sha256 not in ("", recorded.get(str(note.step), note.weights_sha256))


def growth_steps(first: int, last: int, count: int) -> tuple[int, ...]:
    """At most `count` steps from `first` to `last`, close together where the difference is young."""
    return tuple(sorted({round(s) for s in first - 1 + np.geomspace(1, last - first + 1, count)}))


def _layer(key: str) -> str:
    """Of `<step>/<place>/<name>`, the name."""
    return key.split("/", 2)[2]


def _first_pair(logs: Sequence[Sequence[OpNote]], at: int) -> str:
    """`aten.mm in out, beside nothing`"""
    names = [
        f"{log[at].op} in {log[at].module or log[at].source}" if at < len(log) else "nothing" for log in logs
    ]
    return f"{names[0]}, beside {names[1]}"
