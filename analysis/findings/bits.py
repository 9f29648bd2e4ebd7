"""F2 and F3: whether models with equal seeds are the same to the last bit, and how a difference begins."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from scipy import stats
from statsmodels.stats.proportion import proportion_confint

from analysis.findings.decision import SAME_THREADS, Decision, open_
from analysis.load.study import StudyData, by_seeds, by_threads, shared_seeds, thread_settings
from analysis.provenance.checks import mixture
from analysis.provenance.overrides import own_threads
from analysis.quality.histories import by_setting
from analysis.results.cells import p_value
from analysis.results.model import ACROSS, ALPHA, Table, Verdict
from analysis.stats.statistics import effective, holm
from guest.records.printable import counted
from guest.records.run import Framework
from guest.records.trace import Outcome

FIRST_STEPS = 16  # the published divergences appear at steps 2, 4 and 9; steps are hashed at powers of 2
LEAST_KURTOSIS = 0.75  # excess: with that of the values alone the F test rejects 8 % where they are skewed
WEIGHTS, PREDICTIONS = "last_weights_sha256", "last_predictions_sha256"

# ---- F2 ------------------------------------------------------------------------------------------


def fixed_seeds(study: StudyData, _tables: dict[str, Table]) -> dict[str, Decision]:
    """F2, from the weights of the last models of the `fixed-seed` variant, seed by seed: facts, no tests.
    Supported when each thread count has repetitions, all of them equal, and some seed's models differ across
    thread counts. Not supported when repetitions with one seed differ within a thread count, or when no
    seed's models differ across them: single runs suffice, as there is no difference to attribute. What n
    equal runs leave possible is stated (`another_model`)."""
    return {workload: _fixed_seeds(study, workload) for workload in study.metrics}


def another_model(repeats: int) -> float:
    """The one-sided 95 % bound (Clopper and Pearson 1934) of the chance that a run gives another model than
    the first one did, when none of `repeats` runs after it has: 0.78 for two, of three equal runs."""
    return float(proportion_confint(0, repeats, alpha=2 * ALPHA, method="beta")[1])


def _fixed_seeds(study: StudyData, workload: str) -> Decision:
    runs = study.runs_of(workload, variant="fixed-seed")
    settings = by_threads(runs)
    if len(settings) < 2:
        return open_(f"needs two thread counts with fixed seeds; there is {len(settings) or 'none'}")
    if thread_settings(runs)[0] < 2:
        return open_(SAME_THREADS)
    if runs[WEIGHTS].isna().any() or (runs[WEIGHTS] == "").any():
        return open_("the project's weights were not recorded: nothing is said of bitwise equality")
    if other := mixture(runs):
        return open_(f"the runs differ in more than threads: {other}")
    own = own_threads(runs)
    cells = runs.groupby(["threads", "seeds_used"], sort=False)[WEIGHTS].agg(["size", "nunique"])
    diverged, shared = cells[cells["nunique"] > 1], shared_seeds(runs)
    if shared and diverged.empty:  # seeds of one thread count tell nothing across them
        runs = pd.concat(shared)
        settings, cells = (
            by_threads(runs.sort_index()),
            cells[cells.index.isin(set(runs.seeds_used), level=1)],
        )
    repeated, equal = cells[cells["size"] > 1], cells[(cells["size"] > 1) & (cells["nunique"] == 1)]
    each = by_seeds(runs)  # distinct results are counted seed by seed
    seeds, differing = len(each), sum(same[WEIGHTS].nunique() > 1 for same in shared)
    metrics = [f"last_{metric}" for metric in study.metrics[workload]]
    finite = np.isfinite(runs[metrics].to_numpy()).any(axis=1)  # of NaN alone, nothing is equal
    known = by_seeds(runs.loc[finite])
    values = [len(same[metrics].drop_duplicates()) for same in known]
    hidden = sum(n < same[WEIGHTS].nunique() for n, same in zip(values, known, strict=True))
    vectors = None if runs[PREDICTIONS].isna().any() else sum(same[PREDICTIONS].nunique() for same in each)
    numbers: dict[str, Any] = {
        "sets_with_repetitions": int(repeated.index.get_level_values(0).nunique()),
        "sets_identical_within": int(equal.index.get_level_values(0).nunique()),
        "runs": len(runs),
        "thread_counts": len(settings),
        "seeds": seeds,
        "seeds_differing": differing,
        "models": sum(same[WEIGHTS].nunique() for same in each),
        "prediction_vectors": vectors,
        "metric_values": sum(values),
    }
    if len(diverged):
        parts = diverged.groupby(level=0, sort=False).sum()
        names = ", ".join(f"{r.Index} ({r.nunique} models in {r.size} runs)" for r in _named(parts))
        why = f"repetitions already differ at thread counts {names}"
        why += "" if own else _of_several_threads(runs, repeated)
        return Decision(verdict=Verdict.NOT_SUPPORTED, why=why, numbers=numbers)
    if own:
        return open_(own)
    if not shared:
        return open_("the runs used different seeds on different thread counts", **numbers)
    on = thread_settings(runs)[1]
    if not differing:
        why = f"all {len(runs)} runs on {on} gave bitwise the same model"
        if seeds > 1:
            why += f" of each of {seeds} seeds"
            if partial := sum(same.threads.nunique() < len(settings) for same in shared):
                why += f", of which {partial} did not run on all of them"
        numbers |= _bound(len(runs) - seeds, seeds)
        why += (
            f"; this leaves a chance of up to {numbers['another_model_below']:.2f} that one more run gives "
        )
        why += "another model (one-sided 95 % bound)"
        return Decision(verdict=Verdict.NOT_SUPPORTED, why=why, numbers=numbers)
    several = f" of {seeds} seeds ({differing} of {len(shared)} differ across them)" if seeds > 1 else ""
    text = (
        f"{numbers['models']} models{several} on {on}, "
        f"{'predictions not recorded' if vectors is None else counted(vectors, 'prediction vector')}, "
        f"{counted(sum(values), 'metric value') if values else 'no finite metric'} in {len(runs)} runs"
    )
    if hidden:
        text += f": equal metrics hide different models{f' at {hidden} of {seeds} seeds' * (seeds > 1)}"
    if repeated.empty:
        return open_(
            f"{text}; one run a thread count and seed cannot show that repetitions are identical", **numbers
        )
    within = f"identical within {numbers['sets_identical_within']} of {len(settings)} thread counts"
    if alone := [name for name in settings if name not in repeated.index.get_level_values(0)]:
        return open_(f"{text}; {within}, but no seed ran twice on {', '.join(alone)}", **numbers)
    beyond = (repeated["size"] - 1).groupby(level=0).agg(["sum", "size"])
    least, of = (int(number) for number in beyond.sort_values(["sum", "size"]).iloc[0])
    numbers |= _bound(least, of)
    beside = f"of {of} seeds, taken together" if of > 1 else "beside the first"
    within += (
        f" (which leaves a chance of up to {numbers['another_model_below']:.2f} that a run of a condition "
        f"gives another model: {counted(least, 'repetition')} {beside}, one-sided 95 % bound)"
    )
    return Decision(verdict=Verdict.SUPPORTED, why=f"{within}; across them {text}", numbers=numbers)


def _bound(repetitions: int, seeds: int) -> dict[str, Any]:
    """Of equal runs beyond the first of each seed."""
    chance = another_model(repetitions)
    return {"repetitions": repetitions, "repeated_seeds": seeds, "another_model_below": chance}


def _of_several_threads(runs: pd.DataFrame, repeated: pd.DataFrame) -> str:
    """What it points to when repetitions on one thread are equal, where others are not."""
    single = runs.threads[(runs.intra_op == 1) & (runs.inter_op == 1)]
    one = repeated[repeated.index.isin(single, level="threads")]
    if one.empty or (one["nunique"] > 1).any():
        return ""
    said = f"; those on one thread are equal (n = {one['size'].sum()}), which points to several threads"
    if (runs.framework == Framework.TORCH).all():
        said += ": in PyTorch the gradient of x[index] and MKL's first call can do it (docs/why-and-cure.md)"
    return said


def _named(frame: pd.DataFrame) -> Any:
    return frame.rename_axis("threads").itertuples()


# ---- F3 ------------------------------------------------------------------------------------------


def first_steps(study: StudyData, tables: dict[str, Table]) -> dict[str, Decision]:
    """F3, in three parts, each from its own data of the `fixed-seed` variant; supported when all hold, not
    supported when one does not.

    starts    weights hashed after steps 1, 2, 4, ...: with equal seeds the first difference across thread
              counts is by step FIRST_STEPS; it fails when they are equal up to there
    traced    `vbstudy trace`: the first difference is an operation that gave other outputs for equal
              inputs; it fails when the last trace of a pair of thread counts was of something else
    grows     the training loss: its relative SD across thread counts (that of its logarithm, pooled over
              seeds) is larger after the last epoch than after the first. Two-sided F test, its degrees of
              freedom fewer as kurtosis demands (`statistics.effective`), Holm's correction over the
              workloads; it fails when the SD is shown to shrink. Where the thread counts were equal after
              the first epoch and differ after the last, it has grown from 0"""
    before = fixed_seeds(study, tables)
    growths = {w: _growth(study, w) for w, d in before.items() if d.verdict is Verdict.SUPPORTED}
    corrected = holm([p for _, p, _ in growths.values()])
    grown = {w: (text, p, up) for (w, (text, _, up)), p in zip(growths.items(), corrected, strict=True)}
    found = {}
    for workload, base in before.items():
        if base.verdict is not Verdict.SUPPORTED:
            why = f"needs runs that repeat within a thread count and differ across them: {base.why}"
            found[workload] = open_(why)
        elif workload in study.projects:
            found[workload] = _of_project(tables, workload)
        else:
            found[workload] = _parts(tables, workload, grown[workload])
    return found


Part = tuple[Verdict, str]  # whether it holds, and on what data
HELD = {Verdict.SUPPORTED: "yes", Verdict.NOT_SUPPORTED: "no", Verdict.INCONCLUSIVE: "open"}


def _parts(
    tables: dict[str, Table], workload: str, growth: tuple[str, float | None, float | None]
) -> Decision:
    row = tables["distance"].rows_of(workload, variant="fixed-seed", scope=ACROSS).iloc[0]
    text, p, ratio = growth
    parts = {
        "starts in the first steps": _starts(row),
        "an operation": _traced(tables, workload),
        "grows": _grows(text, p, ratio),
    }
    verdicts = [verdict for verdict, _ in parts.values()]
    verdict = next(
        (v for v in (Verdict.NOT_SUPPORTED, Verdict.INCONCLUSIVE) if v in verdicts), Verdict.SUPPORTED
    )
    equal, step = (None if pd.isna(v) else int(v) for v in (row.equal_up_to, row.different_at))
    numbers = {
        "equal_up_to_step": equal,
        "different_at_step": step,
        "growth": ratio,
        "growth_p_holm": p,
        "parts": {name: HELD[each] for name, (each, _) in parts.items()},
        "operation": _operation(tables, workload),
    }
    why = "; ".join(f"{name}: {HELD[each]} ({on})" for name, (each, on) in parts.items())
    return Decision(verdict=verdict, why=why, numbers=numbers)


def _of_project(tables: dict[str, Table], workload: str) -> Decision:
    """The operation alone: a project's weights are not hashed step by step."""
    held, on = _traced(tables, workload)
    why = f"an operation: {HELD[held]} ({on}); the growth is open: a project's steps are not hashed"
    numbers = {"parts": {"an operation": HELD[held]}, "operation": _operation(tables, workload)}
    return Decision(verdict=Verdict.INCONCLUSIVE, why=why, numbers=numbers)


