"""`python -m guest.trace.side`: one of two runs of a program at the same time. It is a process of its own,
because all that a run starts is ended with it, by its descent. Reads a job as JSON, prints how it ended."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from pathlib import Path

from guest.projects import command
from guest.replay import program


def main() -> None:
    job = json.load(sys.stdin)
    stop = Path(job["stop"])
    parent = os.getppid()

    def check() -> None:
        if stop.exists() or os.getppid() != parent:
            raise command.CommandError("Stopped", "")
        if job["random"] and (trouble := program.trouble(Path(job["random"]), job["work"])):
            raise command.CommandError("ReplayError", trouble.text)

    limits = command.Limits(
        timeout_s=job["timeout_s"],
        disk_bytes=job["disk_bytes"],
        timeout_key="--timeout",
        disk_key="vbstudy trace",
        check=check,
    )
    os.sched_setaffinity(0, job["cores"])
    error = ["", ""]
    with Path(job["log"]).open("wb") as log, contextlib.suppress(KeyboardInterrupt):
        try:
            command.run(job["argv"], Path(job["work"]), job["env"], log, limits, lambda *_: None)
        except command.CommandError as failed:
            error = [failed.kind, str(failed)]
    json.dump(error, sys.stdout)


if __name__ == "__main__":
    main()
