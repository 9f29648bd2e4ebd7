"""What scopes run whatever conditions say: calls with their arguments, and names that nothing binds; and the
arguments that functions and classes take."""

from __future__ import annotations

import ast
import builtins
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from analysis.scan.lint.syntax.arguments import last
from analysis.scan.lint.syntax.bindings import TELLING, is_main_guard

Function = ast.FunctionDef | ast.AsyncFunctionDef
GIVEN = frozenset(dir(builtins)) | {
    *("unicode", "xrange", "raw_input", "reload", "long", "basestring", "unichr", "cmp", "file", "reduce"),
    *("execfile", "apply", "buffer", "intern", "display", "get_ipython", "WindowsError"),
}
"""Builtins, of Python 2 and notebooks too."""
NAMED = (
    ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.ExceptHandler | ast.MatchAs | ast.MatchStar
)
DYNAMIC = frozenset(("globals", "exec", "setattr", "vars", "locals"))
RESULT = re.compile(
    r"train|fit|main|run|learn|save|dump|write|to_csv|backward|step|evaluat|predict", re.IGNORECASE
)
"""Names of calls after which there may be a result."""


class Given(NamedTuple):
    """A call for certain: what is called, as it is written, with how many arguments and which keywords. A
    name that nothing binds has None for the keywords; "" for the name: here there may be a result."""

    name: str
    line: int
    places: int = 0
    keywords: frozenset[str] | None = None


Evaluated = Callable[[ast.AST], list[Given]]


class Takes(NamedTuple):
    """What a function takes, without `self`."""

    names: tuple[str, ...]
    required: frozenset[str]
    only_by_name: frozenset[str]
    more: bool  # *args
    options: bool  # **kwargs
    only_by_place: int

    def fits(self, given: Given) -> bool:
        keywords = given.keywords or frozenset()
        placed = self.names[: given.places]
        if given.places > len(self.names) and not self.more:
            return False
        if not self.options and not keywords <= {*self.names[self.only_by_place :], *self.only_by_name}:
            return False
        return keywords.isdisjoint(placed) and self.required <= {*placed, *keywords}


def taken(body: Sequence[ast.stmt]) -> dict[str, Takes]:
    """What the functions and classes of a module take, by their names; of those that it defines once, and as
    they are written."""
    times = _times(body)
    found = {}
    for node in body:
        if isinstance(node, Function | ast.ClassDef) and not node.decorator_list and times[node.name] == 1:
            if isinstance(node, Function):
                found[node.name] = _takes(node, 0)
                continue
            own = [each for each in node.body if isinstance(each, Function)]
            makers = [each for each in own if each.name in ("__init__", "__new__")]
            is_usual = not node.keywords and not any(each.decorator_list for each in makers)
            if is_usual and [each.name for each in makers] == ["__init__"]:
                found[node.name] = _takes(makers[0], 1)
    return found


