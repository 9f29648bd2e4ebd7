"""One row a comparison, one table for all of them, and the machine they were measured on."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import statistics
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass

from rich import box
from rich.markup import escape
from rich.table import Table

from guest.machine import fingerprint
from orchestrator.cores.leases import host_cores

LIBRARIES = ("torch", "tensorflow-cpu", "numpy", "pandas")


@dataclass(frozen=True, slots=True)
class Row:
    """One comparison. What the target judges is the median of the samples, unless another `value` is given;
    the samples (the same unit) show its spread. A row without a target is there to be read beside one that
    has it."""

    what: str
    samples: Sequence[float]
    unit: str = "x"
    _: KW_ONLY
    name: str = ""
    n: str = ""  # how many samples, unless it is given
    value: float | None = None
    at_least: float | None = None
    at_most: float | None = None

    @property
    def judged(self) -> float:
        return statistics.median(self.samples) if self.value is None else self.value

    def target(self) -> str:
        if self.at_least is not None:
            return f">= {self.show(self.at_least)}"
        return f"<= {self.show(self.at_most)}" if self.at_most is not None else ""

    def verdict(self) -> str:
        if self.at_least is not None:
            return "met" if self.judged >= self.at_least else "MISSED"
        if self.at_most is not None:
            return "met" if self.judged <= self.at_most else "MISSED"
        return ""

    def show(self, number: float) -> str:
        return f"{number:.2f}{'x' if self.unit == 'x' else ' ' + self.unit}"

    def spread(self) -> str:
        """`1.20 / 1.30 / 1.50`: min, median and max of the samples."""
        numbers = (min(self.samples), statistics.median(self.samples), max(self.samples))
        return " / ".join(f"{number:.2f}" for number in numbers)


def over(a: Sequence[float], b: Sequence[float]) -> list[float]:
    """Their ratios, one by one."""
    return [x / y for x, y in zip(a, b, strict=True)]


def machine() -> str:
    """CPU model, cores and load average: without them a time says little."""
    loads = " ".join(f"{load:.2f}" for load in os.getloadavg())
    versions = [f"Python {platform.python_version()}"]
    for name in LIBRARIES:
        try:
            versions.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            continue
    return (
        f"{fingerprint.cpu()['model']}, {len(host_cores())} cores, load average {loads}\n"
        f"{platform.system()} {platform.release()}, {', '.join(versions)}"
    )


def table(rows: Sequence[Row]) -> Table:
    drawn = Table(
        box=box.SIMPLE_HEAD,
        caption="min, median and max are over the parts of one run: blocks of runs, runs, or starts",
        caption_justify="left",
    )
    drawn.add_column("benchmark", no_wrap=True)
    drawn.add_column("what is compared", overflow="fold")
    for title in ("n", "value", "min / median / max", "target", ""):
        drawn.add_column(title, justify="right", no_wrap=True)
    for row in rows:
        verdict = row.verdict()
        style = {"met": "green", "MISSED": "bold red"}.get(verdict, "")
        drawn.add_row(
            row.name,
            escape(row.what),
            row.n or str(len(row.samples)),
            row.show(row.judged),
            row.spread(),
            row.target(),
            f"[{style}]{verdict}[/]" if style else "",
        )
    return drawn
