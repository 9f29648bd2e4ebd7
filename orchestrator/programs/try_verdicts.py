"""Does a factor, as the thread count, matter for a program? Decided from its runs at four levels: the files
that it writes, its predictions, its metrics and the text it prints. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import chain
from pathlib import PurePosixPath

from guest.projects.hooks.vbstudy_watch import PAIR
from guest.records.printable import counted
from orchestrator.programs.folders import numbered
from orchestrator.programs.try_files import PASSING, FileSeen, Role

BITWISE, PREDICTIONS, METRIC, OUTPUT = "bitwise", "predictions", "metric", "output"
LEVELS = (BITWISE, PREDICTIONS, METRIC)  # the output counts where there is nothing else
# What is printed with a number and is no result: times and speeds, and what counts threads or processes.
NO_RESULT = re.compile(
    r"(?:(?<![a-z])|(?-i:(?<=[a-z])(?=[A-Z])))"  # words: neither `sentiment` nor `parsec`, but `fitTime`
    r"(?:(?:run|wall|date|up|real|cpu|step|epoch|train|fit)?time(?:s|r|rs|stamps?)?|took|secs?|seconds?|elapsed|"
    r"eta|durations?|speed(?:up)?|throughput|latency|per_second|ms(?=$|/|[ _]per)|dt|date|pid|"
    r"mem(?:ory)?|rss|ram|mfu|[nm]?threads?|"
    r"[nm]?cpus?|[nm]?cores?|[nm]?workers?|(?:multi)?process(?:es|ing|ors?)?|port|gib?|mib?|usage|wall|clock|fps|[kmgtp]?flops)(?![a-z])|"
    r"/s\b|(?:^|[._ -])(?:id|uu?id|session)$|"
    r"\b(?:done|finished|completed|ended|trained|loaded) (?:in|after)$",
    re.IGNORECASE,
)
# What is printed beside a result; in files this may be one (`data` of a chart).
PROGRESS = re.compile(r"(?:^|[. ])(?:epoch|step|iter|iteration|batch|seed|line|data)$", re.IGNORECASE)
PRECISE = re.compile(r"(?=.*\.)[-+0.]*[1-9](?:\.?\d){4,}\.?[1-9]")  # no time repeats to six digits
MEASURES = (
    r"loss|acc(?!um|el|ess|ept)|score(?!_time)|\bf1|auc|err|mse|mae|mape|r(?:\^?2\b|\u00b2)|perplex|ppl|bleu|rouge|precision|"
    r"recall|iou|dice|reward|nll|elbo|likelihood|correct|top.?[15]\b|silhouette|inertia"
)
# A result whatever else its name says, as `speed MAE`.
MEASURE = re.compile(rf"(?<![a-z])(?:log|n?r|s|m)?(?:{MEASURES})", re.IGNORECASE)
RESULT = re.compile(rf"{MEASURES}|return|\bval|_val|test|eval(?!_steps)|metric", re.IGNORECASE)
DIGITS = re.compile(r"[-+]?(?:\d+\.?\d*(?:[eE][-+]?\d+)?|\.\d+(?:[eE][-+]?\d+)?)")
WARNING = re.compile(r"warn(?:ings?|ed)?\b", re.IGNORECASE)
PYTHON_WARNING = re.compile(r":\d+: \w*Warning: ")
ABOUT_MACHINE = re.compile(r"cpu|\bcores?\b|(?:thread|worker|process(?:e|or)?)s?(?![a-z])", re.IGNORECASE)
NUMBER, TEXT = "number", "text"
REPORTED = "vbstudy.report.metric"
TEXT_CHARACTERS = 160


class Answer(StrEnum):
    MATTERS = "matters"
    SAME = "same"
    INCONCLUSIVE = "inconclusive"
    ABSENT = "nothing seen"


SHOWN_FIRST = (Answer.MATTERS, Answer.INCONCLUSIVE, Answer.SAME)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One run of the program under a condition, by its label. `metrics` are the values of each named number
    in the order of printing, as printed, by name and place; `files` those it wrote, by path; `lines` what
    it printed; `status` its exit status."""

    condition: str
    threads: int
    repetition: int
    wall_s: float
    metrics: dict[str, tuple[str, ...]]
    files: dict[str, FileSeen]
    lines: tuple[str, ...] = ()
    status: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """One file, number or text in all runs: how many distinct ones there are, and the conditions on which it
    does not repeat. `certain`: False for raw bytes, which may differ for other reasons than the model."""

    kind: str  # a role of files, NUMBER or TEXT
    name: str
    answer: Answer
    distinct: int
    runs: int
    unrepeated: tuple[str, ...]
    remark: str
    certain: bool = True
    result: bool = True  # a loss or a score, or any file


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelVerdict:
    """The answer at one level, and what it rests on, differing things first. `constants`: the numbers that
    are the same in all runs and neither a loss nor a score are only counted."""

    level: str
    answer: Answer
    compared: tuple[Compared, ...]
    constants: int = 0


