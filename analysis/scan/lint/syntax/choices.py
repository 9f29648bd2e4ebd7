"""What decides between branches of functions: their parameters, the values that calls give to them, and the
branches that depend on one."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Container, Mapping, Sequence

from analysis.scan.lint.facts import MAIN, Choice, FileFacts, Given, Parameter, Values, spot
from analysis.scan.lint.syntax.arguments import parameters
from analysis.scan.lint.syntax.tree import all_of, nodes_in, nodes_of

Function = ast.FunctionDef | ast.AsyncFunctionDef
_MOST = 20
"""Of how many arguments the values of a call are kept."""


def record_choices(facts: FileFacts, body: Sequence[ast.stmt]) -> None:
    """Fills `parameters`, `choices`, `given` and `stored` of a file whose events are known."""
    nodes = [*nodes_in(body)]
    scopes = {(first, last): scope for first, last, scope in facts.spans}
    for node in nodes:
        if isinstance(node, Function) and not node.decorator_list:
            _of_function(facts, node, scopes.get((node.lineno, node.end_lineno or node.lineno), ""))
        elif isinstance(node, ast.ClassDef):
            _of_class(facts, node, scopes)
        elif (
            isinstance(node, ast.Attribute)
            and isinstance(node.ctx, ast.Store)
            and ast.unparse(node.value) != "self"
        ):
            facts.stored.add(node.attr)
    kinds = ("call", "method")
    called = {event.spot for event in facts.events() if event.kind in kinds}
    of_module = _literals(nodes) if called else {}
    parameters = {node.arg for node in nodes if isinstance(node, ast.arg)}
    of_functions = {name: values for name, values in of_module.items() if name not in parameters}
    for node in nodes:
        if isinstance(node, ast.Call) and len(node.args) + len(node.keywords) <= _MOST:
            where = spot(node)
            if where in called:
                scope = facts.scope_at(where.line)
                values = of_module if scope in ("", MAIN) else of_functions
                facts.given[where] = _given(node, values, facts.parameters.get(scope, {}))


def _literals(nodes: Sequence[ast.AST]) -> dict[str, Values]:
    """The values of names that are given nothing but literals in a file, one by one or in a loop."""
    given: dict[str, list[ast.expr]] = {}
    loops: dict[str, list[ast.expr]] = {}
    times: Counter[str] = Counter()
    for node in nodes:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                given.setdefault(name, []).append(value)
            case ast.For(target=ast.Name(id=name), iter=elements):
                loops.setdefault(name, []).append(elements)
            case ast.Name(id=name, ctx=ast.Store() | ast.Del()):
                times[name] += 1

    def literals(over: ast.expr) -> list[Values | None]:
        if isinstance(over, ast.Name) and times[over.id] == 1 and over.id in given:
            over = given[over.id][0]
        return [*map(_literal, over.elts)] if isinstance(over, ast.List | ast.Tuple | ast.Set) else [None]

    found: dict[str, Values] = {}
    for name, count in times.items():
        own, looped = given.get(name, []), loops.get(name, [])
        values = [*map(_literal, own), *(value for each in looped for value in literals(each))]
        if len(own) + len(looped) == count and None not in values:
            found[name] = tuple(value for each in values if each for value in each)
    return found


def _of_function(facts: FileFacts, node: Function, scope: str) -> None:
    """The parameters that keep the value they are given, and the branches that depend on one."""
    inner = [*nodes_in(node.body)]
    again = {each.arg for each in inner if isinstance(each, ast.arg)} | {
        each.id for each in inner if isinstance(each, ast.Name) and not isinstance(each.ctx, ast.Load)
    }
    facts.parameters[scope] = {
        each.arg: Parameter(place, _literal(default))
        for place, (each, default) in enumerate(parameters(node.args))
        if each.arg not in again and each.arg != "self"
    }
    _branches(facts, inner, scope, {name: name for name in facts.parameters[scope]})


def _of_class(facts: FileFacts, node: ast.ClassDef, scopes: Mapping[tuple[int, int], str]) -> None:
    """The branches of methods that depend on a parameter of `__init__`, kept once as `self.x`."""
    kept = Counter(each.attr for each in all_of(ast.Attribute, node) if not isinstance(each.ctx, ast.Load))
    for method in node.body:
        if isinstance(method, ast.FunctionDef) and method.name == "__init__" and not method.decorator_list:
            scope = scopes.get((method.lineno, method.end_lineno or method.lineno), "")
            names = {}
            for each in method.body:
                match each:
                    case ast.Assign(
                        targets=[ast.Attribute(value=ast.Name(id="self"), attr=attribute)],
                        value=ast.Name(id=name),
                    ) if kept[attribute] == 1:
                        names[f"self.{attribute}"] = name
            _branches(facts, nodes_of(node), scope, names)


def _branches(facts: FileFacts, nodes: Sequence[ast.AST], scope: str, names: Mapping[str, str]) -> None:
    for node in nodes if names else ():
        if isinstance(node, ast.If):
            parts = (each for each in nodes_of(node.test) if isinstance(each, ast.Name | ast.Attribute))
            for name in sorted({ast.unparse(each) for each in parts} & names.keys()):
                for body, taken in ((node.body, True), (node.orelse, False)):
                    if body:
                        lines = (body[0].lineno, body[-1].end_lineno or body[-1].lineno)
                        facts.choices.append(Choice(scope, names[name], name, node.test, taken, lines))


def _given(node: ast.Call, values: Mapping[str, Values], own: Container[str]) -> Given:
    def value(of: ast.expr) -> Values | str | None:
        if isinstance(of, ast.Name):
            return of.id if of.id in own else values.get(of.id)
        return _literal(of)

    if any(isinstance(each, ast.Starred) for each in node.args) or any(k.arg is None for k in node.keywords):
        return Given((), {}, is_open=True)
    skip = bool(node.args) and isinstance(node.args[0], ast.Name) and node.args[0].id == "self"
    named = {each.arg: value(each.value) for each in node.keywords if each.arg}
    return Given(tuple(map(value, node.args[skip:])), named, is_open=False)


def _literal(node: ast.expr | None) -> Values | None:
    return (node.value,) if isinstance(node, ast.Constant) else None
