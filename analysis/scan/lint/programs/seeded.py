"""Which generators a program seeds at all, and which the workers of its loaders do."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from analysis.scan.lint.facts import Event, FileFacts
from analysis.scan.lint.programs.kinds import is_of_plots
from analysis.scan.lint.programs.program import Program, Step
from analysis.scan.lint.registry import Pins, pin_of, version
from analysis.scan.lint.vocabulary import (
    BY_OPTION,
    BY_WORKERS,
    DRAWN,
    FOR_A_SEED,
    HELPER,
    IF_GIVEN,
    NO_DEFAULT,
    SEEDED_BY,
    WITHOUT_GPU,
)

IN_WORKERS = re.compile(r"(?:^|\.)(?:__getitem__|__getitems__|\w*collate\w*)$")
"""Functions that the workers of a loader call."""
SEEDS_NUMPY = (1, 9)
"""The first PyTorch whose workers seed NumPy's generator too; that of Python they always seeded."""
Scope = tuple[str, str]
"""The path of a file, and the name of a scope."""


def ever_seeded(program: Program) -> set[str]:
    """The generators that are seeded anywhere in the program's files; "*" for all, where a function of
    elsewhere seeds by its name. A seed that is itself drawn is one: what it is drawn from is another
    generator, or VB104 says so; one that a user may leave out, of machines without a GPU, or of PyTorch in
    workers, is none."""
    found = set()
    seeds, is_by_choice = _sources(program), by_choice(program)
    for file, event in _seeding(program):
        is_from_itself = event.text == f"{DRAWN} {event.name}" and event.name not in seeds
        is_spared = event.text in (WITHOUT_GPU, BY_WORKERS)
        if not is_spared and not is_from_itself and not is_by_choice(file, event):
            found.add("*" if event.kind == "call" else event.name)
    return found | {each for each, source in SEEDED_BY.items() if source in found}


def seeded_by_choice(program: Program) -> dict[str, Step]:
    """Where generators are seeded if a user gives a seed."""
    found: dict[str, Step] = {}
    is_by_choice = by_choice(program)
    for file, event in _seeding(program):
        if event.kind == "seed" and is_by_choice(file, event):
            found.setdefault(event.name, Step(file, event))
    return found


def is_for_seed(step: Step) -> bool:
    """Whether it draws a seed."""
    return step.event.kind == "draw" and step.event.text.endswith(FOR_A_SEED)


def _sources(program: Program) -> set[str]:
    """The generators that seeds are drawn from."""
    return {step.event.name for step in program.reached if is_for_seed(step)}


def by_choice(program: Program) -> Callable[[FileFacts, Event], bool]:
    """Whether something happens only where a user gives a seed, who may leave it out: it stands in such a
    branch, or in a function that seeds and is called in such branches alone."""
    if "seed_by_choice" not in program.flags():
        return lambda _file, _event: False
    called: dict[Scope, set[bool]] = {}
    for scope, text in _helped(program):
        called.setdefault(scope, set()).add(text.startswith(IF_GIVEN))
    only = {scope for scope, given in called.items() if given == {True}}
    stored = set().union(*(file.stored for file in program.files))  # `options.seed = 3`
    open_ones = {each.removeprefix(NO_DEFAULT) for each in program.flags() if each.startswith(NO_DEFAULT)}
    left_out = {f"{BY_OPTION}{name}" for name in open_ones - stored}
    return lambda file, event: (
        event.text.startswith(IF_GIVEN)
        or event.text in left_out
        or (file.path, file.scope_at(event.spot.line)) in only
    )


def _seeding(program: Program) -> Iterator[Step]:
    """What seeds, or calls a function of elsewhere that does by its name."""
    redrawn = _redrawn(program)
    for file in program.files:
        for event in program.alive(file):
            is_helper = event.kind == "call" and HELPER in event.text
            if event.kind != "seed" and not is_helper:
                continue
            if redrawn and redrawn.get((file.path, file.scope_at(event.spot.line))) == {event.name}:
                continue
            if is_of_plots(program.file, file, event) and not file.is_notebook:  # whose cells all run
                continue
            if event.kind == "seed" or not program.index.function(event.name, file):
                yield Step(file, event)


def _redrawn(program: Program) -> dict[Scope, set[str]]:
    """Functions that seed, by file and name, with the generators that their seeds are drawn from; "" for
    one that is not drawn, or of which VB104 tells."""
    found: dict[Scope, set[str]] = {}
    seeds = _sources(program)
    for scope, text in _helped(program):
        if text.startswith(HELPER):
            source = text.removeprefix(HELPER)
            found.setdefault(scope, set()).add("" if source in seeds else source)
    return found


def _helped(program: Program) -> Iterator[tuple[Scope, str]]:
    """The program's functions that seed by their names, at each of their calls, with what is said of it."""
    for file in program.files:
        for event in program.alive(file):
            is_helper = event.kind == "call" and HELPER in event.text
            target = program.index.function(event.name, file) if is_helper else None
            if target is not None:
                yield (target[0].path, target[1]), event.text


def seeded_in_workers(program: Program, pinned: Pins) -> dict[str, set[Scope]]:
    """By generator, the scopes that run in workers of loaders alone: PyTorch seeds it there, from its own."""
    loaders = [step.event.name for step in program.reached if step.event.kind == "loader"]
    if not loaders or not all(_has_workers(program, count) for count in loaders):
        return {}
    pin = version(pin_of(pinned, "torch", program.file.path))
    generators = ("python",) if pin is not None and pin < SEEDS_NUMPY else ("python", "numpy")
    return dict.fromkeys(generators, _only_in_workers(program))


def _has_workers(program: Program, count: str) -> bool:
    """Whether a number, or each default of a name, is more than 0."""
    said = {int(count)} if count.isdigit() else program.defaults(count)
    return bool(said) and all(isinstance(each, int) and each > 0 for each in said)


def _only_in_workers(program: Program) -> set[Scope]:
    """What workers call, and what nothing else calls than that."""
    methods: dict[str, list[Scope]] = {}
    callers: dict[Scope, set[Scope]] = {}
    for file in program.files:
        for scope in file.scopes:
            if scope.rpartition(".")[0] in file.classes:
                methods.setdefault(scope.rpartition(".")[2], []).append((file.path, scope))
    given: set[Scope] = set()
    for file in program.files:
        for scope, events in file.scopes.items():
            for event in events:
                is_named = event.kind in ("call", "value", "worker")
                target = program.index.function(event.name, file) if is_named else None
                called = [(target[0].path, target[1])] if target is not None else []
                if event.kind == "worker":
                    given |= {(path, name.replace("__init__", "__call__")) for path, name in called}
                    continue
                for each in methods.get(event.name, ()) if event.kind == "method" else called:
                    callers.setdefault(each, set()).add((file.path, scope))
    every = [(file.path, scope) for file in program.files for scope in file.scopes]
    found = given | {each for each in every if IN_WORKERS.search(each[1])}
    while more := {each for each, by in callers.items() if by & found and by <= found | {each}} - found:
        found |= more
    return found
