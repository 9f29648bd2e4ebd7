"""Models that a program loads where an earlier run has left them, and trains further (VB106)."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set

from analysis.scan.lint.syntax.arguments import dotted, given_to, last, parameters, text_of
from analysis.scan.lint.syntax.bindings import is_main_guard
from analysis.scan.lint.syntax.choices import Function
from analysis.scan.lint.syntax.tree import all_of, names_in, nodes_in, nodes_of

EXISTS = re.compile(r"\b(?:exists|is_?file)\b")
LAST = re.compile(r"\b(?:latest_checkpoint|get_checkpoint_state)\b")
"""What TensorFlow has for the last checkpoint of a folder, if there is one."""
REMOVES = re.compile(r"\b(?:rmtree|DeleteRecursively|mkdtemp|TemporaryDirectory)\b")
"""In a file with these, no folder of an earlier run need be left."""
RESTORING = re.compile(r"^(?:restore|load_weights)$")
STEP = re.compile(r"train|opt(?:im|\b)|solver|(?:^|_)step")
"""What a session runs that trains."""
OF_OTHERS = re.compile(r"pre_?train|init|base|teacher|source|from|tune", re.IGNORECASE)
"""Names of folders that a program does not write."""
LOADING = re.compile(r"load|restore|resume|^from_|^YOLO$", re.IGNORECASE)
SAVING = re.compile(r"^_*(?:save|dump|write|store|export)", re.IGNORECASE)
TRAINING = re.compile(r"(?:^|_)(?:train(?!_test)|fit|learn)|^backward$|^step$")
OF_MODELS = re.compile(
    r"model|net|ckpt|checkpoint|weight|agent|policy|optim|state_dict|\.pth?\b|\.h5\b|\.keras|clf|classif|YOLO",
    re.IGNORECASE,
)
OF_WEIGHTS = re.compile(r"^(?:load_state_dict|load_weights|set_weights)$")
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
    for scope in _scopes(body):
        trained = max((call.lineno for call in _calls(scope, TRAINING)), default=0)
        for node in _unconditional(scope):
            if isinstance(node, ast.If) and (path := _tested(node.test)) and _loads(node.body, path):
                end = node.end_lineno or 0
                trains = trained > end or any(_calls(node.body, TRAINING))
                if trains and (saved.get(path, 0) > end or OF_LAST.search(path) or _says(node.body)):
                    yield node, path


def restored(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements, in no branch but whether there is one, that restore the last checkpoint of TensorFlow
    before a training, or call a method of their class that does."""
    for scope in _scopes(body):
        yield from _before_training(scope, _restoring(scope))
    for owner in all_of(ast.ClassDef, *body):
        methods = [each for each in owner.body if isinstance(each, Function)]
        by = {each.name for each in methods if any(_restoring(each.body)) and not _last_training(each.body)}
        for each in methods if by else ():
            yield from _before_training(
                each.body, (n for n in _unconditional(each.body) if _calls_own(n, by))
            )


