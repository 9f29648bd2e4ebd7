"""`vbstudy try --save` and `--against`: the same question across machines, containers or versions. A file
has hashes, named numbers and the environment; of the text that was printed it has hashes alone."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from guest.machine import fingerprint
from guest.records.bounded import HISTORY, read_bounded
from guest.records.codec import NewerSchemaError, RecordError, digest, seal, unseal
from guest.records.printable import printable
from orchestrator.errors import StoreError, UsageError
from orchestrator.files import write_durably
from orchestrator.programs.try_report import evidence
from orchestrator.programs.try_runs import Seen
from orchestrator.programs.try_verdicts import (
    BITWISE,
    METRIC,
    OUTPUT,
    PREDICTIONS,
    Answer,
    LevelVerdict,
    Trial,
    comparable,
    decide,
    first_shown,
    overall,
)

SCHEMA_VERSION = 1
VALUES = 20  # of a number; more are a hash and the last one
LINES = 5000
SHOWN = 70  # characters of a field
HERE, THERE = "here", "there"
LEVEL_NAMES = {BITWISE: "files", PREDICTIONS: "predictions", METRIC: "numbers", OUTPUT: "output"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Saved:
    """All runs of a trial. `program` is a hash of the command line, which may hold what is private."""

    schema_version: int
    program: str
    factor: str
    seed: int | None
    environment: dict[str, Any]
    trials: tuple[Trial, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Against:
    """The two machines compared, condition by condition; `environment` are the fields that differ: there,
    here."""

    answers: dict[str, Answer]
    verdicts: dict[str, tuple[LevelVerdict, ...]]
    environment: dict[str, tuple[str, str]]
    notes: tuple[str, ...]


def saved(argv: Sequence[str], factor: str, seed: int | None, seen: Seen) -> Saved:
    """What of a trial may travel."""
    return Saved(
        schema_version=SCHEMA_VERSION,
        program=digest(list(argv)),
        factor=factor,
        seed=seed,
        environment=fingerprint.machine() | {"imported": seen.software},
        trials=tuple(map(_travelling, seen.trials)),
    )


def _travelling(trial: Trial) -> Trial:
    lines = [_hashed(line) for line in map(comparable, trial.lines) if line][:LINES]
    metrics = {name: _short(values) for name, values in trial.metrics.items()}
    files = {name: dataclasses.replace(file, caveat="") for name, file in trial.files.items()}
    return dataclasses.replace(trial, metrics=metrics, files=files, lines=tuple(lines))


def _short(values: tuple[str, ...]) -> tuple[str, ...]:
    return values if len(values) <= VALUES else (_hashed("\n".join(values)), values[-1])


def _hashed(text: str) -> str:
    """In letters that no rule about text takes for a number or a word."""
    return "".join("bdfghjklqvxyzBDF"[int(digit, 16)] for digit in hashlib.sha256(text.encode()).hexdigest())


def write(path: Path, record: Saved) -> None:
    """Raises StoreError."""
    try:
        write_durably(path, seal(record))
    except OSError as error:
        raise StoreError(f"{path}: cannot be written: {error.strerror}") from None


def read(path: Path) -> Saved:
    """Raises UsageError for a file that is not there or is none of these, StoreError for a newer one."""
    try:
        return unseal(Saved, read_bounded(path, HISTORY), path.name, known=SCHEMA_VERSION, limit=HISTORY)
    except NewerSchemaError as error:
        raise StoreError(f"{path}: {error}") from None
    except (OSError, RecordError) as error:
        why = error.strerror if isinstance(error, OSError) else f"is no file of `vbstudy try --save`: {error}"
        raise UsageError(f"{path}: {why}") from None


def common(there: Saved, conditions: Collection[str]) -> list[str]:
    """Those that the file has, too. Raises UsageError where it has none."""
    labels = dict.fromkeys(trial.condition for trial in there.trials)
    found = [label for label in labels if label in conditions]
    if not found:
        raise UsageError(
            f"the file has other conditions ({', '.join(labels)}); give them by --cpus or --vary"
        )
    return found


def compare(there: Saved, here: Saved) -> Against:
    """Raises UsageError where no condition is common to both."""
    labels = common(there, [trial.condition for trial in here.trials])
    notes = []
    if there.program != here.program:
        notes.append("the file was saved for another command line")
    if there.seed != here.seed:
        notes.append(f"the file was saved with another seed: {there.seed}")
    verdicts = {label: decide([*_of(there, label, THERE), *_of(here, label, HERE)]) for label in labels}
    return Against(
        answers={label: overall(each) for label, each in verdicts.items()},
        verdicts=verdicts,
        environment=dict(_differing(there.environment, here.environment)),
        notes=tuple(notes),
    )


def _of(record: Saved, label: str, side: str) -> list[Trial]:
    return [dataclasses.replace(t, condition=side) for t in record.trials if t.condition == label]


def _differing(there: dict[str, Any], here: dict[str, Any]) -> Iterator[tuple[str, tuple[str, str]]]:
    from analysis.provenance.fingerprints import flat  # heavy, and `try` without --against does without it

    one, other = (
        {name: " ".join(map(str, v)) if isinstance(v, list) else str(v) for name, v in flat(each).items()}
        for each in (there, here)
    )
    for name in dict.fromkeys([*one, *other]):
        a, b = one.get(name, "-"), other.get(name, "-")
        if a == b or name.startswith("knobs."):
            continue
        if name == "cpu.flags":  # hundreds of words: those that one side has alone
            words, others = a.split(), b.split()
            a, b = (
                " ".join(w for w in x if w not in y) or "-" for x, y in ((words, others), (others, words))
            )
        yield name, (a, b)


# ---- for a person -------------------------------------------------------------------------------------


def text(found: Against, path: Path) -> str:
    """The answer, then what it rests on, then the differences of the machines."""
    first = {
        Answer.MATTERS: "The results differ between the two machines.",
        Answer.INCONCLUSIVE: "Whether the results differ between the two machines is inconclusive.",
        Answer.SAME: "The results are the same on both machines.",
        Answer.ABSENT: "Nothing was seen that could be compared with the other machine.",
    }[first_shown(found.answers.values())]
    lines = [f"against {path}: {first}"]
    for label, verdicts in found.verdicts.items():
        lines += ["", f"{label}: {found.answers[label].upper()}"]
        for verdict in verdicts:
            if verdict.answer in (Answer.MATTERS, Answer.INCONCLUSIVE) and verdict.level != OUTPUT:
                shown = [each for each in verdict.compared if each.answer is verdict.answer]
                more = f" and {len(shown) - 1} more" if len(shown) > 1 else ""
                lines.append(f"  {LEVEL_NAMES[verdict.level]}: {evidence(shown[0])[0]}{more}")
    if found.environment:
        lines += ["", "what differs between the machines (there | here):"]
        lines += [
            f"  {name}: {printable(a, limit=SHOWN)} | {printable(b, limit=SHOWN)}"
            for name, (a, b) in found.environment.items()
        ]
    else:
        lines += ["", "no difference of hardware or software was seen"]
    return "\n".join([*lines, *(f"note: {note}" for note in found.notes)])