def decide(trials: Sequence[Trial]) -> tuple[LevelVerdict, ...]:
    """bitwise, predictions, metric, output. At a level the factor matters when something repeats under each
    condition and differs between them, and is inconclusive when something does not repeat."""
    trials = _aligned(trials)
    roles = {name: file.role for trial in trials for name, file in trial.files.items()}
    every = sorted(roles, key=lambda name: (roles[name] is not Role.WEIGHTS, name))
    predicted = [name for name in every if roles[name] is Role.PREDICTIONS]
    files = [_file(trials, name, lambda file: file.digest) for name in every]
    predictions = [_file(trials, name, lambda file: file.classes or file.digest) for name in predicted]
    numbers, constants, equal = _numbers(trials)
    files += [
        _compared(trials, Role.OTHER, name, [""] * len(trials), "its numbers", certain=False)
        for name in equal
        if name not in roles
    ]
    if len({trial.status for trial in trials}) > 1:
        shown = " | ".join(str(status) for status in dict.fromkeys(t.status for t in trials))
        seen = [str(trial.status) for trial in trials]
        numbers.insert(0, _compared(trials, NUMBER, "exit status", seen, shown))
    return (
        _judge(BITWISE, files),
        _judge(PREDICTIONS, predictions),
        _judge(METRIC, numbers, constants),
        _output(trials),
    )


def overall(verdicts: Sequence[LevelVerdict], levels: Sequence[str] = LEVELS) -> Answer:
    """Over these levels: the first that holds of matters, inconclusive, same, nothing seen. The output
    counts where nothing else was compared."""
    answers = {v.answer for v in verdicts if v.level in levels and not bytes_only(v)}
    if answers <= {Answer.ABSENT}:
        answers = {v.answer for v in verdicts if v.level in levels}
    if answers <= {Answer.ABSENT} and levels == LEVELS:
        answers = {v.answer for v in verdicts if v.level == OUTPUT}
    return first_shown(answers)


def bytes_only(verdict: LevelVerdict) -> bool:
    """Whether all that does not repeat at a level are bytes that nobody can read, as of a log or a plot: they
    may hold times and names."""
    unrepeated = [one for one in verdict.compared if one.answer is Answer.INCONCLUSIVE]
    unread = [one for one in unrepeated if not one.certain and one.kind == Role.OTHER]
    return verdict.answer is Answer.INCONCLUSIVE and bool(unrepeated) and unread == unrepeated


def first_shown(answers: Collection[Answer]) -> Answer:
    """The one that stands for all: matters, inconclusive, same, nothing seen, in this order."""
    return next((answer for answer in SHOWN_FIRST if answer in answers), Answer.ABSENT)


def unrepeated(verdicts: Sequence[LevelVerdict]) -> set[str]:
    """The conditions on which something does not repeat, beside bytes that may differ for other reasons."""
    compared = [each for verdict in verdicts for each in verdict.compared]
    certain = [each for each in compared if each.certain]
    return {label for each in certain or compared for label in each.unrepeated}


def _judge(level: str, compared: Sequence[Compared], constants: int = 0) -> LevelVerdict:
    # What was read beats bytes that do not repeat, but not those of a model where no model was read.
    read = {each.kind for each in compared if each.certain}
    models = {Role.WEIGHTS.value, Role.PREDICTIONS.value} - read
    # A result that repeats beats numbers that are none and do not.
    repeats = any(each.result and each.answer is not Answer.INCONCLUSIVE for each in compared)
    deciding = [
        each
        for each in compared
        if (each.certain or not read or each.answer is Answer.MATTERS or each.kind in models)
        and (each.result or not repeats or each.answer is not Answer.INCONCLUSIVE)
    ]
    answer = first_shown({each.answer for each in deciding if each.result or each.answer is not Answer.SAME})
    order = sorted(compared, key=lambda each: (SHOWN_FIRST.index(each.answer), not each.result))
    return LevelVerdict(level=level, answer=answer, compared=tuple(order), constants=constants)


