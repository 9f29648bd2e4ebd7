"""The tables of a study: the list of what is computed. Each table states n."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from analysis.cost.convergence import convergence
from analysis.cost.times import times
from analysis.diagnosis.traces import trace_tables
from analysis.inference.components import components
from analysis.inference.interim import interim_table
from analysis.inference.omnibus import set_tests
from analysis.inference.pairwise import comparisons
from analysis.inference.seeds import seeds
from analysis.load.predictions import Predictions
from analysis.load.study import StudyData
from analysis.provenance.overrides import overrides
from analysis.quality.calibration import calibration_tables
from analysis.quality.histories import loss_rows, loss_sd_by_epoch, max_difference
from analysis.quality.performance import performance
from analysis.quality.robustness import robustness_tables
from analysis.quality.subgroups import by_class, subgroups
from analysis.results.model import Table
from analysis.sameness.churn import churn
from analysis.sameness.distance import distance
from analysis.sameness.verdicts import cpu_models, verdicts
from analysis.stats.processes import in_processes
from guest.records.robustness import Robustness
from guest.records.trace import Trace

MANY = 500  # runs, from which on processes save more than they cost


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """All that tables are built from."""

    study: StudyData
    predictions: Predictions
    measured: Sequence[Robustness]
    looks: dict[str, Any] | None  # of a sequential sweep
    traces: Sequence[Trace]

    @property
    def analyses(self) -> int:
        """The interim analyses over which the error is spent; 1 where there are none."""
        return 1 if self.looks is None else max(1, len(self.looks["plan"]["looks"]))

    # Projects do not record everything; what a table needs, its workloads must have.

    @property
    def labelled(self) -> StudyData:
        """The workloads with the classes that all their runs predict."""
        return self.study.only(self.predictions.workloads)

    @property
    def classified(self) -> StudyData:
        """... and the true classes."""
        return self.study.only(self.predictions.truth)

    @property
    def scored(self) -> StudyData:
        """... and the scores of all classes."""
        return self.classified.only(self.study.recorded("last_logits_sha256"))


def _of(part: StudyData, make: Callable[[StudyData], tuple[Table, ...]]) -> tuple[Table, ...]:
    """The tables of a part of the study; none where it has no runs."""
    return make(part) if len(part.runs) else ()


def _distances(study: StudyData) -> tuple[Table, ...]:
    by_epoch = _of(study.only(study.with_loss()), lambda part: (loss_sd_by_epoch(part),))
    return (distance(study, chain(*map(loss_rows, by_epoch))), *by_epoch)


Maker = Callable[[Inputs], tuple[Table, ...]]
MAKERS: tuple[Maker, ...] = (
    lambda i: (verdicts(i.study),),
    lambda i: (cpu_models(i.study),),
    lambda i: trace_tables(i.study, i.traces),
    lambda i: (
        performance(i.study, i.predictions, (of_seeds := seeds(i.study)).frame.to_dict("records")),
        of_seeds,
    ),
    lambda i: (max_difference(i.study),),
    lambda i: (comparisons(i.study, i.analyses),),
    lambda i: (set_tests(i.study, i.analyses),),
    lambda i: () if i.looks is None else (interim_table(i.looks),),
    lambda i: (components(i.study),),
    lambda i: _of(i.labelled, lambda part: (churn(part, i.predictions),)),
    lambda i: _of(i.scored, lambda part: calibration_tables(part, i.predictions)),
    lambda i: _of(i.classified, lambda part: robustness_tables(part, i.predictions, i.measured)),
    lambda i: _of(i.classified, lambda part: (subgroups(classes := by_class(part, i.predictions)), classes)),
    lambda i: _distances(i.study),
    lambda i: (times(i.study),),
    lambda i: _of(i.study.only(set(i.study.metrics) - i.study.projects), lambda part: (convergence(part),)),
    lambda i: overrides(i.study),
)
"""Every table, in the order of reading."""


def build_tables(
    study: StudyData,
    predictions: Predictions,
    measured: Sequence[Robustness] = (),
    looks: dict[str, Any] | None = None,
    traces: Sequence[Trace] = (),
) -> dict[str, Table]:
    """Every table by name, in the order of reading. Those of large studies are built by several processes."""
    inputs = Inputs(study=study, predictions=predictions, measured=measured, looks=looks, traces=traces)
    parts = in_processes(_make, range(len(MAKERS)), inputs, worth_it=len(study.runs) >= MANY)
    return {table.name: table for tables in parts for table in tables}


def _make(inputs: Inputs, i: int) -> tuple[Table, ...]:
    return MAKERS[i](inputs)
