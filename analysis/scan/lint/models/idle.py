"""Models of which a file takes no gradient: they only generate or predict, or another one gets their name."""

from __future__ import annotations

import ast
import itertools
import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from analysis.scan.lint.syntax.arguments import called_on, given_to, last, lines_of
from analysis.scan.lint.syntax.choices import Function
from analysis.scan.lint.syntax.tree import all_of, names_in, nodes_in, nodes_of, stored_in

ANSWERING = frozenset(("generate", "encode", "predict", "predict_on_batch"))
USING = ANSWERING | {"summary", "config", "device", "dtype"}
"""What takes no gradient of a model."""
PUTTING = frozenset(("eval", "to", "cuda", "cpu", "half"))
"""What gives the model back: alone, or under its own name again, it takes no gradient."""
TELLING = frozenset(("print", "len", "type", "summary", "display"))
WITHOUT = frozenset(("no_grad", "inference_mode"))
TRAINING = re.compile(r"train|fit|learn|backward|step|minimize|save|run|main", re.IGNORECASE)


class _Read(NamedTuple):
    line: int
    inside: bool  # a function
    learns: bool  # a gradient may be taken
    answers: bool  # the model gives something


class _Context(NamedTuple):
    owner: str = ""  # the class around
    inside: bool = False
    free: bool = False  # no gradient is taken
    local: frozenset[str] = frozenset()


def idle_lines(body: Sequence[ast.stmt]) -> set[int]:
    """The lines of the values of names, and of attributes of `self`, of which no gradient is taken."""
    reads: dict[str, list[_Read]] = {}
    for node in body:
        _read(node, _Context(), reads)
    lines: set[int] = set()
    for name, values in _stores(body).items():
        for value, following in zip(values, [*values[1:], None], strict=True):
            end = None if following is None or "." in name else following.lineno
            seen = [
                read
                for read in (*reads.get(name, ()), *reads.get(f"*.{name.rpartition('.')[2]}", ()))
                if read.inside
                or "." in name
                or (read.line > value.lineno and (end is None or read.line <= end))
            ]
            is_told = end is not None or any(read.answers for read in seen)
            if is_told and not any(read.learns for read in seen):
                lines.update(lines_of(value))
    return lines | _replaced(body)


def _replaced(body: Sequence[ast.stmt]) -> set[int]:
    """The lines of values of attributes that get another one in the same function before they are read."""
    lines: set[int] = set()
    for function in (node for node in nodes_in(body) if isinstance(node, Function)):
        kept: dict[str, ast.expr] = {}
        for node in function.body:
            if kept:
                loads = (each for each in all_of(ast.Attribute, node) if isinstance(each.ctx, ast.Load))
                reads = set(map(ast.unparse, loads))
                kept = {name: value for name, value in kept.items() if name not in reads}
            if kept and any(map(_knows_self, all_of(ast.Call, node))):
                kept = {}
            if isinstance(node, ast.Assign) and isinstance(target := node.targets[0], ast.Attribute):
                if (old := kept.get(ast.unparse(target))) is not None:
                    lines.update(lines_of(old))
                kept[ast.unparse(target)] = node.value
    return lines


def _knows_self(call: ast.Call) -> bool:
    """`self.build()`, `initialise(self)`: it may read any attribute."""
    return ast.unparse(call.func).startswith("self.") or any(
        isinstance(each, ast.Name) and each.id == "self" for each in given_to(call)
    )


def remade_lines(body: Sequence[ast.stmt]) -> set[int]:
    """The lines of values that the module makes again, by the same call, before it trains anything."""
    remade = [
        (value.lineno, following.lineno)
        for name, values in _stores(body).items()
        if "." not in name
        for value, following in itertools.pairwise(values)
        if isinstance(value, ast.Call)
        and isinstance(following, ast.Call)
        and ast.dump(value.func) == ast.dump(following.func)
    ]
    training = [
        node.lineno
        for node in (body if remade else ())
        if any(TRAINING.search(last(call.func)) for call in all_of(ast.Call, node))
    ]
    return {first for first, end in remade if bisect_left(training, first) == bisect_left(training, end)}


