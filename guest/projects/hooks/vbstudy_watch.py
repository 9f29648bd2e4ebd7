"""Follows what a program prints and logs, and reports every number that has a name, with the line of code
that printed it. For `vbstudy try`, which knows nothing of the program beforehand."""

from __future__ import annotations

import atexit
import contextlib
import logging
import math
import os
import re
import sys
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any

NUMBER = (  # without a digit that two parts may take: long ones would be tried in all ways
    r"[-+]?(?:[1-9]\d{0,2}(?:,\d{3})+(?:\.\d+)?|\d+(?:\.\d*)?(?:[eE][-+]?\d+)?"
    r"|\.\d+(?:[eE][-+]?\d+)?|nan|inf)"
)
WORD = r"[A-Za-z][A-Za-z0-9_@/.^\u00b2-]{0,99}"  # bounded: encoded bytes have no blank
UNIT = r"(?:[mu]?s|secs?|seconds?|mins?|minutes?|hours?|it/s|[kMG]i?B)"  # of what is no result
NAME = rf"{WORD}(?: {WORD}){{0,2}}(?: \((?!{UNIT}\)){WORD}\)(?=\s*[:=]))?"
# What follows a name: its number, and neither a unit nor more of a word, a date or a path. Of
# `accuracy: 90/100` the first number counts; `epoch 3/10` is no result. Blanks one part alone may take.
VALUE = (
    rf"""["']?\s*(?:[:=]+\s*|(?:\bis\b\s*|[|\u2502\u2503]\s*|(?<=\s))(?!{NUMBER}\s*/))"""
    r"""(?:(?:(?:j?np|tf|torch)\.)?(?:float\d*|tensor|array)\()?(?:["'(]|\[{1,2})?"""
    rf"""(?P<value>{NUMBER})(?:\s?%|/\d+)?(?![\w:/]|\.[\w.]|-\w|\s*/|\s?{UNIT}\b)"""
)
PAIR = re.compile(rf"""(?<![\w.])["']?(?P<name>{NAME}){VALUE}""", re.IGNORECASE)
LISTED = re.compile(rf"[,\s]+({NUMBER})(?=[,\s\])])", re.IGNORECASE)  # the next number of a list
COLOURS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")  # and other codes of terminals
MAX_PAIRS = 100_000  # of a process: of a program that prints forever the first, and the last of each name
MAX_LINE = 4000
MAX_FILES = 1000  # elsewhere, of a process: caches have many; models and predictions are always reported
STORED = (
    ".pt",
    ".pth",
    ".ckpt",
    ".bin",
    ".safetensors",
    ".h5",
    ".keras",
    ".npz",
    ".npy",
    ".csv",
    ".pkl",
    ".joblib",
)
_here = threading.local()


def pairs(text: str) -> list[tuple[str, str]]:
    """(name, number) as people print them: `loss: 0.5`, `acc=93.1%`, `{'f1': 0.7}`, `accuracy 0.9`, `| acc |
    0.9 |`, `loss (train): 0.5`; each number of `scores: [0.9, 0.8]` or `array([0.9, 0.8])`."""
    text, found = text[:MAX_LINE], []
    for match in PAIR.finditer(text):
        name, end = match["name"].strip().lower(), match.end()
        found.append((name, match["value"]))
        while text[match.start("value") - 1] == "[" and (more := LISTED.match(text, end)):
            found.append((name, more[1]))
            end = more.end()
    return found


def last_state(line: str) -> str:
    """What a line shows in the end, without colours: a progress bar writes over itself. Nothing of bars below
    others, which move the cursor up after each state."""
    if "\x1b[A" in line:
        return ""
    return next((part for part in reversed(re.split(r"[\r\b]+", COLOURS.sub("", line))) if part.strip()), "")


