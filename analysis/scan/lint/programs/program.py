"""What happens when a program of the project runs: its scopes, put in the order in which they are reached.

A program is a file that does something when it is run: it has a main guard or a command, is a notebook,
trains or sets thread settings at its top level, calls its own functions there, has functions that the project
declares as commands, or is imported by none and writes something or calls those of others.
Its flow follows imports and calls into the project's other files, each scope once, for the first time is what
counts. Branches and loops are taken as text: once, in order. What is called by the name of a method, or
handed on, has no place in that order: see `reached`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from typing import NamedTuple

from analysis.scan.lint.facts import MAIN, Event, FileFacts, finding
from analysis.scan.lint.index import Index, last_name
from analysis.scan.lint.programs.broken import fails, stops
from analysis.scan.lint.programs.kinds import runs
from analysis.scan.lint.syntax.bindings import UNKNOWN
from analysis.scan.lint.vocabulary import OF_UNKNOWN, WORDS
from analysis.scan.results import PROGRAMS, Level, LintFinding

GRADIENTS = frozenset(("backward()", "a gradient tape"))
NAMED = 12
"""How many of its programs a finding names."""
OF_LIBRARIES = re.compile(
    r"^sklearn\.(?!model_selection|pre|feature|metrics)\w+\.\w*(?:Classifier|Regressor|Regression|SV[CR]|NB)$"
    r"|^(?:xgboost|lightgbm|catboost)\.\w+$"
)
"""Estimators that a file imports by their names, and so may fit."""
RESTING = frozenset(("draw", "train", "work", "parallel", "pool", "infers"))
"""What counts in a program's own file though no call that can be followed reaches it."""
CALLED_BY_FRAMEWORKS = WORDS["called_by_frameworks"]


class Step(NamedTuple):
    """An event of the flow, and the file it stands in."""

    file: FileFacts
    event: Event


