"""What a loop does with the order of what it goes over."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import TypeGuard

from analysis.scan.lint.syntax.arguments import callee, given_to, last
from analysis.scan.lint.syntax.tree import all_of, names_in, nodes_in
from analysis.scan.lint.syntax.walk import Walk
from analysis.scan.lint.vocabulary import WORDS

SORTING = WORDS["sorting"]
SORTER = re.compile(r"^(?!.*(?:arg|un)_?sort).*sort", re.IGNORECASE)
"""A project's own: `natural_sorted`, `sort_by_number`."""
FREE = SORTING | WORDS["counting"]
BARS = frozenset(("tqdm", "track", "progress_bar", "progressbar", "iter"))
"""Functions that give what they are given, one by one."""
APPENDING = frozenset(("append", "extend", "insert"))
OF_FILES = re.compile(r"path|name|file|dest|^(?:dst|out)(?:_|$)", re.IGNORECASE)
"""Names of names of files."""
YIELDING = "yield"
"""Not a name that a list can have."""
SUBMITTING = frozenset(("submit", "apply_async"))
MAPPING = frozenset(("map", "imap", "starmap", "imap_unordered", "map_async", "starmap_async"))
"""Methods of pools, which give a function each of what is their second argument."""
SHOWING = frozenset(
    ("set_description", "set_description_str", "set_postfix", "set_postfix_str", "update", "close")
)
"""Methods of a progress bar, which is what it goes over too."""
READING = re.compile(r"^(?:im)?(?:read|load|open)(?:_\w+)?$|_(?:read|load)$")
TRAINING = frozenset(("backward", "train_on_batch", "apply_gradients", "partial_fit"))
WRITING_ROWS = frozenset(("write", "writelines", "writerow", "writerows"))
SAVING = WORDS["saving"]
TABLES = frozenset(("concat", "concatenate", "vstack", "hstack", "append", "cat", "stack"))
LOGS = re.compile(
    r"log|std(?:out|err)|print|\bbar|report|error|fail|missing|skipped|invalid|warn|(?:re)?moved|deleted|to_?(?:remove|delete)"
    r"|(?:^|_)bad(?:_|$)|corrupt|broken|unreadable",
    re.IGNORECASE,
)
"""What is written for people, or names what is left out."""
PACKED = re.compile(r"^zf?$|zip|archive", re.IGNORECASE)
MODULES = frozenset(("np", "numpy", "pd", "tf", "torch", "cv2"))
"""`np.insert(row, 0, 1)` adds to nothing."""
ADDING = re.compile(r"^_*(?:add|append|insert|extend|register)_\w+$|^_*update_\w*data\w*$")
"""Methods of a project that add to something, by their names."""


def kept_in_order(body: list[ast.stmt]) -> Iterator[str]:
    """The names of lists and tables that the loop adds to; YIELDING where a function yields, "" for another
    way of keeping the order. What is made again in each turn is no matter."""
    inside = bound_in(body)
    others = _others(body, inside)
    counted = {named(node.target) for node in all_of(ast.AugAssign, *body)}
    for node in nodes_in(body):
        if isinstance(node, ast.Yield | ast.YieldFrom):
            yield YIELDING
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            method, to = node.func.attr, named(node.func.value)
            is_usual = to not in MODULES and not LOGS.search(to)
            is_lasting = to not in inside and is_usual
            writes = method in WRITING_ROWS and to and (is_lasting or (is_usual and to in others))
            if method in APPENDING and isinstance(node.func.value, ast.Subscript):
                by_key = named(node.func.value.value)  # `files[category].append(path)`
                if by_key not in inside:
                    yield by_key
            elif method in APPENDING and is_lasting:
                yield to
            elif (
                method in TRAINING
                or (writes and not _packs(node, to))
                or (ADDING.search(method) and node.args and to.startswith("self"))
            ):
                yield ""
        elif isinstance(node, ast.AugAssign) and isinstance(node.value, ast.List | ast.ListComp):
            if named(node.target) not in inside:
                yield named(node.target)
        elif isinstance(node, ast.Assign):
            target = node.targets[0]
            name = named(target)
            if isinstance(target, ast.Subscript):
                if "len" in names_in(node.value) or _is_any(node.value, counted):
                    yield ""  # the next number for the next name
            elif callee(node.value) in TABLES and mentions(node.value, name) and not LOGS.search(name):
                yield name  # `table = pd.concat([table, rows])`


