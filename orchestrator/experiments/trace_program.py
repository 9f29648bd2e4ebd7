"""`vbstudy trace -- COMMAND`: the first operation of a user's program that gives unequal outputs from equal
inputs on two thread counts, or under two values of another factor. Nothing is edited: the program runs in
copies of its folder, seeded from outside.

    first pass    both sides at once; their operations are compared in order, up to the first difference
    second pass   both again: each must repeat itself up to there; that operation's outputs are kept, and the
                  weights after some steps from there on
    same value    only where a side does not repeat itself, or where the difference came from outside: twice
                  the same value, to name what does not repeat"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from analysis.diagnosis.traces import apart, floats
from guest.probe import registry
from guest.projects import randomness
from guest.records.run import RECORDING, Framework
from guest.records.trace import NOT_COMPARED, Growth, OpNote, Origin, Outcome
from orchestrator.agent import archive
from orchestrator.experiments.trace_compare import dtype_of, hashes, origin_of, shown
from orchestrator.experiments.trace_pair import GROWTH_STEPS, Ask, Logged, Met, Pair, Runs
from orchestrator.programs import folders
from orchestrator.programs.conditions import Condition, notes_of_gpus
from orchestrator.text import Say

NOT_HELD = (
    "--hold {}: no operation of that name ran up to here, so nothing was held; write its name as trace "
    "prints it, such as aten.mm.default, or the short one, mm"
)
LIMITED = "the comparison ended with optimizer step {:,}: --steps compares more"
UNKNOWN = (
    "an input of this operation is not compared (sparse, nested, or of a class with a dispatch of its own): "
    "whether the inputs differ is not known"
)
BY_ITSELF = "both runs gave this operation equal inputs: it is this operation that does not repeat itself"


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


def work(ask: Ask, say: Say) -> ProgramTrace:
    """Raises UsageError for a folder that cannot be copied and for a program that has nothing to trace,
    UnmetError when it fails."""
    folders.check_size(ask.folder)
    with folders.scratch("vbstudy-trace-", ask.argv) as scratch:
        notes = list(notes_of_gpus(ask.factor.conditions))
        runs = Runs(ask=ask, scratch=scratch, library=archive.build().write(scratch), notes=notes)
        return _Tracer(runs, say).trace()


@dataclass(slots=True)
class _Tracer:
    runs: Runs
    say: Say
    framework: str = field(default="", init=False)

    def trace(self) -> ProgramTrace:
        a, b = self.runs.ask.factor.conditions
        if self.runs.ask.seed is None:
            self.say("a first run, whose random numbers are recorded")
            recording = self.runs.scratch / RECORDING
            with self.runs.side("recorded", a) as first:
                first.drain()
                first.check()
                randomness.finish(first.control, self.runs.ask.argv, recording)
            self.runs.recording = recording
        self.say(f"both run: {a.label} and {b.label}")
        with self.runs.pair(a, b) as pair:
            met = pair.meet()
            self.framework = pair.framework
            limited = pair.limited
        if met.outcome is Outcome.EQUAL:
            self.runs.notes += [LIMITED.format(met.step)] * limited
            return self._found(met)
        self.say(f"operation {met.index + 1:,} differs; again, to see whether both repeat themselves")
        if met.outcome is Outcome.UNLOCATED:
            return self._unrepeatable(a) or self._unrepeatable(b) or self._found(met)
        with self.runs.pair(a, b, keep=met.index) as pair:
            digests = pair.digests_at(met.index)
            if digests == met.digests:
                if met.outcome is Outcome.SEQUENCE:
                    return self._found(met)
                pair.drain()
                origin = self._origin(pair, met)
                return self._found(met, origin=origin, growth=tuple(_growth(pair, met)))
        side = a if digests[0] != met.digests[0] else b
        again = self._unrepeatable(side)
        if again is None:
            self.runs.notes.append(
                f"the second run with {side.label} differed from the first, and two more did not: it does "
                "not always repeat itself"
            )
            again = dataclasses.replace(self._found(met, unrepeatable=side.label), at=())
        return again

    def _unrepeatable(self, side: Condition) -> ProgramTrace | None:
        """What differs between two runs of one side; None where nothing does."""
        self.say(f"twice with {side.label}")
        with self.runs.pair(side, side) as pair:
            met = pair.meet()
        if met.outcome is Outcome.EQUAL:
            return None
        self.runs.notes += [BY_ITSELF] * (met.outcome is Outcome.OPERATION)
        return self._found(met, unrepeatable=side.label)

    def _found(
        self,
        met: Met,
        *,
        unrepeatable: str = "",
        origin: Origin | None = None,
        growth: tuple[Growth, ...] = (),
    ) -> ProgramTrace:
        ask, equal = self.runs.ask, met.outcome is Outcome.EQUAL
        if (
            met.outcome is Outcome.UNLOCATED
            and met.sides[0]
            and NOT_COMPARED in hashes(met.sides[0].note.inputs)
        ):
            self.runs.notes.append(UNKNOWN)
        self.runs.notes += [NOT_HELD.format(name) for name in ask.hold if name not in self.runs.held]
        return ProgramTrace(
            command=ask.argv,
            framework=self.framework,
            factor=ask.factor.name,
            sides=tuple(each.label for each in ask.factor.conditions),
            threads=tuple(each.threads for each in ask.factor.conditions),
            seed=ask.seed,
            hold=tuple(name for name in ask.hold if name in self.runs.held),
            outcome=Outcome.UNREPEATABLE if unrepeatable else met.outcome,
            steps=met.step,
            step=None if equal else met.step + 1,
            operations=met.index,
            origin=origin,
            at=() if equal or origin else tuple(map(_place, met.sides)),
            unrepeatable=unrepeatable,
            growth=growth,
            notes=tuple(self.runs.notes),
        )

    def _origin(self, pair: Pair, met: Met) -> Origin:
        logged = met.sides[0]
        assert logged is not None  # noqa: S101  (Outcome.OPERATION has both)
        found = origin_of(logged.note, pair.arrays("outputs"), _setting(self.framework, logged.note))
        if found.elements and not found.differing:
            self.runs.notes.append(
                f"the first {found.elements:,} elements are compared; those behind them differ"
            )
        return found


def _growth(pair: Pair, met: Met) -> Iterator[Growth]:
    """All weights of the optimizer that made the step, as one."""
    for step in range(met.step + 1, met.step + GROWTH_STEPS + 1):
        every = [
            (a.size, *apart(a, b, dtype), _length(a, dtype)) for a, b, dtype in pair.arrays(f"weights-{step}")
        ]
        if not every:
            return
        elements, differing, ulps, distances, _, lengths = zip(*every, strict=True)
        l2, length = math.hypot(*distances), math.hypot(*lengths)
        yield Growth(
            step=step,
            layer="",
            elements=sum(elements),
            differing=sum(differing),
            max_ulp=max((ulp for ulp in ulps if ulp is not None), default=None),
            l2=l2,
            relative_l2=l2 / length if length else 0.0,
        )


def _length(bits: np.ndarray, dtype: str) -> float:
    """The L2 norm of the finite numbers."""
    numbers = floats(bits, dtype)
    return 0.0 if numbers is None else float(np.linalg.norm(numbers[np.isfinite(numbers)].astype(np.float64)))


def _setting(framework: str, note: OpNote) -> str:
    known = framework in tuple(Framework)
    return (registry.setting_of(Framework(framework), note.op, dtype_of(note)) or "") if known else ""


def _place(logged: Logged | None) -> str:
    if logged is None:
        return "the program has ended"
    note = logged.note
    inputs = ", ".join(map(shown, note.inputs))
    where = " ".join(filter(None, (note.module, f"at {note.source}" if note.source else "")))
    return f"{note.op} ({note.phase} {where}) of {inputs or 'nothing'}"
