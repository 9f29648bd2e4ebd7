"""What the parts of the walk see of it."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

from analysis.scan.lint.facts import Event, FileFacts, finding, spot
from analysis.scan.lint.names import Names
from analysis.scan.lint.syntax.tree import names_in
from analysis.scan.results import Level


class Walk:
    """A walk over one module's tree: where it is, and what it has found so far."""

    def __init__(self, facts: FileFacts) -> None:
        self.facts = facts
        self.names = Names(facts.module)
        self.scope = ""  # "", "f", "C.f"
        self.class_name = ""  # in the body of a class, outside of its methods
        self.loops = 0  # how many are around
        self.groups = 0  # functions that run before the commands of a command line
        self.target = ""  # the name that the value under way is assigned to
        self.without_gradient = 0  # how many torch.no_grad() are around
        self.with_seed = 0  # how many branches are around that run where a seed was given
        self.without_seed = 0  # how many branches are around that run where no seed was given
        self.pinned = 0  # how many tf.device("/cpu:0") are around
        self.branches = 0  # how many branches are around, in a function
        self.without_gpu = 0  # how many branches are around that run where there is no GPU
        self.events = facts.scopes.setdefault("", [])
        self.augmenting: set[str] = set()  # names of what augments pictures, drawing in each use
        self.unseeded: list[tuple[str, ast.Call, str]] = []  # generators by name, until they are seeded
        self.reseeded: set[str] = set()  # names of generators and estimators that are seeded later
        self.dictionaries: dict[str, dict[str, ast.expr]] = {}  # by name, those whose items are known
        self.only_values: set[int] = set()  # calls of whose result only `.values` is used
        self.of_groups: set[int] = set()  # functions that are applied to groups of a table
        self.sampled: dict[str, Event] = {}  # by function, what draws if it is one of these
        self.discarded: set[int] = set()  # calls whose result nobody gets
        # What makes the attributes of classes, `@C.a`, where that is one call.
        self.attributes: Callable[[], dict[str, ast.expr]] = dict
        self._reported: set[tuple[str, int, int]] = set()

    def visit(self, node: ast.AST) -> None:
        """Walks over one node."""
        raise NotImplementedError

    def bind_unknown(self, target: ast.expr) -> None:
        """The names in a target stand for something unknown from here on."""
        for name in names_in(target):
            self.names.bind(name, None)

    def event(self, kind: str, name: str, node: Any, text: str = "") -> None:
        """Adds an event to the current scope."""
        self.events.append(Event(kind, name, spot(node), text))
        if kind == "train" and self.pinned:
            self.facts.pinned.add(spot(node))
        if kind in ("call", "value") and self.without_gradient:
            self.facts.without_gradient.add(spot(node))

    def report(self, rule: str, node: Any, why: str, level: Level | None = None) -> None:
        """Adds a finding, once a place."""
        where = spot(node)
        if (rule, where.line, where.column) in self._reported:
            return
        self._reported.add((rule, where.line, where.column))
        self.facts.findings.append(finding(rule, self.facts.path, where, why, level))
