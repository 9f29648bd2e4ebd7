"""The progress of a sweep, for other processes and for other machines on the same files: one small file,
written whole every second and renamed into place, without a socket or a lock. It is for display: nothing is
decided by it, and the store does not need it."""

from __future__ import annotations

import contextlib
import json
import math
import os
import socket
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from guest.records import bounded
from guest.records.bounded import read_bounded
from guest.records.codec import RecordError, from_json, to_json
from guest.records.plain_json import PlainJsonError, parse
from guest.records.run import Message, RunResult, RunSpec
from orchestrator.agent.protocol import read_epoch
from orchestrator.store.store import now

LIVE_VERSION = 1
EVERY_S = 1.0
LOSSES_KEPT = 60
SILENT_S = 15.0  # after which a sweep that said it was running is taken for dead

State = Literal["running", "ended", "stopped", "failed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """A run in progress for `running_s`. `epochs` is 0 for a project, whose number is
    not known. `losses` are its last training losses, one an epoch."""

    guest: str
    cores: tuple[int, ...]
    run_id: str
    set_id: str
    epochs: int = 0
    epoch: int = 0
    step: int = 0
    losses: tuple[float, ...] = ()
    scores: dict[str, float] = field(default_factory=dict)
    running_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ElapsedTotal:
    """How long the finished runs of a set took in this sweep, in all."""

    runs: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Live:
    """`.live`. `beat` counts the updates: a reader with another clock sees by it that the sweep is alive.
    `cores` is how many the runs share, 0 where they are on many hosts.
    `planned` is the number of runs by set, `took` has the sets of which this sweep finished a run."""

    version: int
    state: State
    process: int
    host: str
    cores: int
    started_at: str
    updated_at: str
    beat: int
    planned: dict[str, int]
    took: dict[str, ElapsedTotal]
    running: tuple[Running, ...]
    done_now: int
    failed_now: int
    waiting: str = ""  # what a guest waits for, while none runs


def read_live(path: Path) -> Live | None:
    """None where no sweep has left one, or none that this program reads."""
    try:
        return from_json(Live, parse(read_bounded(path, bounded.MESSAGE)), path.name)
    except (OSError, PlainJsonError, RecordError):  # OSError: on NFS also between two renames
        return None


def is_alive(live: Live, silent_s: float) -> bool:
    """Whether that sweep is at work, when nothing was heard of it for so long."""
    return live.state == "running" and silent_s < SILENT_S and _exists(live)


def sweeping(path: Path) -> bool:
    """Whether a sweep is at work, asked once and without its lock."""
    live = read_live(path)
    return live is not None and is_alive(live, age_s(live.updated_at))


def _exists(live: Live) -> bool:
    """Whether the sweep's process can be there; of another machine's nothing is known."""
    if live.host != socket.gethostname():
        return True
    try:
        os.kill(live.process, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True  # another user's
    return True


def age_s(written_at: str) -> float:
    try:
        return max((datetime.now(UTC) - datetime.fromisoformat(written_at)).total_seconds(), 0.0)
    except (ValueError, TypeError):
        return math.inf


class LiveFile:
    """An `orchestrator.engine.Observer` that keeps the file."""

    def __init__(self, path: Path, cores: int) -> None:
        self._path = path
        self._cores = cores
        self._started_at = now()
        self._beat = 0
        self._planned: Counter[str] = Counter()
        self._took: dict[str, ElapsedTotal] = {}
        self._running: dict[str, Running] = {}
        self._since: dict[str, float] = {}
        self._done = self._failed = 0
        self._waiting = ""
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._keep_writing, name="live", daemon=True)

    def __enter__(self) -> LiveFile:
        self._write("running")
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self._running.clear()
        stopped = kind is not None and issubclass(kind, KeyboardInterrupt)
        self._write("ended" if kind is None else "stopped" if stopped else "failed")

    def planned(self, specs: Sequence[RunSpec], done: Sequence[RunSpec]) -> None:  # noqa: ARG002
        with self._lock:
            self._planned.update(spec.set_id for spec in specs)

    def quarantined(self, spec: RunSpec, reason: str, kept: Path) -> None:
        """The store has it."""

    def waiting(self, why: str) -> None:
        with self._lock:
            self._waiting = why

    def started(self, guest: str, spec: RunSpec, cores: tuple[int, ...]) -> None:
        with self._lock:
            self._waiting = ""
            self._leave(spec)  # where it was, when its host is lost
            self._since[guest] = time.monotonic()
            self._running[guest] = Running(
                guest=guest,
                cores=cores,
                run_id=spec.run_id,
                set_id=spec.set_id,
                epochs=spec.workload.epochs,
            )

    def message(self, guest: str, message: Message) -> None:
        with self._lock:
            at_work = self._running.get(guest)
            if at_work is not None:
                self._running[guest] = _heard(at_work, message)

    def finished(self, spec: RunSpec, result: RunResult) -> None:
        with self._lock:
            self._done += 1
            before = self._took.get(spec.set_id, ElapsedTotal(runs=0, seconds=0.0))
            took_s = self._leave(spec)
            if took_s is None:  # its start was not reported
                took_s = result.timings.wall_s
            self._took[spec.set_id] = ElapsedTotal(runs=before.runs + 1, seconds=before.seconds + took_s)

    def failed(self, spec: RunSpec, reason: str, kept: Path, *, again: bool) -> None:  # noqa: ARG002
        with self._lock:
            self._failed += 1
            self._leave(spec)

    def _leave(self, spec: RunSpec) -> float | None:
        """The guest has nothing to do; returns the seconds since it was handed the run, None when no guest
        was."""
        name = next((n for n, each in self._running.items() if each.run_id == spec.run_id), None)
        if name is None:
            return None
        del self._running[name]
        return time.monotonic() - self._since.pop(name)

    def _keep_writing(self) -> None:
        while not self._stop.wait(EVERY_S):
            self._write("running")

    def _write(self, state: State) -> None:
        with self._lock:
            self._beat += 1
            at = time.monotonic()
            live = Live(
                version=LIVE_VERSION,
                state=state,
                process=os.getpid(),
                host=socket.gethostname(),
                cores=self._cores,
                started_at=self._started_at,
                updated_at=now(),
                beat=self._beat,
                planned=dict(self._planned),
                took=dict(self._took),
                running=tuple(
                    replace(each, running_s=round(at - self._since[name], 1))
                    for name, each in self._running.items()
                ),
                done_now=self._done,
                failed_now=self._failed,
                waiting=self._waiting,
            )
        part = self._path.with_name(self._path.name + ".part")
        with contextlib.suppress(OSError):  # what is shown may be late; the runs go on
            part.write_text(json.dumps(to_json(live)), encoding="utf-8")  # point: live file written
            part.replace(self._path)  # point: live file renamed


def _heard(run: Running, message: Message) -> Running:
    """A run after a message of it. Whatever the message holds, the file stays small."""
    if message.kind == "heartbeat":
        step = message.body.get("step")
        return replace(run, step=step) if type(step) is int else run
    if message.kind != "epoch":
        return run
    epoch = read_epoch(message.body)
    losses = (*run.losses, epoch.train_loss)[-LOSSES_KEPT:]
    scores = {name[:40]: value for name, value in list(epoch.scores.items())[:8]}
    return replace(run, epoch=epoch.epoch, losses=losses, scores=scores)
