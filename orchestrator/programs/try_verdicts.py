"""Does the thread count matter for a program? Decided from its trial runs at three levels. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from orchestrator.programs.try_files import FileSeen, Role

# What is printed with a number and is no result: times and speeds, and what counts threads or processes.
NO_RESULT = re.compile(
    r"time|took|\bsec|second|elapsed|\beta\b|duration|speed|throughput|/s\b|per_second|\bms\b|date|\bpid\b|memory|"
    r"thread|cpu|core\b|cores|worker|process|port|\bgib?\b|\bmib?\b|usage|^(epoch|step|iter|iteration|batch|seed|line)$",
    re.IGNORECASE,
)


class Answer(StrEnum):
    MATTERS = "thread count matters"
    SAME = "same on all thread counts"
    INCONCLUSIVE = "inconclusive"
    ABSENT = "nothing seen"


SHOWN_FIRST = (Answer.MATTERS, Answer.INCONCLUSIVE, Answer.SAME)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One run of the program. `metrics` are the values of each named number in the order of printing, as
    printed, by name and place; `files` those it wrote, by path."""

    threads: int
    repetition: int
    wall_s: float
    last_lines: str  # of what it printed
    metrics: Mapping[str, tuple[str, ...]]
    files: Mapping[str, FileSeen]


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelVerdict:
    """The answer at one level, and what it rests on, one line for each file or metric."""

    level: str
    answer: Answer
    evidence: tuple[str, ...]


def decide(trials: Sequence[Trial]) -> tuple[LevelVerdict, ...]:
    """bitwise, predictions, metric. At a level the thread count matters when something repeats on each
    thread count and differs between them, and is inconclusive when something does not repeat."""
    weights = [_file(trials, name, lambda f: f.digest) for name in _files(trials, Role.WEIGHTS)]
    predictions = [
        _file(trials, name, lambda f: f.classes or f.digest) for name in _files(trials, Role.PREDICTIONS)
    ]
    return (
        _judge("bitwise", trials, weights),
        _judge("predictions", trials, predictions),
        _judge("metric", trials, _metrics(trials)),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Compared:
    """A file or metric: its value in each run (None: absent), and a remark."""

    name: str
    seen: tuple[str | None, ...]
    remark: str
    certain: bool = True  # False: compared as raw bytes, which may differ for other reasons


def _judge(
    name: str, trials: Sequence[Trial], compared: Sequence[_Compared], limit: int = 12
) -> LevelVerdict:
    if not compared:
        return LevelVerdict(level=name, answer=Answer.ABSENT, evidence=())
    answers = [_answer(trials, item) for item in compared]
    # What was read beats what was only compared byte for byte.
    certain = [a for a, t in zip(answers, compared, strict=True) if t.certain] or answers
    answer = next((a for a in (Answer.MATTERS, Answer.INCONCLUSIVE) if a in certain), Answer.SAME)
    order = sorted(zip(compared, answers, strict=True), key=lambda pair: SHOWN_FIRST.index(pair[1]))
    lines = [f"{item.name}: {_evidence(trials, item, one)}" for item, one in order]
    more = [f"and {len(lines) - limit} more"] if len(lines) > limit else []
    return LevelVerdict(level=name, answer=answer, evidence=(*lines[:limit], *more))


def _answer(trials: Sequence[Trial], item: _Compared) -> Answer:
    groups: dict[int, set[str | None]] = {}
    for trial, seen in zip(trials, item.seen, strict=True):
        groups.setdefault(trial.threads, set()).add(seen)
    if any(len(group) > 1 for group in groups.values()):
        return Answer.INCONCLUSIVE
    return Answer.SAME if len(set().union(*groups.values())) == 1 else Answer.MATTERS


def _evidence(trials: Sequence[Trial], item: _Compared, answer: Answer) -> str:
    distinct, n = len(set(item.seen)), len(item.seen)
    remark = f" ({item.remark})" if item.remark else ""
    if answer is Answer.SAME:
        return f"the same in all {n} runs{remark}"
    if answer is Answer.MATTERS:
        return f"repeats on each thread count, {distinct} distinct in {n} runs{remark}"
    varying = [
        threads
        for threads in dict.fromkeys(t.threads for t in trials)
        if len({s for t, s in zip(trials, item.seen, strict=True) if t.threads == threads}) > 1
    ]
    at = " and ".join(map(str, varying)) + (" thread" if varying == [1] else " threads")
    return f"does not repeat with {at}, {distinct} distinct in {n} runs{remark}"


def _files(trials: Sequence[Trial], role: Role) -> list[str]:
    return sorted({name for t in trials for name, file in t.files.items() if file.role is role})


def _file(trials: Sequence[Trial], name: str, key: Callable[[FileSeen], str]) -> _Compared:
    files = [trial.files.get(name) for trial in trials]
    known = [file for file in files if file is not None]
    what = "arrays" if known[0].role is Role.WEIGHTS else "predictions"
    remark = f"{known[0].count} {what}" if known[0].parsed else ""
    remark = "; ".join(filter(None, (remark, next((f.caveat for f in known if f.caveat), ""))))
    return _Compared(
        name=name,
        seen=tuple(None if file is None else key(file) for file in files),
        remark=remark,
        certain=all(file.parsed for file in known),
    )


def _metrics(trials: Sequence[Trial]) -> list[_Compared]:
    names = list(dict.fromkeys(name for trial in trials for name in trial.metrics))
    compared = []
    for name in names:
        if NO_RESULT.search(name.split(" @ ")[0]):
            continue
        values = [trial.metrics.get(name, ()) for trial in trials]
        ends = list(dict.fromkeys(v[-1] for v in values if v))
        shown = " | ".join(ends[:4]) + (" ..." if len(ends) > 4 else "")
        count = len(values[0])
        remark = f"last value {shown}" + (f", {count} values" if count > 1 else "")
        compared.append(_Compared(name=name, seen=tuple("\n".join(v) for v in values), remark=remark))
    return compared
