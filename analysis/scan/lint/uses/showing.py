"""What is drawn to show something: examples that are played or saved beside a metric, names of files."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Iterator, Sequence

from analysis.scan.lint.syntax.arguments import callee, last, lines_of, root
from analysis.scan.lint.syntax.choices import Function
from analysis.scan.lint.syntax.tree import all_of, nodes_in, nodes_of
from analysis.scan.lint.vocabulary import WORDS

SHOWING = re.compile(
    r"listen|play|show|display|print|plot|\bdraw_|visuali[sz]e|preview|^Audio$|^Image$|^(?:title|axis|figure|subplot)$",
    re.IGNORECASE,
)
"""Functions that show something."""
OF_EXAMPLES = re.compile(
    r"save|sampl|exampl|(?:^|_)(?:vis|viz|show|plot|demo|log|display|preview)", re.IGNORECASE
)
"""Names of numbers of what is kept to look at."""
SAVING = re.compile(r"save|write|dump|^log|^Image$", re.IGNORECASE)
"""Functions that keep something under a name, or show what was kept."""
READING = re.compile(r"^(?:(?:im)?read\w*|open|load_im\w*|cvtColor|next|iter|sample|choices?|join)$")
"""Functions that read a picture or choose one."""
FIGURES = frozenset(("plt", "sns", "ax", "axs", "axes", "axarr", "fig", "px"))
"""What figures are drawn with, by their usual names."""
TELLING = frozenset(("print", "display"))
OF_TABLES = WORDS["looking"]
"""Methods of a table after which it is still only looked at."""
COUNTING = WORDS["telling"]
"""What a text of something that is shown may ask it."""


def shown_lines(
    body: Sequence[ast.stmt], kept_in_order: Callable[[list[ast.stmt]], Iterator[str]], *, is_notebook: bool
) -> set[int]:
    """The lines of assignments to names that are only read to show something, or in the name of a file, of
    what is shown at once, of what loops go over that keep its order only for that, and of what answers those
    who ask a service."""
    lines: set[int] = set()
    for function in body:
        if isinstance(function, Function) and any(map(_asks, function.decorator_list)):
            lines.update(lines_of(function))
    for place, scope in enumerate(_scopes(body)):
        is_closed = is_notebook or place > 0  # no other file reads its names
        harmless = {id(name) for node in scope for name in _harmless(node)}
        reads: dict[str, list[ast.Name]] = {}  # of names that are the scope's own: others may read more
        for node in scope:
            if isinstance(node, ast.arg) or (isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)):
                reads.setdefault(node.arg if isinstance(node, ast.arg) else node.id, [])
        for node in scope:
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id in reads:
                reads[node.id].append(node)

        def is_left(name: str, reads: dict[str, list[ast.Name]] = reads, known: set[int] = harmless) -> bool:
            return name in reads and all(id(each) in known for each in reads[name])

        def is_shown(name: str, reads: dict[str, list[ast.Name]] = reads, known: set[int] = harmless) -> bool:
            return bool(reads.get(name)) and is_left(name, reads, known)

        for node in scope:
            kept = set(kept_in_order(node.body)) if isinstance(node, ast.For) else set()
            if isinstance(node, ast.For) and kept and all(map(is_shown, kept)):
                lines.update(lines_of(node.iter))
                harmless |= set(map(id, all_of(ast.Name, node.iter)))

        assigned = [node for node in scope if isinstance(node, ast.Assign)]
        for node in reversed(assigned):  # a batch, or some files, that are only shown
            names = _names(node.targets[0])
            if _only_reads(node.value) and all(map(is_shown, names)):
                harmless |= set(map(id, all_of(ast.Name, node.value)))
            elif is_closed and _resamples(node.value) and all(map(is_left, names)):
                harmless |= set(map(id, all_of(ast.Name, node.value)))
                lines.update(lines_of(node))
        for node in assigned:
            target = node.targets[0]
            if isinstance(target, ast.Name) and is_shown(target.id):
                lines.update(lines_of(node))
        for node in scope:
            for value in _shown_at_once(node):
                lines.update(lines_of(value))
    return lines


def _asks(decorator: ast.expr) -> bool:
    """`@app.get("/history")`."""
    return callee(decorator) == "get"


def _names(target: ast.expr) -> list[str]:
    """The names of `x, y`; "", which nobody reads, for others."""
    elements = target.elts if isinstance(target, ast.Tuple | ast.List) else [target]
    return [each.id if isinstance(each, ast.Name) else "" for each in elements]


def _only_reads(value: ast.expr) -> bool:
    """`next(iter(loader))`, `cv2.imread(files[0])`: nothing is computed that could be more than a picture."""
    calls = [last(call.func) for call in all_of(ast.Call, value)]
    return bool(calls) and all(map(READING.search, calls))


def _resamples(value: ast.expr) -> bool:
    """`SMOTE().fit_resample(x, y)`."""
    return callee(value) in ("fit_resample", "fit_sample")


def _shown_at_once(node: ast.AST) -> Iterator[ast.expr]:
    """`table.sample(5)` as a statement, whose value a notebook shows, in `print(...)`, or row by row."""
    match node:
        case ast.Expr(value=value):
            args = value.args if isinstance(value, ast.Call) and last(value.func) in TELLING else [value]
            yield from filter(_is_sample, args)
        case ast.For(iter=value, body=body) if all(map(_shows, body)) and _is_sample(value):
            yield value


def _is_sample(value: ast.expr) -> bool:
    """`table.sample(5)`, `table.sample(5)[columns].T`, `table.sample(5).iterrows()`."""
    while True:
        match value:
            case ast.Call(func=ast.Attribute(attr="sample")):
                return True
            case ast.Call(func=ast.Attribute(value=inner, attr=method)) if method in OF_TABLES:
                value = inner
            case ast.Subscript(value=inner) | ast.Attribute(value=inner):
                value = inner
            case _:
                return False


def _scopes(body: Sequence[ast.stmt]) -> Iterator[list[ast.AST]]:
    """All nodes of the module, of which functions may read names, and of each function."""
    every = [*nodes_in(body)]
    yield every
    for node in every:
        if isinstance(node, Function):
            yield nodes_of(node)


def _harmless(node: ast.AST) -> Iterator[ast.Name]:
    """The names that a node reads to show something, or in the name of a file."""
    match node:
        case ast.Call(func=function) if root(function) in FIGURES:
            yield from all_of(ast.Name, node)
        case ast.Call(func=ast.Name(id="len"), args=[ast.Name() as name]):
            yield name
        case ast.Call(func=ast.Attribute(value=ast.Name() as name, attr="append" | "extend")):
            yield name
        case ast.For(iter=iterated, body=body) if all(map(_shows, body)):
            yield from all_of(ast.Name, iterated)
        case ast.If(test=ast.Compare(ops=[ast.In()], comparators=[ast.Name(id=text) as name]), orelse=[]):
            if OF_EXAMPLES.search(text):
                yield name
        case ast.Call(func=function, args=args) if SAVING.search(last(function)):
            for part in all_of(ast.FormattedValue, *args):
                if isinstance(part.value, ast.Name):
                    yield part.value
        case ast.Call(func=ast.Name(id="print"), args=args):
            yield from _told(args)
        case ast.Expr(value=ast.Call() | ast.Name() | ast.Attribute() | ast.Subscript() as value):
            yield from _told([value])


def _shows(node: ast.stmt) -> bool:
    """`play(samples[i])`, `axes[i].imshow(samples[i])`; what is computed to be printed is a result."""
    if not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)):
        return False
    calls = [last(call.func) for call in all_of(ast.Call, node.value)]
    if "print" in calls:
        return COUNTING.issuperset(set(calls) - {"print"})
    return bool(SHOWING.search(last(node.value.func))) or root(node.value.func) in FIGURES


def _told(values: Iterable[ast.AST]) -> Iterator[ast.Name]:
    """The names in what is printed, without those of which something else is computed."""
    for value in values:
        if isinstance(value, ast.Name):
            yield value
        elif not isinstance(value, ast.Call) or last(value.func) in COUNTING:
            yield from _told(ast.iter_child_nodes(value))
