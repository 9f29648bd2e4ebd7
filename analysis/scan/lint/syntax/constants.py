"""What constants decide: branches of a file that never run, `if MODE == "train"` where MODE is "test"
throughout, and seeds that are none, `random_state=SEED` where SEED is None."""

from __future__ import annotations

import ast
import operator
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from analysis.scan.lint.syntax.bindings import is_main_guard
from analysis.scan.lint.syntax.tree import nodes_in
from analysis.scan.lint.vocabulary import SEEDS_OF_VARIATES

Known = dict[str, object]
_UNKNOWN = object()
_SAME: dict[type, Callable[[object, object], bool]] = {
    **dict.fromkeys((ast.Eq, ast.Is), operator.eq),
    **dict.fromkeys((ast.NotEq, ast.IsNot), operator.ne),
}
_IN_ORDER: dict[type, Callable[[float, float], bool]] = {
    ast.Gt: operator.gt, ast.Lt: operator.lt, ast.GtE: operator.ge, ast.LtE: operator.le
}  # fmt: skip


def apply_constants(body: Sequence[ast.stmt]) -> None:
    """Empties the branches of a module that no value of its constants takes, and writes None for seeds that
    are."""
    nodes = [*nodes_in(body)]
    branches = [node for node in nodes if isinstance(node, ast.If)]
    seeds = [node for node in nodes if isinstance(node, ast.keyword) and node.arg in SEEDS_OF_VARIATES]
    if not branches and not seeds:
        return
    known = _constants(body, nodes)
    for given in seeds:
        if _value(given.value, known) is None:
            given.value = ast.copy_location(ast.Constant(None), given.value)
    for node in branches:
        said = holds(node.test, known)
        if said is False:
            node.body = [ast.copy_location(ast.Pass(), node.body[0])]
        elif said is True:
            node.orelse = []


def _constants(body: Sequence[ast.stmt], nodes: Sequence[ast.AST]) -> Known:
    """What is given a value once in the whole file: a name of the module, by a literal, in no branch."""
    times = Counter(name for node in nodes for name in _bound(node))
    return {
        name: value
        for node in _top(body)
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
        for target in node.targets
        if isinstance(target, ast.Name) and times[(name := target.id)] == 1
        for value in (node.value.value,)
    }


def _top(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    for node in body:
        if isinstance(node, ast.If) and is_main_guard(node.test):
            yield from node.body
        else:
            yield node


def _bound(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.Name(id=name, ctx=ast.Store() | ast.Del()) | ast.arg(arg=name):
            yield name
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            yield name
        case ast.Global(names=names):
            yield from (*names, *names)  # whoever asks for it changes it
        case ast.alias(name=name, asname=other):
            yield other or name.partition(".")[0]


def holds(test: ast.expr, known: Known) -> bool | None:
    """Whether a condition always holds (True) or never does (False); None where the values of names (`x`,
    `self.x`) do not tell."""
    match test:
        case ast.UnaryOp(op=ast.Not(), operand=inner):
            said = holds(inner, known)
            return None if said is None else not said
        case ast.BoolOp(op=kind, values=values):
            all_said = [holds(value, known) for value in values]
            decisive = isinstance(kind, ast.Or)
            if decisive in all_said:
                return decisive
            return None if None in all_said else not decisive
        case ast.Compare(left=left, ops=[kind], comparators=[right]):
            return _compared(_value(left, known), kind, _value(right, known))
        case ast.Constant() | ast.Name() | ast.Attribute():
            value = _value(test, known)
            return None if value is _UNKNOWN else bool(value)
    return None


def _value(node: ast.expr, known: Known) -> object:
    match node:
        case ast.Constant(value=value):
            return value
        case ast.Name(id=name):
            return known.get(name, _UNKNOWN)
        case ast.Attribute(value=ast.Name(id="self"), attr=name):
            return known.get(f"self.{name}", _UNKNOWN)
        case ast.Tuple(elts=items) | ast.List(elts=items) | ast.Set(elts=items):
            values = tuple(_value(item, known) for item in items)
            return _UNKNOWN if _UNKNOWN in values else values
        case ast.Call(func=ast.Attribute(value=inner, attr="lower" | "upper" as case), args=[]):
            text = _value(inner, known)
            return getattr(text, case)() if isinstance(text, str) else _UNKNOWN
    return _UNKNOWN


def _compared(left: object, kind: ast.cmpop, right: object) -> bool | None:
    if left is _UNKNOWN or right is _UNKNOWN:
        return None
    if same := _SAME.get(type(kind)):
        return same(left, right)
    if isinstance(kind, ast.In | ast.NotIn):
        return (left in right) == isinstance(kind, ast.In) if isinstance(right, tuple) else None
    if isinstance(left, int | float) and isinstance(right, int | float):
        return _IN_ORDER[type(kind)](left, right)
    return None
