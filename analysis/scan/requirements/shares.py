"""How many projects state what they need: shares with Wilson's intervals, compared with the published ones,
and F6."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from statsmodels.stats.proportion import proportion_confint

from analysis.inference.published import load_published
from analysis.results.cells import number
from analysis.results.model import ALPHA, Finding, Kind, Table, Verdict, col
from analysis.scan.results import Part, Project, Scan

PUBLISHED = "issre21"
STATEMENT = "Most projects state their software requirements, few their hardware"


class Share(NamedTuple):
    """k of n, with Wilson's interval (Wilson, JASA 1927); of nothing, it may be any share."""

    k: int
    n: int
    value: float | None
    low: float
    high: float

    def __str__(self) -> str:
        if self.value is None:
            return "0 of 0"
        return f"{self.value:.1%} [{self.low:.1%}, {self.high:.1%}] ({self.k} of {self.n})"


def share(k: int, n: int) -> Share:
    if n == 0:
        return Share(0, 0, None, 0.0, 1.0)
    low, high = proportion_confint(k, n, ALPHA, method="wilson")
    return Share(k, n, k / n, float(low), float(high))


def shares(projects: Sequence[Project]) -> dict[str, tuple[str, Share, float | None]]:
    """By name: what is counted, our share, the published one (None: not published)."""
    published = load_published(PUBLISHED)["requirements"]
    with_software = [p for p in projects if p.software]
    with_hardware = [p for p in projects if p.hardware]
    parts = {part: sum(any(h.part is part for h in p.hardware) for p in with_hardware) for part in Part}
    n, soft, hard = len(projects), len(with_software), len(with_hardware)
    some = sum(any(r.pinned for r in p.software) for p in with_software)
    every = sum(p.pinned for p in with_software)
    return {
        "software": ("state software requirements", share(soft, n), published["software_share"]),
        "pinned_some": ("of these: pin at least one", share(some, soft), None),
        "pinned_all": ("of these: pin all", share(every, soft), None),
        "hardware": ("state hardware requirements", share(hard, n), published["hardware_share"]),
        "gpu": ("of these: a GPU", share(parts[Part.GPU], hard), published["gpu_of_hardware"]),
        "cpu": ("of these: a CPU", share(parts[Part.CPU], hard), published["cpu_of_hardware"]),
        "memory": ("of these: memory", share(parts[Part.MEMORY], hard), None),
        "threads": ("of these: cores or threads", share(parts[Part.THREADS], hard), None),
    }


def requirements_table(scan: Scan) -> Table:
    rows = [
        {
            "what": what,
            "share": ours.value,
            "low": ours.low,
            "high": ours.high,
            "k": ours.k,
            "n": ours.n,
            "text": str(ours),
            "published": published,
            "published_text": "not published" if published is None else f"{published:.1%}",
            "published_position": _position(ours, published),
        }
        for what, ours, published in shares(scan.projects).values()
    ]
    return Table.of(
        rows,
        col("what", "projects that"),
        col("text", "share"),
        col("published_text", "published"),
        col("published_position", "the published lies"),
        name="requirements",
        title=f"What {number(Kind.COUNT, len(scan.projects))} scanned projects state",
        note="Shares of projects with 95 % intervals (Wilson); they hold for a random sample of projects. "
        "Published: Xiao et al., ISSRE 2021, 245 projects, read by hand; ours are found by patterns, "
        "which miss what is said otherwise. Inside: the published share lies in our interval, "
        "which is no proof of sameness.",
    )


def _position(ours: Share, published: float | None) -> str:
    if published is None or ours.value is None:
        return ""
    return "inside" if ours.low <= published <= ours.high else "outside"


def requirements_finding(scan: Scan | None) -> Finding:
    """F6, over all projects of a scan. Holds when the interval of software lies above one half and that of
    hardware below; fails when one of them lies on the other side."""
    if scan is None or not scan.projects:
        why = "needs scanned projects: `vbstudy scan --each --keep FOLDER` scans a folder of them"
        return _finding(Verdict.INCONCLUSIVE, why, {}, table="")
    found = shares(scan.projects)
    software, hardware = found["software"], found["hardware"]
    numbers: dict[str, Any] = {name: {"k": ours.k, "n": ours.n} for name, (_, ours, _) in found.items()}
    why = (
        f"software stated by {software[1]}, published {software[2]:.1%}; hardware by {hardware[1]}, "
        f"published {hardware[2]:.1%}, of 245 projects"
    )
    (_, s, _), (_, h, _) = software, hardware
    if s.low > 0.5 and h.high < 0.5:
        return _finding(Verdict.SUPPORTED, why, numbers)
    if s.high < 0.5 or h.low > 0.5:
        return _finding(Verdict.NOT_SUPPORTED, why, numbers)
    return _finding(Verdict.INCONCLUSIVE, f"{why}; too few projects to tell these from one half", numbers)


def _finding(verdict: Verdict, why: str, numbers: dict[str, Any], table: str = "requirements") -> Finding:
    return Finding(
        id="F6", workload="", statement=STATEMENT, verdict=verdict, why=why, numbers=numbers, table=table
    )
