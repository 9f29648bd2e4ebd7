"""Runs a program that nobody edited with exact mode on: it takes this process's place."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from vbstudy.exact.registry import Level

HOOK = Path(__file__).resolve().parent / "hook"
POOLS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS")


def run(
    command: Sequence[str], *, threads: int | None, strict: bool, level: Level, verbose: bool
) -> NoReturn:
    """Replaces this process by the program. Python processes among it and its children find the hook through
    PYTHONPATH (not those started with -I, -E or -S). Raises OSError where it cannot be started."""
    settings = {"strict": strict, "level": level, "verbose": verbose}
    path = filter(None, (str(HOOK), os.environ.get("PYTHONPATH")))
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(path), "VBSTUDY_EXACT": json.dumps(settings)}
    if threads is not None:
        environment |= dict.fromkeys(POOLS, str(threads))
    for ignored in (signal.SIGPIPE, signal.SIGXFSZ):  # by Python; the program would inherit it
        signal.signal(ignored, signal.SIG_DFL)
    os.execvpe(command[0], list(command), environment)  # noqa: S606  (its arguments are the user's)
