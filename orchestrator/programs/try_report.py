"""What `vbstudy try` answers: the verdicts, what exact mode changes about them, and the text for a person."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from guest.records.printable import counted, printable, series
from guest.records.run import Framework, Override
from orchestrator.programs import try_runs
from orchestrator.programs.conditions import (
    CURE_NEEDS_SEED,
    INSTRUCTION_SET,
    THREADS,
    Condition,
    Factor,
    given,
    oversubscribed,
)
from orchestrator.programs.try_files import Role
from orchestrator.programs.try_runs import Ask, Seen, framework_of
from orchestrator.programs.try_verdicts import (
    BITWISE,
    METRIC,
    OUTPUT,
    PREDICTIONS,
    TEXT,
    Answer,
    Compared,
    LevelVerdict,
    Trial,
    bytes_only,
    decide,
    overall,
    unrepeated,
)
from orchestrator.text import Say

NOT_APPLICABLE: Final = "not applicable"
EXACT = ", exact"  # ends the label of a condition in exact mode
SHOWN = 8  # lines of evidence at a level
NAMES = {PREDICTIONS: "predictions", METRIC: "metrics", OUTPUT: "output"}
NOTHING_SEEN = {
    BITWISE: "no file was compared as a whole",
    PREDICTIONS: "no prediction file seen (pred*.npy, logits*.npz, submission.csv, ...)",
    METRIC: "no loss or score was printed, logged or written with its name, as in `accuracy: 0.93`",
    OUTPUT: "nothing was printed",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Cure:
    """The same runs with exact mode. The cost is that of a whole run, start included, as a ratio to the same
    run without: geometric mean and 95 % interval over `pairs`; None where they are too few. Not applicable
    to a program without a framework that has it: nothing else was run."""

    answer: Answer | Literal["not applicable"]
    verdicts: tuple[LevelVerdict, ...]
    pairs: int
    ratio: float | None
    low: float | None
    high: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The results of a program's trial."""

    command: tuple[str, ...]
    factor: str
    conditions: tuple[str, ...]
    repetitions: int
    seed: int | None  # None: the random numbers of the first run were given to the others
    answer: Answer
    varied: bool  # False: the program sets its own thread count, which was that of all runs
    verdicts: tuple[LevelVerdict, ...]
    oversubscribed: tuple[int, ...]  # thread counts above the cores there are: their times are invalid
    wall_s: dict[str, list[float]]  # of each condition, without the first run of all
    first_wall_s: float
    overrides: tuple[Override, ...]
    software: dict[str, str]  # versions that the program imported
    notes: tuple[str, ...]
    last_lines: tuple[str, ...]  # of what the first run printed
    exact: Cure | None = None


def run(ask: Ask, factor: Factor, exact: bool, say: Say) -> tuple[Report, Seen]:
    """Raises UsageError and UnmetError."""
    plain = tuple(condition.label for condition in factor.conditions)
    exactly: dict[str, str] = {}  # the label of a condition with exact mode, and of the one without
    conditions: list[Condition] = []
    for one in factor.conditions:
        conditions.append(one)
        if exact:
            conditions.append(dataclasses.replace(one, label=one.label + EXACT, exact=True))
            exactly[conditions[-1].label] = one.label
    seen = try_runs.run(dataclasses.replace(ask, needs_exact=exact), conditions, say)
    verdicts = decide([trial for trial in seen.trials if trial.condition in plain])
    notes = list(seen.notes)
    if any("workers" in c.hook for c in conditions) and not any(n["kind"] == "loader" for n in seen.noticed):
        notes.append("no DataLoader of PyTorch was made: nothing was varied")
    report = Report(
        command=ask.argv,
        factor=factor.name,
        conditions=plain,
        repetitions=ask.repetitions,
        seed=ask.seed,
        answer=overall(verdicts),
        varied=factor.name != THREADS or seen.varied,
        verdicts=verdicts,
        oversubscribed=oversubscribed(condition.threads for condition in conditions),
        wall_s=try_runs.times(seen.trials),
        first_wall_s=seen.trials[0].wall_s,
        overrides=seen.overrides,
        software=seen.software,
        notes=tuple(notes),
        last_lines=seen.last_lines,
        exact=_cure(seen, exactly) if exact else None,
    )
    if unvaried(report):
        report = dataclasses.replace(report, answer=Answer.INCONCLUSIVE)
    return report, seen


