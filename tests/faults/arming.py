"""Puts a statement of the test's own before or after a statement of the product, in a process that is about
to run it. The product holds no hooks, only comments that name its points: the function's code is compiled
again, with the statement in it, and replaces the code that it had.

Imports nothing but the standard library: it is also used inside guests."""

from __future__ import annotations

import ast
import contextlib
import functools
import importlib
import inspect
import io
import os
import signal
import tokenize
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any, Literal

SSHD_PID = "VBSTUDY_TEST_SSHD"  # the environment variable that names sshd's file with its number
DUE, HAPPEN = "__due__", "__happen__"  # what an inserted statement calls
MARKER = "# point: "
REPOSITORY = Path(__file__).parents[2]
MARKED = ("guest", "orchestrator", "analysis", "vbstudy", "tests/faults")  # folders that may have points


class NoSuchPointError(Exception):
    """A point that the product does not have, or has twice; the text names it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Before or after the statement that the comment `# point: POINT` marks (on its first line, or on the
    line above it), or first `inside` it (of a `with`, `if`, loop). Only where `when`, an expression over the
    names there, holds. `doing`, statements over the same names on one line, are run when it happens."""

    point: str
    where: Literal["before", "after", "inside"] = "before"
    when: str = "True"
    doing: str = "pass"


def insert(
    places: Mapping[str, Place],
    due: Callable[[str], bool],
    happen: Callable[[str], None] = lambda name: None,
) -> None:
    """From now on `due(name)` is asked at each of the places; where it says so, `doing` is done and `happen`
    called. To be used once a process. Raises NoSuchPointError."""
    modules = {key: module_of(place.point) for key, place in places.items()}
    for name in sorted(set(modules.values())):
        module = importlib.import_module(name)
        source = inspect.getsource(module)
        tree = ast.parse(source)
        here = {key: place for key, place in places.items() if modules[key] == name}
        found = {
            key: _find(tree, source, place.point) for key, place in here.items()
        }  # all, before any is inserted
        functions = {_function_around(tree, statement) for _, statement in found.values()}
        for key, (body, statement) in found.items():
            _insert(key, here[key], body, statement)
        compiled = compile(ast.fix_missing_locations(tree), str(module.__file__), "exec")
        for qualified in functions:
            _function(module, qualified).__code__ = next(_codes(compiled, qualified))
        vars(module)[DUE], vars(module)[HAPPEN] = due, happen


def exists(place: Place) -> None:
    """Raises NoSuchPointError unless the point is there, once and in a function."""
    module = importlib.import_module(module_of(place.point))
    source = inspect.getsource(module)
    tree = ast.parse(source)
    body, statement = _find(tree, source, place.point)
    _function(module, _function_around(tree, statement))
    _insert("", place, body, statement)


@functools.cache
def marked() -> dict[str, str]:
    """The source of every module of the repository that has points."""
    paths = [path for folder in MARKED for path in sorted((REPOSITORY / folder).rglob("*.py"))]
    sources = {
        ".".join(path.relative_to(REPOSITORY).with_suffix("").parts): path.read_text() for path in paths
    }
    return {module: source for module, source in sources.items() if MARKER in source}


def points(source: str) -> list[str]:
    return [name for name, _, _ in _markers(source)]


def module_of(point: str) -> str:
    found = [module for module, source in marked().items() for _ in range(source.count(f"{MARKER}{point}\n"))]
    if len(found) != 1:
        raise NoSuchPointError(f"{MARKER}{point} is there {len(found)} times, 1 is needed")
    return found[0]


def _markers(source: str) -> Iterator[tuple[str, int, bool]]:
    """Name and line of each marker, and whether it has the line to itself."""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT and token.string.startswith(MARKER):
            alone = token.line.lstrip().startswith("#")
            yield token.string.removeprefix(MARKER), token.start[0], alone


def _find(tree: ast.Module, source: str, point: str) -> tuple[list[ast.stmt], ast.stmt]:
    line, alone = next((line, alone) for name, line, alone in _markers(source) if name == point)
    statements = [(body, statement) for body in _bodies(tree) for statement in body]
    if alone:
        return min((each for each in statements if each[1].lineno > line), key=lambda each: each[1].lineno)
    return next(each for each in statements if each[1].lineno == line)


