"""The arguments of a call, by name or place; the name of what is called; the lines of a node."""

from __future__ import annotations

import ast
from collections.abc import Container
from typing import Any


def argument(node: ast.Call, name: str, position: int = -1) -> ast.expr | None:
    """An argument by its name, or by its position where it may be given by that."""
    for keyword in node.keywords:
        if keyword.arg == name:
            return keyword.value
    if 0 <= position < len(node.args) and not any(isinstance(a, ast.Starred) for a in node.args):
        return node.args[position]
    return None


def given_to(node: ast.Call) -> list[ast.expr]:
    """All that a call is given, by place and by name."""
    return [*node.args, *(keyword.value for keyword in node.keywords)]


def parameters(arguments: ast.arguments) -> list[tuple[ast.arg, ast.expr | None]]:
    """The named parameters of a function, each with its default."""
    positional = [*arguments.posonlyargs, *arguments.args]
    lacking = [None] * (len(positional) - len(arguments.defaults))
    return [
        *zip(positional, [*lacking, *arguments.defaults], strict=True),
        *zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True),
    ]


def is_open(node: ast.Call, name: str) -> bool | None:
    """True where the argument is not given by name, False where it is with a value, None where `**options` or
    None leave it unknown. None as a value counts as not given."""
    for keyword in node.keywords:
        if keyword.arg == name:
            return isinstance(keyword.value, ast.Constant) and keyword.value.value is None
    return None if any(k.arg is None for k in node.keywords) else True


def constant(node: ast.expr | None) -> Any:
    """The value of a literal; Ellipsis for what is not one, and for None (nothing)."""
    return node.value if isinstance(node, ast.Constant) else ...


def is_given(node: ast.Call, name: str) -> bool:
    """Whether an argument is given, or may be (`**options`)."""
    return is_open(node, name) is not True


def dotted(function: ast.expr) -> str:
    """`self.rng` of `self.rng.seed`."""
    return ast.unparse(function.value) if isinstance(function, ast.Attribute) else ""


def root(node: ast.expr) -> str:
    """`axes` of `axes[0].imshow`."""
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def text_of(node: ast.AST) -> str:
    """An expression or statement as text; "" for what cannot be written again: it is too deep, has too long a
    number, or is an f-string with signs that would need a backslash."""
    try:
        return ast.unparse(node)
    except (ValueError, RecursionError):
        return ""


def last(function: ast.AST | None) -> str:
    """`append` of `self.rows.append`, `open` of `open`; "" for others."""
    return getattr(function, "attr", "") or getattr(function, "id", "")


def callee(node: ast.AST | None) -> str:
    """`append` of the call `self.rows.append(x)`, `open` of `open(x)`; "" for what is no call."""
    return last(node.func) if isinstance(node, ast.Call) else ""


def attribute_of(node: ast.expr) -> str:
    """`x`, `self.x`, `options.x`; "" for others."""
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        return f"{node.value.id}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def called_on(node: ast.AST | None, methods: Container[str]) -> ast.expr | None:
    """`x` of `x.to(device)`, where that is one of these methods."""
    match node:
        case ast.Call(func=ast.Attribute(value=of, attr=method)) if method in methods:
            return of
    return None


def lines_of(node: ast.stmt | ast.expr) -> range:
    return range(node.lineno, (node.end_lineno or node.lineno) + 1)
