"""The tables of a study: the list of what is computed. Each table states n."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from analysis.calibration import calibration_tables
from analysis.churn import churn
from analysis.comparisons import u_tests
from analysis.components import components
from analysis.convergence import convergence, overhead
from analysis.effectiveness import effectiveness
from analysis.histories import loss_sd, loss_sd_by_epoch, max_difference
from analysis.load import Study
from analysis.logits import logits
from analysis.planning import looks_table, power_table
from analysis.predictions import Predictions
from analysis.processes import in_processes
from analysis.results import Table
from analysis.robustness import robustness_tables
from analysis.set_tests import effect_sizes, equivalence, set_tests
from analysis.subgroups import by_class, subgroups
from analysis.times import fastest, wall_time
from analysis.trace_tables import trace_tables
from analysis.verdicts import cpu_models, divergence, verdicts
from analysis.weights import weights
from guest.robustness_records import Robustness
from guest.trace_records import Trace

MANY = 500  # runs, from which on processes save more than they cost


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """All that tables are built from."""

    study: Study
    predictions: Predictions
    measured: Sequence[Robustness]
    looks: dict[str, Any] | None  # of a sequential sweep
    traces: Sequence[Trace]


Maker = Callable[[Inputs], tuple[Table, ...]]
MAKERS: tuple[Maker, ...] = (
    lambda i: (verdicts(i.study),),
    lambda i: (cpu_models(i.study),),
    lambda i: (divergence(i.study),),
    lambda i: trace_tables(i.study, i.traces),
    lambda i: (effectiveness(i.study),),
    lambda i: (max_difference(i.study),),
    lambda i: (u_tests(i.study),),
    lambda i: (set_tests(i.study),),
    lambda i: (effect_sizes(i.study),),
    lambda i: (equivalence(i.study),),
    lambda i: (power_table(i.study),),
    lambda i: () if i.looks is None else (looks_table(i.looks),),
    lambda i: (components(i.study),),
    lambda i: (churn(i.study, i.predictions),),
    lambda i: calibration_tables(i.study, i.predictions),
    lambda i: robustness_tables(i.study, i.predictions, i.measured),
    lambda i: (subgroups(classes := by_class(i.study, i.predictions)), classes),
    lambda i: (weights(i.study),),
    lambda i: (logits(i.study),),
    lambda i: (loss_sd(by_epoch := loss_sd_by_epoch(i.study)), by_epoch),
    lambda i: (wall_time(i.study),),
    lambda i: (fastest(i.study),),
    lambda i: (convergence(i.study),),
    lambda i: (overhead(i.study),),
)
"""Every table, in the order of reading."""


def build_tables(
    study: Study,
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