def _before_training(scope: Sequence[ast.stmt], nodes: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    trained = _last_training(scope)
    return (node for node in nodes if trained > (node.end_lineno or 0))


def _last_training(scope: Sequence[ast.stmt]) -> int:
    """The last line that trains, of TensorFlow 1 `session.run(train_op)`; 0 without one."""
    return max(
        (
            call.lineno
            for call in all_of(ast.Call, *scope)
            if TRAINING.search(name := last(call.func))
            or (name == "run" and call.args and STEP.search(text_of(call.args[0])))
        ),
        default=0,
    )


def _restoring(scope: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    found: dict[str, str] = {}  # names that stand for a last checkpoint: what gave it
    for node in _unconditional(scope):
        match node:
            case ast.If(test=test, body=body) if _is_last(test, found):
                if any(_calls(body, RESTORING)):
                    yield node
            case ast.Expr(value=value) | ast.Assign(value=value):
                calls = [*_calls([value], RESTORING)]
                if any(_is_last(each, found) for call in calls for each in given_to(call)):
                    yield node
                elif isinstance(node, ast.Assign) and not calls and _is_last(value, found):
                    found[last(node.targets[0])] = text_of(value)


def _calls_own(node: ast.stmt, methods: Set[str]) -> bool:
    """`self.load(folder)`, `if self.load(folder): ...`."""
    part = node.test if isinstance(node, ast.If) else getattr(node, "value", None)
    return part is not None and any(
        last(call.func) in methods and dotted(call.func) == "self" for call in all_of(ast.Call, part)
    )


def _is_last(value: ast.expr, found: Mapping[str, str]) -> bool:
    """Whether an expression has a last checkpoint, of a folder that may be the program's own."""
    texts = [text_of(value), *(found[name] for name in names_in(value) if name in found)]
    return any(map(LAST.search, texts)) and not any(map(OF_OTHERS.search, texts))


def loads_if_there(function: Function) -> list[tuple[int, str]]:
    """The parameters, by place and name, that say where a model is that a function loads if it is there."""
    made = {last(node.targets[0]): node.value for node in function.body if isinstance(node, ast.Assign)}
    places = {each.arg: place for place, (each, _) in enumerate(parameters(function.args))}
    body = [*_unconditional(function.body)]
    for number, node in enumerate(body, 1):
        match node:
            case ast.If(test=ast.UnaryOp(op=ast.Not(), operand=test), body=[*_, ast.Return()]):
                path, part = _tested(test), body[number:]
            case ast.If(test=test):
                path, part = _tested(test), node.body
            case _:
                continue
        if path and _loads_model(part, path):
            words = re.findall(r"\w+", text_of(made[path]) if path in made else path)
            return [(places[word], word) for word in dict.fromkeys(words) if word in places]
    return []


def handed_back(body: Sequence[ast.stmt]) -> Iterator[tuple[ast.Call, dict[int | str, str]]]:
    """The calls, in no branch and before a training, of what loads by its name; each with the arguments that
    are given to what saves further on."""
    saved: list[tuple[str, int]] | None = None
    for scope in _scopes(body):
        for node in _unconditional(scope):
            call = getattr(node, "value", None)
            if not isinstance(call, ast.Call) or not LOADING.search(last(call.func)):
                continue
            if saved is None:
                saved = [(name, each.lineno) for each in _calls(body, SAVING) for name in _given(each)]
            end = call.end_lineno or 0
            later = {name for name, line in saved if line > end}
            given: dict[int | str, ast.expr] = dict(enumerate(call.args))
            given |= {each.arg: each.value for each in call.keywords if each.arg}
            names = {place: name for place, value in given.items() if (name := text_of(value)) in later}
            if names and any(each.lineno > end for each in _calls(scope, TRAINING)):
                yield call, names


def _scopes(body: Sequence[ast.stmt]) -> Iterator[Sequence[ast.stmt]]:
    yield body
    yield from (node.body for node in nodes_in(body) if isinstance(node, Function))


def _calls(body: Sequence[ast.AST], of: re.Pattern[str]) -> Iterator[ast.Call]:
    return (call for call in all_of(ast.Call, *body) if of.search(last(call.func)))


def _unconditional(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    for node in body:
        if isinstance(node, ast.With | ast.Try) or (isinstance(node, ast.If) and is_main_guard(node.test)):
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
    return _loads_model(body, path)


def _loads_model(body: Sequence[ast.stmt], path: str) -> bool:
    loading = [each for each in body if any(path in _given(call) for call in _calls([each], LOADING))]
    return any(OF_MODELS.search(text_of(each)) for each in loading) or (
        bool(loading) and any(_calls(body, OF_WEIGHTS))
    )


def _given(node: ast.Call) -> Iterator[str]:
    """The texts of arguments that are names, attributes, texts or simple calls: `str(path)`, `open(path)`."""
    for value in given_to(node):
        inner = value.args if isinstance(value, ast.Call) else []
        yield from map(text_of, [each for each in (value, *inner) if len(nodes_of(each)) <= SIMPLE])
