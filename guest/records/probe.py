"""What a probe asks of an agent and the answers: the vocabulary that `guest.probe.tasks`, the orchestrator
and the analysis share."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from guest.records.run import Framework

PROBE_VERSION = 1


class Part(StrEnum):
    """What of an operation is compared."""

    FORWARD = "forward"
    BACKWARD = "backward"  # the gradients of its inputs


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One entry of the registry at one size and type."""

    operation: str
    size: int
    dtype: str

    @property
    def key(self) -> str:
        return f"{self.operation}/{self.size}/{self.dtype}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeRequest:
    """Compute each case `runs` times. With `keep`, write what the first one gave into the request's folder,
    one file for all cases, arrays named `<case>/<part>/<number>`."""

    framework: Framework
    cases: tuple[Case, ...]
    runs: int
    keep: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PartResult:
    """`hashes` (of all outputs together) and `seconds` have an entry a run; `dtypes` one an output. A run
    before them is not counted."""

    part: Part
    hashes: tuple[str, ...]
    seconds: tuple[float, ...]
    dtypes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseResult:
    """`refused` is why the framework does not compute it (this type, this operation); "" when it does."""

    case: Case
    parts: tuple[PartResult, ...]
    refused: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeRow:
    """One part of one case on one thread count, beside the same on the reference count. `unique` of `runs`
    repetitions gave different bits here; `equal` says whether the first gives the reference's. `vs`, `vermv`
    and `vc` are those of Shanmugavelu et al. 2024 (the largest over the outputs; `vs` of scalars only); None
    where nothing was compared. `ratio` is the median time over the reference's."""

    operation: str
    part: Part
    dtype: str
    size: int
    threads: int
    equal: bool
    unique: int
    runs: int
    vs: float | None
    vermv: float | None
    vc: float | None
    max_ulp: int | None
    seconds: float
    ratio: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeReport:
    """`probe.json`. The first of `threads` is the reference; `refused` are cases that the framework does not
    compute, with its words; `unknown` operations of stored traces that the registry does not know."""

    framework: Framework
    created_at: str
    threads: tuple[int, ...]
    runs: int
    rows: tuple[ProbeRow, ...]
    refused: dict[str, str]
    unknown: tuple[str, ...]
    environment: dict[str, Any]
    version: int = PROBE_VERSION