def _starts(row: Any) -> Part:
    on = f"weights {row.diverges}, n={row.n} runs of {counted(int(row.seeds), 'seed')}"
    if not pd.isna(row.different_at) and row.different_at <= FIRST_STEPS:
        return Verdict.SUPPORTED, on
    late = not pd.isna(row.equal_up_to) and row.equal_up_to >= FIRST_STEPS
    return (Verdict.NOT_SUPPORTED, f"{on}: too late for rounding") if late else (Verdict.INCONCLUSIVE, on)


def _last_traces(tables: dict[str, Table], workload: str) -> pd.DataFrame:
    """The last stored trace of each pair of thread settings."""
    if "traces" not in tables:
        return pd.DataFrame()
    rows = tables["traces"].rows_of(workload, variant="fixed-seed")
    return rows.drop_duplicates("threads", keep="last") if len(rows) else rows


def _operation(tables: dict[str, Table], workload: str) -> str:
    """What started it in the first of the traces that found an operation; "" without one."""
    names = [str(row.op) for row in _last_traces(tables, workload).itertuples() if row.op]
    return names[0] if names else ""


def _traced(tables: dict[str, Table], workload: str) -> Part:
    rows = _last_traces(tables, workload)
    if rows.empty:
        return Verdict.INCONCLUSIVE, "not traced: `vbstudy trace` finds the operation"
    operations = rows[rows.outcome == Outcome.OPERATION.value]
    if len(operations):
        return Verdict.SUPPORTED, "; ".join(f"traced on {r.threads}: {r.started}" for r in _named(operations))
    on = "; ".join(f"traced on {r.threads}: {r.found}" for r in _named(rows))
    other = rows.outcome.isin([Outcome.SEQUENCE.value, Outcome.UNREPEATABLE.value]).any()
    return (Verdict.NOT_SUPPORTED if other else Verdict.INCONCLUSIVE), on