def _compared(
    trials: Sequence[Trial],
    kind: str,
    name: str,
    seen: Sequence[str | None],
    remark: str,
    *,
    certain: bool = True,
    result: bool = True,
) -> Compared:
    groups: dict[str, set[str | None]] = {}
    for trial, one in zip(trials, seen, strict=True):
        groups.setdefault(trial.condition, set()).add(one)
    unrepeated = tuple(label for label, group in groups.items() if len(group) > 1)
    distinct = set().union(*groups.values())
    answer = Answer.SAME if len(distinct) == 1 else Answer.MATTERS
    by_chance = "*" in name and None in distinct  # of what has a time in its name, time decides how many
    return Compared(
        kind=kind,
        name=name,
        answer=Answer.INCONCLUSIVE if unrepeated or by_chance else answer,
        distinct=len(distinct),
        runs=len(seen),
        unrepeated=unrepeated,
        remark=remark,
        certain=certain,
        result=result,
    )


# ---- files ------------------------------------------------------------------------------------------


def _aligned(trials: Sequence[Trial]) -> list[Trial]:
    """With one name for files whose names differ from run to run, as of wandb's folders: `*` stands for a
    part of the path that not all runs have. Files that are not equally many in all runs keep their own."""
    if not trials:
        return []
    written = [_written(trial) for trial in trials]
    everywhere, taken = set.intersection(*map(set, written)), set[str]().union(*written)
    # In the order of what they hold: that of names would be by chance.
    left = [sorted(files.keys() - everywhere, key=files.__getitem__) for files in written]
    parts = set.intersection(*({part for name in names for part in name.split("/")} for names in left))
    starred = [[_starred(name, parts) for name in names] for names in left]
    as_many = set.intersection(*(set(Counter(stars).items()) for stars in starred))
    common = {star for star, _ in as_many}
    found = []
    for trial, names, stars in zip(trials, left, starred, strict=True):
        alike = [name for name, star in zip(names, stars, strict=True) if star in common]
        known = dict(zip(alike, numbered((s for s in stars if s in common), taken), strict=True))
        files = {known.get(name, name): file for name, file in trial.files.items()}
        for name in files.keys() & known.values():
            caveats = (files[name].caveat, "its name varies")
            files[name] = replace(files[name], caveat="; ".join(filter(None, caveats)))
        metrics = {
            (known.get(file, file) if colon else file) + colon + key: values
            for (file, colon, key), values in ((n.partition(": "), v) for n, v in trial.metrics.items())
        }
        found.append(replace(trial, files=files, metrics=metrics))
    return found


def _written(trial: Trial) -> dict[str, str]:
    """The names of the files of a run, and what is in them."""
    held = {name: file.digest for name, file in trial.files.items()}
    for name, values in trial.metrics.items():
        file, colon, key = name.partition(": ")
        if colon:
            held[file] = "\n".join((held.get(file, ""), key, *values))
    return held


def _starred(name: str, parts: Collection[str]) -> str:
    *above, last = name.split("/")
    end = last if last in parts else f"*{PurePosixPath(last).suffix}"
    return "/".join([*(part if part in parts else "*" for part in above), end])


def _file(trials: Sequence[Trial], name: str, key: Callable[[FileSeen], str]) -> Compared:
    files = [trial.files.get(name) for trial in trials]
    known = [file for file in files if file is not None]
    what = "predictions" if known[0].role is Role.PREDICTIONS else "arrays"
    count = f"{known[0].count} {what.removesuffix('s') if known[0].count == 1 else what}"
    remarks = (
        count if known[0].parsed else "",
        next((f.caveat for f in known if f.caveat), ""),
        "" if len(known) == len(files) else f"written in {len(known)} of them",
    )
    return _compared(
        trials,
        known[0].role,
        name,
        [None if file is None else key(file) for file in files],
        "; ".join(filter(None, remarks)),
        certain=all(file.parsed for file in known),
    )


# ---- numbers ----------------------------------------------------------------------------------------


