"""The expressions of a walk (see `collect`): what stands inside a call, a comparison, a comprehension."""

from __future__ import annotations

import ast

from analysis.scan.lint.facts import FileFacts
from analysis.scan.lint.order.kept import APPENDING, SHOWING, is_unused
from analysis.scan.lint.order.order import DataOrder
from analysis.scan.lint.order.queries import SORTING_METHODS
from analysis.scan.lint.syntax import keywords
from analysis.scan.lint.syntax.arguments import constant as constant_of
from analysis.scan.lint.syntax.walk import Walk
from analysis.scan.lint.uses import calls, chosen, counts, devices, draws, pools, settings, tables, training
from analysis.scan.lint.vocabulary import ASKS_WHETHER_TRAINED

MADE_SETS = frozenset(("stop_words", "stopwords"))
"""Arguments that are made sets."""
Comprehension = ast.ListComp | ast.GeneratorExp | ast.DictComp | ast.SetComp


class OrderedWalk(Walk):
    """A walk that follows the order of data too."""

    def __init__(self, facts: FileFacts) -> None:
        super().__init__(facts)
        self.order = DataOrder(self)


def call(to: OrderedWalk, node: ast.Call) -> None:
    if isinstance(node.func, ast.Name) and node.func.id == "super":
        return  # `super(Net, self)` makes no use of Net
    name = to.names.resolve(node.func)
    free = to.order.called(node, name)
    function = node.func
    if function.__class__ is ast.Attribute:
        if function.attr not in APPENDING | SHOWING or function.value.__class__ is not ast.Name:
            with to.order.free(function.attr in SORTING_METHODS):
                to.visit(function.value)
    elif function.__class__ is not ast.Name:
        to.visit(function)
    tables.grouped(to, node, name)
    with to.order.free(free), draws.of_no_data(to, name):
        arguments(to, node)
    calls.called(to, keywords.written_out(to, node), name)


def arguments(to: OrderedWalk, node: ast.Call) -> None:
    free = to.order.passed.get(node.func.id, ()) if isinstance(node.func, ast.Name) else ()
    for place, argument in enumerate(node.args):
        with to.order.free(place in free):
            to.visit(argument)
    for keyword in node.keywords:
        settings.seeds(to, node, keyword.arg)
        with to.order.free(keyword.arg in free or keyword.arg in MADE_SETS):
            to.visit(keyword.value)


def attribute(to: OrderedWalk, node: ast.Attribute) -> None:
    calls.given(to, node)
    value = node.value
    if node.attr == "training":
        to.facts.flags.add(ASKS_WHETHER_TRAINED)
    if node.attr == "values":
        to.only_values.add(id(value))
    to.order.read(node.attr)
    while isinstance(value, ast.Attribute):
        to.order.read(value.attr)
        value = value.value
    to.visit(value)


def subscript(to: OrderedWalk, node: ast.Subscript) -> None:
    if isinstance(node.slice, ast.Constant) and node.slice.value == 0:
        to.only_values.add(id(node.value))  # `torch.median(x, dim=0)[0]`
    with to.order.free(to.order.is_one(node)):
        to.visit(node.value)
    to.visit(node.slice)


def dictionary(to: OrderedWalk, node: ast.Dict) -> None:
    chosen.tried(to, node)
    for key, value in zip(node.keys, node.values, strict=True):
        pools.stored(to, key, value)
        settings.seeds(to, node, constant_of(key))
        if key is not None:
            to.visit(key)
        to.visit(value)


def expression(to: OrderedWalk, node: ast.Expr) -> None:
    if node.value.__class__ is not ast.Constant:  # such as a docstring
        to.discarded.add(id(node.value))
        with to.order.free(is_unused(node.value)):
            to.visit(node.value)


def returned(to: OrderedWalk, node: ast.Return) -> None:
    if node.value is not None:
        if constant_of(node.value) is not None:
            to.facts.giving.add(to.scope)
        is_trainer = bool(training.TRAINERS.fullmatch(to.names.resolve(node.value) or ""))
        to.facts.trainers[to.scope] = is_trainer and to.facts.trainers.get(to.scope, True)
        with to.order.returned(node.value):
            to.visit(node.value)


def raised(to: OrderedWalk, node: ast.Raise) -> None:
    """`raise SystemExit(main())`; of others nothing is of interest."""
    if isinstance(node.exc, ast.Call) and getattr(node.exc.func, "id", "") == "SystemExit":
        arguments(to, node.exc)


def asserted(to: OrderedWalk, node: ast.Assert) -> None:
    devices.asserted(to, node)
    with to.order.free():
        to.visit(node.test)


def name(to: OrderedWalk, node: ast.Name) -> None:
    to.facts.named.add(node.id)
    calls.given(to, node)
    to.order.loaded(node.id)


def compare(to: OrderedWalk, node: ast.Compare) -> None:
    to.order.sets.compared(node)
    with to.order.free():
        to.visit(node.left)
        for each in node.comparators:
            to.visit(each)


def binary(to: OrderedWalk, node: ast.BinOp) -> None:
    settings.hashed(to, node)
    counts.multiplied(to, node)
    left: ast.expr = node
    rights = []
    while isinstance(left, ast.BinOp):  # a + b + c + ...: deep to the left
        rights.append(left.right)
        left = left.left
    to.visit(left)
    for right in reversed(rights):
        to.visit(right)


def unary(to: OrderedWalk, node: ast.UnaryOp) -> None:
    with to.order.free():
        to.visit(node.operand)


def comprehension(to: OrderedWalk, node: Comprehension) -> None:
    to.order.comprehended(node)
    to.names.push()
    to.loops += 1
    for generator in node.generators:
        with to.order.free(to.order.is_carried(generator.iter)):
            to.visit(generator.iter)
        to.bind_unknown(generator.target)
        for condition in generator.ifs:
            to.visit(condition)
    if isinstance(node, ast.DictComp):
        to.visit(node.key)
        to.visit(node.value)
    else:
        to.visit(node.elt)
    to.loops -= 1
    to.names.pop()


def function(to: OrderedWalk, node: ast.Lambda) -> None:
    """Its body runs later, if at all; what it calls is still looked at."""
    to.names.push()
    for argument in node.args.args:
        to.names.bind(argument.arg, tables.A_TABLE if id(node) in to.of_groups else None)
    to.event("value", f"@{to.scope}.<lambda>", node)
    outer, to.events = to.events, to.facts.scopes.setdefault(f"{to.scope}.<lambda>", [])
    to.visit(node.body)
    to.events = outer
    to.names.pop()


def formatted(to: OrderedWalk, node: ast.FormattedValue) -> None:
    with to.order.free():  # a text for people
        to.visit(node.value)


def constant(to: OrderedWalk, node: ast.Constant) -> None:
    if node.value.__class__ is str and node.value.startswith(("cuda", "gpu", "/gpu", "/GPU", "/device:GPU")):
        to.facts.flags.add("cuda")
