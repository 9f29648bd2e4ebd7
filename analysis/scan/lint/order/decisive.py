"""Orders that decide what goes with what: listings that are paired by their places, or from which something
is drawn. They count in evaluations too, whose metrics no other order changes."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence

from analysis.scan.lint.facts import FileFacts, spot
from analysis.scan.lint.order.kept import named
from analysis.scan.lint.order.sources import Pending

DRAWS = frozenset(
    (
        *("random.sample", "random.choice", "random.choices", "random.shuffle"),
        *("numpy.random.choice", "numpy.random.shuffle", "sklearn.model_selection.train_test_split"),
    )
)
"""Of a list in another order they draw something else."""
Listed = Mapping[str, Sequence[Pending]]


class Decisive:
    """What loops count, and which orders matter for it."""

    def __init__(self, facts: FileFacts) -> None:
        self._facts = facts
        self._turns: set[tuple[str, str]] = set()  # names, and what counts their items in a loop

    def begins(self, counter: str, name: str = "") -> None:
        """A loop counts with a name, by the items of a list if there is one."""
        self._turns = {turn for turn in self._turns if turn[1] != counter}
        if name:
            self._turns.add((name, counter))

    def is_in_turn(self, listed: Listed, name: str, counter: str) -> bool:
        """Whether a loop over the places of a listing is at its item; of another listing that is paired with
        it, which item that is depends on both orders."""
        turns = {of for of, by in self._turns if by == counter}
        for each in turns - {name}:
            self._decides(listed, [each, name])
        return name in turns

    def called(self, listed: Listed, node: ast.Call, name: str | None) -> None:
        """`random.sample(names, 9)`, `zip(names, others)`."""
        if name in DRAWS:
            self._decides(listed, [named(each) for each in node.args[:1]])
        elif name == "builtins.zip" and len(node.args) > 1:
            self._decides(listed, [named(each) for each in node.args if named(each) in listed])

    def has(self, node: ast.AST) -> bool:
        """Whether the order of a listing is one of these."""
        return spot(node)[:2] in self._facts.decisive

    def _decides(self, listed: Listed, names: Sequence[str]) -> None:
        """The places of these names, unless two of them are of one listing, and so go together."""
        nodes = [item.node for name in names for item in listed.get(name, ())]
        is_paired = len(names) > 1 and all(name in listed for name in names)
        if len({id(node) for node in nodes}) == len(nodes) and (is_paired or len(nodes) == 1):
            self._facts.decisive |= {spot(node)[:2] for node in nodes}
