"""Implications I1-I5 of the reference study (Xiao et al., ISSRE 2021) that follow from this study's findings,
with its numbers."""

from __future__ import annotations

from typing import Any

import pandas as pd

from analysis.cost.pareto import compared_variant, pareto
from analysis.cost.times import PLAIN, leads
from analysis.load.study import StudyData
from analysis.provenance.overrides import own_threads
from analysis.results.cells import missing, number, spread
from analysis.results.model import Finding, Implication, Kind, Table, Verdict
from guest.records.printable import series
from guest.records.run import EMULATORS

ACCELERATORS = {"kvm": "with KVM", **dict.fromkeys(EMULATORS, "emulated")}


def draw(
    study: StudyData, tables: dict[str, Table], findings: tuple[Finding, ...]
) -> tuple[Implication, ...]:
    """The implications with their evidence, a line a workload: I1, I2 and I3 for the workloads that support
    F2, F4 and F5, and not at all where none does."""
    supported = [f for f in findings if f.workload and f.verdict is Verdict.SUPPORTED]
    faster = {f.workload for f in supported if f.id == "F5"}
    timed = leads(tables["time"].frame.to_dict("records"))
    drawn = (
        Implication(
            id="I1",
            advice="Fix every seed, and still watch the thread count: a seed alone does not fix a model.",
            evidence=tuple(_models(f) for f in supported if f.id == "F2"),
        ),
        Implication(
            id="I2",
            advice="Use model selection, and remove the inconsistency itself where results must repeat.",
            evidence=tuple(_selection(f) for f in supported if f.id == "F4"),
        ),
        Implication(
            id="I3",
            advice="Tune the thread count; do not take all there are.",
            evidence=tuple(
                _fastest(row)
                for row in timed
                if row["workload"] in faster and row["variant"] in PLAIN and not missing(row["fastest"])
            ),
        ),
        Implication(
            id="I4",
            advice="Time and test performance are two objectives: choose among the thread counts that no "
            "other beats in both.",
            evidence=tuple(_front(study, workload) for workload in study.metrics),
        ),
        Implication(
            id="I5",
            advice="Report the CPU model and the thread count. To paste:",
            evidence=(hardware_sentence(study),),
        ),
    )
    return tuple(each for each in drawn if each.evidence)


def _models(finding: Finding) -> str:
    numbers = finding.numbers
    vectors = numbers["prediction_vectors"]  # None where predictions are not recorded
    return (
        f"{finding.workload}: {_seeds(numbers['seeds'])}, {numbers['models']} distinct models"
        f"{'' if vectors is None else f' and {vectors} prediction vectors'} on "
        f"{numbers['thread_counts']} thread counts (n={numbers['runs']})"
    )


def _seeds(count: int) -> str:
    return "one seed" if count == 1 else f"{count} seeds"


def _selection(finding: Finding) -> str:
    numbers = finding.numbers
    return (
        f"{finding.workload}: thread counts lie {spread(numbers['without'])} apart without model "
        f"selection, {spread(numbers['with'])} with (n={numbers['models']} distinct models)"
    )


def _fastest(row: dict[Any, Any]) -> str:
    return (
        f"{row['workload']}, {row['variant']}: fastest at {row['fastest']} "
        f"({number(Kind.SECONDS, row['wall_s'])} s, n={row['n']}), lead {row['lead']}"
    )


def _front(study: StudyData, workload: str) -> str:
    """The thread counts not beaten in both mean time and mean test performance, by the means alone."""
    variant, (metric, view) = compared_variant(study, workload), study.primary(workload)
    compared = [p for p in pareto(study, workload, view) if not p.excluded and p.score.value is not None]
    if len(compared) < 2:
        return f"{workload}: this study does not measure it on two thread counts with comparable times"
    kept = [
        f"{p.threads} ({number(Kind.SECONDS, p.wall_s.value)} s, {metric} "
        f"{number(Kind.METRIC, p.score.value)}, n={p.wall_s.n})"
        for p in compared
        if p.on_front
    ]
    if not kept:
        return f"{workload}: no front, as it is not known whether a larger {metric} is better"
    return f"{workload}, {variant}: threads {', '.join(kept)}; by means alone, differences may be chance"


def hardware_sentence(study: StudyData) -> str:
    """The sentence a paper should print on what its models were trained with."""
    runs = study.runs
    cpus = series([str(n) for n in sorted(runs.cpus.unique())])
    frameworks = {
        f"{row.framework} {row.framework_version}".strip()
        for row in runs[["framework", "framework_version"]].drop_duplicates().itertuples()
    }
    named = sorted(frameworks - {""})  # a project may import none that vbstudy knows
    software = f", with {series(named)}" if named else ""
    if len(frameworks) > len(named) > 0:
        software += " where a framework is known"
    machines = series(_known(runs.cpu_model)) or "an unknown CPU"
    where = provider_text(study)
    if under := _known(runs.hypervisor):
        where += f", hypervisor: {series(under)}"
    return (
        f"All {len(runs)} models were trained on {machines} in guests with {cpus} "
        f"CPU{'' if cpus == '1' else 's'} ({where}), {_threads(runs)}{software}."
    )


def provider_text(study: StudyData) -> str:
    """What made the guests, and whether their CPUs were real: `qemu provider, emulated`."""
    runs = study.runs
    provider = f"{series(_known(runs.provider)) or 'unknown'} provider"
    how = [ACCELERATORS.get(name, name) for name in _known(runs.accelerator)]
    return ", ".join(filter(None, (provider, series(how))))


def _threads(runs: pd.DataFrame) -> str:
    if any(own_threads(each) for _, each in runs.groupby(["workload", "variant"])):
        return "some with a thread count that the program sets itself"
    if (runs.intra_op == runs.cpus).all() and (runs.inter_op == runs.cpus).all():
        who = "each framework" if runs.framework.all() else "each"
        return f"{who} using as many threads as CPUs"
    intra, inter = (series([str(n) for n in sorted(runs[c].unique())]) for c in ("intra_op", "inter_op"))
    return f"with {intra} intra-op and {inter} inter-op threads"


def _known(values: pd.Series) -> list[str]:
    return [value for value in values.unique() if value]
