"""What has no defined order, by its names: listings of files, sets, results as they become ready."""

from __future__ import annotations

import ast
import re
from typing import Any, NamedTuple

from analysis.scan.lint.order.queries import ASKING, GIVING, READERS
from analysis.scan.lint.syntax.arguments import callee, last
from analysis.scan.lint.syntax.walk import Walk
from analysis.scan.lint.vocabulary import WORDS
from analysis.scan.results import Level

SET, LISTING, FROM_SET, UNORDERED, QUERY = "set", "VB301", "VB302", "VB304", "VB305"
# Names that tell whether an order is defined, kept, or of no matter.
LISTINGS = WORDS["listings"]
WALKS = frozenset(("os.walk", "tensorflow.io.gfile.walk", "tensorflow.gfile.Walk"))
PATH_METHODS = frozenset(("iterdir", "rglob"))
NUMBERS = re.compile(
    r"(?:^|_)(?:ids?|idxs?|index|indexes|indices|positions|ranks|epochs|steps|dims|axes|axis|sizes|lengths|counts|labels?|nodes)(?:_|$)"
)
"""Names of whole numbers, whose order in a set does not change from process to process."""
NO_DATA = re.compile(
    r"check_?points?|ckpt|weights?\b|weight_|\.pth?\b|\.h5\b|events\.|\.(?:log|cpp|cu|c|sh|zip|tar)\b|\blogs?\b|runs\b|cache|experiment|"
    r"delete|remove|clean_?up|latest|newest|download|unzip|extract_all|rename|copy|"
    r"(?:load|read|collect|get|gather|aggregate|summari[sz]e|compare)_(?:\w+_)?results?(?![a-z])|leader_?board|"
    r"(?:^|[ ._])_*(?:plot|show|visuali[sz]e|vis|display|preview|inspect|demo|clean)(?:_\w*)?$",
    re.IGNORECASE,
)
"""Names that have to do with files that are no data, or with what leaves their order behind."""
NUMBERED = re.compile(r"(?:2|_to_)(?:id|idx|ix|int|index|i)(?:es|s)?$|vocab(?:ulary)?$|^stoi$", re.IGNORECASE)
HELD_OUT = re.compile(
    r"(?<![a-z])(?:test|tests|testing|val|valid|validation|query|gallery|eval|evaluation|infer|inference|predict\w*)(?![a-z])",
    re.IGNORECASE,
)
"""Names of data that are evaluated one by one: no metric depends on their order."""
KEEPING = WORDS["keeping"]
FINDING = re.compile(
    r"^_*(?:find|get_(?:ckpt|latest|checkpoint)|check|remove|delete|latest|select|exists|is|has|contains|validate|verify|assert|print|log|plot|show|display|"
    r"visuali[sz]e|preview)_?\w*$"
)
"""Functions that choose, test, tell or show."""
READY = frozenset(("concurrent.futures.as_completed", "asyncio.as_completed"))
METHODS = PATH_METHODS | {"glob", "imap_unordered"} | ASKING | GIVING
OF_INTEREST = LISTINGS | KEEPING | READY | READERS
FREE_METHODS = WORDS["free_methods"]
"""Methods that keep no order, or only that of a text."""
TEXTS = re.compile(
    r"word|token|char|texts?\b|name|author|vocab|tags?\b|path|file|\bdirs?\b|stem|lower|split|strip|\bstr\b|title|categor|species|"
    r"columns?\b|(?:^|_)cols\b|genes?\b|metrics?\b|speaker|symbol|dumps|lang|relation|entit|subject|sentence|letter|string|smiles|unique_pairs|(?:sub|super|diagnostic_)class|\[['\"](?!\w*(?:id|idx|index|year)\b)"
    r"|^['\"]",
    re.IGNORECASE,
)
"""What has to do with texts, whose order in a set changes from process to process."""


_NUMBERED_BY = re.compile(
    r"\b(?:id|idx|ix|index|int)(?:2|_to_|_2_)[a-z]\w*\b(?:\.keys\(\))?(?![.\[])", re.IGNORECASE
)


