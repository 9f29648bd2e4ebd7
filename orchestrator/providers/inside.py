"""What a process inside a guest sees: its CPUs, its Python, its frameworks."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from guest.records.codec import RecordError, from_json
from guest.records.plain_json import PlainJsonError, parse
from guest.records.printable import last_line
from orchestrator.agent.frameworks import lacks
from orchestrator.errors import GuestError
from orchestrator.transport.connection import Connection

PROBE = """
import json, os, platform
cpu = {}
for line in open("/proc/cpuinfo"):
    key, _, value = line.partition(":")
    cpu.setdefault(key.strip(), value.strip())
print(json.dumps({
    "cpus": len(os.sched_getaffinity(0)),
    "cores": sorted(os.sched_getaffinity(0)),
    "python": platform.python_version(),
    "vendor": cpu.get("vendor_id", cpu.get("CPU implementer", "")),
    "model": cpu.get("model name", platform.machine()),
}))
"""
FIND = "import importlib.util as u, sys; print(*[name for name in sys.argv[1:] if not u.find_spec(name)])"
PROBE_TIMEOUT_S = 60
NOT_STARTED = (125, 127)  # what goes before it failed, or is not there; also where it is not there itself
MAX_CPUS = 65_536
OLDEST = (3, 11)  # which the agent runs under
NEEDED = f"{OLDEST[0]}.{OLDEST[1]} or newer"
# For images of the user's own: it works where there is no Python, and reports that.
PLAIN_PROBE = """
nproc || exit 1
"$0" -c 'import platform; print(platform.python_version())' 2>/dev/null || echo
"$0" -c "$1" $2 2>/dev/null || echo
sed '/^$/q' /proc/cpuinfo; uname -m
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Inside:
    """What a process may use, and what runs it."""

    cpus: int
    cores: tuple[int, ...]
    python: str
    vendor: str
    model: str


def inspect(name: str, connection: Connection) -> Inside:
    """Raises GuestError when the guest's Python does not run, or is too old for the agent."""
    done = connection.run([connection.python, "-c", PROBE], {}, PROBE_TIMEOUT_S)
    try:
        seen = from_json(Inside, parse(done.stdout), "inside")
    except (PlainJsonError, RecordError):
        words = last_line(done.stderr)
        starts = done.status not in NOT_STARTED or not words or connection.python in words
        what = f"{connection.python!r} does not run in it" if starts else "a command cannot be started in it"
        why = f"{what} (status {done.status}){words and ': '}{words:.200}"
        if done.status == 0:
            why = f"its commands print more than they are asked for (see `.bashrc`): {done.stdout!r:.200}"
        raise GuestError(f"guest {name}: {why}", evidence=done.stderr) from None
    _check_counts(name, seen.cpus, seen.cores)
    if _too_old(seen.python):
        raise GuestError(
            f"guest {name}: {connection.python!r} is Python {seen.python:.20}, {NEEDED} is needed: name "
            "another interpreter in study.toml"
        )
    return seen


def _too_old(python: str) -> bool:
    version = re.match(r"(\d{1,3})\.(\d{1,3})", python)
    return version is None or (int(version[1]), int(version[2])) < OLDEST


def _check_counts(name: str, cpus: int, cores: tuple[int, ...]) -> None:
    """Numbers that a machine may have: sets of cores are made from them."""
    if not 1 <= cpus <= MAX_CPUS or not all(0 <= core < MAX_CPUS for core in cores):
        raise GuestError(f"guest {name}: reports {cpus} CPUs, numbered {cores!s:.80}")


def inspect_with_shell(
    name: str, connection: Connection, frameworks: list[str], timeout_s: float
) -> tuple[Inside, tuple[str, ...]]:
    """What a whole machine has, and what it lacks of an interpreter and frameworks: one command, for guests
    where each is expensive. Raises GuestError when it does not count its CPUs."""
    argv = ["sh", "-c", PLAIN_PROBE, connection.python, FIND, " ".join(frameworks)]
    done = connection.run(argv, {}, timeout_s)
    count, *rest = done.stdout.splitlines() or [""]
    if done.status != 0 or not re.fullmatch("[0-9]{1,6}", count) or len(rest) < 3:
        raise GuestError(
            f"guest {name}: does not report its CPUs (`nproc`, status {done.status})", evidence=done.stderr
        )
    _check_counts(name, int(count), ())
    python, lacking = rest[0], rest[1].split()
    cpu = dict(line.split(":", 1) for line in rest[2:] if ":" in line)
    cpu = {key.strip(): value.strip() for key, value in cpu.items()}
    seen = Inside(
        cpus=int(count),
        cores=tuple(range(int(count))),
        python=python,
        vendor=cpu.get("vendor_id", cpu.get("CPU implementer", "")),
        model=cpu.get("model name", rest[-1]),
    )
    if not python:
        lacking = [connection.python]
    elif _too_old(python):
        lacking = [f"Python {NEEDED} ({connection.python} is {python:.20})"]
    return seen, tuple(lacking)


def missing_frameworks(
    connection: Connection, frameworks: list[str], env: Mapping[str, str] = MappingProxyType({})
) -> list[str]:
    """Those that the guest's Python cannot import. Raises GuestError when there is no Python."""
    done = connection.run([connection.python, "-c", FIND, *frameworks], env, PROBE_TIMEOUT_S)
    if done.status != 0:
        raise GuestError(f"{connection.python!r} does not run", evidence=done.stderr)
    return done.stdout.split()


def framework_problems(connection: Connection, frameworks: list[str], home: str, setting: str) -> list[str]:
    """A sentence with the cure for each framework that a guest's Python lacks. `home` is the account's,
    where pip installs what guests do not see; `setting` names the interpreter in study.toml."""
    python, missing = connection.python, missing_frameworks(connection, frameworks)
    outside = {"HOME": home, "PYTHONNOUSERSITE": ""}
    lacking = missing_frameworks(connection, missing, outside) if missing else []
    return [
        f"{lacks(name, python)}, or name another interpreter as {setting} in study.toml"
        if name in lacking
        else f"{python} has {name} in the user site, which guests do not see: make a virtual environment "
        f"with it, and name its interpreter as {setting} in study.toml"
        for name in missing
    ]
