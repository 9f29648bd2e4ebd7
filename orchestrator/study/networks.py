"""The `[[workload]]` tables of networks, and their checks."""

from __future__ import annotations

from typing import Annotated, Any, Self, TypeVar

from pydantic import AfterValidator, Field, StrictBool, ValidationInfo, field_validator, model_validator

from guest import workloads
from guest.datasets import datasets
from guest.records.run import Framework, Metric, Optimizer, Variant
from orchestrator.study.messages import did_you_mean
from orchestrator.study.projects import Name
from orchestrator.study.providers import Count, Section

MAX_RATE = 1e6  # above all in use; far larger ones PyTorch cannot convert to float32

Each = TypeVar("Each")


def _known(registry: Any) -> AfterValidator:
    def check(value: str) -> str:
        if value not in registry:
            raise ValueError(f"allowed are {', '.join(registry)}{did_you_mean(value, registry)}")
        return value

    return AfterValidator(check)


def _distinct(values: tuple[Any, ...]) -> tuple[Any, ...]:
    if not values:
        raise ValueError("at least one is needed")
    twice = next((v for i, v in enumerate(values) if v in values[:i]), None)
    if twice is not None:
        raise ValueError(f"{getattr(twice, 'value', twice)!r} is named twice")
    return values


Distinct = Annotated[tuple[Each, ...], AfterValidator(_distinct)]


class WorkloadTable(Section):
    """What is trained."""

    name: Name = ""
    framework: Framework = Framework.TORCH
    model: Annotated[str, _known(workloads.MODELS)]
    dataset: Annotated[str, _known(datasets.DATASETS)]
    epochs: Count = 5
    batch_size: Count = 64
    learning_rate: float = Field(default=0.01, gt=0, le=MAX_RATE, strict=True)
    optimizer: Optimizer = Optimizer.SGD
    momentum: float = Field(default=0.0, ge=0, lt=1, strict=True)
    weight_decay: float = Field(default=0.0, ge=0, le=MAX_RATE, strict=True)
    augment: StrictBool = False
    train_samples: Count | None = None
    test_samples: Count | None = None
    metrics: Distinct[Metric] | None = None
    variants: Distinct[Variant] | None = None

    @field_validator("train_samples", "test_samples")
    @classmethod
    def _samples_are_there(cls, value: int | None, of: ValidationInfo) -> int | None:
        info = datasets.DATASETS.get(of.data.get("dataset", ""))  # an unknown one is reported already
        if value is not None and info is not None and info.samples is not None:
            train, test = info.samples
            part, there = ("training", train) if of.field_name == "train_samples" else ("test", test)
            if value > there:
                raise ValueError(datasets.too_many(info, part, there, value))
        return value

    @model_validator(mode="after")
    def _fits(self) -> Self:
        workloads.check(self.model, self.dataset)
        if self.optimizer is Optimizer.ADAM and self.momentum:
            raise ValueError("momentum belongs to optimizer = 'sgd'; adam has its own")
        info = datasets.info(self.dataset)
        if self.augment and info.kind != "image":
            raise ValueError(f"augment = true is for images, and {self.dataset} is {info.kind} data")
        count = self.train_samples or (info.samples[0] if info.samples else self.batch_size)
        if self.batch_size > count:
            raise ValueError(f"batch_size = {self.batch_size} is more than the {count} training samples")
        if not self.name:
            object.__setattr__(self, "name", f"{self.model}-{self.dataset}-{self.framework}")
        return self
