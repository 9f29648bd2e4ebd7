"""The `[[workload]]` tables of user projects, and their checks."""

from __future__ import annotations

import re
import warnings
from pathlib import PurePosixPath
from typing import Annotated, Self

from pydantic import AfterValidator, Field, StrictBool, field_validator, model_validator

from guest.projects.artifacts import PICKLES
from guest.records.printable import unaccented
from guest.records.run import LOSSES, METRIC, Framework, Random
from orchestrator.study.providers import Seconds, Section, no_credentials

NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"
GIT_URL = re.compile(r"^(https?|ssh|git|file)://|^[\w.-]+@[\w.-]+:|\.git(@|$)")
COMMIT = re.compile(r"@([0-9a-f]{7,40})$")

Name = Annotated[str, Field(pattern=NAME_PATTERN)]
READ_FROM = ".json, .jsonl, .csv or .tsv, or a folder of TensorBoard events"


def _below(value: str) -> str:
    path = PurePosixPath(value)
    if path.is_absolute() or ".." in path.parts or not path.parts:
        raise ValueError("is a path below the project's folder, without '..'")
    return str(path)


PathBelow = Annotated[str, AfterValidator(_below)]


class MetricTable(Section):
    """Where one metric is read: `{ pattern = "..." }`, `{ file = "out.json", key = "a.b" }` or
    `{ report = true }`."""

    pattern: str | None = None
    file: PathBelow | None = None
    key: str | None = None
    report: StrictBool = False

    @field_validator("pattern")
    @classmethod
    def _one_group(cls, value: str | None) -> str | None:
        if value is None:
            return value
        try:
            with warnings.catch_warnings(action="ignore", category=FutureWarning):  # of `[[`, a valid set
                found = re.compile(value)
        except re.error as error:
            raise ValueError(f"is no regular expression: {error}") from None
        named = set(found.groupindex)
        if found.groups - len(named & {"epoch"}) != 1 or named - {"epoch", "value"}:
            raise ValueError(
                "needs one group in parentheses, the number, as in 'accuracy: ([0-9.]+)'; "
                "it may have a second one, (?P<epoch>...), beside (?P<value>...)"
            )
        if "epoch" in named and "value" not in named:
            raise ValueError("beside (?P<epoch>...) the number's group is named too: (?P<value>...)")
        return value

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        named = [n for n in ("pattern", "file", "report") if getattr(self, n)]
        if len(named) != 1:
            raise ValueError(
                "needs one of pattern (a line of output), file with key "
                f"({READ_FROM}) and report = true (vbstudy.report.metric)"
                + (f"; it has {' and '.join(named)}" if named else "")
            )
        if (self.key is not None) != (self.file is not None):
            raise ValueError("file and key belong together: the key, column or tag to read in the file")
        return self


def _no_pickle(value: str) -> str:
    if value.lower().endswith(PICKLES):
        raise ValueError(
            "is a pickle, which vbstudy never loads; have the project write .npy, .npz, .csv, "
            ".safetensors, .weights.h5, or torch.save(model.state_dict(), ...)"
        )
    return value


Artifact = Annotated[str, AfterValidator(_no_pickle), AfterValidator(_below)]


class ArtifactsTable(Section):
    """Files that the project writes."""

    predictions: Artifact | None = None
    weights: Artifact | None = None


class ProjectTable(Section):
    """A user project as a workload."""

    name: Name = ""
    project: Annotated[str, Field(min_length=1), AfterValidator(no_credentials)]
    command: tuple[str, ...] = Field(min_length=1)
    requirements: PathBelow | None = None
    wheels: str | None = None
    metrics: dict[str, MetricTable] = Field(min_length=1)
    artifacts: ArtifactsTable = ArtifactsTable()
    timeout_s: Seconds | None = None
    disk_limit_mib: int = Field(default=10240, ge=1, le=1 << 30, strict=True)
    random: Random = Random.SEED
    framework: Framework | None = None

    @field_validator("command", mode="before")
    @classmethod
    def _is_a_list(cls, value: object) -> object:
        if isinstance(value, str):
            message = 'is a list of words, as in ["python", "train.py", "--epochs", "3"]'
            raise ValueError(message)  # noqa: TRY004  (pydantic reports a ValueError as a wrong value)
        return value

    @field_validator("metrics")
    @classmethod
    def _names_fit(cls, value: dict[str, MetricTable]) -> dict[str, MetricTable]:
        for name in value:
            if name in ("loss", "epoch", "step"):
                raise ValueError(
                    f"{name!r} is taken; write train_loss, validation_loss or test_loss for a loss"
                )
            if not re.fullmatch(METRIC, name):
                raise ValueError(
                    f"{name!r}: letters, digits and '_' only, a letter first, 64 at most, 'sha256' not last"
                )
        if set(value) <= set(LOSSES):
            raise ValueError("beside losses one metric is needed, by which models are compared, as accuracy")
        return value

    @model_validator(mode="after")
    def _is_named(self) -> Self:
        if not self.name:
            base = re.sub(r"(\.git)?(@[0-9a-f]+)?/?$", "", self.project).rsplit("/", 1)[-1]
            name = re.sub(r"[^A-Za-z0-9._-]+", "-", unaccented(base)).strip("-._")[:64]
            if not name:
                raise ValueError(f'project = {self.project!r} gives no name: add name = "..."')
            object.__setattr__(self, "name", name)
        return self

    @property
    def commit(self) -> str:
        """The pin in `project`, or ""."""
        found = COMMIT.search(self.project) if self.is_git else None
        return found[1] if found else ""

    @property
    def location(self) -> str:
        """The path or URL without the pin."""
        return self.project[: -len(self.commit) - 1] if self.commit else self.project

    @property
    def is_git(self) -> bool:
        return bool(GIT_URL.search(self.project))
