"""Which names and expressions stand for sets of texts, whose order changes from process to process."""

from __future__ import annotations

import ast
import re

from analysis.scan.lint.order.kept import is_numbering, makes_text, named
from analysis.scan.lint.order.sources import NUMBERS, is_numbering_of_texts, is_of_texts
from analysis.scan.lint.syntax.arguments import argument, last, text_of
from analysis.scan.lint.syntax.tree import names_in, nodes_of
from analysis.scan.lint.syntax.walk import Walk

MADE = frozenset(("builtins.set()", "builtins.frozenset()"))
JSON = frozenset(("json.load", "json.loads", "ujson.load", "ujson.loads", "simplejson.load"))
LABELS = re.compile(r"label|tags?(?:_|$)", re.IGNORECASE)
CHOOSING = frozenset(("builtins.max", "builtins.min"))
SHOWN = re.compile(r"""^(?:(?:frozen)?set)?[\[({]+['"]|\.(?:r?split|splitlines|[lr]?strip)\(""")
"""Texts that are written out, or parts of texts."""
MAKING_NUMBERS = frozenset(("int", "float", "len", "ord"))
COMBINING = frozenset(("union", "intersection", "difference", "symmetric_difference"))


class Sets:
    """What the sets of a module are made of, as far as their texts show."""

    def __init__(self, walk: Walk) -> None:
        self._walk = walk
        self._told: dict[str, str] = {}  # by their names
        self._values: dict[str, str] = {}  # of the sets that dictionaries have, by the names of those
        self._made_texts: set[str] = set()  # names of what is put together from texts
        self._of_json: set[str] = set()  # names of what was read from JSON, whose keys are texts
        self._labels: dict[str, ast.expr] = {}  # sets of labels, texts or numbers, by names of their lists
        self.ones: set[str] = set()  # names whose length was compared with one

    def assigned(self, target: str, value: ast.expr) -> None:
        """To one name: `x`, `self.x`."""
        if self.is_set(value):
            self._told[target] = self._text(value)
        elif not (isinstance(value, ast.Name) and value.id == target):
            self._told.pop(target, None)
        match value:
            case ast.Call(func=function, args=[ast.Name(id="set" | "frozenset"), *_]) if (
                last(function) == "defaultdict"
            ):
                self._values[target] = ""
        (self._made_texts.add if makes_text(value) else self._made_texts.discard)(target)
        of_json = isinstance(value, ast.Call) and self._walk.names.resolve(value.func) in JSON
        (self._of_json.add if of_json else self._of_json.discard)(target)
        match value:
            case (
                ast.Call(func=ast.Name(id="set"), args=[labels])
                | ast.Call(func=ast.Name(id="list"), args=[ast.Call(func=ast.Name(id="set"), args=[labels])])
            ) if LABELS.search(last(labels)):
                self._labels[target] = value
            case _:
                self._labels.pop(target, None)

    def numbered(self, node: ast.expr) -> ast.expr | None:
        """The set of labels that `{label: i for i, label in enumerate(labels)}` gives numbers, which numbers
        would not need."""
        if not is_numbering(node) or not is_numbering_of_texts(self._walk.target):
            return None
        enumerated = node.generators[0].iter
        return self._labels.get(named(enumerated.args[0])) if isinstance(enumerated, ast.Call) else None

    def looped(self, node: ast.For | ast.AsyncFor) -> None:
        """`for word in line.split()`, `for key, names in names_by_key.items()`, `for i in range(9)`."""
        if not isinstance(node.iter, ast.Call):
            return
        method = last(node.iter.func)
        if self._walk.names.resolve(node.iter.func) == "builtins.range" and isinstance(node.target, ast.Name):
            self._walk.names.bind(node.target.id, "builtins.int()")
        if method in ("split", "rsplit", "splitlines"):
            self._made_texts.add(named(node.target))
        owner = named(node.iter.func.value) if isinstance(node.iter.func, ast.Attribute) else ""
        value = node.target
        if owner in self._of_json and method in ("items", "keys"):
            key = value.elts[0] if isinstance(value, ast.Tuple) else value
            self._made_texts.add(named(key))
        if method == "items" and isinstance(value, ast.Tuple) and len(value.elts) == 2:
            value = value.elts[1]
        elif method != "values":
            return
        if owner in self._values and isinstance(value, ast.Name):
            self._told[value.id] = self._values[owner]
            self._walk.names.bind(value.id, "builtins.set()")

    def called(self, node: ast.Call) -> None:
        """`words.add(word)`, `words.update(line.split())`, `names[key].add(name)`, `words.append(word)`."""
        function = node.func
        if not isinstance(function, ast.Attribute) or not node.args:
            return
        to = named(function.value)
        if function.attr == "append" and to and is_of_texts(self._text(node.args[0])):
            self._made_texts.add(to)
        if function.attr not in ("add", "update"):
            return
        if to in self._told:
            self._told[to] += f" {self._text(node.args[0])}"
        elif owner := self._owner(function.value):
            self._values[owner] = f"{self._values.get(owner, '')} {self._text(node.args[0])}"

    def compared(self, node: ast.Compare) -> None:
        """`len(names) == 1`: one thing has no order."""
        match node:
            case ast.Compare(left=ast.Call(args=[only]), ops=[kind], comparators=[ast.Constant(value=1)]) if (
                not isinstance(kind, ast.Gt)  # then it is about many
            ):
                self.ones.add(named(only))

    def is_set(self, value: ast.expr) -> bool:
        match value:
            case ast.Set() | ast.SetComp():
                return True
            case ast.Call(func=ast.Attribute(value=base, attr=attr)) if attr in COMBINING:
                return self.is_set(base)
            case ast.Call(func=function):
                return self._walk.names.resolve(function) in ("builtins.set", "builtins.frozenset")
            case ast.BinOp(left=left, op=ast.BitOr() | ast.BitAnd() | ast.Sub() | ast.BitXor()):
                return self.is_set(left)
            case ast.Name():
                return self._walk.names.resolve(value) in MADE
            case ast.Attribute():
                return named(value) in self._told
            case ast.Subscript(value=base):
                return self._has_sets(base)
        return False

    def of_texts(self, value: ast.expr) -> str:
        """How a set of texts is named in a message; "" for what is none, as far as its text shows."""
        if not self.is_set(value):
            return ""
        match value:
            case ast.Name() | ast.Attribute():
                name = named(value)
                made = self._told.get(name, "")
                by_name = not NUMBERS.search(name.removeprefix("self.")) and is_of_texts(f"{name} {made}")
                return name if name not in self.ones and (by_name or _shows_texts(made)) else ""
            case ast.Subscript(value=base):
                return f"a set of {named(base)}" if is_of_texts(self._values.get(named(base), "")) else ""
            case ast.Set(elts=elements):
                return "a set" if any(is_of_texts(_beside_numbers(each)[0]) for each in elements) else ""
            case ast.Call(func=ast.Name(), args=[]):
                return ""
            case ast.Call(func=ast.Name(), args=[first, *_]):
                if is_numbering_of_texts(self._walk.target):
                    return "a set"
                if NUMBERS.search(last(first)):
                    return ""
            case ast.Call(func=ast.Attribute(value=base)) | ast.BinOp(left=base) if (
                isinstance(base, ast.Name)
                and NUMBERS.search(base.id)
                and not _shows_texts(self._told.get(base.id, ""))
            ):
                return ""
        return "a set" if is_of_texts(self._text(value)) else ""

    def tied(self, node: ast.Call, name: str | None) -> str:
        """`max(set(votes), key=votes.count)`: of several with the same count, the first of the set; "" unless
        it is one of texts."""
        key = argument(node, "key")
        if name not in CHOOSING or len(node.args) != 1 or key is None or _is_total(key):
            return ""
        return self.of_texts(node.args[0])

    def _has_sets(self, base: ast.expr) -> bool:
        name = named(base)
        of_module = not isinstance(base, ast.Name) or (
            self._walk.names.resolve(base) == "collections.defaultdict()"
        )
        return name in self._values and of_module

    def _owner(self, value: ast.expr) -> str:
        """`names` of `names[key]`, and of `names.setdefault(key, set())`."""
        match value:
            case ast.Subscript(value=base) if self._has_sets(base):
                return named(base)
        return ""

    def _text(self, node: ast.expr) -> str:
        """The text of an expression, what its names are made of, and a word where that is text."""
        text, parts = _beside_numbers(node)
        made = " ".join(self._told.get(name, "") for name in sorted(parts))
        return f"{text} {made} {'str' if parts & self._made_texts else ''}"


