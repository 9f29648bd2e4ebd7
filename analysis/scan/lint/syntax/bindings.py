"""The names that a module has for those who import them, and those that it needs from others to be loaded."""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Iterator, Sequence

from analysis.scan.lint.names import Names
from analysis.scan.lint.syntax.arguments import root
from analysis.scan.lint.syntax.tree import all_of, nodes_in, nodes_of, stored_in

UNKNOWN = "*"
"""Said of a module that has names which are not written out."""
_DYNAMIC = frozenset(("globals", "exec", "setattr", "vars"))
_GIVEN = frozenset(dir(builtins))
_TELLING = re.compile(
    r"[A-Z]\w{2,}|np|pd|plt|sns|tf|nn|torch|keras|layers|models|optim|optimizers|callbacks|os|sys|re|cv2|glob|json|math"
    r"|pickle|random|shutil|time"
)
"""Names of classes, constants and modules; others may be of a session of which a notebook shows a part."""


def bound(body: Sequence[ast.stmt]) -> set[str]:
    """The names that statements of a module bind, in branches and loops too."""
    found: set[str] = set()
    for node in _statements(body):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(UNKNOWN if node.name == "__getattr__" else node.name)
            if any(all_of(ast.Global, node)):
                found.add(UNKNOWN)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            found |= {alias.asname or alias.name.partition(".")[0] for alias in node.names}  # "*" of all
        else:
            for inner in all_of(ast.Name, node):
                if not isinstance(inner.ctx, ast.Load):
                    found.add(inner.id)
                elif inner.id in _DYNAMIC:
                    found.add(UNKNOWN)
    return found


def needed(names: Names, body: Sequence[ast.stmt]) -> set[tuple[str, str, int]]:
    """The modules and names without which a module cannot be loaded, or a function fails, by line: those of
    no branch and no `try`. Of a whole module the name is empty."""
    found = set()
    for node in body:
        if isinstance(node, ast.Import):
            found |= {(alias.name, "", node.lineno) for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = names.base(node)
            found |= {(base, alias.name.replace("*", ""), node.lineno) for alias in node.names}
    return found


def results(body: Sequence[ast.stmt]) -> dict[str, ast.expr]:
    """What the functions and methods of a module say that they return, one class: `def make() -> Trainer`."""
    owners = [("", body), *((f"{node.name}.", node.body) for node in body if isinstance(node, ast.ClassDef))]
    return {
        f"@{owner}{node.name}": node.returns
        for owner, inside in owners
        for node in inside
        if isinstance(node, ast.FunctionDef) and isinstance(node.returns, ast.Name | ast.Attribute)
    }


def attributes(body: Sequence[ast.stmt]) -> dict[str, ast.expr]:
    """What makes the attributes of a module's classes that get one value beside None: `Trainer` of
    `self.trainer = Trainer()`, where that is no name of the method's own."""
    found: dict[str, ast.expr] = {}
    for node in body:
        if not isinstance(node, ast.ClassDef):
            continue
        made: dict[str, list[ast.expr | None]] = {}
        for method in node.body:
            if isinstance(method, ast.FunctionDef):
                for name, maker in _made(method):
                    made.setdefault(name, []).append(maker)
        for name, (first, *others) in made.items():
            if first is not None and not others:
                found[f"@{node.name}.{name}"] = first
    return found


def _made(method: ast.FunctionDef) -> Iterator[tuple[str, ast.expr | None]]:
    """The attributes that a method gives a value other than None, and what is called for it."""
    plain = {node.targets[0]: node.value for node in all_of(ast.Assign, method) if len(node.targets) == 1}
    own = stored_in(method) | {node.arg for node in all_of(ast.arg, method)}
    for node in nodes_of(method):
        match node:
            case ast.Attribute(value=ast.Name(id="self"), attr=name, ctx=ast.Store()):
                value = plain.get(node)
                if not (isinstance(value, ast.Constant) and value.value is None):
                    maker = value.func if isinstance(value, ast.Call) else None
                    yield name, None if maker is None or root(maker) in own else maker


def undefined(body: Sequence[ast.stmt], bound_names: set[str]) -> dict[int, bool]:
    """The lines that read for certain a class, constant or module that is bound nowhere, by its name; of
    each, whether only a program gets there, and not who imports the module."""
    if UNKNOWN in bound_names:
        return {}
    guarded = [node for node in body if isinstance(node, ast.If) and is_main_guard(node.test)]
    of_program = {*nodes_in(guarded)}
    return {
        node.lineno: node in of_program
        for part in _certain(body)
        for node in _evaluated(part)
        if node.id not in bound_names and node.id not in _GIVEN and _TELLING.fullmatch(node.id)
    }


def _certain(body: Sequence[ast.stmt]) -> Iterator[ast.AST]:
    """What is run whatever conditions say, those of a program among it."""
    for node in body:
        if isinstance(node, ast.Assign | ast.AugAssign | ast.Expr):
            yield node
        elif isinstance(node, ast.For):
            yield node.iter
        elif isinstance(node, ast.With):
            yield from (item.context_expr for item in node.items)
            yield from _certain(node.body)
        elif isinstance(node, ast.If) and is_main_guard(node.test):
            yield from _certain(node.body)


def _evaluated(node: ast.AST) -> Iterator[ast.Name]:
    """The names that are read in it, without what may be left out."""
    if isinstance(node, ast.Name):
        if isinstance(node.ctx, ast.Load):
            yield node
    elif isinstance(node, ast.BoolOp):
        yield from _evaluated(node.values[0])
    elif isinstance(node, ast.IfExp):
        yield from _evaluated(node.test)
    elif not isinstance(node, ast.Lambda | ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp):
        for inner in ast.iter_child_nodes(node):
            yield from _evaluated(inner)


def is_main_guard(test: ast.expr) -> bool:
    """`__name__ == "__main__"`, and perhaps more."""
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
        return any(map(is_main_guard, test.values))
    if not isinstance(test, ast.Compare):
        return False
    sides = [test.left, *test.comparators]
    return any(isinstance(side, ast.Name) and side.id == "__name__" for side in sides)


def _statements(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements and those inside them, without those of functions and classes."""
    for node in body:
        yield node
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            for field in ("body", "orelse", "finalbody", "handlers", "cases"):
                for each in getattr(node, field, ()):
                    yield from _statements([each] if isinstance(each, ast.stmt) else each.body)
