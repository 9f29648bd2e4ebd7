"""Which mishap each run of a soak meets, in the processes of both sides. Drawn once from a seed and written
down, so that a soak can be done again."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path

from tests.faults import arming
from tests.faults.arming import Mishap, Place

PLAN = "soak.json"
SHARE = 0.15  # of the runs that meet one
_BEGINS = "__import__('tests.faults.soaking', fromlist=['begins']).begins({})"
BEGIN = {
    "host": Place(point="run requested", doing=_BEGINS.format("spec.run_id")),
    "guest": Place(point="run begun", doing=_BEGINS.format("run_id")),
}
ONCE_A_GUEST = ("agent started", "framework imported", "worker announced", "request read", "data loaded")
NOT_IN_A_RUN = ("process started", "stream made", "agent ready", "incoming folder made", "live file written",
                "live file renamed")  # fmt: skip
_now = {"run": ""}


def begins(run_id: str) -> None:
    """What follows is this run's."""
    _now["run"] = run_id


def menu() -> dict[str, list[Mishap]]:
    """By side: what a sweep copes with alone, and can meet in every run."""
    from tests.faults.mishaps import DONE, FAULTS
    from tests.faults.points import AGENT, GUEST

    forked = [point.crash for point in AGENT if point.crash.place.point not in ONCE_A_GUEST]
    host = [fault.mishap for fault in FAULTS if fault.side == "host" and fault.status == DONE]
    return {
        "guest": [m for m in forked if m.name != "agent run forked"]
        + [fault.mishap for fault in FAULTS if fault.side == "guest"],
        "host": [mishap for mishap in host if _in_a_run(mishap)]
        + [point.crash for point in GUEST if _in_a_run(point.crash)],
    }


def _in_a_run(mishap: Mishap) -> bool:
    """Whether it comes after a run began, in the same process and each run."""
    place = mishap.place
    return place.point not in NOT_IN_A_RUN and ".checked" not in place.when and "clock" not in mishap.name


def draw(run_ids: Sequence[str], seed: int) -> dict[str, tuple[str, str]]:
    """By run: side and name of its mishap."""
    generator, kinds = random.Random(seed), menu()
    everything = [(side, mishap.name) for side, mishaps in kinds.items() for mishap in mishaps]
    return {run: generator.choice(everything) for run in run_ids if generator.random() < SHARE}


def mark(folder: Path, run: str) -> Path:
    """The file that tells that a run has met its mishap."""
    return folder / f"met-{run.replace('/', '-')}"


def arm(side: str, folder: Path) -> None:
    """This process, and those that it forks, meet what is drawn for them."""
    if not (folder / PLAN).exists():
        return
    plan = json.loads((folder / PLAN).read_text())
    mishaps = {mishap.name: mishap for mishap in menu()[side]}

    def due(name: str) -> bool:
        if name == BEGIN[side].point:
            return True
        run = _now["run"]
        return plan.get(run) == [side, name] and arming.first(mark(folder, run))

    def happen(name: str) -> None:
        if name in mishaps:
            arming.befall(mishaps[name])

    places = {name: mishap.place for name, mishap in mishaps.items()}
    arming.insert(places | {BEGIN[side].point: BEGIN[side]}, due, happen)