def _times(body: Sequence[ast.stmt]) -> Counter[str]:
    """How often a module binds each name, functions apart."""
    found: Counter[str] = Counter()
    queue: list[ast.AST] = list(body)
    while queue:
        node = queue.pop()
        if isinstance(node, Function | ast.ClassDef):
            found[node.name] += 1
            found.update(
                name for inner in ast.walk(node) if isinstance(inner, ast.Global) for name in inner.names
            )
            continue
        if isinstance(node, ast.Import | ast.ImportFrom):
            found.update(alias.asname or alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            found[node.id] += 1
        queue += ast.iter_child_nodes(node)
    return found


def _takes(node: Function, skipped: int) -> Takes:
    arguments = node.args
    every = [each.arg for each in (*arguments.posonlyargs, *arguments.args)]
    required = every[skipped : len(every) - len(arguments.defaults)]
    by_name = [each.arg for each in arguments.kwonlyargs]
    wanted = [name for name, value in zip(by_name, arguments.kw_defaults, strict=True) if value is None]
    return Takes(
        names=tuple(every[skipped:]),
        required=frozenset((*required, *wanted)),
        only_by_name=frozenset(by_name),
        more=arguments.vararg is not None,
        options=arguments.kwarg is not None,
        only_by_place=max(0, len(arguments.posonlyargs) - skipped),
    )


def certain(body: Sequence[ast.stmt], main: str) -> dict[str, list[Given]]:
    """What each scope of a module runs for certain, in order."""
    bound = _bound_anywhere(body)
    times = _times(body)
    twice = {name for name, count in times.items() if count > 1}
    found: dict[str, list[Given]] = {"": [], main: []}

    def follow(scope: str, statements: Sequence[ast.stmt], hidden: set[str]) -> None:
        steps = found.setdefault(scope, [])
        for node in statements:
            if isinstance(node, ast.If) and scope == "" and is_main_guard(node.test):
                follow(main, node.body, hidden)
            elif not _followed(node, steps, lambda part: _evaluated(part, bound, hidden)):
                return

    follow("", body, twice)
    for node in body:
        if isinstance(node, Function):
            follow(node.name, node.body, twice | _local(node))
        elif isinstance(node, ast.ClassDef):
            for method in node.body:
                if isinstance(method, Function) and method.name == "__init__":
                    follow(f"{node.name}.__init__", method.body, twice | _local(method))
    return {scope: steps for scope, steps in found.items() if steps}


def _followed(node: ast.stmt, steps: list[Given], evaluated: Evaluated) -> bool:
    """Adds what a statement runs for certain; False where what comes after it may not run."""
    if isinstance(node, ast.AnnAssign):
        steps += evaluated(node.value) if node.value is not None else []
    elif isinstance(node, ast.Assign | ast.AugAssign | ast.Expr | ast.Assert):
        steps += evaluated(node)
    elif isinstance(node, ast.Return | ast.Raise):
        steps += evaluated(node)
        return False
    elif isinstance(node, ast.For):
        steps += evaluated(node.iter)
        return all(_followed(each, steps, evaluated) for each in node.body)
    elif isinstance(node, ast.With):
        for item in node.items:
            steps += evaluated(item.context_expr)
        return all(_followed(each, steps, evaluated) for each in node.body)
    elif isinstance(node, ast.If | ast.Try | ast.While | ast.Match | ast.AsyncFor | ast.AsyncWith):
        inner = list(ast.walk(node))
        if any(isinstance(each, ast.Call) and RESULT.search(last(each.func)) for each in inner):
            steps.append(Given("", node.lineno))
        return not any(isinstance(each, ast.Return | ast.Raise | ast.Break | ast.Continue) for each in inner)
    return True


def _evaluated(part: ast.AST, bound: set[str] | None, hidden: set[str]) -> list[Given]:
    """The calls in it, and the names that nothing binds, what is inside before what is around it."""
    found: list[Given] = []
    for node in _inside(part):
        if isinstance(node, ast.Name):
            if (
                bound is not None
                and isinstance(node.ctx, ast.Load)
                and node.id not in bound
                and TELLING.fullmatch(node.id)
            ):
                found.append(Given(node.id, node.lineno))
        elif isinstance(node, ast.Call):
            name = ast.unparse(node.func) if isinstance(node.func, ast.Name | ast.Attribute) else "()"
            is_open = any(isinstance(each, ast.Starred) for each in node.args) or any(
                each.arg is None for each in node.keywords
            )
            if is_open or not re.fullmatch(r"[\w.]+", name) or name.partition(".")[0] in hidden:
                found += [Given("", node.lineno)] * bool(RESULT.search(last(node.func)))
            else:
                keywords = frozenset(str(each.arg) for each in node.keywords)
                found.append(Given(name, node.lineno, len(node.args), keywords))
    return found


def _inside(node: ast.AST) -> Iterator[ast.AST]:
    """All that is evaluated, without what may be left out."""
    if isinstance(node, ast.BoolOp):
        yield from _inside(node.values[0])
    elif isinstance(node, ast.IfExp):
        yield from _inside(node.test)
    elif isinstance(node, ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp):
        yield from _inside(node.generators[0].iter)
    elif not isinstance(node, ast.Lambda):
        for inner in ast.iter_child_nodes(node):
            yield from _inside(inner)
        yield node


def _local(function: Function) -> set[str]:
    """The names that a function has for itself."""
    return {
        name
        for node in ast.walk(function)
        for name in (
            [node.arg]
            if isinstance(node, ast.arg)
            else [node.id]
            if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load)
            else [alias.asname or alias.name.partition(".")[0] for alias in node.names]
            if isinstance(node, ast.Import | ast.ImportFrom)
            else [node.name]
            if isinstance(node, Function | ast.ClassDef) and node is not function
            else []
        )
    }


def _bound_anywhere(body: Sequence[ast.stmt]) -> set[str] | None:
    """All names that are bound somewhere in a module; None where there may be others."""
    found = set(GIVEN)
    for statement in body:
        for node in ast.walk(statement):
            if isinstance(node, ast.Import | ast.ImportFrom):
                found |= {alias.asname or alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.arg):
                found.add(node.arg)
            elif isinstance(node, ast.Global | ast.Nonlocal):
                found |= set(node.names)
            elif isinstance(node, NAMED):
                found.add(node.name or "")
            elif isinstance(node, ast.Name):
                if not isinstance(node.ctx, ast.Load):
                    found.add(node.id)
                elif node.id in DYNAMIC:
                    return None
    return None if "*" in found else found | {"__file__", "__path__", "__class__", "__version__"}