class Program:
    """One program of the project."""

    def __init__(self, file: FileFacts, index: Index, elsewhere: frozenset[str] = frozenset()) -> None:
        self.file = file
        self.index = index
        self._elsewhere = elsewhere  # names that a project says it has from outside
        self._seen: set[tuple[str, str]] = set()  # scopes: file, name

    @cached_property
    def files(self) -> list[FileFacts]:
        """The file and all that it imports, directly or not."""
        seen = {self.file.path: self.file}
        queue = [self.file]
        while queue:
            file = queue.pop()
            for event in file.events(main=file is self.file):
                if event.kind == "import":
                    found = self.index.module(event.name, file)
                    if found is not None and found.path not in seen:
                        seen[found.path] = found
                        queue.append(found)
        return list(seen.values())

    @cached_property
    def flow(self) -> list[Step]:
        """Everything that is reached, in order."""
        steps: list[Step] = []
        seen = self._seen
        stack: list[Iterator[Step]] = [self._scope(self.file, "", seen)]
        stack[:0] = [self._scope(self.file, name, seen) for name in sorted(self.file.commands)]
        while stack:
            step = next(stack[-1], None)
            if step is None:
                stack.pop()
                continue
            steps.append(step)
            stack += [self._scope(*target, seen) for target in reversed(self._targets(step))]
        return steps

    def under(self, file: FileFacts, scope: str, lines: range | None = None) -> list[Step]:
        """What a function does, and what it calls; of a scope that several lambdas have, what stands in the
        lines of one."""
        seen: set[tuple[str, str]] = set()
        steps = [
            step for step in self._scope(file, scope, seen) if lines is None or step.event.spot.line in lines
        ]
        for step in steps:  # grows
            if step.event.kind in ("call", "value"):
                target = self.index.function(step.event.name, step.file)
                steps += [] if target is None else self._scope(*target, seen)
        return steps

    def called_by(self, step: Step) -> list[Step]:
        """What the function that an event names does."""
        target = self.index.function(step.event.name, step.file)
        first, _, last = step.event.text.partition("-")
        lines = range(int(first), int(last) + 1) if first.isdigit() else None
        return [] if target is None else self.under(*target, lines)

    def _scope(self, file: FileFacts, name: str, seen: set[tuple[str, str]]) -> Iterator[Step]:
        if (file.path, name) in seen:
            return
        seen.add((file.path, name))
        for event in file.scopes.get(name, ()):
            yield Step(file, event)

    def _targets(self, step: Step) -> list[tuple[FileFacts, str]]:
        """The scopes that run, in this order."""
        event = step.event
        if event.kind == "main":
            return [(step.file, MAIN)] if step.file is self.file else []
        if event.kind == "call":
            target = self.index.function(event.name, step.file)
            return [] if target is None else [target]
        if event.kind == "import":
            file = self.index.module(event.name, step.file)
            return (
                []
                if file is None
                else [(each, "") for each in (*self.index.packages(event.name, file), file)]
            )
        return []

    @cached_property
    def reached(self) -> list[Step]:
        """The flow, then what it reaches in a way that does not tell when: methods by their names, functions
        that are handed on, methods that frameworks call."""
        steps = list(self.flow)
        methods: dict[str, list[tuple[FileFacts, str]]] = {}
        for file in self.files:
            for scope in file.scopes:
                owner, _, last = scope.rpartition(".")
                if owner in file.classes and owner in self._mentioned and last != "__init__":
                    methods.setdefault(last, []).append((file, scope))
        followed: set[tuple[str, str, str]] = set()  # the same once more leads nowhere else
        for step in steps:  # grows
            event = (step.file.path, step.event.kind, step.event.name)
            if event not in followed:
                followed.add(event)
                for target in self._possible(step, methods):
                    steps += self._scope(*target, self._seen)
        return steps

    @cached_property
    def scopes(self) -> set[tuple[str, str]]:
        """What is reached, as files and names of scopes."""
        _ = self.reached
        return self._seen

    def _possible(
        self, step: Step, methods: dict[str, list[tuple[FileFacts, str]]]
    ) -> list[tuple[FileFacts, str]]:
        event = step.event
        if event.kind == "method":
            return methods.pop(event.name, [])  # once reached, they are all reached
        if event.kind not in ("call", "value"):
            return self._targets(step)
        if event.name.endswith(".*"):
            every = self.index.members(event, step.file)
            return [each for one in every for each in self._possible(Step(step.file, one), methods)]
        target = self.index.function(event.name, step.file)
        if target is None:
            return methods.pop(event.name.rpartition(".")[2], []) if event.kind == "call" else []
        file, scope = target
        owner, _, last = scope.rpartition(".")
        if last != "__init__":
            derived = self._derived.get((file.path, owner), set())
            return [target, *(each for each in methods.get(last, ()) if _owner(each) in derived)]
        by_frameworks = (f"{owner}.{name}" for name in CALLED_BY_FRAMEWORKS)
        return [target, *((file, scope) for scope in by_frameworks if scope in file.scopes)]

    @cached_property
    def _derived(self) -> dict[tuple[str, str], set[tuple[str, str]]]:
        """The classes that are derived from each, directly or not: `self.step()` may run theirs."""
        found: dict[tuple[str, str], set[tuple[str, str]]] = {}
        for file in self.files:
            for name in file.classes:
                queue = [(file, name)]
                while queue:
                    for base in self.index.bases(*queue.pop()):
                        users = found.setdefault((base[0].path, base[1]), set())
                        if (file.path, name) not in users:
                            users.add((file.path, name))
                            queue.append(base)
        return found

    @cached_property
    def near(self) -> list[FileFacts]:
        """The program's own file, and those that it imports itself."""
        found = {self.file.path: self.file}
        for event in self.file.events():
            if event.kind == "import" and (file := self.index.module(event.name, self.file)) is not None:
                found.setdefault(file.path, file)
        return list(found.values())

    @cached_property
    def steps(self) -> list[Step]:
        """What is reached, then what stands in the program's own file, is not reached by calls that can be
        followed, and yet has a name that is used somewhere."""
        reached = {id(step.event) for step in self.reached}
        rest = [
            event
            for name, events in self.file.scopes.items()
            if self.is_used(name)
            for event in events
            if id(event) not in reached and event.kind in RESTING
        ]
        return [*self.reached, *(Step(self.file, event) for event in sorted(rest, key=lambda e: e.spot))]

    def is_used(self, scope: str) -> bool:
        """Whether a function of the program's own file, or a method and its class, are mentioned at all."""
        owner, _, last = scope.replace(".<lambda>", "").rpartition(".")
        is_usual = last in ("", MAIN, "main", *CALLED_BY_FRAMEWORKS) or last.startswith("__")
        return (is_usual or last in self._mentioned) and (
            owner not in self.file.classes or owner in self._mentioned
        )

    def own_first(self, found: Iterable[Step]) -> Step | None:
        """The first of these steps in the program's own file; the first of all if none is there."""
        first = None
        for step in found:
            if step.file is self.file:
                return step
            first = first or step
        return first

    @property
    def training(self) -> Step | None:
        """The first step that trains."""
        return next(iter(self.trainings), None)

    @cached_property
    def trainings(self) -> list[Step]:
        """The steps that train, those of the program's own file first. A gradient with which nothing is
        changed, of a picture or for a comparison, does not."""
        found = [
            step
            for step in self.steps
            if step.event.kind == "train"
            and not (step.event.text.startswith(OF_UNKNOWN) and self._is_no_model(step))
            and (step.event.name not in GRADIENTS or step.file.flags & {"steps", "optimizes"})
            and not fails(step.file, step.event.spot.line, self.file, self.index, self._elsewhere)
        ]
        return sorted(found, key=lambda step: step.file is not self.file)

    def _is_no_model(self, step: Step) -> bool:
        """Whether what is fitted, of unknown origin, is something of the project: what happens in it tells.
        By a name with a capital, it is a model only where a function of the project made it."""
        if maker := step.event.text.removeprefix(OF_UNKNOWN):
            made_by = self.index.function(maker, step.file)
            return made_by is None or made_by[1].endswith("__init__")
        own_fits = (
            scope == f"{name}.fit"
            for file in self.files
            for name in file.classes
            if name in self._mentioned
            for _, _, scope in file.spans
        )
        return any(own_fits) and not any(map(OF_LIBRARIES.match, step.file.imported.values()))

    def flags(self) -> set[str]:
        return set().union(*(file.flags for file in self.files))

    def modes(self) -> set[str]:
        return set().union(*(file.modes for file in self.files))

    def defaults(self, name: str) -> set[bool | int | str]:
        """The values that a name has in the program's files unless a user gives another one."""
        return set().union(*(file.defaults.get(name, set()) for file in self.files))

    @cached_property
    def _mentioned(self) -> set[str]:
        """The last names of all that is called, given or fetched anywhere in the program's files."""
        return self._called | {
            last_name(event.name)
            for file in self.files
            for event in file.events(main=file is self.file)
            if event.kind == "import"
        }

    @cached_property
    def _called(self) -> set[str]:
        """The same without what is only fetched, or mentioned in functions that are not mentioned."""
        waiting: dict[str, list[set[str]]] = {}  # what functions and classes mention, by their names
        queue: list[set[str]] = []
        for file in self.files:
            for scope, names in self.index.mentions(file).items():
                if scope == MAIN and file is not self.file:
                    continue
                if _is_named(file, scope, set()) or (file is self.file and UNKNOWN in file.bound):
                    queue.append(names)
                else:
                    waiting.setdefault(scope.replace(".<lambda>", "").partition(".")[0], []).append(names)
        found: set[str] = set()
        while queue:
            for name in queue.pop() - found:
                found.add(name)
                queue += waiting.pop(name, [])
        return found

    def is_unused(self, step: Step) -> bool:
        """Whether a draw makes an object of an imported file that no other file of the program names, such as
        the layers of one model among many."""
        name = step.file.made.get(step.event.spot, "")
        return step.file is not self.file and bool(name) and name not in self._mentioned

    def may_run(self, file: FileFacts, scope: str) -> bool:
        """Whether something in the program's files calls or gives a function, or the class of a method."""
        return _is_named(file, scope, self._called)

    def alive(self, file: FileFacts) -> Iterator[Event]:
        """The events of a file without those of functions and classes that the program never uses."""
        for name, events in file.scopes.items():
            if name == MAIN and file is not self.file:
                continue
            if file.is_notebook or self.may_run(file, name):
                yield from events