def _others(body: list[ast.stmt], inside: set[str]) -> set[str]:
    """Names that the loop gives to what was there before: `out = positive if label else negative`."""
    return {
        named(node.targets[0])
        for node in all_of(ast.Assign, *body)
        for value in (
            (node.value.body, node.value.orelse) if isinstance(node.value, ast.IfExp) else (node.value,)
        )
        if isinstance(value, ast.Name) and value.id not in inside
    }


def _packs(node: ast.Call, to: str) -> bool:
    """`archive.write(path, name)`: what is in an archive is read by its name."""
    return len(node.args) > 1 or bool(PACKED.search(to))


def numbered(node: ast.For | ast.AsyncFor) -> bool:
    """Whether the loop counts, and what it keeps depends on the count: it stands in an index or in the name
    of a file that is written, or ends the loop where files are."""
    counters = _counters(node)
    if not counters:
        return False
    writes = False
    limits = False
    for inner in nodes_in(node.body):
        if isinstance(inner, ast.Call) and last(inner.func) in SUBMITTING and _has_any(inner, counters):
            return True
        if isinstance(inner, ast.Assign) and any(
            isinstance(part, ast.Subscript)
            and (_names(part.slice) & counters or _is_any(inner.value, counters))
            for target in inner.targets
            for part in (target, getattr(target, "value", None))
        ):
            return True
        if isinstance(inner, ast.Call) and last(inner.func) in SAVING:
            writes = True
            if any(_names(value, indexed(node)) & counters for value in given_to(inner)):
                return True
        elif isinstance(inner, ast.If) and _names(inner.test) & counters and _parts(inner):
            return True
        elif isinstance(inner, ast.If) and any(isinstance(each, ast.Break) for each in inner.body):
            limits = limits or bool(_names(inner.test) & counters)
    return writes and limits


def _parts(node: ast.If) -> bool:
    """`if i % 5: copy(path, train) else: copy(path, test)`: what is in which part of the data."""
    return all(
        any(last(call.func) in SAVING for call in all_of(ast.Call, *body))
        for body in (node.body, node.orelse)
    )


def _counters(node: ast.For | ast.AsyncFor) -> set[str]:
    """The names of what counts the turns, and of what is made of them."""
    found = {
        named(inner.target)
        for inner in all_of(ast.AugAssign, *node.body)
        if isinstance(inner.value, ast.Constant)
    } - bound_in(node.body)
    if callee(node.iter) == "enumerate" and isinstance(node.target, ast.Tuple):
        found.add(named(node.target.elts[0]))
    if indexed(node):
        found.add(named(node.target))
    found.discard("")
    if not found:
        return found
    for inner in all_of(ast.Assign, *node.body):
        if _names(inner.value, indexed(node)) & found:
            targets = {named(target) for target in inner.targets} - {""}
            if _makes_name(inner.value) or any(map(OF_FILES.search, targets)):
                found |= targets
    return found


def joined(node: ast.For | ast.AsyncFor) -> set[str]:
    """The names of lists to which the loop adds its count: `jobs.append((path, number))`."""
    counters = _counters(node)
    return {
        named(inner.func.value)
        for inner in all_of(ast.Call, *(node.body if counters else ()))
        if isinstance(inner.func, ast.Attribute)
        and inner.func.attr in APPENDING
        and _has_any(inner, counters)
    }


def _has_any(node: ast.Call, counters: set[str]) -> bool:
    parts = [
        part
        for value in node.args
        for part in (value.elts if isinstance(value, ast.Tuple | ast.List) else (value,))
    ]
    return any(_is_any(part, counters) for part in parts)


def _is_any(value: ast.expr, names: set[str]) -> bool:
    """`number_of[name] = i`."""
    return isinstance(value, ast.Name) and value.id in names


def _makes_name(value: ast.expr) -> bool:
    """Of a file: by its pieces."""
    return makes_text(value) or callee(value) in ("join", "format", "Path")


