"""Dictionaries that loops over something in no order fill: their items are in the order of the turns."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from analysis.scan.lint.order.kept import LOGS, bound_in, named
from analysis.scan.lint.order.sources import Pending
from analysis.scan.lint.syntax.arguments import argument, given_to, last
from analysis.scan.lint.syntax.tree import all_of
from analysis.scan.lint.syntax.walk import Walk

ITEMS = frozenset(("items", "keys", "values"))
DUMPING = frozenset(("dump", "save", "savez", "savez_compressed"))
"""Functions that write a dictionary in its order."""
INNER = "[]"
"""At the end of the name of one whose values are dictionaries that are filled."""


class Tables:
    """The dictionaries of a module."""

    def __init__(self, walk: Walk) -> None:
        self._walk = walk
        self._filled: dict[tuple[str, str], list[Pending]] = {}  # by scope and name

    def filled(self, body: list[ast.stmt], item: Pending) -> None:
        """A loop over something in no order has this body."""
        for name in _filled(body):
            self._filled.setdefault((self._walk.scope, name), []).append(item)

    def items_of(self, value: ast.expr) -> Sequence[Pending]:
        """What `table.values()` is in the order of."""
        return self._of(items_named(value))

    def used(self, node: ast.Call) -> Iterator[Pending]:
        """What a call depends on the order of: `table.values()`, `json.dump(table, file)` or
        `np.savez(path, rows=table)`, unless it is for people by its name."""
        yield from self.items_of(node)
        if last(node.func) in DUMPING:
            for value in given_to(node):
                name = named(value)
                for key in (name, name + INNER) if name and not LOGS.search(name) else ():
                    yield from (each._replace(looped=False) for each in self._of(key))

    def _of(self, name: str) -> Sequence[Pending]:
        return self._filled.get((self._walk.scope, name), ())


def tabled(value: ast.expr) -> str:
    """`rows` of `pd.DataFrame(rows)`, `tables` of `pd.concat(tables)`."""
    given = {"DataFrame": "data", "concat": "objs"}
    if isinstance(value, ast.Call) and (name := given.get(last(value.func))):
        return named(argument(value, name, 0) or value)
    return ""


def items_named(value: ast.expr) -> str:
    """`table` of `table.values()`."""
    match value:
        case ast.Call(func=ast.Attribute(value=table, attr=method), args=[]) if method in ITEMS:
            return named(table)
    return ""


def _filled(body: list[ast.stmt]) -> set[str]:
    """`images` of `images[name] = read(name)`; of `images[subject][name] = read(name)` its inner ones."""
    found = set()
    for node in all_of(ast.Assign, *body):
        for target in node.targets:
            keys, of = [], target
            while isinstance(of, ast.Subscript):
                keys.append(of.slice)
                of = of.value
            is_by_key = keys and not isinstance(keys[0], ast.Slice | ast.Tuple)
            if is_by_key and not all(isinstance(key, ast.Constant) for key in keys):
                found.add((named(of), INNER * (len(keys) > 1)))
    bound = bound_in(body)
    return {name + inner for name, inner in found if name and name not in bound}
