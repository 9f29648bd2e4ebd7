"""One walk over a module's syntax tree: what it draws, seeds, imports, sets and computes, in order.

The walk is by hand, not by ast.NodeVisitor, which takes twice as long. What a single call means is decided
in `calls`, what the order of data depends on in `order`."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, get_args

from analysis.scan.lint import expressions
from analysis.scan.lint.facts import MAIN, Event, spot
from analysis.scan.lint.order.passed import order_free
from analysis.scan.lint.syntax import bindings, defaults, keywords
from analysis.scan.lint.syntax.arguments import attribute_of, parameters
from analysis.scan.lint.syntax.tree import all_of, names_in
from analysis.scan.lint.uses import calls, counts, devices, draws, pools, seeding, settings, tables, training
from analysis.scan.lint.validation import evaluation, leaks
from analysis.scan.lint.vocabulary import ASKS_WHETHER_TRAINED, LOADS, is_own


class Collector(expressions.OrderedWalk):
    """Walks a tree and fills `facts`."""

    def module(self, tree: ast.Module) -> None:
        for node in tree.body:  # defined anywhere in the module, called anywhere
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                self.names.bind(node.name, f"@{node.name}")
            if isinstance(node, ast.ClassDef):
                self.facts.classes.add(node.name)
        self.names.results = bindings.results(tree.body)
        self.attributes = cache(lambda: bindings.attributes(tree.body))
        self.facts.bound = bindings.bound(tree.body)
        self.facts.needed = bindings.needed(self.names, tree.body)
        self.facts.undefined = bindings.undefined(tree.body, self.facts.bound)
        self.order.passed, self.order.queries.read = order_free(tree.body), cache(lambda: names_in(tree))
        self.statements(tree.body)
        self.order.leave(set())
        self.order.results.module_ends()
        calls.module_ends(self)
        draws.module_ends(self)
        leaks.of_module(self, tree)
        for target, call, why in self.unseeded:
            if not target or target not in self.reseeded:
                self.report("VB102", call, why)

    def statements(self, body: Sequence[ast.AST]) -> None:
        for node in body:
            self.visit(node)

    def visit(self, node: ast.AST) -> None:
        handler = HANDLERS.get(node.__class__)
        if handler is not None:
            handler(self, node)
        else:
            self.children(node)

    def children(self, node: ast.AST) -> None:
        for name in node._fields:
            value = getattr(node, name, None)
            if value.__class__ is list:
                for item in value:
                    if isinstance(item, ast.AST):
                        self.visit(item)
            elif isinstance(value, ast.AST):
                self.visit(value)

    # ---- statements ------------------------------------------------------------------------------------

    def _import(self, node: ast.Import) -> None:
        for name in self.names.bind_import(node):
            self._loaded(name, node)
        self._exported(node)

    def _import_from(self, node: ast.ImportFrom) -> None:
        for name in self.names.bind_from(node):
            self._loaded(name, node)
        self._exported(node)
        self.facts.stars = self.names.stars

    def _exported(self, node: ast.Import | ast.ImportFrom) -> None:
        if not self.scope:
            for alias in node.names:
                name = alias.asname or alias.name.partition(".")[0]
                if name != "*" and (stands := self.names.resolve(ast.Name(name))):
                    self.facts.imported[name] = stands

    def _loaded(self, name: str, node: ast.stmt) -> None:
        self.event("import", name, node)
        top = name.partition(".")[0]
        if top in LOADS:
            self.event("import", LOADS[top], node)
        self.facts.flags |= {top, LOADS.get(top, top)}
        if top == "sklearn":
            self.facts.flags.add("estimators")

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        for each in (*node.decorator_list, *node.args.defaults, *node.args.kw_defaults):
            if each is not None:
                self.visit(each)
        if node.decorator_list and self.scope and not self.class_name:
            self.event("value", f"@{self.scope}.{node.name}", node)  # it may be called by what it is given to
        if not self.scope:
            serves = any(map(calls.is_registered, node.decorator_list))
            if serves:
                self.facts.flags.add("serves")
            if serves or any(map(calls.registers, node.decorator_list)):
                self.event("value", f"@{node.name}", node)
        is_group = any(calls.is_group(self, each) for each in node.decorator_list)
        if not self.scope and (is_group or any(calls.is_command(self, each) for each in node.decorator_list)):
            self.event("main", "", node)
            self.facts.is_main = True
            commands = self.facts.scopes.setdefault(MAIN, [])
            commands.insert(
                self.groups if is_group else len(commands), Event("call", f"@{node.name}", spot(node))
            )
            self.groups += is_group
        outer = self.scope, self.events, self.loops, self.order.pending, self.order.loads, self.branches
        no_gradient = sum(settings.stops_gradients(self, each) for each in node.decorator_list)
        self.without_gradient += no_gradient
        if not self.class_name:  # of the module too, where it stands in a branch
            self.names.bind(node.name, f"@{self.scope}.{node.name}" if self.scope else f"@{node.name}")
        self.scope = ".".join(part for part in (self.class_name or self.scope, node.name) if part)
        self.events = self.facts.scopes.setdefault(self.scope, [])
        self.loops, self.order.pending, self.order.loads, self.branches = 0, {}, {}, 0
        self.names.push()
        arguments = node.args
        defaults.of_function(self, arguments)
        seeding.of_function(self, arguments)
        every = [each for each, _ in parameters(arguments)]
        for argument in (*every, arguments.vararg, arguments.kwarg):
            if argument is not None:
                is_whole = isinstance(argument.annotation, ast.Name) and argument.annotation.id == "int"
                self.names.bind(argument.arg, "builtins.int()" if is_whole else None)
                self.dictionaries.pop(argument.arg, None)
        if self.class_name and every and every[0].arg == "self":
            self.names.bind("self", f"@{self.class_name}")
        inside, self.class_name = self.class_name, ""
        self.facts.needed_by[self.scope] = bindings.needed(self.names, node.body)
        self.statements(node.body)
        self.class_name = inside
        self.order.leave({"self."} if inside else set())
        kept, loads = self.order.pending, self.order.loads
        self.names.pop()
        self.facts.spans.append((node.lineno, node.end_lineno or node.lineno, self.scope))
        self.scope, self.events, self.loops, self.order.pending, self.order.loads, self.branches = outer
        self.without_gradient -= no_gradient
        if inside:
            self.order.pending |= kept
            self.order.loads |= {name: kept_so for name, kept_so in loads.items() if "." in name}

    def _class(self, node: ast.ClassDef) -> None:
        self.facts.classes.add(node.name)
        if not self.scope and any(map(calls.registers, node.decorator_list)):
            self.event("value", f"@{node.name}", node)
        for base in node.bases:
            self.visit(base)
            name = self.names.resolve(base)
            if name is None:
                continue
            if is_own(name):
                self.facts.scopes.setdefault(f"{node.name}.__init__", []).append(
                    Event("call", f"{name}.__init__", spot(base))
                )
            if not name.startswith("@"):
                calls.inherited(self, node.name, base, name)
        outer = self.class_name, self.order.pending
        self.class_name, self.order.pending = node.name, {}
        self.names.push()
        self.statements(node.body)
        self.names.pop()
        self.order.leave(set())
        self.class_name, self.order.pending = outer

    def _assign(self, node: ast.Assign | ast.AnnAssign) -> None:
        if node.value is None:
            return
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        if self.class_name and isinstance(node, ast.AnnAssign):
            settings.field(self, node)
        outer, self.target = self.target, " ".join(map(target_name, targets))
        first = targets[0]
        if isinstance(first, ast.Tuple | ast.List) and len(first.elts) == 1:
            self.order.single(node.value)
        else:
            self.order.assigned(self.target, node.value)
        self.order.results.assigned(targets, node.value)
        devices.assigned(self, self.target, node.value)
        defaults.assigned(self, targets, node.value)
        counts.remembered(self, self.target, node.value)
        keywords.assigned(self, targets, node.value)
        seeding.assigned(self, first, node.value)
        self.visit(node.value)
        if isinstance(node.value, ast.BinOp):
            training.descended(self, first, node)
        self.order.begins(self.target)
        self.target = outer
        for target in targets:
            if isinstance(target, ast.Name):
                calls.moved(self, target, node.value)
                self.names.values[target.id] = node.value
                made = "builtins.set()" if self.order.sets.is_set(node.value) else None
                made = made or tables.rows_of(self, node.value) or seeding.followed(self, target, node.value)
                self.names.bind(target.id, made)
            elif isinstance(target, ast.Tuple | ast.List):
                self.order.rebound(target, node.value)
                given = node.value.elts if isinstance(node.value, ast.Tuple | ast.List) else []
                kinds = [
                    "builtins.set()" if self.order.sets.is_set(each) else tables.rows_of(self, each)
                    for each in given
                ]
                for element, value, kind in itertools.zip_longest(
                    target.elts, given[: len(target.elts)], kinds[: len(target.elts)]
                ):
                    if isinstance(element, ast.Name):
                        if value is not None:
                            self.order.sets.assigned(element.id, value)
                        self.names.bind(element.id, kind)
                    elif isinstance(element, ast.Attribute):
                        settings.stored(self, element, value)
        for target in targets:
            if isinstance(target, ast.Subscript | ast.Attribute):
                pools.stored(self, getattr(target, "slice", None), node.value)
                settings.stored(self, target, node.value)
                if isinstance(target, ast.Attribute):
                    training.kept(self, target, node.value)
                self.visit(target.value)

    def _aug_assign(self, node: ast.AugAssign) -> None:
        self.order.added(node)
        training.descended(self, node.target, node)
        if any(each.attr == "grad" for each in all_of(ast.Attribute, node.value)):
            self.facts.flags.add("steps")  # `weights -= rate * weights.grad`
        self.visit(node.value)

    def _for(self, node: ast.For | ast.AsyncFor) -> None:
        with self.order.free(self.order.loop(node)):
            self.visit(node.iter)
        self.bind_unknown(node.target)
        self.order.sets.looped(node)
        self._loop(node)

    def _if(self, node: ast.If) -> None:
        if not self.scope and bindings.is_main_guard(node.test):
            self._main(node)
            return
        devices.refused(self, node)
        around = self.branches
        while True:  # a chain of elif is a loop here: it may be long
            evaluation.compared(self, node.test)
            asked = ASKS_WHETHER_TRAINED in self.facts.flags
            with self.order.free():
                self.visit(node.test)
            if not asked and isinstance(node.test, ast.BoolOp) and isinstance(node.test.op, ast.Or):
                self.facts.flags.discard(ASKS_WHETHER_TRAINED)  # `if self.training or share > 0`
            unseeded = settings.without_seed(node.test)
            self._branch(node.body, unseeded)
            if len(node.orelse) == 1 and isinstance(node.orelse[0], ast.If):
                node = node.orelse[0]
                self.branches = around + 1  # an `elif` is not always asked
            else:
                for_gpu = devices.is_there(node.test)
                self.without_gpu += for_gpu
                self._branch(node.orelse, None if unseeded is None else not unseeded)
                self.without_gpu -= for_gpu
                self.branches = around
                return

    def _main(self, node: ast.If) -> None:
        """What runs in the program itself, and not where the file is imported."""
        self.facts.is_main = True
        self.event("main", "", node)
        outer, self.events = self.events, self.facts.scopes.setdefault(MAIN, [])
        self.statements(node.body)
        self.events = outer
        self.facts.spans.append((node.body[0].lineno, node.body[-1].end_lineno or node.lineno, MAIN))
        self.statements(node.orelse)

    def _branch(self, body: Sequence[ast.AST], without_seed: bool | None) -> None:
        self.without_seed += without_seed is True
        self.with_seed += without_seed is False
        self.branches += 1
        self.statements(body)
        self.branches -= 1
        self.without_seed -= without_seed is True
        self.with_seed -= without_seed is False

    def _if_expression(self, node: ast.IfExp) -> None:
        devices.chosen(self, node)
        with self.order.free():
            self.visit(node.test)
        unseeded = settings.without_seed(node.test)
        self._branch([node.body], unseeded)
        self._branch([node.orelse], None if unseeded is None else not unseeded)

    def _bool_op(self, node: ast.BoolOp) -> None:
        self.visit(node.values[0])
        self._branch(node.values[1:], None)

    def _while(self, node: ast.While) -> None:
        with self.order.free():
            self.visit(node.test)
        self._loop(node)

    def _loop(self, node: ast.For | ast.AsyncFor | ast.While) -> None:
        self.loops += 1
        self.statements(node.body)
        self.loops -= 1
        self.statements(node.orelse)

    def _with(self, node: ast.With | ast.AsyncWith) -> None:
        for item in node.items:
            if item.optional_vars is not None:
                self.order.assigned(target_name(item.optional_vars), item.context_expr)
            self.visit(item.context_expr)
            if isinstance(item.optional_vars, ast.Name):
                self.names.bind(item.optional_vars.id, self.names.resolve(item.context_expr))
        no_gradient = sum(settings.stops_gradients(self, item.context_expr) for item in node.items)
        pinned = sum(devices.pins(self, item.context_expr) for item in node.items)
        self.without_gradient += no_gradient
        self.pinned += pinned
        self.statements(node.body)
        self.pinned -= pinned
        self.without_gradient -= no_gradient


HANDLERS: dict[type[ast.AST], Callable[[Collector, Any], None]] = {
    ast.Import: Collector._import,
    ast.ImportFrom: Collector._import_from,
    ast.FunctionDef: Collector._function,
    ast.AsyncFunctionDef: Collector._function,
    ast.ClassDef: Collector._class,
    ast.Assign: Collector._assign,
    ast.AnnAssign: Collector._assign,
    ast.AugAssign: Collector._aug_assign,
    ast.For: Collector._for,
    ast.AsyncFor: Collector._for,
    ast.If: Collector._if,
    ast.BoolOp: Collector._bool_op,
    ast.IfExp: Collector._if_expression,
    ast.While: Collector._while,
    ast.With: Collector._with,
    ast.AsyncWith: Collector._with,
    ast.Call: expressions.call,
    ast.Attribute: expressions.attribute,
    ast.Name: expressions.name,
    ast.Subscript: expressions.subscript,
    ast.Dict: expressions.dictionary,
    ast.Compare: expressions.compare,
    ast.BinOp: expressions.binary,
    ast.UnaryOp: expressions.unary,
    **dict.fromkeys(get_args(expressions.Comprehension), expressions.comprehension),
    ast.Lambda: expressions.function,
    ast.FormattedValue: expressions.formatted,
    ast.Constant: expressions.constant,
    ast.Expr: expressions.expression,
    ast.Assert: expressions.asserted,
    ast.Raise: expressions.raised,
    ast.Return: expressions.returned,
}


def target_name(node: ast.expr) -> str:
    """A name for what is assigned to: `x`, `self.x`, `options.x`, `[].x` of `table["x"]`; "" for others."""
    match node:
        case ast.Subscript(slice=ast.Constant(value=str(key))):
            return f"[].{key}"
    return attribute_of(node)
