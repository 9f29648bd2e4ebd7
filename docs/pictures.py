"""The pictures of README: screens of real commands, as SVG.

    python docs/pictures.py STUDY PROGRAM

writes `docs/pictures/analyze.svg`, of `vbstudy analyze` in the folder STUDY, and `docs/pictures/try.svg`, of
`vbstudy try -- python PROGRAM`."""

from __future__ import annotations

import io
import os
import pty
import subprocess
import sys
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import DIMMED_MONOKAI
from rich.text import Text

COLUMNS = 92
PICTURES = Path(__file__).parent / "pictures"


def screen(arguments: list[str], folder: Path) -> str:
    """What a command prints on a terminal."""
    controller, terminal = pty.openpty()
    python = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    terminal_is = {"COLUMNS": str(COLUMNS), "LINES": "60", "TERM": "xterm-256color", "PAGER": "cat"}
    process = subprocess.Popen(
        [sys.executable, "-m", "vbstudy", *arguments],
        cwd=folder,
        stdin=terminal,
        stdout=terminal,
        stderr=subprocess.DEVNULL,
        env=os.environ | terminal_is | {"PATH": python},
    )
    os.close(terminal)
    printed = b""
    while True:
        try:
            part = os.read(controller, 65536)
        except OSError:  # it has ended
            break
        if not part:
            break
        printed += part
    process.wait()
    return printed.decode().replace("\r\n", "\n").strip("\n")


def save(name: str, command: str, printed: str) -> None:
    console = Console(record=True, width=COLUMNS, file=io.StringIO())
    console.print(Text.from_ansi(printed))
    PICTURES.mkdir(exist_ok=True)
    svg = console.export_svg(title=command, theme=DIMMED_MONOKAI)
    (PICTURES / f"{name}.svg").write_text(svg, encoding="utf-8")


def main() -> None:
    study, program = (Path(argument).resolve() for argument in sys.argv[1:3])
    save("analyze", "vbstudy analyze", screen(["analyze"], study))
    shown = f"vbstudy try -- python {program.name}"
    save("try", shown, screen(["try", "--", "python", program.name], program.parent))


if __name__ == "__main__":
    main()
