"""The study file: the keys of `study.toml`, their defaults and checks, and messages that name the key, the
value and what is allowed."""

from __future__ import annotations

import dataclasses
import math
import re
import tomllib
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    Discriminator,
    Field,
    Tag,
    ValidationError,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    field_validator,
    model_validator,
)

from analysis.load.design import MARGIN, read_study_file
from guest.datasets import datasets
from guest.records import bounded
from guest.records.run import Framework, Isa, Metric, Random, Seeds, Variant, most_epochs
from orchestrator.errors import UsageError
from orchestrator.study.engine import ENGINE_TABLES, EngineTable
from orchestrator.study.messages import did_you_mean, explain
from orchestrator.study.networks import Distinct, WorkloadTable
from orchestrator.study.projects import ArtifactsTable, MetricTable, Name, ProjectTable
from orchestrator.study.providers import (
    MAX_THREADS,
    PROVIDER_TABLES,
    Count,
    LocalTable,
    ProviderTable,
    QemuTable,
    Section,
    ThreadCount,
)

Seed = Annotated[int, Field(ge=0, lt=2**31, strict=True)]


class ModelSelection(StrEnum):
    """Which model is analysed. One run yields both."""

    BOTH = "both"
    SELECTED = "selected"  # the one with the best validation metric
    LAST = "last"


def _kind(value: Any) -> str:
    """A [[workload]] that names a project or its command is a user project; any other trains a network."""
    named = isinstance(value, dict) and not {"project", "command"}.isdisjoint(value)
    return "own" if named or isinstance(value, ProjectTable) else "network"


AnyWorkload = Annotated[
    Annotated[WorkloadTable, Tag("network")] | Annotated[ProjectTable, Tag("own")], Discriminator(_kind)
]


class SeedsTable(Section):
    """One factor's seed each, or "free"; a factor that is not named gets the study's seed. `count` is
    how many seeds in a row are crossed with the thread counts: the named ones, and those that follow them."""

    count: Count = 1
    initialisation: Seed | Literal["free"] | None = Field(default=None, examples=[1])
    data_order: Seed | Literal["free"] | None = Field(default=None, examples=["free"])
    augmentation: Seed | Literal["free"] | None = Field(default=None, examples=[1])
    dropout: Seed | Literal["free"] | None = Field(default=None, examples=[1])

    @field_validator("initialisation", "data_order", "augmentation", "dropout", mode="wrap")
    @classmethod
    def _number_or_free(cls, value: Any, read: ValidatorFunctionWrapHandler) -> Any:
        try:
            return read(value)
        except ValidationError:
            raise ValueError("a whole number from 0 to 2147483647 is needed, or 'free'") from None


class DataTable(Section):
    """Where data sets are looked for first, and downloaded to."""

    folder: Path | None = Field(default=None, examples=["data"])


class AnalysisTable(Section):
    """What is declared before the runs: the metric that findings are decided by (default: the first of each
    workload), and the margin within which two of its means count as the same."""

    primary: str = Field(default="", examples=["accuracy"])
    margin: float = Field(default=MARGIN, gt=0, strict=True)