def _numbers(trials: Sequence[Trial]) -> tuple[list[Compared], int, list[str]]:
    """Losses, scores and what differs; how many others there are; the files whose numbers are the same."""
    compared, constants, equal = [], 0, dict[str, bool]()
    for name in dict.fromkeys(name for trial in trials for name in trial.metrics):
        bare = name.split(" @ ")[0]
        values = [trial.metrics.get(name, ()) for trial in trials]
        file, colon, key = bare.partition(": ")
        if not colon:
            file, key = "", bare
        result = file == REPORTED or bool(RESULT.search(key))
        passing = passes(key, in_file=bool(colon))
        if not result and _echoes(trials, values):
            continue
        ends = list(dict.fromkeys(v[-1] for v in values if v))
        count = max(map(len, values))
        remark = _listed(ends) + (f", last of {count}" if count > 1 else "")
        one = _compared(
            trials, NUMBER, name, ["\n".join(v) if v else None for v in values], remark, result=result
        )
        if passing and not (one.answer is Answer.MATTERS and any(map(PRECISE.match, chain(*values)))):
            continue
        if file and file != REPORTED:
            equal[file] = equal.get(file, True) and one.answer is Answer.SAME
        if one.answer is Answer.SAME and not result:
            constants += 1
        else:
            compared.append(one)
    return compared, constants, [name for name, same in equal.items() if same]


def passes(name: str, *, in_file: bool = False) -> bool:
    """Whether a number of this name changes from run to run and is no result, as a time."""
    found = NO_RESULT.search(name) or (not in_file and PROGRESS.search(name))
    return bool(found) and not MEASURE.search(name)


def _echoes(trials: Sequence[Trial], values: Sequence[tuple[str, ...]]) -> bool:
    """Whether a number is the thread count itself."""
    asked = [{str(trial.threads)} for trial in trials]
    return len({t.threads for t in trials}) > 1 and [set(v) for v in values] == asked


def _listed(values: Sequence[str], limit: int = 4) -> str:
    return " | ".join(values[:limit]) + (" ..." if len(values) > limit else "")


# ---- the output ---------------------------------------------------------------------------------------


def comparable(line: str) -> str:
    """A line of output without what changes from run to run; "" for one that says nothing of results."""
    if WARNING.search(line):
        return ""
    line = PAIR.sub(lambda m: m[0].replace(m["value"], "#") if passes(m["name"]) else m[0], line)
    line = PASSING.sub("#", line)
    if not ABOUT_MACHINE.search(line):
        return line
    results = [m["value"] for m in PAIR.finditer(line) if MEASURE.search(m["name"])]
    return " ".join((DIGITS.sub("#", line), *results))


def _printed(lines: Sequence[str]) -> Iterator[tuple[str, int, str]]:
    """(what is compared, number, line) of each line; Python shows a warning's line of code below it."""
    before = ""
    for number, line in enumerate(lines, 1):
        code = line.startswith("  ") and PYTHON_WARNING.search(before)
        if not code and (text := comparable(line)):
            yield text, number, line
        before = line


def _output(trials: Sequence[Trial]) -> LevelVerdict:
    """The first line that repeats under each condition and differs between them; else the first that does
    not repeat."""
    printed = [list(_printed(trial.lines)) for trial in trials]
    texts = [[text for text, _, _ in lines] for lines in printed]
    if not any(texts):
        return LevelVerdict(level=OUTPUT, answer=Answer.ABSENT, compared=())
    unrepeated = None
    # The same lines in another order may come from processes that print at the same time.
    other_lines = len({tuple(sorted(text)) for text in texts}) > 1
    for i in range(max(map(len, texts))):
        seen = [text[i] if i < len(text) else None for text in texts]
        if len(set(seen)) == 1:
            continue
        # With # for the thread count, which a program may say.
        said = {
            t if t is None or MEASURE.search(t) else re.sub(rf"(?<![\w.]){trial.threads}(?!\w|\.\d)", "#", t)
            for trial, t in zip(trials, seen, strict=True)
        }
        if len(said) == 1:
            continue
        versions = {
            text: "(no such line)" if text is None else lines[i][2].strip()[:TEXT_CHARACTERS]
            for text, lines in zip(reversed(seen), reversed(printed), strict=True)
        }
        shown = "\n".join(versions[text] for text in list(dict.fromkeys(seen))[:2])
        number = next(lines[i][1] for lines in printed if i < len(lines))
        found = _compared(trials, TEXT, f"line {number}", seen, shown)
        if found.answer is Answer.MATTERS and other_lines:
            return LevelVerdict(level=OUTPUT, answer=Answer.MATTERS, compared=(found,))
        unrepeated = unrepeated or found
    if unrepeated is not None:
        return LevelVerdict(level=OUTPUT, answer=Answer.INCONCLUSIVE, compared=(unrepeated,))
    whole = _compared(trials, TEXT, counted(len(texts[0]), "line"), [""] * len(trials), "")
    return LevelVerdict(level=OUTPUT, answer=Answer.SAME, compared=(whole,))
