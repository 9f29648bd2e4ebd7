"""The line of the user's program that an operation was called from."""

from __future__ import annotations

import linecache
from functools import cache
from types import CodeType, FrameType

_OWN = ("guest/trace", "guest/probe")


def line_outside(frame: FrameType | None, packages: tuple[str, ...]) -> tuple[str, str]:
    """`file:line in function` of the innermost frame that is in none of these installed packages nor in the
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
        or any(own in name for own in _OWN)
        or any(f"/site-packages/{p}/" in name or f"/dist-packages/{p}/" in name for p in packages)
        or "/contextlib.py" in name
    )


@cache
def _shown(name: str) -> str:
    """Without the folder or archive that the agent happens to lie in."""
    _, found, inner = name.replace("\\", "/").rpartition("/guest/")
    return f"guest/{inner}" if found else name
