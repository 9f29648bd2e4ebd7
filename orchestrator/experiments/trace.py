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
import functools
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import safe_open

from guest.probe import registry
from guest.records.codec import from_json
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
    TensorNote,
    Trace,
    TraceAnswer,
)
from guest.trace.hash import hash_arrays
from orchestrator.experiments.trace_compare import compare, first_difference
from orchestrator.experiments.trace_guests import TraceGuest, sides
from orchestrator.store.store import Store, now
from orchestrator.study.schema import Study

FIRST_WINDOW = 8
GROWTH_STEPS = 12
GROWTH_BYTES = 1 << 30  # of weights that are fetched from each side
ORIGINS = 40  # operations whose outputs are fetched; the first one is what started it

Say = Callable[[str], None]
Apart = Callable[[np.ndarray, np.ndarray, str], tuple[int, int | None, float, float]]
"""(bits, bits, dtype) -> differing elements, largest distance in ULPs, L2, relative L2: the analysis's."""


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
    apart: Apart,
    write: Callable[[Trace, Path], None],
    say: Say,
) -> Trace:
    """Traces, and publishes what was found as `trace/<id>/`. The caller holds the study's lock."""
    store.clear_incoming()
    trace_id = store.new_trace_id(specs[0].workload.name, [spec.threads.label for spec in specs])
    with store.new_trace(trace_id) as folder, sides(study, store, specs, say) as both:
        found = Tracer(trace_id, both, scope, folder, apart, say).trace()
        write(found, folder)
    return found