def _function_around(tree: ast.Module, statement: ast.stmt) -> str:
    """The qualified name of the outermost function that holds a statement."""
    inside: Any = tree
    names = []
    while not isinstance(inside, ast.FunctionDef):
        try:
            inside = next(
                node
                for node in inside.body
                if isinstance(node, ast.FunctionDef | ast.ClassDef) and statement in ast.walk(node)
            )
        except StopIteration:
            raise NoSuchPointError(f"line {statement.lineno} is not in a function") from None
        names.append(inside.name)
    return ".".join(names)


def _function(module: Any, qualified: str) -> FunctionType:
    found = module
    for part in qualified.split("."):
        found = inspect.unwrap(getattr(found, part))
    assert isinstance(found, FunctionType)
    return found


def _insert(name: str, place: Place, body: list[ast.stmt], statement: ast.stmt) -> None:
    condition = f"({place.when}) and {DUE}({name!r})"
    added = ast.parse(f"if {condition}:\n    {place.doing}\n    {HAPPEN}({name!r})").body
    index = next(i for i, each in enumerate(body) if each is statement)
    if place.where == "inside":
        body, index = statement.body, 0  # type: ignore[attr-defined]
    elif place.where == "after":
        index += 1
    body[index:index] = added


def _bodies(node: ast.AST) -> Iterator[list[ast.stmt]]:
    """All lists of statements in a module."""
    for each in ast.walk(node):
        for field in ("body", "orelse", "finalbody"):
            body = getattr(each, field, None)
            if isinstance(body, list):
                yield body


def _codes(code: CodeType, qualified: str) -> Iterator[CodeType]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            if constant.co_qualname == qualified:
                yield constant
            yield from _codes(constant, qualified)


# ---- what happens there ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Mishap:
    """What happens at the `nth` time that the place is reached, and never again: what the place is `doing`;
    then `victim` is killed (this process, its process group, all processes of the guest, the sshd that it is
    reached by), or an OSError is raised with the number `error`."""

    name: str
    place: Place
    nth: int = 1
    victim: Literal["nobody", "self", "group", "guest", "sshd"] = "nobody"
    error: int = 0

    @property
    def file(self) -> str:
        """By which it is known to have happened."""
        return self.name.replace(" ", "-").replace("/", "-")


def arm(mishap: Mishap, folder: Path) -> None:
    """It will happen in this process, or in one that this one forks, unless it did already."""
    times = 0

    def due(name: str) -> bool:
        nonlocal times
        times += 1
        return times == mishap.nth and first(folder / mishap.file)

    insert({mishap.name: mishap.place}, due, lambda name: befall(mishap))


def befall(mishap: Mishap) -> None:
    """What is left to happen after `doing`."""
    kill(mishap.victim)
    if mishap.error:
        raise OSError(mishap.error, os.strerror(mishap.error))


def first(path: Path) -> bool:
    """True for one caller, whichever process it is in."""
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True


def kill(victim: str) -> None:
    if victim == "group":
        os.killpg(0, signal.SIGKILL)
    elif victim == "self":
        os.kill(os.getpid(), signal.SIGKILL)
    elif victim == "guest":
        _kill_guest()
    elif victim == "sshd":
        _kill_sshd()


def _kill_guest() -> None:
    """The process groups that this process started."""
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            parent = int((process / "stat").read_text().rpartition(")")[2].split()[1])
            if parent == os.getpid():
                os.killpg(int(process.name), signal.SIGKILL)


def _kill_sshd() -> None:
    """With its sessions, as a crash of the machine would. Returns when it listens no more."""
    from tests import sshd

    server = int(Path(os.environ[SSHD_PID]).read_text())
    for pid in [*sshd.descendants(server, "sshd"), server]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def encode(mishap: Mishap) -> dict[str, Any]:
    return asdict(mishap)


def decode(data: dict[str, Any]) -> Mishap:
    return Mishap(**data | {"place": Place(**data["place"])})
