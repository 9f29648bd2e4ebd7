"""Models whose weights a file keeps as they are: no gradient of theirs is computed."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence

from analysis.scan.lint.syntax.arguments import attribute_of, constant
from analysis.scan.lint.syntax.tree import nodes_in

WORD = re.compile(r"\b(?:trainable|requires_grad_?)\b")
"""Where a text has none, nothing is kept."""
ATTRIBUTES = frozenset(("trainable", "requires_grad"))
PARTS = frozenset(("layers", "parameters", "modules", "trainable_variables"))
INSIDE = re.compile(r"vgg|percept|lpips|loss|disc|teacher", re.IGNORECASE)
"""Names of what a gradient passes on its way to something else."""


def frozen(body: Sequence[ast.stmt]) -> set[str]:
    """The names of models of which no part is trained, whatever happens. Where a file trains any part that
    was kept, or by choice, nothing is certain."""
    if any(said is not False for _, said in _settings(nodes_in(body))):
        return set()
    return {name for name in _kept(body, {}) if name and not INSIDE.search(name)}


def _kept(body: Sequence[ast.AST], parts: dict[str, str]) -> Iterator[str]:
    """The names that are kept in no branch; `parts` are names of loops over all parts of one."""
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.With | ast.AsyncFunctionDef):
            yield from _kept(node.body, parts)
        elif isinstance(node, ast.For) and isinstance(node.target, ast.Name):
            yield from _kept(node.body, parts | {node.target.id: _whole(node.iter)})
        elif isinstance(node, ast.Assign | ast.Expr):
            for name, _ in _settings((node, node.value)):
                yield parts.get(name, name)


def _settings(nodes: Iterator[ast.AST] | Sequence[ast.AST]) -> Iterator[tuple[str, object]]:
    """`base.trainable = False`, `net.requires_grad_(False)`: what, and what is said."""
    for node in nodes:
        match node:
            case ast.Assign(targets=[ast.Attribute(value=of, attr=attribute)], value=value):
                if attribute in ATTRIBUTES:
                    yield attribute_of(of), constant(value)
            case ast.Call(func=ast.Attribute(value=of, attr="requires_grad_"), args=args):
                yield attribute_of(of), constant(args[0]) if args else True


def _whole(value: ast.expr) -> str:
    """`base` of `base.layers` and `base.parameters()`; of a part of them, nothing."""
    if isinstance(value, ast.Call):
        value = value.func
    return attribute_of(value.value) if isinstance(value, ast.Attribute) and value.attr in PARTS else ""
