"""`python -m vbstudy.exact train.py ARGUMENTS`, or `-m package.train`: runs the script with exact mode on."""

from __future__ import annotations

import argparse
import sys

from vbstudy.exact import launch

parser = argparse.ArgumentParser(prog="python -m vbstudy.exact", allow_abbrev=False, description=__doc__)
parser.add_argument("--threads", type=int, metavar="N", help="threads of torch and of numpy's libraries")
parser.add_argument("--strict", action="store_true", help="operations that are not at the level are errors")
parser.add_argument("--level", choices=("machine", "threads"), default="machine")
parser.add_argument("-v", dest="verbose", action="store_true", help="one line at the end")
parser.add_argument("-m", dest="module", nargs=argparse.REMAINDER, help="a module in place of a script")
parser.add_argument("script", nargs=argparse.REMAINDER, help="the Python script and its arguments")

if __name__ == "__main__":
    given = parser.parse_args()
    program = ["-m", *given.module, *given.script] if given.module else given.script
    if not program:
        parser.error("no script is named")
    if given.threads is not None and given.threads < 1:
        parser.error(f"--threads {given.threads}: must be 1 or more")
    launch.run(
        [sys.executable, *program],
        threads=given.threads, strict=given.strict, level=given.level, verbose=given.verbose,
    )  # fmt: skip