def _is_named(file: FileFacts, scope: str, names: set[str]) -> bool:
    """Whether a function, or the class of a method, is among names; what is inside another one counts."""
    first, _, rest = scope.replace(".<lambda>", "").partition(".")
    if first in file.classes:
        return first in names
    return bool(rest) or first in ("", MAIN, "main") or first in names


def _owner(method: tuple[FileFacts, str]) -> tuple[str, str]:
    """The class of a method, with the path of its file."""
    return method[0].path, method[1].rpartition(".")[0]


def place(of: Step, seen_from: Step) -> str:
    """`line 3`, `cell 2, line 1`; from another file `model.py:3`, `main.ipynb:cell 2:1`."""
    if of.file is seen_from.file:
        return of.file.where(of.event.spot.line)
    cell, line = of.file.place_of(of.event.spot.line)
    return f"{of.file.path}:{f'cell {cell}:' if cell else ''}{line}"


def at(rule: str, step: Step, why: str, level: Level | None = None) -> LintFinding:
    """A finding of a rule at a step."""
    return finding(rule, step.file.path, step.event.spot, why, level)


def naming(found: LintFinding, users: Sequence[str]) -> LintFinding:
    """The finding with the programs that it is about, unless that is the file it stands in alone."""
    named = [path for path in dict.fromkeys(users) if path != found.place.path]
    if not named:
        return found
    own = ["this file"] * (found.place.path in users)
    others = [f"{len(named) - NAMED} others"] * (len(named) > NAMED)
    return replace(found, why=f"{found.why}{PROGRAMS}{', '.join([*own, *named[:NAMED], *others])}")


def programs(files: Sequence[FileFacts], elsewhere: frozenset[str] = frozenset()) -> list[Program]:
    """The programs that can run; `elsewhere` are names of modules that a project has and that are not in
    `files`. A file that is none because it stops gets a note."""
    index = Index(files)
    imported = {
        found.path
        for file in files
        for event in file.events()
        if event.kind == "import" and (found := index.module(event.name, file)) is not None
    }
    every = []
    for file in files:
        if runs(file, index, file.path in imported):
            if why := stops(file, index, elsewhere):
                file.note(f"{why}; a program that cannot run is not judged")
            else:
                every.append(Program(file, index, elsewhere))
    return every
