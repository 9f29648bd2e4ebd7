"""Programs that providers run on this machine, and the processes of guests: found, and ended."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from guest.projects.command import descendants
from guest.records.printable import last_line
from orchestrator.errors import GuestError, VbstudyError
from orchestrator.inventory import GUEST_MARK

TAIL_BYTES = 4000
KILL_TIMEOUT_S = 10.0
POLL_S = 0.02


def run(
    command: Sequence[str],
    timeout_s: float,
    env: Mapping[str, str] | None = None,
    missing: type[VbstudyError] = GuestError,
) -> subprocess.CompletedProcess[str]:
    """Raises `missing` where there is no such program, and GuestError when it does not end."""
    try:
        return subprocess.run(
            command, capture_output=True, text=True, timeout=timeout_s, check=False, errors="replace",
            stdin=subprocess.DEVNULL, env=env,
        )  # fmt: skip
    except FileNotFoundError:
        raise missing(f"there is no {command[0]}; install it") from None
    except OSError as error:  # of another architecture, or without permission
        raise missing(f"{command[0]}: cannot be started: {error.strerror}") from None
    except subprocess.TimeoutExpired:
        raise GuestError(f"`{' '.join(command)}` did not end within {timeout_s:.0f} s") from None


def output(
    command: Sequence[str],
    failure: str,
    timeout_s: float,
    env: Mapping[str, str] | None = None,
    missing: type[VbstudyError] = GuestError,
) -> str:
    """What a program prints. Raises GuestError with `failure` and its last line when its status is not 0."""
    done = run(command, timeout_s, env, missing)
    if done.returncode != 0:
        text = (done.stderr if done.stderr.strip() else done.stdout)[-TAIL_BYTES:]
        why = last_line(text).removeprefix("error: ") or f"status {done.returncode}"
        raise GuestError(f"{failure}: {why}", evidence=text)
    return done.stdout


def matching(
    matches: Callable[[list[str]], bool], folder: Path | None = None, *, of_all_users: bool = False
) -> list[int]:
    """This user's processes whose command line, as words, matches: any account may start one with such
    words. A process that ends loses its command line first, and its ports and the locks of its disks last:
    until then it matches by the `folder` that it works in."""
    found, home = [], folder and folder.resolve()
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it ended meanwhile
            if not of_all_users and process.stat().st_uid != os.geteuid():
                continue
            if line := (process / "cmdline").read_bytes():
                counts = matches(line.decode(errors="replace").split("\0"))
            else:
                counts = home is not None and _works_in(process, home)
            if counts:
                found.append(int(process.name))
    return found


def _works_in(process: Path, folder: Path) -> bool:
    """Whether any of its threads does: files are closed with the last of them, and the first may be gone."""
    for thread in (process / "task").iterdir():
        with contextlib.suppress(OSError):  # it has left it
            if (thread / "cwd").readlink() == folder:
                return True
    return False


def marked(name: str) -> list[int]:
    """Processes that were started in the guest, or for the guest, of this name."""
    mark = f"{GUEST_MARK}={name}".encode()
    found = []
    for process in Path("/proc").glob("[0-9]*"):  # a pattern below it fails for one that ends meanwhile
        with contextlib.suppress(OSError):  # it ended, or is another user's
            if mark in (process / "environ").read_bytes().split(b"\0"):
                found.append(int(process.name))
    return found


def marked_with_descendants(name: str) -> list[int]:
    """These, and what they started: it may have cleared its environment."""
    found = marked(name)
    return [*found, *(pid for pid, state in descendants(*found).items() if state != "Z")]


def end(find: Callable[[], list[int]], owner: str, patience_s: float = 0.0) -> None:
    """Returns when `find` has found no process twice: one that begins a program just then has neither
    environment nor command line for a moment. They may end by themselves for `patience_s`, then they are
    killed. Raises GuestError when that does not end them either."""
    deadline, seen = time.monotonic() + patience_s, True
    while (left := find()) or seen:
        now, seen = time.monotonic(), bool(left)
        if left and now > deadline + KILL_TIMEOUT_S:
            raise GuestError(
                f"{owner}: process {left[0]} does not end, although it was killed: see `ps -l {left[0]}` for "
                "what it waits for, and run this again when it is gone"
            )
        if now >= deadline:
            kill(left)
        time.sleep(POLL_S)


def kill(processes: Sequence[int]) -> None:
    for process in processes:
        try:
            os.kill(process, signal.SIGKILL)
        except ProcessLookupError:
            pass
        except PermissionError:
            raise GuestError(f"process {process} belongs to another user and cannot be ended") from None
