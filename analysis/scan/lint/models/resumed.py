"""Models that a program loads where an earlier run has left them, and trains further (VB106)."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence

from analysis.scan.lint.syntax.arguments import given_to, last, text_of
from analysis.scan.lint.syntax.choices import Function
from analysis.scan.lint.syntax.tree import all_of, nodes_in, nodes_of

EXISTS = re.compile(r"\b(?:exists|is_?file)\b")
LOADING = re.compile(r"load|restore|resume|^from_|^YOLO$", re.IGNORECASE)
SAVING = re.compile(r"^_*(?:save|dump|write|store|export)", re.IGNORECASE)
TRAINING = re.compile(r"(?:^|_)(?:train(?!_test)|fit|learn)|^backward$|^step$")
OF_MODELS = re.compile(
    r"model|net|ckpt|checkpoint|weight|agent|policy|optim|state_dict|\.pth?\b|\.h5\b|\.keras|clf|classif|YOLO",
    re.IGNORECASE,
)
OF_LAST = re.compile(r"(?:^|_|\b)(?:last|latest|resume)", re.IGNORECASE)
"""Names of what the last run left, whoever writes it."""
SAYING = re.compile(r"(?<!not )\b(?:resum(?:e|ing)|continu(?:e|ing)(?: the)? training)\b", re.IGNORECASE)
"""What is said where training goes on."""
TELLING = re.compile(r"^(?:print|write|log|info|warning|warn|debug)$")
SIMPLE = 20
"""How many nodes a path is made of at most."""


def resumed(body: Sequence[ast.stmt]) -> Iterator[tuple[ast.If, str]]:
    """The tests, in no branch, whether something is there that is then loaded and trained, and that the file
    saves further on, calls the last or says to go on with; each with the name of what is loaded."""
    saved: dict[str, int] = {}  # what is saved: the last line
    for call in _calls(body, SAVING):
        for name in _given(call):
            saved[name] = max(call.lineno, saved.get(name, 0))
    for scope in (body, *(node.body for node in nodes_in(body) if isinstance(node, Function))):
        trained = max((call.lineno for call in _calls(scope, TRAINING)), default=0)
        for node in _unconditional(scope):
            if isinstance(node, ast.If) and (path := _tested(node.test)) and _loads(node.body, path):
                end = node.end_lineno or 0
                trains = trained > end or any(_calls(node.body, TRAINING))
                if trains and (saved.get(path, 0) > end or OF_LAST.search(path) or _says(node.body)):
                    yield node, path


def _calls(body: Sequence[ast.AST], of: re.Pattern[str]) -> Iterator[ast.Call]:
    return (call for call in all_of(ast.Call, *body) if of.search(last(call.func)))


def _unconditional(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    for node in body:
        if isinstance(node, ast.With | ast.Try):
            yield from _unconditional(node.body)
        else:
            yield node


def _tested(test: ast.expr) -> str:
    """`path` of `os.path.exists(path)`, `os.path.exists(str(path))` and `path.is_file()`."""
    match test:
        case ast.Call(
            func=function, args=[ast.Call(func=ast.Name(id="str" | "Path"), args=[path])] | [path]
        ) if EXISTS.fullmatch(last(function)):
            return text_of(path)
        case ast.Call(func=ast.Attribute(value=path, attr=kind), args=[]) if EXISTS.fullmatch(kind):
            return text_of(path)
    return ""


def _says(body: Sequence[ast.stmt]) -> bool:
    return any(SAYING.search(text_of(call)) for call in _calls(body, TELLING))


def _loads(body: Sequence[ast.stmt], path: str) -> bool:
    """Whether it is loaded as a model, and something follows."""
    if any(isinstance(node, ast.Return | ast.Raise) for node in nodes_in(body)):
        return False
    loading = (each for each in body if any(path in _given(call) for call in _calls([each], LOADING)))
    return any(OF_MODELS.search(text_of(each)) for each in loading)


def _given(node: ast.Call) -> Iterator[str]:
    """The texts of arguments that are names, attributes, texts or simple calls: `str(path)`, `open(path)`."""
    for value in given_to(node):
        inner = value.args if isinstance(value, ast.Call) else []
        yield from map(text_of, [each for each in (value, *inner) if len(nodes_of(each)) <= SIMPLE])