def _grows(text: str, p: float | None, ratio: float | None) -> Part:
    if p is None or ratio is None:
        return Verdict.INCONCLUSIVE, text
    tested = 0 < ratio < np.inf
    on = f"{text}, p {p_value(p)} after Holm's correction" if tested else f"{text}; an SD of 0 is not tested"
    if p >= ALPHA:
        return Verdict.INCONCLUSIVE, on
    return (Verdict.SUPPORTED if ratio > 1 else Verdict.NOT_SUPPORTED), on


def _growth(study: StudyData, workload: str) -> tuple[str, float | None, float | None]:
    """What is known of the growth, its p value, and the factor by which the relative SD has grown."""
    squares, freedom, settings, n, apart = np.zeros(2), 0, 0, 0, []
    for _, runs in study.runs_of(workload, variant="fixed-seed").groupby("seeds_used", sort=False):
        epochs, losses, _ = by_setting(study, runs, "train_loss")
        if len(epochs) < 2:
            return "the loss has fewer than two epochs", None, None
        ends = losses[:, [0, -1]]
        if not (np.isfinite(ends).all() and (ends > 0).all()):
            return "the training loss is not known, not finite or not above 0", None, None
        logs = np.log(ends)
        same = (logs == logs[0]).all(axis=0)  # whose mean rounding may have moved
        apart.append(np.where(same, 0.0, logs - logs.mean(axis=0)))
        squares += (apart[-1] ** 2).sum(axis=0)
        freedom, settings, n = freedom + len(logs) - 1, max(settings, len(logs)), n + len(runs)
    first, last = (float(each) for each in np.sqrt(squares / freedom)) if freedom else (0.0, 0.0)
    text = (
        f"relative SD of the training loss across n={settings} thread counts ({counted(len(apart), 'seed')}, "
        f"{n} runs) {first:.2g} after the first epoch, {last:.2g} after the last"
    )
    if first == 0 or last == 0:
        return text, None if first == last else 0.0, 1.0 if first == last else 0.0 if last == 0 else np.inf
    f = float(squares[1] / squares[0])
    fewer = effective(freedom, (np.concatenate(apart) / np.sqrt(squares)).ravel(), LEAST_KURTOSIS)
    p = 2 * min(stats.f.sf(f, fewer, fewer), stats.f.cdf(f, fewer, fewer))
    return f"{text}, F test with {fewer:.3g} degrees of freedom", min(1.0, float(p)), f**0.5
