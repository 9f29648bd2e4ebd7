"""What is drawn to show something: examples that are played or saved beside a metric, names of files."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence

from analysis.scan.lint.syntax.arguments import last

SHOWING = re.compile(
    r"listen|play|show|display|print|plot|\bdraw_|visuali[sz]e|preview|^Audio$|^Image$|^(?:title|axis|figure|subplot)$",
    re.IGNORECASE,
)
"""Functions that show something."""
OF_EXAMPLES = re.compile(
    r"save|sampl|exampl|(?:^|_)(?:vis|viz|show|plot|demo|log|display|preview)", re.IGNORECASE
)
"""Names of numbers of what is kept to look at."""
SAVING = re.compile(r"save|write|dump|^log|^Image$", re.IGNORECASE)
"""Functions that keep something under a name, or show what was kept."""


def shown_lines(body: Sequence[ast.stmt]) -> set[int]:
    """The lines of assignments to names that are only read to show something, or in the name of a file."""
    lines: set[int] = set()
    for scope in _scopes(body):
        harmless = {id(name) for node in scope for name in _harmless(node)}
        names = [node for node in scope if isinstance(node, ast.Name)]
        for node in (each for each in scope if isinstance(each, ast.Assign)):
            target = node.targets[0]
            if isinstance(target, ast.Name):
                read = [each for each in names if each.id == target.id and isinstance(each.ctx, ast.Load)]
                if read and all(id(each) in harmless for each in read):
                    lines |= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return lines


def _scopes(body: Sequence[ast.stmt]) -> Iterator[list[ast.AST]]:
    """All nodes of the module, of which functions may read names, and of each function."""
    every = [node for statement in body for node in ast.walk(statement)]
    yield every
    for node in every:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield list(ast.walk(node))


def _harmless(node: ast.AST) -> Iterator[ast.Name]:
    """The names that a node reads to show something, or in the name of a file."""
    match node:
        case ast.For(iter=ast.Name() as name, body=body) if all(map(_shows, body)):
            yield name
        case ast.If(test=ast.Compare(ops=[ast.In()], comparators=[ast.Name(id=text) as name]), orelse=[]):
            if OF_EXAMPLES.search(text):
                yield name
        case ast.Call(func=function, args=args) if SAVING.search(last(function)):
            for part in (inner for each in args for inner in ast.walk(each)):
                if isinstance(part, ast.FormattedValue) and isinstance(part.value, ast.Name):
                    yield part.value
        case ast.Call(func=ast.Name(id="print"), args=args):
            yield from (each for each in args if isinstance(each, ast.Name))


def _shows(node: ast.stmt) -> bool:
    """`play(samples[i])`."""
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Call)
        and bool(SHOWING.search(last(node.value.func)))
    )
