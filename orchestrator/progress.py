"""What a sweep shows while it runs, on stderr: bars on a terminal, a line a run elsewhere."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from guest.records import Message, RunResult, RunSpec
from orchestrator.guests import Guest


class SweepProgress:
    """An `orchestrator.sweep.Observer`. One bar for all with the time left, one a guest with the
    run's current epoch and metrics."""

    def __init__(self, console: Console, *, quiet: bool) -> None:
        self._console = console
        self._quiet = quiet
        self._lock = threading.Lock()
        self._sets: Counter[str] = Counter()
        self._done: Counter[str] = Counter()
        self._epochs: dict[str, int] = {}
        self._guests: dict[str, TaskID] = {}
        self._all: TaskID | None = None
        self._bars = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[info]}"),
            console=console,
            disable=quiet or not console.is_terminal,
        )

    def __enter__(self) -> SweepProgress:
        self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bars.stop()

    def planned(self, specs: Sequence[RunSpec], done: Sequence[RunSpec]) -> None:
        self._sets.update(spec.set_id for spec in specs)
        self._done.update(spec.set_id for spec in done)
        if self._all is None:
            self._all = self._bars.add_task("all runs", total=0, info="")
        self._bars.update(self._all, total=self._sets.total(), completed=self._done.total())
        self.say(f"{len(specs)} runs planned, {len(done)} in the store, {len(specs) - len(done)} to do")

    def quarantined(self, spec: RunSpec, reason: str, kept: Path) -> None:
        self.say(f"[yellow]damaged[/] {spec.run_id}: {reason}; set aside in {kept}, will be redone")

    def waiting(self, why: str) -> None:
        self.say(f"[yellow]waiting[/] {why}")

    def started(self, guest: Guest, spec: RunSpec) -> None:
        with self._lock:
            self._epochs[guest.spec.name] = spec.workload.epochs
            if guest.spec.name not in self._guests:
                self._guests[guest.spec.name] = self._bars.add_task("", total=1, info="")
            self._bars.reset(
                self._guests[guest.spec.name],
                description=spec.run_id,
                total=spec.workload.epochs or None,  # how many a project has is not known
                info="",
            )

    def message(self, guest: Guest, message: Message) -> None:
        task = self._guests[guest.spec.name]
        body = message.body
        if message.kind == "epoch":
            scores = [f"{k.removeprefix('test_')} {v:.4f}" for k, v in body.items() if k.startswith("test_")]
            self._bars.update(task, completed=int(body.get("epoch", 0)), info=", ".join(scores))
        elif message.kind == "heartbeat":
            self._bars.update(task, info=f"step {body.get('step')}")

    def finished(self, spec: RunSpec, result: RunResult) -> None:
        with self._lock:
            self._done[spec.set_id] += 1
            count = f"{self._done[spec.set_id]}/{self._sets[spec.set_id]}"
        if self._all is not None:
            self._bars.advance(self._all)
        scores = ", ".join(f"{name} {value:.4f}" for name, value in result.last.items())
        self.say(f"{spec.set_id} {count}  {scores}  {result.timings.wall_s:.1f} s")

    def failed(self, spec: RunSpec, reason: str, kept: Path, *, again: bool) -> None:
        what = "[yellow]failed, again[/]" if again else "[red]failed[/]"
        self.say(f"{what} {spec.run_id}: {reason} (evidence: {kept})")

    def say(self, text: str) -> None:
        """A line of its own."""
        if not self._quiet:
            self._console.print(text, highlight=False, soft_wrap=True)


class DownloadProgress:
    """A bar for each file that is fetched."""

    def __init__(self, console: Console, *, quiet: bool) -> None:
        self._bars = Progress(
            TextColumn("fetching {task.description}"),
            BarColumn(),
            DownloadColumn(),
            TimeRemainingColumn(),
            console=console,
            disable=quiet,
        )
        self._tasks: dict[str, TaskID] = {}

    def __enter__(self) -> DownloadProgress:
        return self  # most studies fetch nothing, and then nothing is drawn

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._tasks:
            self._bars.stop()

    def __call__(self, file: str, done_bytes: int, total_bytes: int) -> None:
        if not self._tasks:
            self._bars.start()
        if file not in self._tasks:
            self._tasks[file] = self._bars.add_task(file, total=total_bytes or None)
        self._bars.update(self._tasks[file], completed=done_bytes)
