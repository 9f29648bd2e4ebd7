"""What a sweep shows while it runs, on stderr: bars on a terminal, a line a run elsewhere."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

from rich.console import Console, RenderableType
from rich.constrain import Constrain
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Column

from guest.records.printable import counted
from guest.records.run import Message, RunResult, RunSpec
from orchestrator.agent.protocol import read_epoch
from orchestrator.engine import Observer
from orchestrator.sweep.names import Folded
from orchestrator.text import plain

LINES_SHOWN = 12  # of a failure's reason, which may end with what a program printed last


class _NameColumn(ProgressColumn):
    def render(self, task: Task) -> RenderableType:
        return Folded(task.description)


class _Bars(Progress):
    def get_renderable(self) -> RenderableType:
        """With room for the ^C that a terminal writes behind the last bar: on a line of its own, it would
        leave the first bar there twice."""
        width = self.console.width - len("^C") if self.tasks else None  # there is no console yet at first
        return Constrain(super().get_renderable(), width)


class SweepProgress:
    """An `orchestrator.engine.Observer`. One bar for all with the time left, one a guest with the
    run's current epoch and metrics."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._lock = threading.Lock()
        self._sets: Counter[str] = Counter()
        self._done: Counter[str] = Counter()
        self._guests: dict[str, TaskID] = {}
        self._all: TaskID | None = None
        whole = Column(no_wrap=True)  # the others shrink
        self._bars = _Bars(
            _NameColumn(),
            BarColumn(bar_width=10, table_column=whole),
            MofNCompleteColumn(table_column=whole),
            TimeElapsedColumn(table_column=whole),
            TimeRemainingColumn(table_column=whole),
            TextColumn("{task.fields[info]}", table_column=Column()),
            console=console,
            disable=console.quiet or not console.is_terminal,
        )

    def __enter__(self) -> SweepProgress:
        self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bars.stop()

    def planned(self, specs: Sequence[RunSpec], done: Sequence[RunSpec]) -> None:
        self._sets.update(spec.set_id for spec in specs)
        self._done.update(spec.set_id for spec in done)
        if self._all is None:
            self._all = self._bars.add_task("all runs", total=0, info="")
        self._bars.update(self._all, total=self._sets.total(), completed=self._done.total())
        planned = f"{counted(len(specs), 'run')} planned"
        self.report(f"{planned}, {len(done)} in the store, {len(specs) - len(done)} to do")

    def quarantined(self, spec: RunSpec, reason: str, kept: Path) -> None:
        text = f"{plain(reason)}; quarantined in {plain(str(kept))}, will be repeated"
        self._print(f"[yellow]damaged[/] {spec.run_id}: {text}")

    def waiting(self, why: str) -> None:
        self._print(f"[yellow]waiting[/] {plain(why)}")

    def started(self, guest: str, spec: RunSpec, cores: tuple[int, ...]) -> None:  # noqa: ARG002
        with self._lock:
            if guest not in self._guests:
                self._guests[guest] = self._bars.add_task("", total=1, info="")
            bar = self._guests[guest]
            self._bars.reset(bar, description=spec.run_id, info="")
            # A project's epochs are not known, and `reset` takes None for "as before".
            next(task for task in self._bars.tasks if task.id == bar).total = spec.workload.epochs or None

    def message(self, guest: str, message: Message) -> None:
        task = self._guests[guest]
        if message.kind == "epoch":
            epoch = read_epoch(message.body)
            scores = ", ".join(f"{plain(name, 40)} {value:.4f}" for name, value in epoch.scores.items())
            self._bars.update(task, completed=epoch.epoch, info=scores)
        elif message.kind == "heartbeat":
            self._bars.update(task, info=f"step {plain(str(message.body.get('step')), 20)}")

    def finished(self, spec: RunSpec, result: RunResult) -> None:
        with self._lock:
            self._done[spec.set_id] += 1
            count = f"{self._done[spec.set_id]}/{self._sets[spec.set_id]}"
        if self._all is not None:
            self._bars.advance(self._all)
        scores = ", ".join(f"{plain(name, 40)} {value:.4f}" for name, value in result.last.items())
        self._print(f"{spec.set_id} {count}  {scores}  {result.timings.wall_s:.1f} s")

    def failed(self, spec: RunSpec, reason: str, kept: Path, *, again: bool) -> None:
        what = "[yellow]failed, again[/]" if again else "[red]failed[/]"
        first, *more = reason.splitlines() or [""]
        self._print(f"{what} {spec.run_id}: {plain(first)} (evidence: {plain(str(kept))})")
        for line in more[-LINES_SHOWN:]:
            self._print(f"  | {plain(line)}")  # so that none is taken for a line of vbstudy

    def report(self, text: str) -> None:
        """Prints lines, much of which may come from hosts and guests."""
        for line in text.splitlines():
            self._print(plain(line, 2000))

    def _print(self, text: str) -> None:
        """With rich's markup."""
        self._console.print(text, highlight=False, soft_wrap=True)


class _Composite:
    def __init__(self, observers: Sequence[Observer]) -> None:
        self._observers = observers

    def __getattr__(self, event: str) -> Callable[..., None]:
        def pass_on(*what: Any, **more: Any) -> None:
            for each in self._observers:
                getattr(each, event)(*what, **more)

        return pass_on


def composite(*observers: Observer) -> Observer:
    """Passes every event on to several observers, in order."""
    return cast(Observer, _Composite(observers))


class DownloadProgress:
    """A bar for each download."""

    def __init__(self, console: Console) -> None:
        self._bars = Progress(
            TextColumn("fetching {task.description}"),
            BarColumn(),
            DownloadColumn(),
            TimeRemainingColumn(),
            console=console,
            disable=console.quiet,
        )
        self._tasks: dict[str, TaskID] = {}

    def __enter__(self) -> DownloadProgress:
        return self  # most studies fetch nothing, and then nothing is drawn

    def __exit__(self, *_: object) -> None:
        if self._tasks:
            self._bars.stop()

    def __call__(self, file: str, done_bytes: int, total_bytes: int) -> None:
        if not self._tasks:
            self._bars.start()
        if file not in self._tasks:
            self._tasks[file] = self._bars.add_task(file, total=total_bytes or None)
        self._bars.update(self._tasks[file], completed=done_bytes)
