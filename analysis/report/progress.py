"""How far a study is while its sweep is at work: what a live page says beside the findings so far."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Unfinished:
    """`sets` has (done, planned) by the id of each condition, `sweeping` whether a sweep is at work,
    `version` is another one for every page, by which a page knows that there is a newer one."""

    sets: dict[str, tuple[int, int]]
    sweeping: bool
    version: str
    at: str  # ISO 8601, UTC

    @property
    def done(self) -> int:
        return sum(done for done, _ in self.sets.values())

    @property
    def planned(self) -> int:
        return sum(planned for _, planned in self.sets.values())

    @property
    def open_sets(self) -> dict[str, str]:
        """What is said of each set that lacks runs: `still running: 2 of 3 runs`."""
        what = "still running" if self.sweeping else "incomplete"
        return {
            set_id: f"{what}: {done} of {planned} runs"
            for set_id, (done, planned) in self.sets.items()
            if done < planned
        }

    @property
    def state(self) -> str:
        sets = len(self.open_sets)
        if not sets:
            return "all planned runs are done"
        sets_text = f"{sets} condition{'s' if sets > 1 else ''}"
        if self.sweeping:
            return f"the sweep is at work, {sets_text} still running"
        return f"no sweep is at work, {sets_text} incomplete"
