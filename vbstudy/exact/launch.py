"""Runs a program that nobody edited with exact mode on: it takes this process's place."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from vbstudy.exact.registry import Level

HOOK = Path(__file__).resolve().parent / "hook"
POOLS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS")


def environment(
    inherited: Mapping[str, str],
    *,
    threads: int | None = None,
    strict: bool = False,
    level: Level = "machine",
    verbose: bool = False,
) -> dict[str, str]:
    """The environment in which Python processes have exact mode on: they find the hook through PYTHONPATH
    (not those started with -I, -E or -S)."""
    settings = {"strict": strict, "level": level, "verbose": verbose}
    path = filter(None, (str(HOOK), inherited.get("PYTHONPATH")))
    made = {**inherited, "PYTHONPATH": os.pathsep.join(path), "VBSTUDY_EXACT": json.dumps(settings)}
    return made if threads is None else made | dict.fromkeys(POOLS, str(threads))


def run(
    command: Sequence[str], *, threads: int | None, strict: bool, level: Level, verbose: bool
) -> NoReturn:
    """Replaces this process by the program. Raises OSError where it cannot be started."""
    made = environment(os.environ, threads=threads, strict=strict, level=level, verbose=verbose)
    for ignored in (signal.SIGPIPE, signal.SIGXFSZ):  # by Python; the program would inherit it
        signal.signal(ignored, signal.SIG_DFL)
    os.execvpe(command[0], list(command), made)  # noqa: S606  (its arguments are the user's)
