"""Where the order of data comes from: listings, sets, results that become ready, rows (VB301 to VB305).

A listing is harmless where its order is not kept: inside sorted() or len(), in a test, in a loop that keeps
nothing in order. A listing that was assigned is waited for: it may be sorted further on."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from analysis.scan.lint.facts import spot
from analysis.scan.lint.order.decisive import Decisive
from analysis.scan.lint.order.kept import (
    APPENDING,
    BARS,
    FREE,
    SORTER,
    SORTING,
    YIELDING,
    indexed,
    is_numbering,
    iterated,
    joined,
    kept_in_order,
    mentions,
    named,
    numbered,
    reads_files,
    sorted_of,
    sorts,
)
from analysis.scan.lint.order.queries import SORTING_METHODS, Queries
from analysis.scan.lint.order.results import Results, attributes_of
from analysis.scan.lint.order.sets import Sets
from analysis.scan.lint.order.sources import (
    FINDING,
    FREE_METHODS,
    FROM_SET,
    KEEPING,
    LISTING,
    LISTINGS,
    METHODS,
    NUMBERS,
    OF_INTEREST,
    PATH_METHODS,
    QUERY,
    READY,
    SET,
    UNORDERED,
    Pending,
    described,
    is_filtered,
    is_held_out,
    is_no_data,
    steps_of,
    walked,
)
from analysis.scan.lint.order.tables import Tables, items_named, tabled
from analysis.scan.lint.syntax.arguments import callee, last
from analysis.scan.lint.syntax.tree import all_of
from analysis.scan.lint.syntax.walk import Walk
from analysis.scan.lint.vocabulary import is_own

SETS = frozenset(("builtins.set", "builtins.frozenset", "collections.Counter", "numpy.unique"))
"""They have no order either, and leave what they are made of as it is."""
Comprehensions = ast.ListComp | ast.GeneratorExp | ast.SetComp


class DataOrder:
    """What is in no defined order, and whether that order is kept."""

    def __init__(self, walk: Walk) -> None:
        self._walk = walk
        self.pending: dict[str, list[Pending]] = {}
        self.loads: dict[str, bool] = {}  # names that are used: whether in a way that keeps their order
        self._carried: set[int] = set()
        self._joined: set[tuple[str, int]] = set()  # lists of numbered items, whose order is from a node
        self._tables = Tables(walk)
        self.passed: dict[str, frozenset[str | int]] = {}  # parameters of which functions keep no order
        self.decisive = Decisive(walk.facts)
        self._held_out: set[int] = set()  # listings of data that are only evaluated
        self._free = 0
        self._absorbed: set[int] = set()
        self._read: set[int] = set()  # listings whose files a comprehension reads
        self._returning = False
        self.results = Results(walk)
        self.sets = Sets(walk)
        self.queries = Queries(walk)

    def free(self, when: bool = True) -> AbstractContextManager[None]:
        """A context in which the order does not matter, where `when` holds."""
        return self if when else nullcontext()

    def __enter__(self) -> None:
        self._free += 1

    def __exit__(self, *_error: object) -> None:
        self._free -= 1

    # ---- the walk tells -----------------------------------------------------------------------------------

    def assigned(self, target: str, value: ast.expr) -> None:
        self.sets.assigned(target, value)
        self.queries.assigned(target, value)
        found = self._unordered(value)
        is_used = self.loads.get(target, False) and not self._walk.branches
        is_other = found is None or (found[0] != SET and is_used)
        if is_other and target in self.pending and not mentions(value, target):
            self._settle(target)
        if found is None or found[0] == SET:
            if target in self.pending and sorted_of(self._walk, value) == target:
                del self.pending[target]
            elif (name := tabled(value)) in self.pending and not self.loads.get(name, False):
                self.pending[target] = self.pending.pop(name)  # and may be sorted as a table
            elif isinstance(value, ast.Subscript) and named(value.value) == target and self.is_one(value):
                self.pending.pop(target, None)
            return
        rule, node, text = found
        self._absorbed.add(id(node))
        if isinstance(value, ast.ListComp | ast.DictComp):
            self._carried.add(id(value.generators[0].iter))
        if target == "__all__":
            return
        if target:
            self.loads.pop(target, None)
            self.pending[target] = [Pending(rule, node, text, looped=is_numbering(value))]
        elif not self._free:
            self._report(rule, node, text)

    def begins(self, target: str) -> None:
        """What stood in the value of an assignment was the name's value before."""
        if "." not in target:
            self.loads.pop(target, None)

    def rebound(self, targets: ast.Tuple | ast.List, value: ast.expr) -> None:
        """`names, paths = zip(*sorted(zip(names, paths)))`."""
        if any(self._walk.names.resolve(call.func) in SORTING for call in all_of(ast.Call, value)):
            for element in targets.elts:
                self.pending.pop(named(element), None)

    def is_carried(self, node: ast.expr) -> bool:
        """Whether the order of what a comprehension goes over is already the matter of its result."""
        return id(node) in self._carried

    def is_one(self, node: ast.Subscript) -> bool:
        """`glob("*.zip")[0]`, `[f for f in files if f.startswith(name)][0]`: the file that is there; or the
        first of a listing that has a name, which is looked at."""
        if isinstance(node.slice, ast.Name):
            return self.decisive.is_in_turn(self.pending, named(node.value), node.slice.id)
        if not isinstance(node.slice, ast.Constant) or node.slice.value != 0:
            return False
        waiting = self.pending.get(named(node.value))
        found = waiting[0] if waiting else self._unordered(node.value)
        if found is None or found[0] != LISTING:
            return False
        return bool(waiting) or "glob" in found[2] or is_filtered(node.value)

    def single(self, value: ast.expr) -> None:
        """`(only,) = folder.iterdir()`: one thing has no order."""
        if found := self._unordered(value):
            self._absorbed.add(id(found[1]))

    def added(self, node: ast.AugAssign) -> None:
        """`files += os.listdir(...)`."""
        if name := named(node.target):
            self._appended(name, node.value)

    def loop(self, node: ast.For | ast.AsyncFor) -> bool:
        """Says whether what is looped over is in no order that is kept."""
        found = self._unordered(steps_of(node.iter))
        counter = node.target.elts[0] if isinstance(node.target, ast.Tuple) else node.target
        counted = named(iterated(node.iter)) if callee(node.iter) == "enumerate" else indexed(node)
        self.decisive.begins(named(counter), counted if counted in self.pending else "")
        if (name := indexed(node)) in self.pending:
            if not any(mentions(each, name) for each in node.body):
                return False  # a count is all that is taken
            for item in list(self.pending[name]):
                self._looped(node, item)
            return False
        if found is None:
            if (name := items_named(node.iter)) in self.pending and sorts(node.body):
                del self.pending[name]  # `for category, files in lists.items(): files.sort()`
            waiting = self.pending.get(named(iterated(node.iter)), []) or self._tables.items_of(
                iterated(node.iter)
            )
            for item in list(waiting):
                self._looped(node, item)
            return bool(waiting)
        rule, origin, text = found
        self._absorbed.add(id(origin))
        if text == "os.walk()" and sorts(node.body):
            return False
        self._looped(node, Pending(FROM_SET if rule == SET else rule, origin, text))
        return rule == UNORDERED  # in whatever order it was begun

    def _looped(self, node: ast.For | ast.AsyncFor, item: Pending) -> None:
        item = item._replace(looped=True)
        if numbered(node):
            self._report(*item)
            return
        self._tables.filled(node.body, item)
        self._joined |= {(name, id(item.node)) for name in joined(node)}
        for name in kept_in_order(node.body):
            if name == YIELDING:
                self.results.hand_on(*described(*item))
            elif name:
                if item not in self.pending.setdefault(name, []):
                    self.pending[name].append(item)
            else:
                self._report(*item)

    def comprehended(self, node: ast.ListComp | ast.GeneratorExp | ast.DictComp | ast.SetComp) -> None:
        if labels := self.sets.numbered(node):
            self._report(FROM_SET, labels, "a set of labels")
        if is_numbering(node) and (name := named(iterated(node.generators[0].iter))) in self.pending:
            self.pending[name] = [item._replace(looped=True) for item in self.pending[name]]
        found = self._unordered(node.generators[0].iter)
        if not isinstance(node, ast.DictComp | ast.SetComp) and reads_files(node.elt):
            waiting = self.pending.get(named(iterated(node.generators[0].iter)), ())
            self._read |= {id(item.node) for item in waiting} | ({id(found[1])} if found else set())
        if found is None:
            return
        kind, origin, text = found
        counted = isinstance(node.generators[0].iter, ast.Call) and node.generators[0].iter is not origin
        if isinstance(node, ast.SetComp) or (
            isinstance(node, ast.DictComp) and kind != FROM_SET and not counted
        ):
            self._absorbed.add(id(origin))
        elif kind == SET and NUMBERS.search(named(node.generators[0].target)):
            return
        elif kind == SET and not self._free and id(node) not in self._absorbed:
            self._report(FROM_SET, node, text)

    @contextmanager
    def returned(self, value: ast.expr) -> Iterator[None]:
        """A context for what a function returns: its callers decide."""
        name = named(value)
        if name in self.pending and not self.loads.get(name, False):
            for item in self.pending.pop(name):
                self.results.hand_on(*described(*item))
        self._returning = True
        yield
        self._returning = False

    def called(self, node: ast.Call, name: str | None) -> bool:
        """Says whether the order of the arguments is free; reports a listing whose order is kept."""
        function = node.func
        method, owner = (
            (function.attr, named(function.value)) if isinstance(function, ast.Attribute) else ("", "")
        )
        self.results.called(name, keeps=not self._free)
        self.sets.called(node)
        self.queries.called(node)
        if method in SORTING_METHODS:
            self.pending.pop(owner, None)
            self.results.sorted(owner)
        if not self._free and (tied := self.sets.tied(node, name)):
            self._report(FROM_SET, node, tied)
        is_sorting = name in SORTING or bool(SORTER.search(last(function)))
        if is_sorting or method in FREE_METHODS or name in FREE:
            if is_sorting:
                self._walk.facts.sorted_attributes |= attributes_of(node)
                for argument in node.args if name not in SETS else ():
                    inner = argument.generators[0].iter if isinstance(argument, Comprehensions) else argument
                    self.pending.pop(named(inner), None)
                    self.results.sorted(named(inner))
            return True
        if FINDING.search(last(function)):
            return True
        if name == "builtins.next" and node.args and not walked(self._walk, node):
            self.single(node.args[0])  # `next(folder.glob("*.onnx"))`: the one that is there
        self.decisive.called(self.pending, node, name)
        if self._free or id(node) in self._absorbed:
            return False
        for item in self._tables.used(node):
            self._report(*item)
        if method in APPENDING and owner:
            for argument in node.args:
                if method == "extend" or not isinstance(argument, ast.Name):
                    self._appended(owner, argument)
        if name not in OF_INTEREST and method not in METHODS:
            return False
        found = self._unordered(node)
        if found and found[0] != SET and found[1] is node:
            self._report(found[0], node, found[2])
        return False

    def _appended(self, to: str, value: ast.expr) -> None:
        """`files.extend(glob(...))`: files may be sorted further on."""
        found, name = self._unordered(value), named(value)
        if found and found[0] != SET:
            self._absorbed.add(id(found[1]))
            self.pending.setdefault(to, []).append(Pending(*found))
        elif name in self.pending and name != to and (not self._walk.scope or self._walk.names.is_local(to)):
            self.pending.setdefault(to, []).extend(self.pending.pop(name))

    def read(self, attribute: str) -> None:
        if not self._free:
            self._walk.facts.read_attributes.add(attribute)

    def loaded(self, name: str) -> None:
        if name in self.pending:
            self.loads[name] = self.loads.get(name, False) or not self._free

    def leave(self, keep: set[str]) -> None:
        """A scope ends: what was not sorted by now never is."""
        for name in list(self.pending):
            if not any(name.startswith(prefix) for prefix in keep):
                self._settle(name)
        self.sets.ones.clear()

    # ---- what is in no order -----------------------------------------------------------------

    def _settle(self, name: str) -> None:
        """Reports what has a name, unless it was used, but never in a way that keeps the order."""
        items = self.pending.pop(name)
        is_local = self._walk.scope and self._walk.names.is_innermost(name)
        is_kept = self.loads.get(name, "." in name or not is_local)
        unread = name if name not in self.loads and "." not in name else ""
        for item in items if name not in self.sets.ones else ():
            if is_kept or self.decisive.has(item.node) or (name, id(item.node)) in self._joined:
                self.results.hold(item.node, name)
                self._report(*item, unread=unread)

    def _unordered(self, node: ast.expr) -> tuple[str, Any, str] | None:
        """(what, where from, its text) of an expression whose order is not defined."""
        if text := self.sets.of_texts(node):
            return SET, node, text
        if text := self.queries.source(node):
            return QUERY, node, text
        if isinstance(node, ast.Call):
            return self._unordered_call(node, self._walk.names.resolve(node.func))
        if isinstance(node, ast.Subscript) and (found := walked(self._walk, node.value)):
            return LISTING, found, "os.walk()"
        if isinstance(node, ast.ListComp | ast.GeneratorExp) or is_numbering(node):
            inner = self._unordered(node.generators[0].iter)
            if inner is None:
                waiting = self.pending.get(named(iterated(node.generators[0].iter)))
                return waiting[0][:3] if waiting and not isinstance(node, ast.GeneratorExp) else None
            if inner[0] == SET:
                return FROM_SET, node, inner[2]
            return inner
        parts: tuple[ast.expr, ...] = ()
        if isinstance(node, ast.IfExp):
            parts = node.body, node.orelse
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.BitOr | ast.Sub | ast.BitAnd):
            parts = node.left, node.right
        if parts:
            left, right = map(self._unordered, parts)
            if left is None and isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub):
                return None
            if left and right and right[0] != SET:
                self._absorbed.add(id(right[1]))
            return left or right
        return None

    def _unordered_call(self, node: ast.Call, name: str | None) -> tuple[str, Any, str] | None:
        if name in LISTINGS:
            return self._listed(node, f"{name}()")
        function = node.func
        if isinstance(function, ast.Attribute):
            base = self._walk.names.resolve(function.value)
            is_path = base is None or base.startswith("pathlib") or is_own(base)
            if is_path and (function.attr in PATH_METHODS or (function.attr == "glob" and node.args)):
                return self._listed(node, f"Path.{function.attr}()")
            if function.attr == "imap_unordered":
                return UNORDERED, node, "imap_unordered()"
        if found := walked(self._walk, node):
            return LISTING, found, "os.walk()"
        if name in READY:
            return UNORDERED, node, "as_completed()"
        if node.args and last(function).lower() in BARS:
            return self._unordered(node.args[0])
        if name in KEEPING and node.args:
            inner = next((found for found in map(self._unordered, node.args) if found), None)
            if inner and inner[0] == SET:
                return FROM_SET, node, inner[2]
            return inner
        return None

    def _listed(self, node: ast.Call, text: str) -> tuple[str, Any, str] | None:
        if is_held_out(self._walk, node):
            self._held_out.add(id(node))
        return None if is_no_data(self._walk, node) else (LISTING, node, text)

    def _report(self, rule: str, node: Any, text: str, looped: bool = False, unread: str = "") -> None:
        found = described(rule, node, text, looped or id(node) in self._read)
        if id(node) in self._held_out and not self.decisive.has(node):
            return
        if self._returning:
            self.results.hand_on(*found)
        else:
            self._walk.facts.unread.setdefault(spot(node)[:2], set()).add(unread)
            self._walk.report(*found)
