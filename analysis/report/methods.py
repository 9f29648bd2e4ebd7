"""What a paper says of how a study was done, and how others repeat it."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from importlib import metadata

import pandas as pd

from analysis.findings.implications import series
from analysis.load.design import STUDY_FILE
from analysis.load.study import StudyData
from analysis.provenance.study_file import public_study_file
from analysis.results.model import ALPHA

VARIANTS = {
    "default": "with nothing fixed",
    "fixed-seed": "with all seeds fixed",
    "algo": "with free seeds and the framework's deterministic implementations",
    "control": "with fixed seeds and deterministic implementations",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """How to repeat the study: shell commands, and the study file they start from (empty: not there).
    `note` says what is not in it."""

    commands: str
    study_file: str
    note: str


def methods_paragraph(study: StudyData) -> str:
    """The methods of the study in a paragraph, every number from its runs."""
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
        "CPUs. Models were compared at three levels: weights bit for bit (SHA-256), predicted class of every "
        "test sample, and test metric, for the last model and for the one with the best validation metric. "
        "Churn is the mean over pairs of runs of the share of test samples put in different classes. Means "
        "have 95 % Student's t intervals, standard deviations 95 % chi-square intervals; thread settings "
        "were compared in pairs by two-sided Mann-Whitney U tests with Holm's correction within each "
        f"workload, variant and view (alpha = {ALPHA}). Times of oversubscribed, emulated or contended sets "
        f"were excluded from comparisons. Experiments were analysed with {version()}."
    )


def _workload(study: StudyData, name: str, runs: pd.DataFrame) -> str:
    first = runs.iloc[0]
    epochs = study.epochs[study.epochs.run_id.isin(runs.run_id)].groupby("run_id").epoch.max()
    count = str(epochs.min()) if epochs.min() == epochs.max() else f"{epochs.min()} to {epochs.max()}"
    metrics = series(list(study.metrics[name]))
    made = " ".join(filter(None, (first.framework, first.framework_version)))
    if name in study.projects:
        tree = first.project.tree_sha256[:12]
        at = f", commit {first.project.commit[:12]}" if first.project.commit else ""
        how = "" if first.project.random.how == "seeded" else "; random numbers recorded once and replayed"
        return f"the project {name} as it is (tree {tree}{at}; {made}; {metrics}{how})"
    length = f"{count} epoch{'' if count == '1' else 's'}"
    return f"{first.model} on {first.dataset} in {made} ({name}: {length}; {metrics})"


def version() -> str:
    """`vbstudy 0.1.0`, as installed."""
    try:
        return f"vbstudy {metadata.version('vbstudy')}"
    except metadata.PackageNotFoundError:
        return "vbstudy"


def recipe(study: StudyData) -> Recipe:
    """The commands, with what is published of the study file where there is one."""
    runs = int(study.runs.repetition.max())
    path = study.directory / STUDY_FILE
    name = shlex.quote(study.directory.resolve().name)
    begin = [f"mkdir {name}", f"cd {name}"]
    end = [f"vbstudy sweep --runs {runs}", "vbstudy analyze"]
    if not path.is_file():
        counts = ",".join(str(n) for n in sorted(study.runs.cpus.unique()))
        note = "The study file is not in the study's folder: the commands make a default one, which need not "
        note += "be the one that these runs were trained with. The settings of each run are in its run.json."
        commands = [*begin, f"vbstudy provision --cpus {counts}", *end]
        return Recipe(commands="\n".join(commands), study_file="", note=note)
    try:
        text, left_out = public_study_file(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        note = f"{STUDY_FILE} cannot be read: {error}"
        return Recipe(commands="\n".join([*begin, *end]), study_file="", note=note)
    note = f"Save the study file below as {STUDY_FILE} in the new folder first."
    if left_out:
        note += f" Left out of it, as its owner's: {', '.join(left_out)}; give your own."
    commands = [*begin, f"# save {STUDY_FILE} here", "vbstudy provision", *end]
    return Recipe(commands="\n".join(commands), study_file=text, note=note)
