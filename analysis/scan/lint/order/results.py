"""What functions return in no defined order, and the attributes in which it ends."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from typing import Any

from analysis.scan.lint.facts import spot
from analysis.scan.lint.syntax.walk import Walk
from analysis.scan.results import Level

WRAPPER = re.compile(r"(?:^|\.)_*(?:ls|list_?dir|list_\w*repo\w*|walk|scandir|i?glob|rglob|iterdir)$")
"""Functions that give what another one lists, for who knows what."""


class Results:
    """The orders that functions of the module return: their callers decide."""

    def __init__(self, walk: Walk) -> None:
        self._walk = walk
        self._returned: dict[str, list[tuple[str, Any, str, Level | None]]] = {}  # by function
        self._asked: dict[str, int] = {}  # how many calls keep their order
        self._named: dict[tuple[str, str], str] = {}  # functions by the names that have their results
        self._attributes: dict[str, set[str]] = {}  # by function

    def hand_on(self, rule: str, node: Any, why: str, level: Level | None) -> None:
        self._returned.setdefault(self._walk.scope, []).append((rule, node, why, level))

    def called(self, name: str | None, *, keeps: bool) -> None:
        if name is not None and name.startswith("@"):
            asked = name[1:].replace("()", "")
            self._asked[asked] = self._asked.get(asked, 0) + keeps

    def sorted(self, name: str) -> None:
        """What a name has is sorted after all."""
        if function := self._named.pop((self._walk.scope, name), ""):
            self._asked[function] -= 1

    def assigned(self, targets: Sequence[ast.expr], value: ast.expr) -> None:
        """`self.train = self.read(folder)`, also by way of a name: the attribute has what was returned."""
        scope = self._walk.scope
        function = ""
        if isinstance(value, ast.Call):
            name = self._walk.names.resolve(value.func) or ""
            function = name[1:].replace("()", "") if name.startswith("@") else ""
        elif isinstance(value, ast.Name):
            function = self._named.get((scope, value.id), "")
        for target in targets:
            for element in target.elts if isinstance(target, ast.Tuple | ast.List) else (target,):
                if isinstance(element, ast.Attribute) and function:
                    self._attributes.setdefault(function, set()).add(element.attr)
                elif isinstance(element, ast.Name) and function:
                    self._named[scope, element.id] = function

    def hold(self, node: Any, name: str) -> None:
        """What is not sorted where it was made is in `name`, `self.x` or a variable."""
        if "." in name and not name.startswith("[]"):  # an item, which no attribute's name tells
            where = spot(node)
            held = self._walk.facts.held.setdefault((where.line, where.column), set())
            held.add(name.rpartition(".")[2])

    def module_ends(self) -> None:
        """What functions return is reported, unless every call in the module is one that keeps no order."""
        for scope, items in self._returned.items():
            if self._asked.get(scope, not WRAPPER.search(scope)):
                for rule, node, why, level in items:
                    for attribute in self._attributes.get(scope, ()):
                        self.hold(node, f".{attribute}")
                    self._walk.report(rule, node, why, level)


def attributes_of(node: ast.Call) -> set[str]:
    """`train` of `sorted(data.train)`, `sorted(list(data.train) + more)`; what a class sorts of its own is
    known, and other elements than its are not it: `sorted(row.name for row in data.train)`."""
    return {name for argument in node.args[:1] for name in _whole(argument)}


def _whole(value: ast.expr) -> Iterator[str]:
    match value:
        case ast.Attribute(value=ast.Name(id=owner), attr=name) if owner != "self":
            yield name
        case ast.Call(func=ast.Name(id="list" | "tuple" | "set"), args=[inner]):
            yield from _whole(inner)
        case ast.BinOp(left=left, right=right):
            yield from _whole(left)
            yield from _whole(right)
        case ast.ListComp(elt=ast.Name(id=one)) | ast.GeneratorExp(elt=ast.Name(id=one)):
            generator = value.generators[0]
            if isinstance(generator.target, ast.Name) and generator.target.id == one:
                yield from _whole(generator.iter)