class Tracer:
    """Two sides at work, one after the other: neither disturbs the other, both may have all cores."""

    def __init__(
        self,
        trace_id: str,
        sides: Sequence[TraceGuest],
        scope: TraceScope,
        folder: Path,
        apart: Apart,
        say: Say,
    ) -> None:
        self._trace_id = trace_id
        self._sides = sides
        self._scope = scope
        self._folder = folder
        self._apart = apart
        self._say = say
        self._notes: list[str] = []
        self._answers: list[TraceAnswer] = []
        self._as_written = True
        self._unrepeatable = False
        self._irreproducible: set[str] = set()  # guests in which a stored run gave other weights

    def trace(self) -> Trace:
        last, steps = self._steps()
        differing = first_difference(*steps)
        if differing is None:
            return self._result(Outcome.EQUAL, last)
        step, differs = differing
        self._say(f"step {step} is the first that differs, in its {differs}")
        result = functools.partial(self._result, last=last, step=step, differs=differs)
        logs, again = self._operations(step)
        growth = tuple(self._growth(step, steps))
        if self._unrepeatable:
            return result(Outcome.UNREPEATABLE, growth=growth)
        for side, before, after in zip(self._sides, steps, again, strict=True):
            if (expected := next(note for note in before if note.step == step)) != after and self._as_written:
                self._notes.append(
                    f"{side.guest} does not repeat itself: {_differing(expected, after)} of step {step}"
                )
                return result(Outcome.UNREPEATABLE, growth=growth)
            if expected != after:
                self._notes.append(
                    f"{side.guest}: run one operation at a time, step {step} gives other "
                    f"{_differing(expected, after)} than as one graph, which fuses operations"
                )
        found = compare(*logs)
        if found.at is not None:
            self._notes.append(
                f"the operations are not the same from number {found.at} on: {_first_pair(logs, found.at)}"
            )
        return result(
            found.outcome,
            operations=len(logs[0]),
            origins=tuple(self._origins(step, logs, found.origins)),
            unknown=tuple(sorted({n.op for log in logs for n in log if not self._known(n.op)})),
            growth=growth,
        )

    # ---- the tasks ---------------------------------------------------------------------------

    def _steps(self) -> tuple[int, list[tuple[StepNote, ...]]]:
        """The number of steps compared, and the notes of the last window."""
        first, last = self._scope.after + 1, min(self._scope.steps, self._scope.after + FIRST_WINDOW)
        while True:
            self._say(f"steps {first} to {last}")
            answers = [self._ask(side, Task.STEPS, (first, last)) for side in self._sides]
            self._answers = answers
            notes = [answer.steps for answer in answers]
            self._reproduced(notes)
            reached = notes[0][-1].step if notes[0] else first - 1
            if first_difference(*notes) or reached < last or last == self._scope.steps:
                return reached, notes
            first, last = last + 1, min(self._scope.steps, 4 * last)

    def _operations(self, step: int) -> tuple[list[list[OpNote]], list[StepNote]]:
        self._say(f"the operations of step {step}")
        logs, again = [], []
        for side, letter in zip(self._sides, "ab", strict=True):
            answer = self._ask(side, Task.OPERATIONS, (step,))
            path = self._folder / f"operations-{letter}.jsonl"
            (self._folder / OPERATIONS).rename(path)
            with path.open(encoding="utf-8") as file:
                logs.append([from_json(OpNote, json.loads(line), path.name) for line in file])
            again.append(answer.steps[0])
            self._as_written = answer.as_written
        return logs, again

    def _origins(self, step: int, logs: list[list[OpNote]], positions: Sequence[int]) -> Iterator[Origin]:
        if not positions:
            return
        wanted = tuple(positions[:ORIGINS])
        if len(positions) > ORIGINS:
            self._notes.append(
                f"{len(positions)} operations part by themselves; the first {ORIGINS} are listed"
            )
        self._say(f"what {len(wanted)} operations gave")
        with self._fetched(Task.TENSORS, (step,), wanted) as (a, b):
            for position in wanted:
                note = logs[0][position]
                names = [f"{position}/{i}" for i in range(len(note.outputs))]
                yield self._origin(note, [a.get_tensor(n) for n in names], [b.get_tensor(n) for n in names])

    def _origin(self, note: OpNote, a: list[np.ndarray], b: list[np.ndarray]) -> Origin:
        compared = [
            (*self._apart(x, y, out.dtype)[:2], x.size) for x, y, out in zip(a, b, note.outputs, strict=True)
        ]
        differing, ulp, elements = max(compared, key=lambda each: each[0])
        return Origin(
            index=note.index,
            phase=note.phase,
            op=note.op,
            module=note.module,
            source=note.source,
            text=note.text,
            inputs=tuple(map(_shown, note.inputs)),
            outputs=tuple(map(_shown, note.outputs)),
            differing=differing,
            elements=elements,
            max_ulp=ulp,
            setting=registry.setting_of(self._framework, note.op) or "",
        )

    def _growth(self, step: int, notes: Sequence[tuple[StepNote, ...]]) -> Iterator[Growth]:
        size = max(answer.weights_bytes for answer in self._answers)
        steps = growth_steps(
            step,
            min(self._scope.steps, self._answers[0].training_steps),
            max(1, min(GROWTH_STEPS, GROWTH_BYTES // max(size, 1))),
        )
        self._say(f"the weights after {len(steps)} steps")
        with self._fetched(Task.WEIGHTS, steps) as (a, b):
            for side, file, mine in zip(self._sides, (a, b), notes, strict=True):
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
                differing, ulp, l2, relative = self._apart(x.view(bits), y.view(bits), x.dtype.name)
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
            for side, letter in zip(self._sides, "ab", strict=True):
                self._ask(side, task, steps, indices)
                path = self._folder / f"{letter}-{TENSORS}"
                (self._folder / TENSORS).rename(path)
                stack.callback(path.unlink)
                opened.append(stack.enter_context(safe_open(path, "numpy")))
            yield opened

    def _ask(
        self, side: TraceGuest, task: Task, steps: tuple[int, ...], indices: tuple[int, ...] = ()
    ) -> TraceAnswer:
        return side.ask(self._folder, task, steps, indices)

    # ---- the result --------------------------------------------------------------------------

    @property
    def _framework(self) -> Any:
        return self._sides[0].spec.workload.framework

    def _known(self, op: str) -> bool:
        return registry.setting_of(self._framework, op) is not None

    def _reproduced(self, notes: list[tuple[StepNote, ...]]) -> None:
        """Whether the stored runs' own hashes come out again."""
        for side, mine, recorded in zip(self._sides, notes, self._scope.stored, strict=False):
            wrong = next((n.step for n in mine if _contradicts(n, recorded)), None)
            if wrong is not None and side.guest not in self._irreproducible:
                self._irreproducible.add(side.guest)
                self._notes.append(
                    f"{side.spec.run_id}: repeated in {side.guest}, its weights after step {wrong} "
                    "are not those stored: another machine, or other versions"
                )

    def _result(
        self,
        outcome: Outcome,
        last: int,
        step: int | None = None,
        differs: str = "",
        operations: int = 0,
        origins: tuple[Origin, ...] = (),
        unknown: tuple[str, ...] = (),
        growth: tuple[Growth, ...] = (),
    ) -> Trace:
        spec = self._sides[0].spec
        return Trace(
            trace_id=self._trace_id,
            created_at=now(),
            workload=spec.workload,
            variant=spec.variant,
            sides=tuple(
                Side(
                    guest=side.guest, threads=side.spec.threads, run_id=run_id, environment=answer.environment
                )
                for side, run_id, answer in zip(self._sides, self._scope.run_ids, self._answers, strict=True)
            ),
            outcome=outcome,
            steps=last,
            step=step,
            differs=differs,
            operations=operations,
            origins=origins,
            unknown=unknown,
            growth=growth,
            notes=tuple(self._notes),
        )


def _contradicts(note: StepNote, recorded: dict[str, str]) -> bool:
    return note.weights_sha256 not in ("", recorded.get(str(note.step), note.weights_sha256))


def growth_steps(first: int, last: int, count: int) -> tuple[int, ...]:
    """At most `count` steps from `first` to `last`, close together where the difference is young."""
    return tuple(sorted({round(s) for s in first - 1 + np.geomspace(1, last - first + 1, count)}))


def _shown(tensor: TensorNote) -> str:
    """`conv1.weight float32[6, 1, 5, 5]`, with ` channels_last` behind it where it lies so."""
    return f"{tensor.name} {tensor.dtype}{list(tensor.shape)} {tensor.layout}".strip()


def _layer(key: str) -> str:
    """Of `<step>/<place>/<name>`, the name."""
    return key.split("/", 2)[2]


def _differing(a: StepNote, b: StepNote) -> str:
    return first_difference([a], [b])[1]  # type: ignore[index]


def _first_pair(logs: Sequence[Sequence[OpNote]], at: int) -> str:
    """`aten.mm in out, beside nothing`"""
    names = [
        f"{log[at].op} in {log[at].module or log[at].source}" if at < len(log) else "nothing" for log in logs
    ]
    return f"{names[0]}, beside {names[1]}"
