"""The command `vbstudy`. In an installed distribution the application lies in `vbstudy/_app`, so that its
packages occupy no other names in site-packages; in a clone they lie next to this package."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import NoReturn

HERE = Path(__file__).resolve().parent
APPLICATION = str(HERE / "_app" if (HERE / "_app").is_dir() else HERE.parent)
PACKAGES = ("vbstudy", "orchestrator", "guest", "analysis")
MISSING, INTERRUPTED = 3, 130  # the exit codes of what is to be installed, and of Ctrl-C


def find_application() -> None:
    """Makes the application's packages importable in this process, before modules of the current folder that
    have their names."""
    if sys.path[:1] != [APPLICATION]:
        sys.path.insert(0, APPLICATION)


def main() -> NoReturn:
    find_application()
    try:
        from orchestrator.cli.main import main as run

        run()
    except ModuleNotFoundError as error:
        name = (error.name or "").partition(".")[0]
        if name in PACKAGES:
            raise
        what = "vbstudy" if Path(APPLICATION).parent == HERE else APPLICATION  # a clone's is on no index
        pip = shlex.join([sys.executable, "-m", "pip", "install", what])
        sys.stderr.write(f"vbstudy: the command line needs the package {name}: {pip}\n")
        sys.exit(MISSING)
    except KeyboardInterrupt:  # while it is being imported
        sys.stderr.write("vbstudy: stopped\n")
        sys.exit(INTERRUPTED)


if __name__ == "__main__":
    main()
