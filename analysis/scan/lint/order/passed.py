"""Functions of a module that keep no order of what they are given: they go over it, and each item is on its
own."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from analysis.scan.lint.order.kept import (
    BARS,
    SUBMITTING,
    YIELDING,
    indexed,
    iterated,
    kept_in_order,
    named,
    numbered,
)
from analysis.scan.lint.syntax.arguments import callee, last
from analysis.scan.lint.syntax.tree import all_of, nodes_in, nodes_of, stored_in

COUNTING = frozenset(("len", "sorted", "set", "print")) | BARS


def order_free(body: Sequence[ast.stmt]) -> dict[str, frozenset[str | int]]:
    """The parameters whose order each function of a module does not keep, by name and by place."""
    found: dict[str, frozenset[str | int]] = {}
    for node in body:
        if isinstance(node, ast.FunctionDef):
            names = [each.arg for each in (*node.args.posonlyargs, *node.args.args)]
            free = {name for name in names if not _keeps(node, name, set())}
            found[node.name] = frozenset({*free, *(names.index(name) for name in free)})
    return found


def _keeps(function: ast.FunctionDef, name: str, seen: set[str]) -> bool:
    """Whether the order of what has a name in a function may be kept: any use does but those known here."""
    seen.add(name)
    own = stored_in(function)
    harmless: set[int] = set()
    for node in nodes_of(function):
        for use in _harmless(node, name):
            harmless.add(id(use))
        if isinstance(node, ast.For) and name in (named(iterated(node.iter)), indexed(node)):
            lists = set(kept_in_order(node.body))
            if lists & {"", YIELDING} or numbered(node) or _ends(node.body):
                return True
            if any(each not in own or _keeps(function, each, seen) for each in lists - seen):
                return True
        match node:
            case ast.Assign(targets=[ast.Name(id=jobs)], value=ast.ListComp() as made) if _begins(made, name):
                harmless.add(id(made.generators[0].iter))
                if jobs not in seen and _keeps(function, jobs, seen):
                    return True
    return any(node.id == name and id(node) not in harmless for node in all_of(ast.Name, function))


def _begins(made: ast.ListComp, name: str) -> bool:
    """`[pool.submit(work, each) for each in names]`: jobs, whose results may be nobody's."""
    is_job = callee(made.elt) in SUBMITTING and len(made.generators) == 1
    return is_job and named(made.generators[0].iter) == name


def _harmless(node: ast.AST, name: str) -> Iterator[ast.AST]:
    match node:
        case ast.For(iter=iterable):
            yield iterated(iterable)
        case ast.Call(func=ast.Name(id=function), args=[of, *_]) if function in COUNTING:
            yield of
        case ast.Call(func=ast.Attribute(value=of, attr="append")):
            yield of
        case ast.UnaryOp(op=ast.Not(), operand=of):
            yield of
        case ast.Assign(targets=[ast.Name() as target], value=ast.List(elts=[])):
            yield target
        case ast.Assign(targets=[ast.Name() as target], value=ast.ListComp(elt=ast.Call(func=function))):
            if last(function) in SUBMITTING:
                yield target
        case ast.Call(func=function, args=[of]) if last(function) == "as_completed":
            yield of
        case ast.Subscript(value=ast.Name(id=of) as listed, slice=ast.Name()) if of == name:
            yield listed


def _ends(body: Sequence[ast.stmt]) -> bool:
    """Whether a loop gives something back, or ends before the last item."""
    return any(isinstance(node, ast.Return | ast.Break) for node in nodes_in(body))