def _names(value: ast.AST, listed: str = "") -> set[str]:
    """The names in it, without those of `names[i]` where `names` are listed."""
    if listed and isinstance(value, ast.Subscript) and named(value.value) == listed:
        return set()
    own = {value.id} if isinstance(value, ast.Name) else set()
    return own.union(*(_names(inner, listed) for inner in ast.iter_child_nodes(value)))


def bound_in(body: list[ast.stmt]) -> set[str]:
    """The names that are given a new value in each turn, from something other than themselves."""
    found = set()
    for node in all_of(ast.Assign, *body):
        if not any(mentions(node.value, named(target)) for target in node.targets):
            found |= {named(target) for target in node.targets}
    for block in all_of(ast.With, *body):
        found |= {named(item.optional_vars) for item in block.items if item.optional_vars}
    return found - {""}


def sorts(body: list[ast.stmt]) -> bool:
    return any(last(call.func) in ("sort", "sorted", "natsorted") for call in all_of(ast.Call, *body))


def reads_files(node: ast.expr) -> bool:
    """`np.load(name)` of `[np.load(name) for name in names]`: data are read in the order of the names."""
    return any(READING.search(last(call.func)) for call in all_of(ast.Call, node))


def iterated(node: ast.expr) -> ast.expr:
    """`names` of `enumerate(tqdm(names))`, `pool.imap(convert, names)`."""
    while isinstance(node, ast.Call) and node.args:
        if last(node.func).lower() in BARS | {"enumerate"}:
            node = node.args[0]
        elif is_mapping(node):
            node = node.args[1]
        else:
            break
    return node


def indexed(node: ast.For | ast.AsyncFor) -> str:
    """`names` of `for i in range(len(names))`, also from 0."""
    match node.iter:
        case ast.Call(
            func=ast.Name(id="range"),
            args=[ast.Call(func=ast.Name(id="len"), args=[of])]
            | [ast.Constant(value=0), ast.Call(func=ast.Name(id="len"), args=[of])],
        ):
            return named(of)
    return ""


def is_mapping(node: ast.Call) -> bool:
    """`pool.map(convert, names)`."""
    return isinstance(node.func, ast.Attribute) and node.func.attr in MAPPING and len(node.args) > 1


def is_unused(node: ast.expr) -> bool:
    """Whether nobody uses what is listed, or the results of a pool: `os.listdir(folder)` as a statement,
    `list(pool.map(f, names))`, `Parallel()(delayed(f)(name) for name in names)`."""
    while isinstance(node, ast.Call) and node.args and last(node.func).lower() in BARS | {"list", "tuple"}:
        node = node.args[0]
    return isinstance(node, ast.Call) and (
        is_mapping(node) or last(node.func) in ("listdir", "glob", "iglob") or callee(node.func) == "Parallel"
    )


def is_numbering(node: ast.expr) -> TypeGuard[ast.DictComp]:
    """`{name: number for number, name in enumerate(names)}`."""
    return isinstance(node, ast.DictComp) and callee(node.generators[0].iter) == "enumerate"


def makes_text(value: ast.expr) -> bool:
    """`name + str(number)`, `f"{name}_{number}"`, `name.split("_")[0]`, and lists of such."""
    if isinstance(value, ast.ListComp):
        return makes_text(value.elt)
    if isinstance(value, ast.Subscript):
        return callee(value.value) in ("split", "rsplit")
    if isinstance(value, ast.BinOp):
        return isinstance(value.op, ast.Add) and (makes_text(value.left) or makes_text(value.right))
    return isinstance(value, ast.JoinedStr) or callee(value) == "str"


def named(node: ast.expr) -> str:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self":
        return f"self.{node.attr}"
    return ""


def sorted_of(walk: Walk, value: ast.expr) -> str:
    """`x` of `sorted(x)`, and of `[x[i] for i in np.argsort(numbers)]`."""
    match value:
        case ast.ListComp(elt=ast.Subscript(value=sorts), generators=[generator]) if (
            walk.names.resolve(generator.iter) == "numpy.argsort()"
        ):
            return named(sorts)
    if not isinstance(value, ast.Call) or not value.args:
        return ""
    if walk.names.resolve(value.func) in FREE or SORTER.search(last(value.func)):
        return named(value.args[0])
    return ""


def mentions(value: ast.AST, name: str) -> bool:
    return any(named(node) == name for node in all_of(ast.expr, value))