def is_of_texts(text: str) -> bool:
    """Whether an expression has to do with texts; the keys of `id2word` are numbers."""
    return bool(TEXTS.search(_NUMBERED_BY.sub("", text)))


_WILDCARD = re.compile(r"[*?\[]|pattern", re.IGNORECASE)


class Pending(NamedTuple):
    """Something in no order that has a name, and may still be sorted."""

    rule: str
    node: Any
    text: str
    looped: bool = False  # a loop over it kept its order


def is_no_data(walk: Walk, node: ast.Call) -> bool:
    """Whether what is listed are checkpoints, logs and the like, as far as the names tell; or one file, by a
    pattern that fits no other."""
    return _fits_one_file(node) or bool(NO_DATA.search(f"{_named(walk, node)} {walk.scope}"))


def is_held_out(walk: Walk, node: ast.Call) -> bool:
    """Whether what is listed are data of which only metrics are computed, as far as the names tell."""
    listed = _named(walk, node)
    return bool(HELD_OUT.search(listed)) and not re.search("train", listed, re.IGNORECASE)


def _named(walk: Walk, node: ast.Call) -> str:
    return f"{ast.unparse(node)} {walk.target}"


def _fits_one_file(node: ast.Call) -> bool:
    """`glob(join(folder, "rows.csv"))`."""
    if not node.args or last(node.func) not in ("glob", "iglob"):
        return False
    pattern = node.args[0]
    parts = pattern.args if isinstance(pattern, ast.Call) and last(pattern.func) == "join" else [pattern]
    name = parts[-1] if parts else None
    is_text = isinstance(name, ast.Constant) and isinstance(name.value, str)
    return is_text and not _WILDCARD.search(ast.unparse(pattern))


def walked(walk: Walk, node: ast.expr) -> ast.Call | None:
    """`os.walk(folder)` of `next(os.walk(folder))`: a folder, and what is in it in no order."""
    match node:
        case ast.Call(args=[ast.Call(func=inner) as listing]) if walk.names.resolve(inner) in WALKS:
            is_next = walk.names.resolve(node.func) == "builtins.next"
            is_left = is_no_data(walk, listing) or is_held_out(walk, listing)
            return listing if is_next and not is_left else None
    return None


def steps_of(node: ast.expr) -> ast.expr:
    """`os.walk(folder)` of `sorted(os.walk(folder))`, which sorts the steps and not what is in them."""
    match node:
        case ast.Call(func=ast.Name("sorted"), args=[ast.Call() as inner]) if last(inner.func) == "walk":
            return inner
    return node


def is_filtered(value: ast.expr) -> bool:
    """`[f for f in files if f.startswith(prefix)]`, by something other than its kind of file."""
    if not isinstance(value, ast.ListComp):
        return False
    tests = [
        part
        for test in value.generators[0].ifs
        for part in (test.values if isinstance(test, ast.BoolOp) else [test])
    ]
    return any("endswith" not in ast.unparse(test) for test in tests)


def is_numbering_of_texts(target: str) -> bool:
    """`tag2id = {tag: i for i, tag in enumerate(set(tags))}`: numbers need no numbers."""
    return bool(NUMBERED.search(target))


def described(rule: str, node: Any, text: str, looped: bool = False) -> tuple[str, Any, str, Level | None]:
    """A note where the order is only handed on: what is done with it elsewhere decides. A loop, or numbers
    that are given in it, keep it."""
    why = {
        LISTING: f"{text} gives names in no defined order, and the order is kept",
        FROM_SET: f"the order of {text} changes with PYTHONHASHSEED, and it is kept",
        UNORDERED: f"{text} gives results as they become ready, and that order is kept",
        QUERY: f"without ORDER BY {text} may give rows in any order, and the order is kept",
    }[rule]
    plain = callee(node) in ("list", "tuple")
    handed_on = not looped and (rule == LISTING or (rule == FROM_SET and plain))
    return rule, node, why, Level.NOTE if handed_on else None
