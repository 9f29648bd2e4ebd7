"""What a reader of such a study asks, answered with its facts."""

from __future__ import annotations

from analysis.findings.implications import hardware_sentence
from analysis.report.methods import comparison_text, exclusions, primary_outcome, run_order, seeds, version
from analysis.results.model import Analysis, Verdict
from analysis.results.printing import shown_findings
from guest.records.printable import series

POPULATION = (
    "Results hold for the test samples that were used. For other samples of the same kind are the mean for "
    "other test samples, the p of one accuracy, and the intervals of agreement and of bins."
)


def planned_analyses(analysis: Analysis) -> int:
    """The interim analyses that the tests are corrected for; 1 without any."""
    frame = analysis.tables["tests"].frame
    return int(frame.analyses.max()) if len(frame) else 1


def checklist(analysis: Analysis) -> list[tuple[str, str]]:
    """(question, answer), in the order in which a paper reports it."""
    study, runs = analysis.study, analysis.study.runs
    sizes = runs.groupby("set_id").size()
    decided = [finding for finding in shown_findings(analysis) if not finding.workload]
    ids = {v: series([f.id for f in decided if f.verdict is v]) for v in Verdict}
    lost = [p for p in study.problems if not p.skipped]
    each = " to ".join(map(str, sorted({sizes.min(), sizes.max()})))
    return [
        ("Hardware and software", hardware_sentence(study)),
        ("Primary outcome and margin", primary_outcome(study)),
        ("Runs", f"{len(runs)} runs of {len(sizes)} conditions, {each} each."),
        ("Order of runs", run_order(study)),
        ("Seeds", seeds(study)),
        ("Tests and corrections", comparison_text(planned_analyses(analysis))),
        ("Exclusions", exclusions(study)),
        ("Reservations", f"{len(lost)}, under Problems." if lost else "None."),
        ("Population", POPULATION),
        ("Decisions", "; ".join(f"{v}: {listed}" for v, listed in ids.items() if listed) + "."),
        ("Data and code", f"{version()}; the commands and the study file are under To copy."),
    ]
