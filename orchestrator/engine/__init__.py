"""Where runs are executed: `local` on the guests of this machine's inventory, `dask` on many hosts. An engine
is handed the runs that are missing, and publishes each into the store."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from guest.records.printable import pip_install
from guest.records.run import Message, RunResult, RunSpec
from orchestrator.errors import PrerequisiteError
from orchestrator.store.index import Checked

DASK = ("distributed", "bokeh")  # bokeh is for its dashboard


class Reports(Protocol):
    """Receives the progress of attempts; guests by their names."""

    def started(self, guest: str, spec: RunSpec, cores: tuple[int, ...]) -> None: ...
    def message(self, guest: str, message: Message) -> None: ...
    def failed(self, spec: RunSpec, reason: str, kept: Path, *, again: bool) -> None: ...


class Observer(Reports, Protocol):
    """Receives all that happens; called from several threads."""

    def planned(self, specs: Sequence[RunSpec], done: Sequence[RunSpec]) -> None: ...
    def quarantined(self, spec: RunSpec, reason: str, kept: Path) -> None: ...
    def waiting(self, why: str) -> None: ...
    def finished(self, spec: RunSpec, result: RunResult) -> None: ...


@dataclass(slots=True)
class Summary:
    """What a sweep did."""

    planned: int = 0
    done_before: int = 0
    done_now: int = 0
    failed: list[str] = field(default_factory=list)
    quarantined: list[str] = field(default_factory=list)
    without_guest: list[str] = field(default_factory=list)
    elapsed_s: float = 0.0


class Engine(Protocol):
    """The contract. The caller holds the study's lock."""

    def has_guest(self, name: str) -> bool:
        """Whether runs of this guest can be executed; those of others are left for later."""

    def run(self, specs: Sequence[RunSpec], observer: Observer, summary: Summary, checked: Checked) -> None:
        """Executes runs, each with its retries, and publishes them; counts them in `summary`, and adds the
        published ones to `checked`. Raises the first infrastructure error, or KeyboardInterrupt, after every
        guest has stopped."""


def require_dask(module: str = "distributed", packages: Sequence[str] = DASK) -> None:
    """Raises PrerequisiteError with the line that installs it, or what a cluster needs besides."""
    if importlib.util.find_spec(module) is None:
        raise PrerequisiteError(f"many hosts need {module}: `{pip_install(*packages)}`")