class Follower:
    """Stands in for a stream: passes everything on, and reads whole lines."""

    def __init__(self, stream: Any, found: Callable[[str], None]) -> None:
        self._stream, self._found, self._rest = stream, found, ""

    def write(self, text: str) -> int:
        written: int = self._stream.write(text)
        if isinstance(text, str) and not getattr(_here, "silent", False):
            *lines, self._rest = (self._rest + text).split("\n")
            self._rest = self._rest[-2 * MAX_LINE :]
            for line in filter(None, map(last_state, lines)):
                self._found(line)
        return written

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def finish(self) -> None:
        """Reads the last line, which may have no end."""
        if last := last_state(self._rest):
            self._found(last)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def __iter__(self) -> Any:
        return iter(self._stream)

    def __enter__(self) -> Follower:
        self._stream.__enter__()
        return self

    def __exit__(self, *error: object) -> Any:
        return self._stream.__exit__(*error)


@contextlib.contextmanager
def silent() -> Iterator[None]:
    """What is printed inside is not read."""
    before = getattr(_here, "silent", False)
    _here.silent = True
    try:
        yield
    finally:
        _here.silent = before


def install() -> None:
    """Every named number is now written as `numbers`, with the line of the project that printed it, and
    files that are written outside of its folder as `file`."""
    from vbstudy_hook import AFTER, ROOT, SETTINGS, place, wrap, write

    # A stream may be a plain file, and /dev/shm has some that are written as elsewhere.
    inside = (*(folder + os.sep for folder in (ROOT, SETTINGS["folder"])), "/dev/std", "/dev/fd/", "/proc/")
    elsewhere: set[str] = set()
    left = [MAX_PAIRS]
    last: dict[tuple[str, str], str] = {}  # of what is printed after these, by place and name

    def found(text: str) -> None:
        found_pairs = pairs(text)
        where = place(sys._getframe(1)) if found_pairs else ""
        left[0] -= len(found_pairs)
        if found_pairs and left[0] >= 0:
            write("numbers", where=where, pairs=found_pairs)
        elif len(last) < MAX_PAIRS:
            last.update(((where, name), value) for name, value in found_pairs)

    def finish() -> None:
        for follower in followers:
            follower.finish()
        for (where, name), value in last.items():
            write("numbers", where=where, pairs=[(name, value)])

    def audit(event: str, args: tuple[Any, ...]) -> None:
        if event == "open" and isinstance(args[1], str) and set(args[1]) & set("wax+"):
            written(args[0])
        elif event == "os.rename":  # as of a file that is written beside its place
            written(args[1])

    def written(path: object) -> None:
        if not isinstance(path, (str, bytes, os.PathLike)):
            return
        try:
            name = os.path.abspath(os.fsdecode(path))  # noqa: PTH100  (light, and links are left as they are)
        except OSError:  # there is no current folder: the program gets this error by itself
            return
        if name.startswith(inside) or name.endswith(".pyc") or name in elsewhere:
            return
        if name.endswith(STORED) or len(elsewhere) < MAX_FILES:
            elsewhere.add(name)
            write("file", path=name)

    sys.addaudithook(audit)
    set_up = AFTER["torch"]

    def after_torch(torch: Any) -> None:
        set_up(torch)
        wrap(torch, "save", lambda *args, **_: written(args[1] if args[1:] else ""))

    def after_progbar(module: Any) -> None:
        # States between are shown by the clock, and one that a callback's line ends would be read.
        wrap(module.Progbar, "update", lambda bar, *_, **__: setattr(bar, "interval", math.inf))

    AFTER.update({"torch": after_torch, "keras.src.utils.progbar": after_progbar})
    followers = []
    for name in ("stdout", "stderr"):
        if (stream := getattr(sys, name)) is not None:  # None: closed when the process began
            followers.append(Follower(stream, found))
            setattr(sys, name, followers[-1])
    atexit.register(finish)
    handle = logging.Logger.handle

    def handled(self: logging.Logger, record: logging.LogRecord) -> None:
        if not self.disabled and self.name != "py.warnings":
            with contextlib.suppress(Exception):  # words and values that do not fit, which logging tells
                found(last_state(record.getMessage()))  # a handler may write to a file, or nowhere
        with silent():
            handle(self, record)

    logging.Logger.handle = handled  # type: ignore[method-assign]
    show = warnings.showwarning

    def shown(*args: Any, **kwargs: Any) -> None:
        with silent():
            show(*args, **kwargs)

    warnings.showwarning = shown