def _cure(seen: Seen, exactly: Mapping[str, str]) -> Cure:
    trials = seen.trials
    statuses = {trial.status for trial in trials if trial.condition not in exactly}
    mine = [trial for trial in trials if trial.condition in exactly]
    ended_early = len(mine) < len(trials) - len(mine)
    if ended_early or any(trial.status not in statuses for trial in mine):  # exact mode cures nothing
        return Cure(answer=Answer.ABSENT, verdicts=(), pairs=0, ratio=None, low=None, high=None)
    if not framework_of(seen.software):
        return Cure(answer=NOT_APPLICABLE, verdicts=(), pairs=0, ratio=None, low=None, high=None)
    verdicts = decide(mine)
    ratio, low, high, pairs = cost(trials, exactly)
    return Cure(answer=overall(verdicts), verdicts=verdicts, pairs=pairs, ratio=ratio, low=low, high=high)


def cost(
    trials: Sequence[Trial], default_of: Mapping[str, str]
) -> tuple[float | None, float | None, float | None, int]:
    """The time of a run as a ratio to that of its default's (by the labels of their conditions) of the same
    repetition: geometric mean, 95 % interval, number of pairs. Left out are the first repetition, which read
    from disk and compiled, and those with more threads than cores."""
    from analysis.stats.paired import ratio

    invalid = oversubscribed(trial.threads for trial in trials)
    wall_s = {(trial.condition, trial.repetition): trial.wall_s for trial in trials}
    pairs = [
        trial.wall_s / wall_s[default_of[trial.condition], trial.repetition]
        for trial in trials
        if trial.condition in default_of and trial.repetition > 1 and trial.threads not in invalid
    ]
    if not pairs:
        return None, None, None, 0
    found = ratio(pairs)
    return found.value, found.low, found.high, found.n


# ---- for a person -------------------------------------------------------------------------------------


def text(report: Report, cpus: Sequence[int] = (), vary: str = "threads") -> str:
    """The report for a person: the answer, what it rests on, what to do next, with `cpus` and `vary` as they
    were given."""
    numbers = "random numbers of the first run" if report.seed is None else f"seed {report.seed}"
    lines = [
        _answer(report),
        *([_cured(report.exact, report)] if report.exact else []),
        "",
        (
            f"{shlex.join(report.command)}: {series(report.conditions)}, {report.repetitions} times each, "
            f"{numbers}"
        ),
    ]
    for verdict in report.verdicts:
        lines += ["", *_level(verdict, report.repetitions * len(report.conditions))]
    if report.answer is Answer.ABSENT and report.last_lines:
        lines += ["", "the last lines of its output:", *(f"  {line}" for line in report.last_lines)]
    lines += ["", f"seconds of each run (without the first, which took {report.first_wall_s:.1f} s):"]
    lines += [
        f"  {label}: {', '.join(f'{seconds:.1f}' for seconds in times) or '-'}"
        for label, times in report.wall_s.items()
    ]
    lines += invalid_times(report.oversubscribed)
    for one in report.overrides:
        what = f"{one.what} = {one.value} ({one.where or 'a library'})"
        lines.append(f"the program sets itself: {printable(what)}")
    lines += [f"note: {note}" for note in report.notes]
    return "\n".join(lines + _next(report, cpus, vary))


def unvaried(report: Report) -> bool:
    """Whether all runs agree because they had the same thread count."""
    return not report.varied and overall(report.verdicts) is Answer.SAME


def invalid_times(counts: Sequence[int]) -> list[str]:
    """Of thread counts above the cores there are, a line."""
    if not counts:
        return []
    return [f"more threads than cores at {series(list(map(str, counts)))}: these times are invalid"]


