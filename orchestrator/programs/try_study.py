"""From a program that was tried to a study of it: `try` notes what it found for its user, and
`vbstudy init --from-try` writes the study file."""

from __future__ import annotations

import contextlib
import itertools
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import tomlkit

from guest.projects.hooks.vbstudy_watch import VALUE
from guest.projects.notices import Notice
from guest.records.bounded import MESSAGE, OddFileError, read_bounded
from guest.records.codec import RecordError, seal, unseal
from guest.records.printable import unaccented
from guest.records.run import LOSSES, METRIC
from orchestrator.errors import StoreError, UsageError
from orchestrator.files import write_durably
from orchestrator.programs.try_files import Role
from orchestrator.programs.try_report import Report
from orchestrator.programs.try_runs import framework_of, in_place
from orchestrator.programs.try_verdicts import NUMBER, REPORTED, Compared
from vbstudy import caches

SCHEMA_VERSION = 1
METRICS, NAMES = 3, 1000  # losses and scores that become metrics, and that these are known apart from
Source = dict[str, str | bool]  # of a metric, as in a study file
PLAIN = r"[:= ]+([-+]?[.\d][-+.\de]*|nan|-?inf)"  # what follows the name, where VALUE finds no more by it
NO_NAME = re.compile(r"[^a-z0-9_]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """The program that was tried last, and what of it a study can measure."""

    schema_version: int
    folder: str
    command: tuple[str, ...]
    seed: int | None
    threads: tuple[int, ...]
    framework: str
    metrics: tuple[str, ...]  # as `try` names them
    weights: str
    predictions: str
    patterns: dict[str, str] = field(default_factory=dict)  # short ones, which find the same, by name


def note(
    report: Report,
    folder: Path,
    threads: Sequence[int],
    noticed: Sequence[Notice] = (),
    lines: Sequence[str] = (),
) -> None:
    """Kept for `vbstudy init --from-try`, with what of the `lines` of its output a study reads; a folder that
    cannot be written is no error of `try`."""
    every = [each for verdict in report.verdicts for each in verdict.compared]
    metrics = tuple(each.name for each in every if each.kind == NUMBER and each.result)[:NAMES]
    tried = Tried(
        schema_version=SCHEMA_VERSION,
        folder=str(folder),
        command=_where_it_lies(report.command, noticed),
        seed=report.seed,
        threads=tuple(dict.fromkeys(threads)),
        framework=framework_of(report.software) or "",
        metrics=metrics,
        weights=_file(every, Role.WEIGHTS),
        predictions=_file(every, Role.PREDICTIONS),
        patterns=dict(_short(metrics, lines)),
    )
    with contextlib.suppress(OSError, caches.CacheError):
        path = caches.state() / "tried.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        write_durably(path, seal(tried), 0o600)  # a command line may hold what is private


def _where_it_lies(command: tuple[str, ...], noticed: Sequence[Notice]) -> tuple[str, ...]:
    """With the absolute path of a Python that PATH finds, unless it is our own: guests have another PATH."""
    starts = (n for n in noticed if n["kind"] == "start" and n.get("argv") in ([], [*command]))
    python = Path(str(next(starts, {}).get("executable", "")))
    ours = Path(sys.executable)
    if not (re.fullmatch(r"python[\d.]*", command[0]) and python.is_file()):
        return command
    same = python.samefile(ours) and python.parent.samefile(ours.parent)
    return command if same else (str(python), *command[1:])


def _file(every: Sequence[Compared], role: Role) -> str:
    """One in the program's folder that can be read, and has the same name each time."""
    names = [each.name for each in every if each.kind == role and each.certain]
    elsewhere = ("/", "..", "vbstudy.")
    return next((name for name in names if "*" not in name and not name.startswith(elsewhere)), "")


def last() -> Tried:
    """Raises UsageError where nothing was tried."""
    path = caches.state() / "tried.json"
    try:
        return unseal(Tried, read_bounded(path, MESSAGE), path.name, known=SCHEMA_VERSION, limit=MESSAGE)
    except FileNotFoundError:
        raise UsageError("--from-try: no program was tried yet: vbstudy try -- python train.py") from None
    except (OddFileError, RecordError) as error:
        raise StoreError(f"{path}: cannot be read: {error}; try the program again") from None


def study(tried: Tried, name: str) -> str:
    """The text of study.toml, which `schema.parse` accepts. Raises UsageError for a program whose results a
    study cannot measure."""
    from orchestrator.study import schema  # heavy, and `try` does without it

    names = [name for name in tried.metrics if "\0" not in name]  # which no text of a study file may have
    sources = filter(None, (_source(name, names, tried.patterns) for name in names))
    metrics = _named(list(itertools.islice(sources, METRICS)))
    if not metrics:
        raise UsageError(
            "--from-try: a study needs a metric, and no loss or score with a name that it can read was seen, "
            "as in `accuracy: 0.93`"
        )
    text = tomlkit.document()
    text.add(
        tomlkit.comment("The program that `vbstudy try` ran. `vbstudy init` in another folder shows all keys")
    )
    text.update({"name": name, "cpus": list(tried.threads), "variants": ["fixed-seed", "default"]})
    if tried.seed is not None:
        text["seed"] = tried.seed
    workload = tomlkit.table()
    short = NO_NAME.sub("-", unaccented(Path(tried.folder).name).lower()).strip("-_")
    workload["name"] = short[:64] or "program"
    command = in_place(tried.command, Path(tried.folder))
    workload.update({"project": tried.folder, "command": command})
    if Path(command[0]).is_absolute():
        workload["command"].comment("on this machine; elsewhere: python, and requirements")
    if tried.framework:
        workload["framework"] = tried.framework
    if tried.seed is None:
        workload["random"] = "replay"
    workload["metrics"] = {key: _inline(value) for key, value in metrics.items()}
    artifacts = {"predictions": tried.predictions, "weights": tried.weights}
    if any(artifacts.values()):
        workload["artifacts"] = {key: value for key, value in artifacts.items() if value}
    tables = tomlkit.aot()
    tables.append(workload)
    text["workload"] = tables
    written = tomlkit.dumps(text)
    schema.parse(written, "--from-try")
    return written


def _short(names: Sequence[str], lines: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Of printed metrics a pattern that a person can read, where it finds the same in all lines."""
    for name in itertools.islice((each for each in names if ": " not in each), 2 * METRICS):
        key, long = name.partition(" @ ")[0], _pattern(name, names)
        short = long.replace(r"\ ", " ").removesuffix(VALUE).replace(r"(?<![\w.])", r"\b") + PLAIN
        mine = [line for line in lines if key in line.lower()]
        found = [[each["value"] for each in re.finditer(long, line)] for line in mine]
        if any(found) and found == [re.findall(short, line) for line in mine]:
            yield name, short


def _pattern(name: str, names: Sequence[str]) -> str:
    """It reads the numbers that `try` sees. Where `names` has `val loss`, that is none of `loss`."""
    key = name.partition(" @ ")[0]
    before = dict.fromkeys(each.partition(" @ ")[0].removesuffix(key) for each in names)
    others = "".join(rf"(?<!{re.escape(each)})" for each in before if re.search(r"[^\w.]\Z", each))
    return rf"(?i)(?<![\w.]){others}{re.escape(key)}{VALUE}"


def _source(name: str, names: Sequence[str], short: dict[str, str]) -> tuple[str, Source] | None:
    """What a metric is called, and where it is read: a printed one by a pattern, one in a file by its key."""
    file, found, key = name.partition(": ")
    if not found:
        return name.partition(" @ ")[0], {"pattern": short.get(name) or _pattern(name, names)}
    if file == REPORTED:
        return key, {"report": True}
    outside = not file or file.startswith("/") or {".", ".."} & set(file.split("/"))
    return None if outside or "*" in file else (key, {"file": file, "key": key})


def _named(sources: Sequence[tuple[str, Source]]) -> dict[str, Source]:
    """By names that a study accepts, each its own: a number that is printed in two places is one. What has no
    such name, and a loss where nothing else is measured, is the `final_` one: the last of a run is read. A
    reported one has the name that it was reported by, or none."""
    named: dict[str, Source] = {}
    for key, source in sources:
        if source in named.values() and "report" not in source:
            continue
        name = NO_NAME.sub("_", unaccented(key).lower()).replace("sha256", "sha_256").strip("_")[:50]
        name = name if re.fullmatch(METRIC, name) else f"final_{name or 'metric'}"
        names = itertools.chain([name], (f"{name}_{n}" for n in itertools.count(2)))
        name = next(each for each in names if each not in named)
        if "report" not in source or name == key:
            named[name] = source
    if set(named) <= set(LOSSES):
        return {f"final_{name}": each for name, each in named.items() if "report" not in each}
    return named


def _inline(values: Source) -> tomlkit.items.InlineTable:
    table = tomlkit.inline_table()
    for key, value in values.items():
        plain = isinstance(value, str) and not re.search(r"[\x00-\x1f\x7f']", value)
        table[key] = tomlkit.string(str(value), literal=True) if plain else value
    return table