class Study(Section):
    """A whole study file."""

    name: Name = "study"
    seed: Seed = 1
    repetitions: Count = 3
    cpus: Distinct[ThreadCount] = (1, 2, 4, 8)
    threads: Distinct[ThreadCount] | None = None
    inter_op_threads: Distinct[ThreadCount] | None = None
    variants: Distinct[Variant] = (Variant.FIXED_SEED, Variant.DEFAULT)
    repetitions_at_most: dict[Variant, Count] = Field(default_factory=dict)
    isa: Isa = Isa.NATIVE
    model_selection: ModelSelection = ModelSelection.BOTH
    metrics: Distinct[Metric] = (Metric.ACCURACY,)
    seeds: SeedsTable = SeedsTable()
    provider: ProviderTable = LocalTable()
    engine: EngineTable = EngineTable()
    data: DataTable = DataTable()
    analysis: AnalysisTable = AnalysisTable()
    workload: tuple[AnyWorkload, ...] = Field(min_length=1)

    @field_validator("seeds", mode="before")
    @classmethod
    def _number_or_table(cls, value: Any) -> Any:
        """`seeds = 10` is short for `[seeds] count = 10`."""
        if isinstance(value, dict | SeedsTable):
            return value
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ValueError("a whole number from 1 on is needed (how many seeds), or a table [seeds]")
        return {"count": value}

    @field_validator("repetitions_at_most")
    @classmethod
    def _of_its_variants(cls, value: dict[Variant, int], known: ValidationInfo) -> dict[Variant, int]:
        variants = known.data.get("variants", value)
        if more := ", ".join(name for name in value if name not in variants):
            has = ", ".join(variants)
            raise ValueError(
                f"the study's variants are {has}, without {more}: add it there or remove it here"
            )
        return value

    @model_validator(mode="after")
    def _crosses_seeds(self) -> Self:
        """Without `repetitions`, each of several seeds is used once on every thread count."""
        count = self.seeds.count
        if count == 1:
            return self
        wanted = f"{count} seeds are crossed with the thread counts (seeds)"
        if not any(variant.seeds_fixed for variant in self.variants):
            names = ", ".join(self.variants)
            raise ValueError(
                f"{wanted}, and variants ({names}) have free seeds: add 'fixed-seed', 'control' or 'exact'"
            )
        fixed = [
            seed for seed in dataclasses.astuple(self.factor_seeds(Variant.FIXED_SEED)) if seed is not None
        ]
        if not fixed:
            raise ValueError(f"{wanted}, and [seeds] frees all factors: give one of them a seed")
        if max(fixed) + count > 2**31:
            raise ValueError(f"{wanted}, from {max(fixed)} on: the last one is above 2**31 - 1")
        if "repetitions" not in self.model_fields_set:
            object.__setattr__(self, "repetitions", count)
        elif self.repetitions < count:
            raise ValueError(
                f"{wanted}, and repetitions = {self.repetitions} uses {self.repetitions} of them: write "
                f"repetitions = {count} or a multiple of it, leave it out, or take fewer seeds"
            )
        return self

    @model_validator(mode="after")
    def _has_an_end(self) -> Self:
        self.require_end(self.repetitions)
        return self

    def require_end(self, repetitions: int) -> None:
        """Raises ValueError for more repetitions than can be planned."""
        crossed = (self.cpus, self.threads or (0,), self.inter_op_threads or (0,), self.cpu_models)
        runs = repetitions * math.prod(map(len, (*crossed, self.variants, self.workload)))
        if runs > bounded.PLAN.items:
            raise ValueError(f"it plans {runs} runs, and a study has at most {bounded.PLAN.items}")

    @model_validator(mode="after")
    def _names_differ(self) -> Self:
        names = [w.name for w in self.workload]
        twice = next((n for n in names if names.count(n) > 1), None)
        if twice:
            raise ValueError(f"two workloads are named {twice!r}; give one of them another name")
        return self

    @model_validator(mode="after")
    def _suits_networks(self) -> Self:
        for table in self.networks:
            if more := ", ".join(sorted(set(table.variants or ()) - set(self.variants))):
                raise ValueError(f"workload {table.name!r} has variants that the study does not name: {more}")
            if table.epochs > (most := most_epochs(self._of(table))):
                raise ValueError(
                    f"workload {table.name!r} has epochs = {table.epochs}: "
                    f"with its metrics, at most {most} are kept"
                )
            classes = datasets.info(table.dataset).classes
            if classes > 2 and Metric.F1_BINARY in self._of(table):
                raise ValueError(
                    f"workload {table.name!r} has the metric f1_binary, which is for two classes, and "
                    f"{table.dataset} has {classes}: write f1_macro"
                )
        return self

    @model_validator(mode="after")
    def _measures_the_primary_outcome(self) -> Self:
        primary = self.analysis.primary
        known = list(dict.fromkeys(m for w in self.workload for m in self._of(w)))
        if "primary" in self.analysis.model_fields_set and primary not in known:
            raise ValueError(
                f"analysis.primary = {primary!r}: no workload has this metric; allowed are {', '.join(known)}"
                + did_you_mean(primary, known)
            )
        return self

    @model_validator(mode="after")
    def _has_a_margin_below_its_metrics(self) -> Self:
        if not self.projects and self.analysis.margin >= 1:
            raise ValueError(
                f"analysis.margin = {self.analysis.margin:g}: metrics of networks are from 0 to 1, so no two "
                "means are further apart; 0.01 is one percentage point"
            )
        return self

    def _of(self, workload: AnyWorkload) -> tuple[str, ...]:
        """The names of a workload's metrics."""
        if isinstance(workload, ProjectTable):
            return tuple(workload.metrics)
        return tuple(metric.value for metric in workload.metrics or self.metrics)

    @model_validator(mode="after")
    def _suits_projects(self) -> Self:
        if not self.projects:
            return self
        name = self.projects[0].name
        own = self.seeds.model_dump(exclude={"count"}).values()
        if len({self.seed if v is None else v for v in own}) > 1:
            raise ValueError(
                f"[seeds] sets a seed for each factor, and workload {name!r} is a project, which has one "
                "seed for all its generators: use seed alone, or put the project into a study of its own"
            )
        replaying = next((w.name for w in self.projects if w.random is Random.REPLAY), None)
        if replaying is not None and self.seeds != SeedsTable():
            raise ValueError(
                f"seeds sets, frees or counts seeds, and workload {replaying!r} has none: with random = "
                "'replay' its numbers are recorded; variants say which runs draw the same"
            )
        if self.model_selection is ModelSelection.SELECTED:
            raise ValueError(
                f"model_selection = 'selected': workload {name!r} is a project, of which only the last model "
                "is known: write 'both' or 'last'"
            )
        return self

    @property
    def networks(self) -> tuple[WorkloadTable, ...]:
        """The workloads that train a network of ours."""
        return tuple(w for w in self.workload if isinstance(w, WorkloadTable))

    @property
    def projects(self) -> tuple[ProjectTable, ...]:
        """The workloads that are user projects."""
        return tuple(w for w in self.workload if isinstance(w, ProjectTable))

    @property
    def frameworks(self) -> tuple[Framework, ...]:
        """Those that guests must have. What else a project imports is its own affair."""
        return tuple(dict.fromkeys(w.framework for w in self.workload if w.framework is not None))

    @property
    def cpu_models(self) -> tuple[str, ...]:
        """The CPU models that are compared; one that has no name where they are not."""
        named = self.provider.cpu_model if isinstance(self.provider, QemuTable) else ""
        return named if isinstance(named, tuple) else ("",)

    @property
    def guest_memory_mib(self) -> int:
        """What a guest is given of its host's memory; 0 where that is not limited."""
        return getattr(self.provider, "memory_mib", 0)

    def factor_seeds(self, variant: Variant, repetition: int = 1) -> Seeds:
        """The seeds of a run: None where the variant, or the [seeds] table, leaves a factor free. Repetitions
        take the seeds in turn, the same ones on every thread count."""
        if not variant.seeds_fixed:
            return Seeds()
        step = (repetition - 1) % self.seeds.count
        named = self.seeds.model_dump(exclude={"count"})
        return Seeds(
            **{
                factor: None if value == "free" else (self.seed if value is None else value) + step
                for factor, value in named.items()
            }
        )