def _answer(report: Report) -> str:
    """The answer over all levels, in a sentence."""
    verdicts = [v for v in report.verdicts if v.level != OUTPUT]
    if all(v.answer is Answer.ABSENT for v in verdicts):
        verdicts = list(report.verdicts)
    matters, same, unclear = (
        [_name(v) for v in verdicts if v.answer is answer]
        for answer in (Answer.MATTERS, Answer.SAME, Answer.INCONCLUSIVE)
    )
    found = [
        f"it changes the {series(matters)}" if matters else "",
        f"the {series(same)} {'is' if same == ['output'] else 'are'} the same" if same else "",
        f"whether it changes the {series(unclear)} is inconclusive" if unclear else "",
    ]
    if not any(found):
        return "Nothing was seen that could be compared."
    article = "" if report.factor.isupper() or "_" in report.factor else "the "
    output = Answer.MATTERS in [v.answer for v in report.verdicts if v.level == OUTPUT and v not in verdicts]
    if unclear and not matters and not output:
        equal = f"; {found[1]}" if same else ""
        return f"Whether {article}{report.factor} changes the {series(unclear)} is inconclusive{equal}."
    effect = "matters" if matters else "shows no effect"
    if unvaried(report):
        effect = "was not varied, because the program sets its own"
    elif output and not matters:
        effect = "changes the output" + ("" if unclear else ", and shows no other effect")
    return f"{article.capitalize()}{report.factor} {effect}: {'; '.join(filter(None, found))}."


def _name(verdict: LevelVerdict) -> str:
    if verdict.level != BITWISE:
        return NAMES[verdict.level]
    deciding = [each for each in verdict.compared if each.answer is verdict.answer]
    weights = [each for each in deciding if each.kind == Role.WEIGHTS]
    if verdict.answer is Answer.MATTERS and weights and not any(each.certain for each in weights):
        return "model files (compared byte for byte)"
    return "weights" if weights else "files"


def _cured(cure: Cure, report: Report) -> str:
    if cure.answer == NOT_APPLICABLE:
        return "Exact mode is not applicable: it is for PyTorch and TensorFlow, and the program uses neither."
    if not cure.verdicts:
        program = shlex.join(report.command)
        failed = "Exact mode was not measured: the program fails with it, and not without it."
        return f"{failed}\n`vbstudy exact -- {program}` shows why."
    price = _price(cure.ratio, cure.low, cure.high, cure.pairs)
    if cure.answer is Answer.SAME and overall(report.verdicts) is Answer.INCONCLUSIVE:
        what = "All runs with exact mode agree; those without it do not repeat themselves."
        return f"{what} A whole run takes {price}."
    if cure.answer is Answer.SAME and report.answer is not Answer.MATTERS:
        return f"All runs with exact mode agree, too. A whole run takes {price}."
    if cure.answer is Answer.SAME:
        return f"Exact mode cures it: all runs with it agree. A whole run takes {price}."
    what = {
        Answer.MATTERS: "the runs with it differ, too",
        Answer.INCONCLUSIVE: "the runs with it do not repeat themselves",
        Answer.ABSENT: "nothing was seen that could be compared",
    }[cure.answer]
    return f"Exact mode does not cure it: {what}."


def _price(ratio: float | None, low: float | None, high: float | None, pairs: int) -> str:
    if ratio is None:
        return "a time that was not measured"
    how = ": too few for an interval" if low is None else ", 95 % interval"
    return f"{times_default(ratio, low, high)} ({counted(pairs, 'pair')}{how})"


def times_default(ratio: float, low: float | None = None, high: float | None = None) -> str:
    """`1.20 [1.10, 1.31] times the default's`"""
    interval = "" if low is None or high is None else f" [{low:.2f}, {high:.2f}]"
    return f"{ratio:.2f}{interval} times the default's"


