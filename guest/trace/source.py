"""The line of the user's program that an operation was called from."""

from __future__ import annotations

import linecache
import sys
from functools import cache
from pathlib import Path
from types import CodeType, FrameType

_GUEST = Path(__file__).parents[1]
_OWN = (f"{_GUEST.as_posix()}/trace/", f"{_GUEST.as_posix()}/probe/")


def line_outside(frame: FrameType | None, packages: tuple[str, ...]) -> tuple[str, str]:
    """`file:line in function` of the innermost frame that is in none of these imported packages nor in the
    tracer, and what is written there; two empty texts where there is none."""
    while frame is not None:
        if not _is_inside(frame.f_code, packages):
            name, line = _shown(frame.f_code.co_filename), frame.f_lineno
            text = linecache.getline(frame.f_code.co_filename, line, frame.f_globals).strip()
            return f"{name}:{line} in {frame.f_code.co_name}", text
        frame = frame.f_back
    return "", ""


@cache
def _is_inside(code: CodeType, packages: tuple[str, ...]) -> bool:
    name = code.co_filename.replace("\\", "/")
    return (
        name.startswith("<")
        or name.startswith(_OWN)
        or any(name.startswith(_folder(package)) for package in packages)
        or "/contextlib.py" in name
    )


def _folder(package: str) -> str:
    """Where it lies, with a slash behind it: not every machine has a `site-packages`."""
    file = getattr(sys.modules.get(package), "__file__", None)
    return f"{Path(file).parent.as_posix()}/" if file else f"<{package}>"


@cache
def _shown(name: str) -> str:
    """Without the folder or archive that the agent happens to lie in."""
    _, found, inner = name.replace("\\", "/").rpartition("/guest/")
    return f"guest/{inner}" if found else name
