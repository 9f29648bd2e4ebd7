"""The names that a module has for those who import them, and those that it needs from others to be loaded."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from analysis.scan.lint.names import Names

UNKNOWN = "*"
"""Said of a module that has names which are not written out."""
_DYNAMIC = frozenset(("globals", "exec", "setattr", "vars"))


def bound(body: Sequence[ast.stmt]) -> set[str]:
    """The names that statements of a module bind, in branches and loops too."""
    found: set[str] = set()
    for node in _statements(body):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(UNKNOWN if node.name == "__getattr__" else node.name)
            if any(isinstance(inner, ast.Global) for inner in ast.walk(node)):
                found.add(UNKNOWN)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            found |= {alias.asname or alias.name.partition(".")[0] for alias in node.names}  # "*" of all
        else:
            for inner in ast.walk(node):
                if isinstance(inner, ast.Name):
                    if not isinstance(inner.ctx, ast.Load):
                        found.add(inner.id)
                    elif inner.id in _DYNAMIC:
                        found.add(UNKNOWN)
    return found


def needed(names: Names, body: Sequence[ast.stmt]) -> set[tuple[str, str, int]]:
    """The modules and names without which a module cannot be loaded, by line: those of no branch and no
    `try`. Of a whole module the name is empty."""
    found = set()
    for node in body:
        if isinstance(node, ast.Import):
            found |= {(alias.name, "", node.lineno) for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = names.base(node)
            found |= {(base, alias.name.replace("*", ""), node.lineno) for alias in node.names}
    return found


def _statements(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    for node in body:
        inner = [
            each
            for field in ("body", "orelse", "finalbody", "handlers", "cases")
            for each in getattr(node, field, ())
        ]
        yield node
        if inner and not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield from _statements([s for each in inner for s in (getattr(each, "body", None) or [each])])