def _level(verdict: LevelVerdict, runs: int) -> list[str]:
    unseen = verdict.answer is Answer.ABSENT
    head = NOTHING_SEEN[verdict.level] if unseen else verdict.answer.upper()
    lines = [f"{verdict.level:<12} {head}"]
    telling = [each for each in verdict.compared if each.answer is not Answer.SAME or each.certain]
    shown = (telling or verdict.compared)[:SHOWN]
    for each in shown:
        lines += [f"{'':<12} {line}" for line in evidence(each)]
    rest = len(verdict.compared) - len(shown)
    if rest:
        same = all(each.answer is Answer.SAME for each in verdict.compared[len(shown) :])
        what = "the same in all runs" if same else "not shown; --json has all"
        lines.append(f"{'':<12} and {rest} more, {what}")
    if verdict.constants:
        numbers = counted(verdict.constants, "other number")
        lines.append(f"{'':<12} {numbers} the same in all {runs} runs")
    return lines


def evidence(each: Compared) -> list[str]:
    """What one comparison rests on: a line, or three for two texts."""
    name = printable(each.name)  # of a file, which may have ends of lines in it
    if each.answer is Answer.SAME:
        how = f"the same in all {each.runs} runs"
    elif each.answer is Answer.MATTERS:
        how = f"{each.distinct} distinct in {each.runs} runs"
    else:
        where = f" with {series(each.unrepeated)}" if each.unrepeated else ""
        how = f"does not repeat{where}, {each.distinct} distinct in {each.runs} runs"
    if each.kind == TEXT:
        return [
            f"{name}: {how}",
            *(f"  {mark} {line}" for mark, line in zip("-+", each.remark.splitlines(), strict=False)),
        ]
    return [f"{name}: {how}" + (f" ({each.remark})" if each.remark else "")]


def _only_several_threads_differ(report: Report) -> bool:
    """Whether all runs on one thread were equal, and others were not."""
    labels, one = unrepeated(report.verdicts), counted(1, "thread")
    return report.factor == THREADS and one in report.conditions and bool(labels) and one not in labels


def _next(report: Report, cpus: Sequence[int], vary: str) -> list[str]:
    program = shlex.join(report.command)
    options = given(cpus, report.seed)
    framework = framework_of(report.software)
    if report.answer is Answer.MATTERS and report.factor != THREADS:  # which trace and harden compare
        useful = report.factor == INSTRUCTION_SET and report.exact is None and framework
        return ["", f"next: vbstudy try --vary isa --exact{options} -- {program}"] if useful else []
    if report.answer is Answer.MATTERS:
        if framework and report.exact is not None and report.exact.answer is Answer.SAME:
            return ["", f"next: vbstudy exact -- {program}"]
        two = given((min(cpus), max(cpus)) if cpus else (), report.seed)
        traced = framework or "jax" in report.software
        if report.seed is None and traced:
            again = f"  vbstudy trace --replay{two} -- {program}"
            return ["", f"next: where it starts; {CURE_NEEDS_SEED}", again]
        where, start = ("in which thread pool", f"try --which{options}")
        if traced:
            where, start = "where", f"trace{two}"
        return [
            "",
            f"next: {where} it starts, and the cheapest cure that is proved",
            f"  vbstudy {start} -- {program}",
            f"  vbstudy harden{options} -- {program}",
        ]
    if unvaried(report):
        own = "that setting, or let it read OMP_NUM_THREADS"
        return ["", f"next: remove {own}; then", f"  vbstudy try{options} -- {program}"]
    if report.answer is Answer.INCONCLUSIVE and _only_several_threads_differ(report):
        found = ["", "the program repeats itself on one thread, so what differs comes from several threads"]
        if framework is not Framework.TORCH:
            return found
        found.append(
            "in PyTorch the gradient of x[index] and MKL's first call can do it (docs/why-and-cure.md)"
        )
        if report.exact is None:
            return [*found, f"next: vbstudy try --exact{options} -- {program}"]
        return [*found, f"next: vbstudy exact -- {program}"] if report.exact.answer is Answer.SAME else found
    if report.answer is Answer.INCONCLUSIVE and report.seed is not None:
        why = "the seed does not reach every generator, or the program does not repeat itself"
        if all(bytes_only(v) for v in report.verdicts if v.answer is Answer.INCONCLUSIVE):
            why = "only bytes that were not read as numbers do not repeat: they may hold times or names, or "
            why += "the seed does not reach every generator"
        return ["", why, f"next: vbstudy try --replay{given(cpus, None, vary)} -- {program}"]
    return []
