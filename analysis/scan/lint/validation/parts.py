"""Parts of data that are not apart (VB603): one data set for training and for validation, and a data set of
TensorFlow that is shuffled again for each of its parts."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence

from analysis.scan.lint.syntax.arguments import argument, constant, last
from analysis.scan.lint.syntax.tree import all_of
from analysis.scan.lint.syntax.walk import Walk
from analysis.scan.lint.validation.evaluation import is_held_out, is_only_held_out, is_training

READER = re.compile(
    r"loader|dataset|^(?:read|load|flow_from|get|create|build|parse|extract|process|prepare)_|generator",
    re.IGNORECASE,
)
"""What reads data or features, by its name: a `DataLoader`, `load_images`."""
FROM_FOLDER = re.compile(r"^(?:image|text|audio)_dataset_from_directory$")
"""Functions of Keras that shuffle each time again, by default."""
DATA = re.compile(
    r"data|set\b|_ds\b|^ds\b|df\b|frame|path|file|dir|folder|root|csv|images?\b|rows|[xX]\b", re.IGNORECASE
)
DRAWN = re.compile(r"rand|sample|generate|synth|make_|batch$", re.IGNORECASE)
"""Functions that may give something else each time."""
PART = re.compile(r"rand|split|fold|subset|next\(|phase|mode", re.IGNORECASE)
"""What may be a part of data."""
FIXING = frozenset(("cache", "take", "skip"))
"""Methods after which the order stays."""
ALIKE = frozenset(
    ("shuffle", "batch_size", "num_workers", "drop_last", "pin_memory", "collate_fn", "persistent_workers",
     "seed", "prefetch_factor", "worker_init_fn", "generator", "transform", "augment")
)  # fmt: skip
"""Arguments that do not choose data."""


class Parts:
    """One scope, read in order: what has been read under which name."""

    def __init__(self, to: Walk) -> None:
        self._to = to
        self._trained: dict[str, str] = {}  # what is read for training, and its name
        self._shuffled: set[str] = set()  # names of data sets that are in another order each time
        self._taken: dict[str, tuple[str, str]] = {}  # methods by data sets, and what it became

    def scope(self, body: Sequence[ast.stmt]) -> None:
        for statement in body:
            if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
                Parts(self._to).scope(statement.body)
            elif isinstance(statement, ast.ClassDef):
                self.scope(statement.body)
            elif isinstance(statement, ast.If):
                before = dict(self._trained)
                for branch in (statement.body, statement.orelse):
                    self.scope(branch)
                    self._trained = dict(before)  # the other branch, or none, may have been run
            elif isinstance(statement, ast.For | ast.While | ast.With | ast.Try):
                self.scope(statement.body)
            else:
                self._statement(statement)

    def _statement(self, statement: ast.stmt) -> None:
        target, value = "", getattr(statement, "value", None)
        if isinstance(statement, ast.Assign):
            first = statement.targets[0]
            target = first.id if isinstance(first, ast.Name) else ast.unparse(first)
        if not isinstance(value, ast.expr):
            return
        if "tensorflow" in self._to.facts.flags:
            self._parts(target, value)
        if isinstance(value, ast.Call) and isinstance(statement, ast.Assign):
            self._read(target, value)
        if target:
            self._trained = {
                text: name
                for text, name in self._trained.items()
                if not _mentions(text, target.partition(".")[0])
            }
            if (
                isinstance(value, ast.Call)
                and is_training(target)
                and not is_held_out(target)
                and _reads(value)
            ):
                self._trained[_signature(value)] = target

    def _read(self, target: str, value: ast.Call) -> None:
        """`val_loader = DataLoader(data)` after `train_loader = DataLoader(data)`."""
        if not is_only_held_out(target) or not _reads(value):
            return
        if name := self._trained.get(_signature(value)):
            self._to.report("VB603", value, f"{target} reads the same as {name}")

    def _parts(self, target: str, value: ast.expr) -> None:
        """`train = rows.take(9)` and `val = rows.skip(9)` of `rows = rows.shuffle(99)`."""
        for call in all_of(ast.Call, value):
            owner = call.func.value if isinstance(call.func, ast.Attribute) else None
            if not isinstance(owner, ast.Name) or owner.id not in self._shuffled:
                continue
            method = last(call.func)
            if method not in ("take", "skip"):
                continue
            other, name = self._taken.setdefault(owner.id, (method, target))
            if other != method and not (is_only_held_out(name) and is_only_held_out(target)):
                why = (
                    f"{owner.id} is shuffled again for each of its parts: what is skipped here was trained on"
                )
                self._to.report("VB603", call, why)
        if target and target.isidentifier():
            if _is_shuffled(value) or (
                _base(value) in self._shuffled
                and FIXING.isdisjoint(last(call.func) for call in all_of(ast.Call, value))
            ):
                self._shuffled.add(target)
            else:
                self._shuffled.discard(target)
            self._taken.pop(target, None)


def _base(value: ast.expr) -> str:
    """`rows` of `rows.batch(9).prefetch(1)`."""
    while isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute):
        value = value.func.value
    return value.id if isinstance(value, ast.Name) else ""


def _is_shuffled(value: ast.expr) -> bool:
    """`rows.map(f).shuffle(9).batch(2)`: for each time that it is gone through."""
    while isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute):
        if value.func.attr in FIXING:
            return False
        if FROM_FOLDER.search(value.func.attr):
            break
        if value.func.attr == "shuffle":
            again = argument(value, "reshuffle_each_iteration")
            return bool(value.args or value.keywords) and constant(again) in (..., True)
        value = value.func.value
    match value:
        case ast.Call(func=function, keywords=keywords) if FROM_FOLDER.search(last(function)):
            return not any(k.arg == "shuffle" and constant(k.value) is not True for k in keywords)
    return False


def _reads(value: ast.Call) -> bool:
    text = _signature(value)
    return bool(
        value.args
        and READER.search(last(value.func))
        and DATA.search(ast.unparse(value.args[0]))
        and not DRAWN.search(last(value.func))
        and not PART.search(text)
        and not is_held_out(text)
    )


def _signature(value: ast.Call) -> str:
    """A call without what does not choose data."""
    given = [
        ast.unparse(each) for each in value.args if constant(each) is ... or isinstance(constant(each), str)
    ]
    named = sorted(f"{k.arg}={ast.unparse(k.value)}" for k in value.keywords if k.arg not in ALIKE)
    return f"{ast.unparse(value.func)}({', '.join([*given, *named])})"


def _mentions(text: str, name: str) -> bool:
    return bool(name) and bool(re.search(rf"\b{re.escape(name)}\b", text))
