"""The state of a study as text on a terminal."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rich import box
from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from guest.records.printable import counted, printable
from orchestrator.sweep.live import Running
from orchestrator.sweep.names import Folded
from orchestrator.sweep.watch import SetNow, Watched
from orchestrator.text import duration

BLOCKS = "▁▂▃▄▅▆▇█"
LOSSES_SHOWN = 16
BAR_WIDTH = 16
OTHER_LINES = 16  # lines of everything else, at least
NARROW = 100  # columns: in fewer, names are folded


def render(frame: Watched, height: int | None = None, width: int = NARROW) -> RenderableType:
    """All of it, or what fits into `height` lines: sets that are complete are left out first. Texts of
    guests are shown as they are (`Text`), never read as markup."""
    parts: list[RenderableType] = [_head(frame), _guests(frame)]
    room = None
    if height is not None:
        lines = 2 if width < NARROW else 1  # of a row
        left = height - OTHER_LINES - lines * len(_names(frame)) - 2 * len(frame.failures)
        room = max(3, left // lines)
    parts.append(_sets(frame, room))
    if frame.failures:
        parts.append(_failures(frame))
    return Group(*parts)


def sparkline(losses: Sequence[float]) -> str:
    """The last losses as bars from the smallest to the largest of them; `!` for one that is not finite."""
    shown = losses[-LOSSES_SHOWN:]
    finite = [loss for loss in shown if math.isfinite(loss)]
    low, high = (min(finite), max(finite)) if finite else (0.0, 0.0)
    scale = (len(BLOCKS) - 1) / (high - low) if high > low else 0.0
    return "".join(BLOCKS[round((loss - low) * scale)] if math.isfinite(loss) else "!" for loss in shown)


def _head(frame: Watched) -> RenderableType:
    line = Text.assemble((printable(frame.study), "bold"), "  ", *_state(frame))
    bar = Table.grid(padding=(0, 1))
    bar.add_row(
        ProgressBar(total=max(frame.planned, 1), completed=frame.done, width=2 * BAR_WIDTH),
        f"{frame.done} of {frame.planned} runs",
        _left(frame),
    )
    return Group(line, bar)


def _state(frame: Watched) -> list[str | tuple[str, str]]:
    sweep = frame.sweep
    if sweep is None:
        return ["no sweep has begun; run `vbstudy sweep`"]
    where = f"process {sweep.process} on {printable(sweep.host, limit=60)}"
    now = f"{sweep.done_now} done now"
    if sweep.failed_now:
        now += f", {sweep.failed_now} attempts failed"
    if frame.alive:
        waiting = [("\n" + printable(sweep.waiting, limit=200), "yellow")] if sweep.waiting else []
        return [("sweeping", "green"), f"  {where}, {now}", *waiting]
    ended = {
        "ended": ("the sweep has ended", ""),
        "stopped": ("the sweep was stopped; `vbstudy sweep` continues it", "yellow"),
        "failed": ("the sweep ended with an error", "red"),
        "running": (f"no update from the sweep for {duration(frame.silent_s)}: killed?", "red"),
    }[sweep.state]
    return [ended, f"  {where}, {now}"]


def _left(frame: Watched) -> str:
    if frame.done >= frame.planned:
        return "nothing left to run"
    if not frame.alive:
        return f"{frame.planned - frame.done} left to run"
    if frame.eta_s is None:
        return "time left: unknown until the first runs end"
    return f"about {duration(frame.eta_s)} left"


def _names(frame: Watched) -> list[str]:
    """Guests of the inventory, and those that run without being in it."""
    return list(dict.fromkeys([*frame.guests, *(run.guest for run in frame.running)]))


def _guests(frame: Watched) -> RenderableType:
    running = {run.guest: run for run in frame.running}
    names = _names(frame)
    table = Table(title="Guests", title_justify="left", box=box.SIMPLE_HEAD, expand=False)
    for heading in ("guest", "cores", "run", "epoch", "for", "training loss"):
        table.add_column(heading, no_wrap=heading not in ("run", "training loss"), overflow="fold")
    for name in names:
        table.add_row(*_guest(name, running.get(name)))
    if not names:
        elsewhere = frame.sweep is not None and not frame.sweep.cores  # hosts make their guests themselves
        table.caption = "none at work" if elsewhere else "none yet: run `vbstudy provision`"
    return table


def _guest(name: str, run: Running | None) -> tuple[RenderableType, ...]:
    if run is None:
        return (Text(name), "", Text("idle", "dim"), "", "", "")
    finite = [loss for loss in run.losses[-1:] if math.isfinite(loss)]
    scores = [f"{printable(key, limit=20)} {value:.4f}" for key, value in run.scores.items()]
    return (
        Text(name),
        _cores(run.cores),
        Folded(printable(run.run_id)),
        f"{run.epoch}/{run.epochs}" if run.epochs else str(run.epoch or "–"),  # a project's are not known
        duration(run.running_s),
        Text.assemble(
            (sparkline(run.losses), "cyan"), " ", ", ".join([f"loss {loss:.4g}" for loss in finite] + scores)
        ),
    )


def _cores(cores: Sequence[int]) -> str:
    """`0-3,8`."""
    parts: list[list[int]] = []
    for core in sorted(cores):
        if parts and core == parts[-1][-1] + 1:
            parts[-1].append(core)
        else:
            parts.append([core])
    return ",".join(str(p[0]) if len(p) == 1 else f"{p[0]}-{p[-1]}" for p in parts)


def _sets(frame: Watched, room: int | None) -> RenderableType:
    shown = list(frame.sets)
    if room is not None and len(shown) > room:
        shown = sorted(shown, key=lambda s: (s.to_do == 0, s.running == 0))[:room]
    table = Table(title="Conditions", title_justify="left", box=box.SIMPLE_HEAD, expand=False)
    table.add_column("condition")
    table.add_column("", no_wrap=True, min_width=BAR_WIDTH)
    for heading in ("done", "running", "failed", "left"):
        table.add_column(heading, justify="right", no_wrap=True)
    for each in shown:
        table.add_row(*_set(each, frame.alive))
    if len(shown) < len(frame.sets):
        table.caption = f"and {counted(len(frame.sets) - len(shown), 'more condition')}"
    return table


def _set(each: SetNow, alive: bool) -> tuple[RenderableType, ...]:
    return (
        Folded(each.set_id),
        ProgressBar(total=each.planned, completed=each.done, width=BAR_WIDTH),
        f"{each.done}/{each.planned}",
        str(each.running or ""),
        Text(str(each.failed_attempts or ""), "red"),
        "" if each.to_do == 0 else duration(each.left_s) if alive else counted(each.to_do, "run"),
    )


def _failures(frame: Watched) -> RenderableType:
    table = Table(title="The last failed attempts", title_justify="left", box=box.SIMPLE_HEAD)
    for heading in ("at", "evidence", "why"):
        table.add_column(heading, overflow="fold")
    for failure in frame.failures:
        table.add_row(Text(failure.at[:19]), Text(failure.evidence), Text(failure.why))
    return table