def _stores(body: Sequence[ast.stmt]) -> dict[str, list[ast.expr]]:
    """The values that names of the module get in no branch and loop, without those made of themselves; and
    those of attributes, by class, wherever that is."""
    found: dict[str, list[ast.expr]] = {}
    for node in body:
        for inner in nodes_of(node) if isinstance(node, ast.ClassDef) else (node,):
            if not isinstance(inner, ast.Assign) or len(inner.targets) != 1:
                continue
            name = _name(inner.targets[0], node.name if isinstance(node, ast.ClassDef) else "")
            is_kept = isinstance(inner.value, ast.Constant) or name in names_in(inner.value)
            if name and not is_kept and isinstance(node, ast.ClassDef) == ("." in name):
                found.setdefault(name, []).append(inner.value)
    return found


def _name(node: ast.AST, owner: str) -> str:
    """`model`, `Tagger.model` of `self.model` in a class, `*.model` of that of something else."""
    match node:
        case ast.Name(id=name):
            return name if name != "self" else ""
        case ast.Attribute(value=ast.Name(id="self"), attr=name) if owner:
            return f"{owner}.{name}"
        case ast.Attribute(value=ast.Name(), attr=name):
            return f"*.{name}"
    return ""


def _read(node: ast.AST, where: _Context, reads: dict[str, list[_Read]]) -> None:
    def tell(of: ast.AST, *, learns: bool, answers: bool = False) -> None:
        name = _name(of, where.owner)
        if name and name not in where.local:
            reads.setdefault(name, []).append(
                _Read(getattr(of, "lineno", 0), where.inside, learns=learns, answers=answers)
            )

    match node:
        case ast.With(items=items) if any(_stops(item.context_expr) for item in items):
            where = where._replace(free=True)
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.Lambda():
            decorators = getattr(node, "decorator_list", ())
            where = where._replace(
                inside=True,
                free=where.free or any(map(_stops, decorators)),
                local=where.local | _locals(node),
            )
        case ast.ClassDef(name=name):
            where = where._replace(owner=name)
        case ast.Expr(value=value) if _name(put := _put(value), where.owner) and put is not value:
            tell(put, learns=False)
            return
        case ast.Assign(targets=[target], value=value) if (
            name := _name(put := _put(value), where.owner)
        ) and name == _name(target, where.owner):
            tell(put, learns=False)
            return
        case ast.Call(func=ast.Attribute(value=model, attr=method)) if _name(model, where.owner):
            tell(
                model,
                learns=not where.free and method not in USING,
                answers=where.free or method in ANSWERING,
            )
            _read_all((*node.args, *node.keywords), where, reads)
            return
        case ast.Call(func=ast.Name() | ast.Attribute() as model) if where.free and _name(model, where.owner):
            tell(model, learns=False, answers=True)
            _read_all((*node.args, *node.keywords), where, reads)
            return
        case ast.Call(func=function, args=[ast.Name() as model]) if last(function) in TELLING:
            tell(model, learns=False)
            return
        case ast.Compare(left=model, comparators=[ast.Constant(value=None)]):
            tell(model, learns=False)
            return
        case ast.Attribute(value=model, attr=attribute, ctx=ast.Load()):
            tell(node, learns=True)
            tell(model, learns=attribute not in USING)
            if _name(model, where.owner):
                return
        case ast.Name(ctx=ast.Load()):
            tell(node, learns=True)
            return
    _read_all(ast.iter_child_nodes(node), where, reads)


def _read_all(
    nodes: Iterator[ast.AST] | Sequence[ast.AST], where: _Context, reads: dict[str, list[_Read]]
) -> None:
    for node in nodes:
        _read(node, where, reads)


def _put(value: ast.expr) -> ast.expr:
    """`model` of `model.to(device).eval()`."""
    while (of := called_on(value, PUTTING)) is not None:
        value = of
    return value


def _stops(node: ast.expr) -> bool:
    """`torch.no_grad()`."""
    return last(node.func if isinstance(node, ast.Call) else node) in WITHOUT


def _locals(node: ast.AST) -> frozenset[str]:
    """The names that a function has of its own."""
    asked = {name for each in all_of(ast.Global, node) for name in each.names}
    return frozenset({each.arg for each in all_of(ast.arg, node)} | stored_in(node)) - asked
