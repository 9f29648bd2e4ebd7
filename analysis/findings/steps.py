"""What to do next: the commands of vbstudy, and why a workload has none that traces it."""

from __future__ import annotations

from collections.abc import Iterator

from analysis.findings.summary import FEASIBLE, compared, differs, hardened, on_models, runs_needed
from analysis.provenance.checks import missing_runs
from analysis.results.model import ACROSS, Analysis
from analysis.sameness.verdicts import DIFFER
from guest.records.run import Variant

UNREPEATED = (
    "Runs of one thread count differ too, so two thread counts cannot be traced. First make one thread count "
    "repeat itself: the variant `control` also has deterministic implementations."
)
ONE_COUNT = "Thread settings that differ share one CPU count; `vbstudy trace --cpus` cannot compare them."
OTHER_MODEL = "`vbstudy trace --cpus` trains on the first CPU model of study.toml; models differ on another."
OTHER_VARIANT = "`vbstudy trace --cpus` runs projects in the variant `fixed-seed`; models differ in another."


def next_steps(analysis: Analysis) -> Iterator[tuple[str, str]]:
    """(arguments of vbstudy, what they answer), the most useful first."""
    plan, lacking = analysis.study.plan, missing_runs(analysis.study)
    if plan.runs is None and any("vbstudy sweep" in problem.todo for problem in analysis.study.problems):
        lacking = "the missing runs"
    if plan.instead is not None:
        yield plan.instead
    elif lacking:
        yield "sweep", lacking
    elif (needed := runs_needed(analysis)) and needed <= FEASIBLE:
        yield f"sweep --runs {needed}", "narrower intervals; a new study tests F1"
    if command := next(filter(None, (command for command, _ in _traces(analysis))), ""):
        yield command, "which operation starts it"
    other = {w for w in analysis.study.metrics if differs(analysis, w)}
    if other - set(hardened(analysis)):
        yield "harden", "one model on all thread counts, and its cost"
    yield "analyze --list-tables", "the numbers behind this"


def untraceable(analysis: Analysis) -> list[str]:
    """Why models that differ have no command that traces them."""
    return list(dict.fromkeys(why for _, why in _traces(analysis) if why))


def _traces(analysis: Analysis) -> Iterator[tuple[str, str]]:
    """Of each workload that differs and has no trace: the command that traces it, or why there is none."""
    traced = set(analysis.tables["traces"].frame.workload) if "traces" in analysis.tables else set()
    for workload in analysis.study.metrics:
        if differs(analysis, workload) and workload not in traced:
            why = _no_trace(analysis, workload)
            yield "" if why else _trace(analysis, workload), why


def _no_trace(analysis: Analysis, workload: str) -> str:
    study, (variant, rows) = analysis.study, compared(analysis, workload)
    low, high = _diverging(analysis, workload)
    if low == high:
        within = any(on_models(row) == DIFFER for scope, row in rows.items() if scope != ACROSS)
        return UNREPEATED if within else ONE_COUNT
    _, _, first_model = next(iter(study.plan.runs or ()), "").rpartition("/")[2].partition("-on-")
    if study.runs_of(workload).cpu_model_asked.iloc[0] != first_model:
        return OTHER_MODEL
    return OTHER_VARIANT if workload in study.projects and variant != Variant.FIXED_SEED else ""


def _trace(analysis: Analysis, workload: str) -> str:
    """With what differs from the defaults of `trace`."""
    study, variant = analysis.study, compared(analysis, workload)[0]
    low, high = _diverging(analysis, workload)
    options = f"--cpus {low},{high}"
    if len({name.partition("/")[0] for name in (*study.runs.set_id, *(study.plan.runs or ()))}) > 1:
        options += f" --workload {study.runs_of(workload).workload_name.iloc[0]}"
    return f"trace {options}" + (f" --variant {variant}" if variant != Variant.FIXED_SEED else "")


def _diverging(analysis: Analysis, workload: str) -> tuple[int, int]:
    """The smallest CPU count, and the next that gave another model of one seed."""
    runs = analysis.study.runs_of(workload, variant=compared(analysis, workload)[0])
    runs = runs.sort_values("cpus", kind="stable")
    view = analysis.study.primary(workload)[1]
    column = view.sha256("weights" if runs[view.sha256("weights")].notna().all() else "predictions")
    first = runs.drop_duplicates("seeds_used").set_index("seeds_used")[column]
    other = runs.cpus[runs[column] != runs.seeds_used.map(first)]
    return int(runs.cpus.min()), int(other.min() if len(other) else runs.cpus.min())