TABLES: dict[str, type[Section]] = {
    "": Study,
    "workload.network": WorkloadTable,
    "workload.own": ProjectTable,
    "workload.own.artifacts": ArtifactsTable,
    "workload.own.metrics": MetricTable,
    "seeds": SeedsTable,
    **PROVIDER_TABLES,
    **ENGINE_TABLES,
    "analysis": AnalysisTable,
    "data": DataTable,
}
"""By the path of the table, with its kind in it; in the order of the study file."""


def load(path: Path) -> Study:
    """Reads and checks a study file. Raises UsageError that names file, line, key and value."""
    try:
        text = read_study_file(path)
    except FileNotFoundError:
        raise UsageError(
            f"{path}: there is no study here; `vbstudy init` writes one, and so does `vbstudy provision`"
        ) from None
    except IsADirectoryError:
        raise UsageError(f"{path}: is a folder; a study file is text (see `vbstudy init`)") from None
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: is not UTF-8 text: {error.reason} at byte {error.start}") from None
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from None
    return parse(text, str(path))


def parse(text: str, source: str = "study.toml") -> Study:
    """Checks a study file's text."""
    if not text.strip():
        raise UsageError(f"{source}: is empty; delete it and run `vbstudy init` for a commented one")
    try:
        data = tomllib.loads(text)
    except ValueError as error:  # also of numbers with thousands of digits
        raise UsageError(f"{source}: is not TOML: {error}") from None
    except RecursionError:
        raise UsageError(f"{source}: is nested too deep") from None
    try:
        return Study.model_validate(data)
    except ValidationError as error:
        errors = error.errors()
        # A list whose entries are all wrong is "too short" to pydantic besides; the entries say enough.
        inner = {e["loc"][:1] for e in errors if len(e["loc"]) > 1}
        shown = [e for e in errors if e["type"] != "too_short" or e["loc"] not in inner]
        lines = [explain(e, TABLES, data, text, source) for e in shown]
        raise UsageError("\n".join(dict.fromkeys(lines))) from None


def parse_counts(text: str, option: str = "--cpus") -> tuple[int, ...]:
    """`1,2,4,8` as typed on the command line. Raises UsageError that names the wrong piece."""
    counts: list[int] = []
    for piece in text.split(","):
        piece = piece.strip()
        if not re.fullmatch(r"[+-]?[0-9]{1,18}", piece):
            raise UsageError(
                f"{option} {text:.80}: {piece[:80]!r} is not a whole number; write for example 1,2,4,8"
            )
        count = int(piece)
        if not 1 <= count <= MAX_THREADS:
            raise UsageError(f"{option} {text}: {count} is not between 1 and {MAX_THREADS}")
        if count in counts:
            raise UsageError(f"{option} {text}: {count} is named twice")
        counts.append(count)
    return tuple(counts)
