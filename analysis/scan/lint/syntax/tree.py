"""The nodes of syntax trees, all of them or those of a kind."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from functools import cache
from itertools import chain
from typing import TypeVar

Node = TypeVar("Node", bound=ast.AST)


@cache
def nodes_of(tree: ast.AST) -> list[ast.AST]:
    """What ast.walk gives, in its order. It is kept, for most trees are asked for many times: whoever changes
    one clears the cache."""
    found = [tree]
    for node in found:  # grows
        for name in node._fields:
            value = getattr(node, name, None)
            if value.__class__ is list:
                found += [each for each in value if isinstance(each, ast.AST)]
            elif isinstance(value, ast.AST):
                found.append(value)
    return found


def nodes_in(body: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """The nodes of statements, one statement after the other."""
    return chain.from_iterable(map(nodes_of, body))


def all_of(kind: type[Node], *trees: ast.AST) -> Iterator[Node]:
    """The nodes of one kind."""
    return (node for node in nodes_in(trees) if isinstance(node, kind))


def names_in(*trees: ast.AST) -> set[str]:
    """The names that are read or given a value."""
    return {node.id for node in all_of(ast.Name, *trees)}


def stored_in(*trees: ast.AST) -> set[str]:
    """The names that are given a value."""
    return {node.id for node in all_of(ast.Name, *trees) if isinstance(node.ctx, ast.Store)}
