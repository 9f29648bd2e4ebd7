"""What a paper says of how a study was done, and how others repeat it."""

from __future__ import annotations

import shlex
from collections.abc import Collection
from dataclasses import dataclass
from importlib import metadata

import pandas as pd

from analysis.load.design import STUDY_FILE, read_study_file
from analysis.load.study import StudyData, when
from analysis.provenance.study_file import public_study_file, study_file_of
from analysis.results.model import ALPHA
from analysis.stats.statistics import INTERVALS_NOTE
from guest.records.printable import counted, printable, series

VARIANTS = {
    "default": "with nothing fixed",
    "fixed-seed": "with all seeds fixed",
    "algo": "with free seeds and the framework's deterministic implementations",
    "control": "with fixed seeds and deterministic implementations",
    "exact": "with fixed seeds and exact mode",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """How to repeat the study: shell commands, and the study file they start from (empty: not there).
    `note` says what is not in it."""

    commands: str
    study_file: str
    note: str


def methods_paragraph(study: StudyData, classes: Collection[str], analyses: int = 1) -> str:
    """The methods of the study in a paragraph, every number from its runs. `classes` are the workloads whose
    predicted classes are known, `analyses` is how many interim analyses were planned."""
    runs = study.runs
    sizes = runs.groupby("set_id").size()
    n = str(sizes.min()) if sizes.min() == sizes.max() else f"{sizes.min()} to {sizes.max()}"
    settings = series([str(t) for t in runs.sort_values(["cpus", "intra_op", "inter_op"]).threads.unique()])
    variants = series([f"{VARIANTS[v]} ({v})" for v in runs.variant.unique()])
    trained = "; ".join(
        _workload(study, str(name), mine) for name, mine in runs.groupby("workload", sort=False)
    )
    return (
        "We trained the same models repeatedly, changing nothing within a variant but the CPU thread "
        f"setting: {trained}. Thread settings were {settings}; variants of training were {variants}. Each of "
        f"the {len(sizes)} conditions (workload, variant, thread setting) has n = {n} "
        f"run{'' if sizes.max() == 1 else 's'}, {len(runs)} in all, each in a fresh process on its guest's "
        f"CPUs. {seeds(study)} {run_order(study)} {levels(study, classes)} {primary_outcome(study)} "
        f"{comparison_text(analyses)} "
        "Each finding is decided over all workloads: it is supported when it is for all of them, "
        "not supported when it is refuted for some and supported for none, mixed when it is supported for "
        "some and refuted for others, and else inconclusive. F1's equivalence is tested in every pair at "
        f"{ALPHA:.0%} (Berger 1982) and corrected over the workloads by Hochberg's method; F2 compares "
        "hashes without a test; F1's differences and F3 to F5 are corrected by Holm's method. "
        f"{exclusions(study)} Experiments were analysed with {version()}."
    )


def levels(study: StudyData, classes: Collection[str]) -> str:
    """By what models were compared, and which models: projects do not record everything."""
    recorded = {
        "weights bit for bit (SHA-256)": study.recorded("last_weights_sha256"),
        "predicted class of every test sample": set(classes),
        "predictions that are no classes": study.recorded("last_predictions_sha256") - set(classes),
        "test metric": set(study.metrics),
    }
    compared = [what + _of(study, workloads) for what, workloads in recorded.items() if workloads]
    networks = set(study.metrics) - study.projects
    best = f" and for the one with the best validation metric{_of(study, networks)}" if networks else ""
    churn = (
        " Churn is the mean over pairs of runs of the share of test samples put in different classes."
        if classes
        else ""
    )
    return f"Models were compared by {series(compared)}, for the last model{best}.{churn}"


def _of(study: StudyData, workloads: Collection[str]) -> str:
    return "" if len(workloads) == len(study.metrics) else f" (of {series(sorted(workloads))})"


def run_order(study: StudyData) -> str:
    """In which order the runs started, by their records."""
    runs = study.runs.loc[when(study.runs.started_at).sort_values(kind="stable").index]
    changes = int((runs.set_id != runs.set_id.shift()).sum()) - 1
    sets = runs.set_id.nunique()
    if changes <= sets - 1:
        return "All runs of a condition were started one after the other, condition by condition."
    return (
        f"Runs of the conditions were interleaved: of {len(runs) - 1} starts after the first, {changes} were "
        "of another condition than the one before."
    )


def primary_outcome(study: StudyData) -> str:
    """What findings are decided by, and whether the study declared it."""
    outcomes = set()
    for workload in study.metrics:
        metric, view = study.primary(workload)
        margin = study.margin(workload, metric)
        known = "no margin of equivalence" if margin is None else f"margin of equivalence {margin:g}"
        outcomes.add(f"{metric} of the {view} model, {known}")
    how = declared(study) if study.design.declared else "by default; the study file declares none"
    return f"The primary outcome was {'; '.join(sorted(outcomes))} ({how})."


def declared(study: StudyData) -> str:
    """Whether the declaration is known to precede the first run: records do not keep it, so that the time of
    the study file's last change has to show it."""
    changed = pd.Timestamp((study.directory / STUDY_FILE).stat().st_mtime, unit="s", tz="UTC")
    if changed < when(study.runs.started_at).min():
        return "declared in study.toml, which was last changed before the first run"
    return "declared in study.toml; whether before the first run is not recorded"


def seeds(study: StudyData) -> str:
    """How many seeds the variants with fixed ones have."""
    count = study.seeds()
    if not count:
        return "No variant had fixed seeds."
    if count == 1:
        return "One fixed seed was used on every thread count; results with it hold for this seed alone."
    return f"{count} fixed seeds were used on the thread counts, and only runs of one seed were compared."


def comparison_text(analyses: int) -> str:
    """The tests, and what they were corrected for."""
    interim = (
        f"{analyses} interim analyses were planned; only the p values of thread counts compared in a metric, "
        "in pairs or all at once, are corrected for them (Bonferroni)."
        if analyses > 1
        else "There were no interim analyses."
    )
    return (
        "Thread settings were compared in pairs: runs of the same seeds, or recorded random numbers, with "
        "each other (sign-flip permutation, paired t), all others as sets of runs that are no copies "
        "(Brunner and Munzel's permutation test, Welch's t); two-sided tests of difference and two one-sided "
        "tests of equivalence, each with Holm's correction within workload, variant and view (alpha = "
        f"{ALPHA}); all settings at once in location (Kruskal and Wallis; Friedman where seeds are common) "
        "and, without common seeds, in dispersion (Brown and Forsythe), Holm's correction within the "
        "workload; the growth of the SD of the loss by a two-sided F test, which is conservative because "
        "both SDs are of the same models, and the effect of model selection by sign flips over seeds, each "
        "with Holm's correction over the workloads; times by t tests on logarithms, in blocks where they are "
        f"recorded, with Holm's correction over all of them. {INTERVALS_NOTE} {interim}"
    )


def exclusions(study: StudyData) -> str:
    """What was left out."""
    skipped = sum(problem.skipped and problem.path.startswith("runs/") for problem in study.problems)
    runs = (
        f"{skipped} run{' that was' if skipped == 1 else 's that were'} damaged or incomplete "
        f"{'was' if skipped == 1 else 'were'} left out"
        if skipped
        else "No finished run was left out"
    )
    failed = {set_id: sum(each.values()) for set_id, each in study.failures.items()}
    attempts = (
        f"{counted(sum(failed.values()), 'attempt')} in {counted(len(failed), 'condition')} failed and were "
        "repeated, with new seeds where seeds are free"
        if failed
        else "no attempt failed"
    )
    return (
        f"{runs}; {attempts}; times of oversubscribed, emulated or contended conditions were excluded "
        "from comparisons of time."
    )


def _workload(study: StudyData, name: str, runs: pd.DataFrame) -> str:
    first = runs.iloc[0]
    epochs = study.epochs[study.epochs.run_id.isin(runs.run_id)].groupby("run_id").epoch.max()
    count = str(epochs.min()) if epochs.min() == epochs.max() else f"{epochs.min()} to {epochs.max()}"
    metrics = series(list(study.metrics[name]))
    made = f"{first.framework} {first.framework_version}".strip()
    if name in study.projects:
        tree = first.project.tree_sha256[:12]
        at = f", commit {first.project.commit[:12]}" if first.project.commit else ""
        how = "" if first.project.random.how == "seeded" else "random numbers recorded once and replayed"
        facts = "; ".join(filter(None, (f"tree {tree}{at}", made, metrics, how)))
        return f"the project {name} as it is ({facts})"
    length = f"{count} epoch{'' if count == '1' else 's'}"
    return f"{first.model} on {first.dataset} in {made} ({name}: {length}; {first.training}; {metrics})"


def version() -> str:
    """`vbstudy 0.1.0`, as installed."""
    try:
        return f"vbstudy {metadata.version('vbstudy')}"
    except metadata.PackageNotFoundError:
        return "vbstudy"


def recipe(study: StudyData) -> Recipe:
    """The commands, with what is published of the study file where there is one."""
    path = study.directory / STUDY_FILE
    name = shlex.quote(printable(study.directory.resolve().name))
    begin = [f"mkdir {name}", f"cd {name}"]
    saved = [f"# save {STUDY_FILE} here", "vbstudy provision"]
    text = ""
    if study.edited or not path.is_file():
        text = study_file_of(study)
        what = f"has changed since: {study.edited}" if study.edited else "is not in the study's folder"
        note = f"{STUDY_FILE} {what}. The one below is made from the records of these runs (for projects see "
        note += f"run.json too). Save it as {STUDY_FILE} in the new folder."
    else:
        try:
            text, left_out = public_study_file(read_study_file(path))
        except (OSError, ValueError, RecursionError) as error:
            saved, note = [], f"{STUDY_FILE} cannot be read: {error}"
        else:
            note = f"Save the study file below as {STUDY_FILE} in the new folder first."
            if left_out:
                note += f" Private settings are left out: {', '.join(left_out)}; give your own."
    sweep = f"vbstudy sweep --runs {int(study.runs.repetition.max())}"
    return Recipe(commands="\n".join([*begin, *saved, sweep, "vbstudy analyze"]), study_file=text, note=note)