def _shows_texts(made: str) -> bool:
    """Whether what a set is made of are texts, whatever its name is: literals, or parts of texts."""
    return bool(SHOWN.search(made)) and not re.search(r"\b(?:int|float)\b", made)


def _beside_numbers(node: ast.expr) -> tuple[str, set[str]]:
    """The text of an expression and the names in it, without what makes whole numbers: `int(word)`,
    `map(int, words)`, and what gives them to a set, `len(word) for word in words`."""
    text, names = text_of(node), names_in(node)
    for each in nodes_of(node):
        match each:
            case (
                ast.Call(func=ast.Name(id="map"), args=[ast.Name(id=maker), *_])
                | ast.Call(func=ast.Name(id=maker))
                | ast.GeneratorExp(elt=ast.Call(func=ast.Name(id=maker)))
                | ast.ListComp(elt=ast.Call(func=ast.Name(id=maker)))
                | ast.SetComp(elt=ast.Call(func=ast.Name(id=maker)))
            ) if maker in MAKING_NUMBERS:
                text, names = text.replace(text_of(each), ""), names - names_in(each)
    return text, names


def _is_total(key: ast.expr) -> bool:
    """Whether a key tells all texts apart: `words.index`, `lambda word: (len(word), word)`."""
    match key:
        case ast.Constant() | ast.Attribute(attr="index"):
            return True
        case ast.Lambda(args=ast.arguments(args=[parameter]), body=body):
            parts = body.elts if isinstance(body, ast.Tuple | ast.List) and body.elts else [body]
            return isinstance(parts[-1], ast.Name) and parts[-1].id == parameter.arg
    return False
