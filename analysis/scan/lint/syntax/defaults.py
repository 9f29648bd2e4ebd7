"""What names stand for unless a user says otherwise: defaults of functions and options, and constants."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Any

from analysis.scan.lint.syntax.arguments import argument, constant, last, parameters
from analysis.scan.lint.syntax.walk import Walk

ACTIONS = {"store_true": False, "store_false": True}


def of_function(to: Walk, arguments: ast.arguments) -> None:
    for each, value in parameters(arguments):
        _add(to, each.arg, constant(value))


def assigned(to: Walk, targets: Sequence[ast.expr], value: ast.expr) -> None:
    """`size = 1`, `_C.CUDNN.BENCHMARK = True`."""
    for target in targets:
        _add(to, last(target), constant(value))


def of_call(to: Walk, node: ast.Call) -> None:
    """`begin(measure=False)`: what is given is no default, but a value that the name has."""
    for keyword in node.keywords:
        if isinstance(said := constant(keyword.value), bool):
            _add(to, keyword.arg or "", said)


def of_command_line(to: Walk, node: ast.Call) -> list[str]:
    """`parser.add_argument("--cudnn-benchmark", action="store_false")`; returns the names."""
    value = constant(argument(node, "default"))
    if value is ...:
        value = ACTIONS.get(str(constant(argument(node, "action"))), ...)
    destination = constant(argument(node, "dest"))
    options = [destination] if isinstance(destination, str) else [str(constant(each)) for each in node.args]
    names = [option.lstrip("-").replace("-", "_") for option in options]
    for name in names:
        _add(to, name, value)
    return names


def default(to: Walk, value: ast.expr | None) -> Any:
    """The one value that a name has in the file, as far as that was read; Ellipsis where unknown."""
    name = last(value)
    known = to.facts.defaults.get(name, ()) if name else ()
    return next(iter(known)) if len(known) == 1 else constant(value)


def _add(to: Walk, name: str, value: Any) -> None:
    if name and isinstance(value, bool | int | str) and len(str(value)) < 30:
        to.facts.defaults.setdefault(name, set()).add(value)
