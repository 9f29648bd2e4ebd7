"""Facts of one file, in a form that can be combined with those of the project's other files."""

from __future__ import annotations

import ast
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from analysis.scan.lint.rules import RULES
from analysis.scan.results import Level, LintFinding, Note, Place


class Spot(NamedTuple):
    """Where something stands in the text that was parsed, its column in bytes of UTF-8; mapped later."""

    line: int
    column: int
    last_line: int


class Event(NamedTuple):
    """Something that happens when a scope runs, in the order of the text.

    kind      what                                      name
    draw      a generator is used                       the generator
    perhaps   the same, unless a parameter is a seed    the generator
    augments  a layer of Keras that draws is called
    seed      a generator is seeded                     the generator
    call      a function of the project is called       `@f` of this file, or its qualified name
    value     a function is given to be called          the same
    method    a method of something unknown is called   its last name
    import    a module is imported                      its qualified name
    setting   a variable of the environment is set      the variable
    mode      a deterministic mode is turned on         its framework; "warn" when torch only warns
    threads   a function sets thread counts             its qualified name
    work      a framework computes                      the framework
    loaded    weights are loaded
    evaluates a model is put into its mode of evaluation
    measures  cuDNN's choice by measuring is turned on or off
    moved     a tensor or model is moved to a device
    gpu       it is moved to a GPU for certain
    train     a model is trained                        how
    infers    a network that is not trained computes   its qualified name
    pool      an estimator learns in threads             its qualified name
    parallel  a function is mapped over elements        the same as of a call; its lines, of a lambda
    loader    data are loaded by workers                how many, or the name of that
    worker    workers call a function or an object      the same as of a call
    main      what the main guard guards, see MAIN
    """

    kind: str
    name: str
    spot: Spot
    text: str = ""


MAIN = "<main>"
"""The scope of what stands under `if __name__ == "__main__"`."""


TRIES = "tries"
"""The flag of a file whose main guard says that it tests."""
FETCHES = "fetches"
"""The flag of a file that gets modules or names from outside."""
APPLIES = "applies"
"""The flag of a file that gets a network's output: `net.predict(x)`, `net(x).detach()`."""
MOVES = "moves"
"""The flag of a notebook that goes to another folder."""


class Use(NamedTuple):
    """A use of an operation of the registry; `entry` is its index there."""

    entry: int
    name: str
    spot: Spot


Values = tuple[object, ...]
"""All values that something can have."""


class Parameter(NamedTuple):
    """A parameter that keeps the value which it is given; `default` is None where it is no literal."""

    position: int
    default: Values | None


class Given(NamedTuple):
    """The arguments of a call: values, the name of the caller's own parameter, or None where unknown. It is
    open where some are unpacked."""

    positional: tuple[Values | str | None, ...]
    named: dict[str, Values | str | None]
    is_open: bool


class Choice(NamedTuple):
    """Lines that run where a test, which reads a parameter of a scope under a name, has held or not."""

    scope: str
    parameter: str
    name: str
    test: ast.expr
    holds: bool
    lines: tuple[int, int]


