"""Where the order of data comes from: listings of files, sets, results as they become ready (VB301, VB302,
VB304).

A listing is harmless where its order is not kept: inside sorted() or len(), in a test, in a loop that keeps
nothing in order. A listing that was assigned is waited for: it may be sorted further on."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, NamedTuple

from analysis.scan.lint.vocabulary import WORDS
from analysis.scan.lint.walk.kept import (
    APPENDING,
    BARS,
    FREE,
    SORTER,
    SORTING,
    is_numbering,
    iterated,
    kept_in_order,
    last,
    makes_text,
    mentions,
    named,
    sorted_of,
    sorts,
)
from analysis.scan.lint.walk.results import Results, attributes_of
from analysis.scan.lint.walk.walk import Walk
from analysis.scan.results import Level

# Names that tell whether an order is defined, kept, or of no matter.
LISTINGS = WORDS["listings"]
PATHS = frozenset(("pathlib.Path()", "pathlib.PosixPath()"))
PATH_METHODS = frozenset(("iterdir", "rglob"))
NUMBERS = re.compile(
    r"(?:^|_)(?:ids?|idxs?|index|indexes|indices|positions|ranks|epochs|steps|dims|axes|axis|sizes|labels?)(?:_|$)"
)
"""Names of whole numbers, whose order in a set does not change from process to process."""
NO_DATA = re.compile(
    r"check_?points?|ckpt|weights?\b|weight_|\.pth?\b|\.h5\b|events\.|\.(?:log|cpp|cu|c|sh|zip|tar)\b|\blogs?\b|runs\b|tmp|temp_|cache|experiment|"
    r"delete|remove|clean|latest|newest|download|unzip|extract_all|rename|copy",
    re.IGNORECASE,
)
"""Names that have to do with files that are no data, or with what leaves their order behind."""
KEEPING = WORDS["keeping"]
FINDING = re.compile(
    r"^_*(?:find|get_(?:ckpt|latest|checkpoint)|check|remove|delete|latest|select|exists|is|has|contains|validate|verify|assert|print|log)_?\w*$"
)
"""Functions that choose, test or tell."""
READY = frozenset(("concurrent.futures.as_completed", "asyncio.as_completed"))
METHODS = PATH_METHODS | {"glob", "imap_unordered"}
OF_INTEREST = LISTINGS | KEEPING | READY
FREE_METHODS = WORDS["free_methods"]
"""Methods that keep no order, or only that of a text."""
TEXTS = re.compile(
    r"word|token|char|texts?\b|name|vocab|tags?\b|path|file|\bdirs?\b|stem|lower|split|strip|\bstr\b|title|categor|species|"
    r"speaker|symbol|lang|relation|entit|subject|sentence|letter|string|smiles|unique_pairs|\[['\"](?!\w*(?:id|idx|index|year)\b)"
    r"|^['\"]",
    re.IGNORECASE,
)
"""What has to do with texts, whose order in a set changes from process to process."""

Comprehensions = ast.ListComp | ast.GeneratorExp | ast.SetComp
_KEPT = nullcontext()
SET, LISTING, FROM_SET, UNORDERED = "set", "VB301", "VB302", "VB304"


class Pending(NamedTuple):
    """Something in no order that has a name, and may still be sorted."""

    rule: str
    node: Any
    text: str
    looped: bool = False  # a loop over it kept its order


class DataOrder:
    """What is in no defined order, and whether that order is kept."""

    def __init__(self, walk: Walk) -> None:
        self._walk = walk
        self.pending: dict[str, list[Pending]] = {}
        self._loads: dict[str, bool] = {}  # names that are used: whether in a way that keeps their order
        self._texts: dict[str, str] = {}  # what sets are made of, by their names
        self._made_texts: set[str] = set()  # names of what is put together from texts
        self._ones: set[str] = set()  # names whose length was compared with one
        self._carried: set[int] = set()
        self._free = 0
        self._absorbed: set[int] = set()
        self._returning = False
        self.results = Results(walk)

    def free(self, when: bool = True) -> AbstractContextManager[None]:
        """A context in which the order does not matter, where `when` holds."""
        return self if when else _KEPT

    def __enter__(self) -> None:
        self._free += 1

    def __exit__(self, *_error: object) -> None:
        self._free -= 1

    # ---- the walk tells -----------------------------------------------------------------------------------

    def assigned(self, target: str, value: ast.expr) -> None:
        if isinstance(value, ast.SetComp | ast.Set) or (
            isinstance(value, ast.Call) and last(value.func) in ("set", "frozenset")
        ):
            self._texts[target] = self._told(value)
        (self._made_texts.add if makes_text(value) else self._made_texts.discard)(target)
        found = self._unordered(value)
        if found is None or found[0] == SET:
            if target in self.pending and found is None:
                if sorted_of(self._walk, value) == target:
                    del self.pending[target]
                elif not mentions(value, target):
                    self._settle(target)
            return
        rule, node, text = found
        self._absorbed.add(id(node))
        if isinstance(value, ast.ListComp | ast.DictComp):
            self._carried.add(id(value.generators[0].iter))
        if target == "__all__":
            return
        if target:
            self._loads.pop(target, None)
            self.pending[target] = [Pending(rule, node, text)]
        elif not self._free:
            self._report(rule, node, text)

    def begins(self, target: str) -> None:
        """What stood in the value of an assignment was the name's value before."""
        if "." not in target:
            self._loads.pop(target, None)

    def rebound(self, targets: ast.Tuple | ast.List, value: ast.expr) -> None:
        """`names, paths = zip(*sorted(zip(names, paths)))`."""
        if any(
            isinstance(node, ast.Call) and self._walk.names.resolve(node.func) in SORTING
            for node in ast.walk(value)
        ):
            for element in targets.elts:
                self.pending.pop(named(element), None)

    def is_carried(self, node: ast.expr) -> bool:
        """Whether the order of what a comprehension goes over is already the matter of its result."""
        return id(node) in self._carried

    def is_one(self, node: ast.Subscript) -> bool:
        """`glob("*.zip")[0]`: the file that is there."""
        if not isinstance(node.slice, ast.Constant) or node.slice.value != 0:
            return False
        waiting = self.pending.get(named(node.value))
        found = waiting[0] if waiting else self._unordered(node.value)
        return found is not None and found[0] == LISTING and "glob" in found[2]

    def single(self, value: ast.expr) -> None:
        """`(only,) = folder.iterdir()`: one thing has no order."""
        if found := self._unordered(value):
            self._absorbed.add(id(found[1]))

    def added(self, node: ast.AugAssign) -> None:
        """`files += os.listdir(...)`."""
        name = named(node.target)
        found = self._unordered(node.value)
        if name and found and found[0] != SET:
            self._absorbed.add(id(found[1]))
            self.pending.setdefault(name, []).append(Pending(*found))

    def loop(self, node: ast.For | ast.AsyncFor) -> bool:
        """Says whether what is looped over is in no order that is kept."""
        found = self._unordered(node.iter)
        if found is None:
            waiting = self.pending.get(named(iterated(node.iter)), [])
            for item in list(waiting):
                self._looped(node, item)
            return bool(waiting)
        rule, origin, text = found
        self._absorbed.add(id(origin))
        if text == "os.walk()" and sorts(node.body):
            return False
        self._looped(node, Pending(FROM_SET if rule == SET else rule, origin, text))
        return False

    def _looped(self, node: ast.For | ast.AsyncFor, item: Pending) -> None:
        item = item._replace(looped=True)
        for name in kept_in_order(node.body):
            if name:
                if item not in self.pending.setdefault(name, []):
                    self.pending[name].append(item)
            else:
                self._report(*item)

    def compared(self, node: ast.Compare) -> None:
        """`len(names) == 1`: one thing has no order."""
        match node:
            case ast.Compare(left=ast.Call(args=[only]), comparators=[ast.Constant(value=1)]):
                self._ones.add(named(only))

    def comprehended(self, node: ast.ListComp | ast.GeneratorExp | ast.DictComp | ast.SetComp) -> None:
        found = self._unordered(node.generators[0].iter)
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
        if name in self.pending and not self._loads.get(name, False):
            for item in self.pending.pop(name):
                self.results.hand_on(*self._described(*item))
        self._returning = True
        yield
        self._returning = False

    def called(self, node: ast.Call, name: str | None) -> bool:
        """Says whether the order of the arguments is free; reports a listing whose order is kept."""
        function = node.func
        self.results.called(name, keeps=not self._free)
        if isinstance(function, ast.Attribute) and function.attr == "add" and node.args:
            to = named(function.value)
            if to in self._texts:
                self._texts[to] += f" {self._told(node.args[0])}"
        if isinstance(function, ast.Attribute) and function.attr == "sort":
            self.pending.pop(named(function.value), None)
        is_sorting = name in SORTING or bool(SORTER.search(last(function)))
        is_free = isinstance(function, ast.Attribute) and function.attr in FREE_METHODS
        if is_sorting or is_free or name in FREE:
            if is_sorting:
                self._walk.facts.sorted_attributes |= attributes_of(node)
                for argument in node.args:
                    inner = argument.generators[0].iter if isinstance(argument, Comprehensions) else argument
                    self.pending.pop(named(inner), None)
            return True
        if FINDING.search(last(function)):
            return True
        if name == "builtins.next" and node.args:
            self.single(node.args[0])  # `next(folder.glob("*.onnx"))`: the one that is there
        if self._free or id(node) in self._absorbed:
            return False
        if (
            isinstance(function, ast.Attribute)
            and function.attr in APPENDING
            and (to := named(function.value))
        ):
            for argument in node.args:
                self._appended(to, argument)
        if name not in OF_INTEREST and not (isinstance(function, ast.Attribute) and function.attr in METHODS):
            return False
        found = self._unordered_call(node, name)
        if found and found[0] != SET and found[1] is node:
            self._report(found[0], node, found[2])
        return False

    def _appended(self, to: str, value: ast.expr) -> None:
        """`files.extend(glob(...))`: files may be sorted further on."""
        found = self._unordered(value)
        if found and found[0] in (LISTING, UNORDERED):
            self._absorbed.add(id(found[1]))
            self.pending.setdefault(to, []).append(Pending(*found))

    def read(self, attribute: str) -> None:
        if not self._free:
            self._walk.facts.read_attributes.add(attribute)

    def loaded(self, name: str) -> None:
        if name in self.pending:
            self._loads[name] = self._loads.get(name, False) or not self._free

    def leave(self, keep: set[str]) -> None:
        """A scope ends: what was not sorted by now never is."""
        for name in list(self.pending):
            if not any(name.startswith(prefix) for prefix in keep):
                self._settle(name)
        self._ones.clear()

    # ---- what is in no order -----------------------------------------------------------------

    def _settle(self, name: str) -> None:
        """Reports what has a name, unless it was used, but never in a way that keeps the order."""
        items = self.pending.pop(name)
        if name in self._ones:
            return
        unseen = "." in name or not self._walk.scope  # another function may use it
        if self._loads.get(name, unseen):
            for item in items:
                self.results.hold(item.node, name)
                self._report(*item)

    def _unordered(self, node: ast.expr) -> tuple[str, Any, str] | None:
        """(what, where from, its text) of an expression whose order is not defined."""
        if isinstance(node, ast.Call):
            return self._unordered_call(node, self._walk.names.resolve(node.func))
        if isinstance(node, ast.Name):
            name = self._walk.names.resolve(node)
            if (
                name in ("builtins.set()", "builtins.frozenset()")
                and node.id not in self._ones
                and not NUMBERS.search(node.id)
                and TEXTS.search(f"{node.id} {self._texts.get(node.id, '')}")
            ):
                return SET, node, node.id
        elif isinstance(node, ast.Set):
            if any(TEXTS.search(ast.unparse(e)) for e in node.elts):
                return SET, node, "a set"
        elif isinstance(node, ast.SetComp):
            if TEXTS.search(ast.unparse(node)):
                return SET, node, "a set"
        elif isinstance(node, ast.ListComp | ast.GeneratorExp) or is_numbering(node):
            inner = self._unordered(node.generators[0].iter)
            if inner is None:
                waiting = self.pending.get(named(iterated(node.generators[0].iter)))
                return waiting[0][:3] if waiting and not isinstance(node, ast.GeneratorExp) else None
            if inner[0] == SET:
                return FROM_SET, node, inner[2]
            return inner
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.BitOr | ast.Sub | ast.BitAnd):
            left, right = self._unordered(node.left), self._unordered(node.right)
            if left is None and isinstance(node.op, ast.Sub):
                return None
            if left and right and right[0] != SET:
                self._absorbed.add(id(right[1]))
            return left or right
        return None

    def _told(self, node: ast.expr) -> str:
        """The text of an expression, and a word where what it names was put together from texts."""
        names = {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}
        return f"{ast.unparse(node)} {'str' if names & self._made_texts else ''}"

    def _is_no_data(self, node: ast.Call) -> bool:
        """Whether what is listed are checkpoints, logs and the like, as far as the names tell."""
        return bool(NO_DATA.search(f"{ast.unparse(node)} {self._walk.target} {self._walk.scope}"))

    def _unordered_call(self, node: ast.Call, name: str | None) -> tuple[str, Any, str] | None:
        if name in LISTINGS:
            return None if self._is_no_data(node) else (LISTING, node, f"{name}()")
        function = node.func
        if isinstance(function, ast.Attribute):
            base = self._walk.names.resolve(function.value)
            if (function.attr in PATH_METHODS and (base is None or base.startswith("pathlib"))) or (
                function.attr == "glob" and base in PATHS
            ):
                return None if self._is_no_data(node) else (LISTING, node, f"Path.{function.attr}()")
            if function.attr == "imap_unordered":
                return UNORDERED, node, "imap_unordered()"
        if name in READY:
            return UNORDERED, node, "as_completed()"
        if node.args and last(function).lower() in BARS:
            return self._unordered(node.args[0])
        if name in ("builtins.set", "builtins.frozenset"):
            first = node.args[0] if node.args else None
            if first is None or NUMBERS.search(last(first)):
                return None
            if not TEXTS.search(self._told(first)):
                return None
            return SET, node, "a set"
        if name in KEEPING and node.args:
            inner = next((found for found in map(self._unordered, node.args) if found), None)
            if inner and inner[0] == SET:
                return FROM_SET, node, inner[2]
            return inner
        return None

    def _report(self, rule: str, node: Any, text: str, looped: bool = False) -> None:
        described = self._described(rule, node, text, looped)
        if self._returning:
            self.results.hand_on(*described)
        else:
            self._walk.report(*described)

    def _described(
        self, rule: str, node: Any, text: str, looped: bool = False
    ) -> tuple[str, Any, str, Level | None]:
        """A note where the order is only handed on: what is done with it elsewhere decides."""
        why = {
            LISTING: f"{text} gives names in no defined order, and the order is kept",
            FROM_SET: f"the order of {text} changes with PYTHONHASHSEED, and it is kept",
            UNORDERED: f"{text} gives results as they become ready, and that order is kept",
        }[rule]
        plain = isinstance(node, ast.Call) and last(node.func) in ("list", "tuple")
        handed_on = (rule == LISTING and not looped) or (rule == FROM_SET and plain)
        return rule, node, why, Level.NOTE if handed_on else None
