"""Warm workers that sleep in a snapshot: the agent has imported its framework before the snapshot is
taken, and a sweep that resumes the machine attaches to it instead of importing again.

A worker waits on two named pipes. A holder keeps both open until a connection attaches; from then on the
end of the connection is the end of the worker's input, as with any other worker."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence

from guest.machine import threads
from guest.records.run import RunSpec
from orchestrator.agent.archive import AgentArchive
from orchestrator.errors import GuestError
from orchestrator.transport.connection import Stream
from orchestrator.transport.ssh import SshConnection

MAX_WORKERS = 2  # one for each environment of the study's runs, as far as the memory goes
LAUNCH_TIMEOUT_S = 60
READY_TIMEOUT_S = 900

LAUNCH = """
d=$1; shift; mkdir -p "$d" && mkfifo "$d/in" "$d/out" || exit 1
setsid sh -c 'echo $$ > "$0/holder"; exec 3<>"$0/in" 4<>"$0/out"; exec sleep 1000000000' "$d" \
  < /dev/null > /dev/null 2>&1 &
until [ -s "$d/holder" ]; do sleep 0.1; done
setsid sh -c 'd=$0; "$@" < "$d/in" > "$d/out" 2> "$d/err"; echo $? > "$d/status"' "$d" "$@" \
  < /dev/null > /dev/null 2>&1 &
"""
# Ready when it has said hello; the hello stays in the pipe for whoever attaches.
READY = """
import os, select, sys, time
d, deadline = sys.argv[1], time.monotonic() + float(sys.argv[2])
out = os.open(d + "/out", os.O_RDWR | os.O_NONBLOCK)
while not select.select([out], [], [], 1)[0]:
    if os.path.exists(d + "/status") or time.monotonic() > deadline:
        sys.exit(open(d + "/err").read()[-2000:] or "it does not get ready")
"""
ATTACH = """
d=$1; exec 3< "$d/out" 4> "$d/in" 5<&0; kill "$(cat "$d/holder")"; rm "$d/holder"
cat <&5 >&4 2> /dev/null 3<&- &
exec 4>&- 5<&-
cat <&3
for i in 1 2 3 4 5 6 7 8 9 10; do [ -s "$d/status" ] && break; sleep 0.1; done
tail -c 8000 "$d/err" >&2; exit "$(cat "$d/status")"
"""


class WarmConnection(SshConnection):
    """Opens a command by attaching to the worker that runs it already, where there is one. A worker
    is attached to once; afterwards the same command is started as on any other guest."""

    workers: tuple[str, ...] = ()

    def open(self, argv: Sequence[str], env: Mapping[str, str]) -> Stream:
        folder = folder_of(argv, env)
        if folder not in self.workers:
            return super().open(argv, env)
        self.workers = tuple(other for other in self.workers if other != folder)
        return super().open(["sh", "-c", ATTACH, "attach", folder], {})


def folder_of(argv: Sequence[str], env: Mapping[str, str]) -> str:
    """A worker's folder, named by all that makes it what it is."""
    identity = json.dumps([list(argv), sorted(env.items())]).encode()
    return f"warm/{hashlib.sha256(identity).hexdigest()[:16]}"


def commands(
    specs: Sequence[RunSpec], agent: AgentArchive, python: str, cpu_vendor: str
) -> list[tuple[list[str], dict[str, str]]]:
    """The workers that these runs will ask for, the first ones first: command and environment."""
    found: dict[str, tuple[list[str], dict[str, str]]] = {}
    for spec in (each for each in specs if each.workload.project is None):
        argv = [python, agent.name, "serve", "--framework", str(spec.workload.framework)]
        env = threads.environment(spec, cpu_vendor=cpu_vendor)
        found.setdefault(folder_of(argv, env), (argv, env))
    return list(found.values())[:MAX_WORKERS]


def launch(connection: SshConnection, argv: Sequence[str], env: Mapping[str, str]) -> str:
    """Starts a worker and waits until it is ready; returns its folder."""
    folder = folder_of(argv, env)
    for command, limit_s in (
        (["sh", "-c", LAUNCH, "launch", folder, *argv], LAUNCH_TIMEOUT_S),
        ([connection.python, "-S", "-c", READY, folder, str(READY_TIMEOUT_S)], READY_TIMEOUT_S + 60),
    ):
        done = connection.run(command, env, limit_s)
        if done.status != 0:
            raise GuestError(
                f"{connection.target}: a warm worker did not start: {done.stderr.strip()[-200:]}",
                evidence=done.stderr,
            )
    return folder