@dataclass(slots=True)
class FileFacts:
    """Filled by `collect`, then only read. `scopes` has "" for the module itself, `f` for functions and
    `C.f` for methods. `findings` are those that need no other file."""

    path: str
    module: str
    lines: int = 0
    is_notebook: bool = False
    is_main: bool = False
    evaluated: set[str] = field(default_factory=set)  # `model` of `model.eval()`
    perhaps_modes: list[tuple[str, list[Event], Event]] = field(default_factory=list)  # `model.train()`
    selecting: set[int] = field(default_factory=set)  # lines with a word by which a model may be selected
    scopes: dict[str, list[Event]] = field(default_factory=dict)
    classes: set[str] = field(default_factory=set)
    commands: set[str] = field(default_factory=set)  # functions that the project declares as commands
    imported: dict[str, str] = field(default_factory=dict)  # what names of the module stand for elsewhere
    bound: set[str] = field(default_factory=set)  # names that the module has; "*" where more than are written
    needed: set[tuple[str, str, int]] = field(default_factory=set)  # (module, name, line) of sure imports
    needed_by: dict[str, set[tuple[str, str, int]]] = field(default_factory=dict)  # the same of functions
    undefined: dict[int, bool] = field(default_factory=dict)  # see bindings
    stars: list[str] = field(default_factory=list)  # modules of which all is imported
    operations: list[Use] = field(default_factory=list)
    threaded: list[Use] = field(default_factory=list)
    modes: set[str] = field(default_factory=set)  # of frameworks; "warn" when torch only warns
    flags: set[str] = field(default_factory=set)
    findings: list[LintFinding] = field(default_factory=list)
    sessions: list[Spot] = field(default_factory=list)  # of TensorFlow 1, without thread counts
    ignored: dict[int, tuple[str, ...]] = field(default_factory=dict)  # by comments
    silent: tuple[str, ...] = ()  # the beginnings of rules that the project ignores in this file
    spans: list[tuple[int, int, str]] = field(default_factory=list)  # lines of scopes, inner ones first
    by_line: dict[int, str] = field(default_factory=dict)  # the spans, see scope_at
    held: dict[tuple[int, int], set[str]] = field(default_factory=dict)  # attributes with what is in no order
    unread: dict[tuple[int, int], set[str]] = field(default_factory=dict)  # names with it that are not read
    decisive: set[tuple[int, int]] = field(default_factory=set)  # orders that decide what goes with what
    made: dict[Spot, str] = field(default_factory=dict)  # what the module draws when it is loaded: the names
    named: set[str] = field(default_factory=set)  # names that are read somewhere
    fixed: set[Spot] = field(default_factory=set)  # draws whose size is written out, such as a made-up input
    shown: list[int] = field(default_factory=list)  # lines that make pictures
    written: list[int] = field(default_factory=list)  # lines that write what is no picture
    trainers: dict[str, bool] = field(default_factory=dict)  # scopes: whether they only return trainers
    giving: set[str] = field(default_factory=set)  # scopes that return something
    loads: list[set[str]] = field(default_factory=list)  # of each cell of a notebook: the names that it reads
    targets: dict[Spot, str] = field(default_factory=dict)  # the names that draws are assigned to
    estimators: set[str] = field(default_factory=set)  # `@C.model` of `self.model = RandomForestClassifier()`
    frozen: set[str] = field(default_factory=set)  # names of models of which nothing is trained
    idle: set[int] = field(default_factory=set)  # lines of values of which no gradient is taken
    loading: dict[str, list[tuple[int, str]]] = field(default_factory=dict)  # of functions, see resumed
    handed_back: dict[Spot, dict[int | str, str]] = field(default_factory=dict)  # to calls, see resumed
    remade: set[int] = field(default_factory=set)  # lines of values that are made again before they train
    looked_at: set[int] = field(default_factory=set)  # lines of values that are only shown
    without_gradient: set[Spot] = field(default_factory=set)  # calls under torch.no_grad()
    pinned: set[Spot] = field(default_factory=set)  # what trains on the CPU for certain
    on_cpu: set[str] = field(default_factory=set)  # names of tensors that were moved there
    on_gpu: set[str] = field(default_factory=set)  # `f:device` of `device = "cuda"` in f
    made_on_cpu: set[str] = field(default_factory=set)  # `f:steps` of `steps = torch.arange(9)` in f
    read_attributes: set[str] = field(default_factory=set)  # used in a way that keeps an order
    defaults: dict[str, set[bool | int | str]] = field(default_factory=dict)  # of names, see walk/defaults
    counted: set[str] = field(default_factory=set)  # names of counts of the machine
    # of `cudnn.benchmark = name` (or `not name`)
    measuring: list[tuple[Spot, str, bool]] = field(default_factory=list)
    sorted_attributes: set[str] = field(default_factory=set)  # `x` of `sorted(data.x)`
    parameters: dict[str, dict[str, Parameter]] = field(default_factory=dict)  # of scopes, by name
    choices: list[Choice] = field(default_factory=list)
    given: dict[Spot, Given] = field(default_factory=dict)  # to calls
    seeds: dict[Spot, str] = field(default_factory=dict)  # parameters that seed draws, or do not
    stored: set[str] = field(default_factory=set)  # attributes of others than `self` that are given a value
    texts: dict[int, str] = field(default_factory=dict)  # of lines in which a byte is not a character
    cells: tuple[tuple[int, int], ...] = ()  # (first line, number) of each cell of a notebook
    notes: list[Note] = field(default_factory=list)

    def events(self, *, main: bool = True) -> Iterator[Event]:
        """Those of all scopes; of an imported file without what its main guard guards."""
        for name, events in self.scopes.items():
            if main or name != MAIN:
                yield from events

    def note(self, text: str) -> None:
        self.notes.append(Note(path=self.path, text=text))

    def cell_at(self, line: int) -> tuple[int, int, int]:
        """The index of the cell of a notebook that a line is in, its first line and the next cell's."""
        starts = [first for first, _ in self.cells]
        index = bisect_right(starts, line) - 1
        return index, starts[index], starts[index + 1] if index + 1 < len(starts) else self.lines + 1

    def place_of(self, line: int) -> tuple[int, int]:
        """The cell of a notebook that a line is in, 0 for none, and which line of it that is."""
        if not self.cells:
            return 0, line
        index, first, _ = self.cell_at(line)
        return self.cells[index][1], line - first + 1

    def column_of(self, line: int, column: int) -> int:
        """The character of a line that begins at a column of the parsed text, in which tabs are spaces."""
        text = self.texts.get(line)
        if text is None:
            return column
        ends = range(1, len(text) + 1)
        return 1 + bisect_left(ends, column, key=lambda end: len(text[:end].expandtabs(8).encode()))

    def where(self, line: int) -> str:
        """`line 3`, or `cell 2, line 1` in a notebook."""
        cell, line = self.place_of(line)
        return f"cell {cell}, line {line}" if cell else f"line {line}"

    def scope_at(self, line: int) -> str:
        """The scope that a line is in; asked once the spans are complete."""
        if not self.by_line:
            for first, last, scope in reversed(self.spans):
                self.by_line.update(dict.fromkeys(range(first, last + 1), scope))
        return self.by_line.get(line, "")


def spot(node: Any) -> Spot:
    """Where a node of a syntax tree stands."""
    line = node.lineno
    return Spot(line, node.col_offset + 1, node.end_lineno or line)


def finding(rule: str, path: str, where: Spot, why: str, level: Level | None = None) -> LintFinding:
    """A finding of a rule, at its usual level unless another is given."""
    place = Place(path=path, line=where.line, column=where.column)
    known = RULES[rule]
    return LintFinding(rule=rule, level=level or known.level, place=place, why=why, advice=known.advice)
