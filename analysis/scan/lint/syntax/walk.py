"""What the parts of the walk see of it."""

from __future__ import annotations

import ast
from typing import Any, Protocol

from analysis.scan.lint.facts import Event, FileFacts
from analysis.scan.lint.names import Names
from analysis.scan.results import Level


class Walk(Protocol):
    """A walk over one module's tree: where it is, and what it has found so far."""

    facts: FileFacts
    names: Names
    scope: str  # "", "f", "C.f"
    class_name: str  # in the body of a class, outside of its methods
    loops: int  # how many are around
    target: str  # the name that the value under way is assigned to
    without_gradient: int  # how many torch.no_grad() are around
    with_seed: int  # how many branches are around that run where a seed was given
    without_seed: int  # how many branches are around that run where no seed was given
    pinned: int  # how many tf.device("/cpu:0") are around
    branches: int  # how many branches are around
    without_gpu: int  # how many branches are around that run where there is no GPU
    events: list[Event]
    unseeded: list[tuple[str, ast.Call, str]]  # generators by their names, until they are seeded
    reseeded: set[str]
    dictionaries: dict[str, dict[str, ast.expr]]  # by their names, those whose items are known
    only_values: set[int]  # calls of whose result only `.values` is used
    discarded: set[int]  # calls whose result nobody gets

    def attributes(self) -> dict[str, ast.expr]:
        """What makes the attributes of classes, `@C.a`, where that is one call."""

    def visit(self, node: ast.AST) -> None:
        """Walks over one node."""

    def bind_unknown(self, target: ast.expr) -> None:
        """The names in a target stand for something unknown from here on."""

    def event(self, kind: str, name: str, node: Any, text: str = "") -> None:
        """Adds an event to the current scope."""

    def report(self, rule: str, node: Any, why: str, level: Level | None = None) -> None:
        """Adds a finding, once a place."""
