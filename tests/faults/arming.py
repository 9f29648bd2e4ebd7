"""Puts a statement of the test's own before or after a statement of the program's, in a process that is about
to run it. The program's files hold no hooks: the function's code is compiled anew, with the statement in it,
and takes the place of the code that it had.

Imports nothing but the standard library: it is also used inside guests."""

from __future__ import annotations

import ast
import contextlib
import importlib
import inspect
import os
import signal
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any, Literal

SSHD_PID = "VBSTUDY_TEST_SSHD"  # the environment variable that names sshd's file with its number
DUE, HAPPEN = "__due__", "__happen__"  # what an inserted statement calls


class NoSuchPlaceError(Exception):
    """A place that the program does not have any more; the text names it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Before or after the one statement of a function that holds the text `at`, or first `inside` it (of a
    `with`, `if` or loop). Only where `when`, an expression over the function's names, holds. `doing`,
    statements over the same names on one line, are run when it is due."""

    module: str
    function: str  # qualified: Class.method
    at: str
    where: Literal["before", "after", "inside"] = "before"
    when: str = "True"
    doing: str = "pass"


def insert(
    places: Mapping[str, Place],
    due: Callable[[str], bool],
    happen: Callable[[str], None] = lambda name: None,
) -> None:
    """From now on `due(name)` is asked at each of the places; where it says so, `doing` is done and `happen`
    called. To be used once a process. Raises NoSuchPlaceError."""
    for name in sorted({place.module for place in places.values()}):
        module = importlib.import_module(name)
        tree = ast.parse(inspect.getsource(module))
        here = {key: place for key, place in places.items() if place.module == name}
        found = {key: _find(tree, place) for key, place in here.items()}  # all, before any is inserted
        for key, (body, statement) in found.items():
            _insert(key, here[key], body, statement)
        compiled = compile(ast.fix_missing_locations(tree), str(module.__file__), "exec")
        for qualified in {place.function for place in here.values()}:
            _function(module, qualified).__code__ = next(_codes(compiled, qualified))
        vars(module)[DUE], vars(module)[HAPPEN] = due, happen


def exists(place: Place) -> None:
    """Raises NoSuchPlaceError unless the place is there, and there once."""
    module = importlib.import_module(place.module)
    _function(module, place.function)
    body, statement = _find(ast.parse(inspect.getsource(module)), place)
    _insert("", place, body, statement)


def _function(module: Any, qualified: str) -> FunctionType:
    found = module
    for part in qualified.split("."):
        found = inspect.unwrap(getattr(found, part, None))  # type: ignore[arg-type]
    if not isinstance(found, FunctionType):
        raise NoSuchPlaceError(f"{module.__name__} has no function {qualified}")
    return found


def _find(tree: ast.Module, place: Place) -> tuple[list[ast.stmt], ast.stmt]:
    definition: Any = tree
    for part in place.function.split("."):
        definition = next(node for node in definition.body if getattr(node, "name", "") == part)
    found = [
        (body, statement)
        for body in _bodies(definition)
        for statement in body
        if place.at in _header(statement)
    ]
    if len(found) != 1:
        raise NoSuchPlaceError(
            f"{place.module}.{place.function} has {len(found)} statements with {place.at!r}, 1 is needed"
        )
    return found[0]


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
    """All lists of statements below a definition."""
    for each in ast.walk(node):
        for field in ("body", "orelse", "finalbody"):
            body = getattr(each, field, None)
            if isinstance(body, list):
                yield body


def _header(statement: ast.stmt) -> str:
    """A statement as Python writes it on one line, without the statements that it holds."""
    return ast.unparse(statement).partition("\n")[0]


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
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            parent = int(stat.read_text().rpartition(")")[2].split()[1])
            if parent == os.getpid():
                os.killpg(int(stat.parent.name), signal.SIGKILL)


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
