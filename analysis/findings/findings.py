"""Findings F1-F5 of the reference study (Xiao et al., ISSRE 2021), decided from this study's tables. F6 is of
scanned projects: `analysis.scan.requirements.shares`.

Each rule answers for one workload; `decide` puts them together: a finding fails when it fails for
any workload, is supported when it is supported for one and fails for none, and is otherwise inconclusive.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

import pandas as pd

from analysis.inference.pairwise import DIFFER as SIGNIFICANT
from analysis.load.study import StudyData, shared_seeds
from analysis.provenance.checks import mixture
from analysis.results.cells import number, p_value, spread
from analysis.results.model import ACROSS, ALPHA, Finding, Kind, Table, Verdict
from analysis.sameness.verdicts import DIFFER, IDENTICAL, NOT_RECORDED
from analysis.stats import statistics
from guest.records.trace import Outcome

NOT_TRACED = "Which operation started it, `vbstudy trace` finds"
FIRST_STEPS = 16  # the published divergences appear at steps 2, 4 and 9; steps are hashed at powers of 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    verdict: Verdict
    why: str
    numbers: dict[str, Any] = field(default_factory=dict)


def decide(study: StudyData, tables: dict[str, Table]) -> tuple[Finding, ...]:
    """Every finding over all workloads (`workload` empty), each followed by one a workload."""
    found: list[Finding] = []
    for name, (statement, table, rule) in RULES.items():
        each = {workload: rule(study, tables, workload) for workload in study.metrics}
        found += [
            Finding(id=name, workload=workload, statement=statement, table=table, **asdict(one))
            for workload, one in {"": _together(each), **each}.items()
        ]
    return tuple(found)


def _together(each: dict[str, Decision]) -> Decision:
    if len(each) == 1:
        return next(iter(each.values()))
    named = {v: [workload for workload, d in each.items() if d.verdict is v] for v in Verdict}
    verdict = next((v for v in (Verdict.NOT_SUPPORTED, Verdict.SUPPORTED) if named[v]), Verdict.INCONCLUSIVE)
    why = "; ".join(f"{v}: {', '.join(workloads)}" for v, workloads in named.items() if workloads)
    return Decision(verdict=verdict, why=why, numbers={v.value: len(w) for v, w in named.items()})


def _open(why: str, **numbers: Any) -> Decision:
    return Decision(verdict=Verdict.INCONCLUSIVE, why=why, numbers=numbers)


def _rows(table: Table, workload: str, **where: str) -> pd.DataFrame:
    frame = table.frame
    for column, value in {"workload": workload, **where}.items():
        frame = frame[frame[column] == value]
    return frame


def _runs(study: StudyData, workload: str, variant: str) -> pd.DataFrame:
    return study.runs[(study.runs.workload == workload) & (study.runs.variant == variant)]


# ---- F1 ------------------------------------------------------------------------------------------


def free_seeds(study: StudyData, tables: dict[str, Table], workload: str) -> Decision:
    """F1, from the `default` variant, both views. Fails when a corrected U test is significant. A test
    that is not significant says "none found", and says nothing at all when n is too small for any
    p to reach alpha after Holm's correction: then it is inconclusive."""
    metric = study.metrics[workload][0]
    runs = _runs(study, workload, "default")
    counts = [int(n) for n in runs.groupby("threads", sort=False).size()]
    if sum(n >= 2 for n in counts) < 2:
        return _open(f"needs two runs at two thread counts with free seeds; there are {counts or 'none'}")
    if other := mixture(runs):
        return _open(f"the thread counts differ in more than threads: {other}")
    tests = _rows(tables["tests"], workload, variant="default", metric=metric)
    sets = _rows(tables["performance"], workload, variant="default", metric=metric)
    means = sets.groupby("view")["mean"]
    gap = float((means.max() - means.min()).max())
    tested = tests.dropna(subset="p_holm")
    numbers = {
        "n": counts,
        "largest_difference_of_means": gap,
        "largest_range_within_a_set": float(sets.range.max()),
        "distinct_values": int(runs[f"last_{metric}"].nunique()),
        "least_p_holm": None if tested.empty else float(tested.p_holm.min()),
        "least_possible_p_holm": None if tested.empty else float(tested.p_smallest.min()),
    }
    extent = (
        f"means lie up to {spread(gap)} apart, runs of one set up to {spread(sets.range.max())}; "
        f"{numbers['distinct_values']} distinct values in {len(runs)} runs"
    )
    significant = tests[tests.result == SIGNIFICANT]
    if len(significant):
        pairs = ", ".join(
            f"{r.a} | {r.b} ({r.view}, p {p_value(r.p_holm)})" for r in significant.itertuples()
        )
        why = f"significant after Holm's correction, {metric}: {pairs}; {extent}"
        return Decision(verdict=Verdict.NOT_SUPPORTED, why=why, numbers=numbers)
    if tested.empty:
        equal = tests.method.eq("both sets constant, equal").all()
        why = f"nothing to test, the sets do not vary; {extent}"
        return Decision(
            verdict=Verdict.SUPPORTED if equal else Verdict.INCONCLUSIVE, why=why, numbers=numbers
        )
    family = int(tested.family.max())
    n, least, possible = min(counts), tested.p_holm.min(), tested.p_smallest.min()
    if possible > ALPHA:
        why = (
            f"no significant difference found at n={n}, but none could be: the smallest possible p "
            f"{p_value(statistics.smallest_p(n, n))}, corrected for {family} tests {p_value(possible)}; "
            f"needs {statistics.runs_needed(family)} runs a set; {extent}"
        )
        return Decision(verdict=Verdict.INCONCLUSIVE, why=why, numbers=numbers)
    why = (
        f"no significant difference found at n={n} (smallest corrected p {p_value(least)}, smallest "
        f"possible {p_value(possible)}), which is not evidence of sameness; {extent}"
    )
    return Decision(verdict=Verdict.SUPPORTED, why=why, numbers=numbers)


# ---- F2 and F3 -------------------------------------------------------------------------------------


def fixed_seeds(study: StudyData, tables: dict[str, Table], workload: str) -> Decision:
    """F2, from the weights of the last models of the `fixed-seed` variant. Fails when repetitions
    differ within a thread count, or when no model differs across them."""
    runs = _runs(study, workload, "fixed-seed")
    levels = _rows(tables["verdicts"], workload, variant="fixed-seed", view="last")
    within, across = levels[levels.scope != ACROSS], levels[levels.scope == ACROSS]
    if len(within) < 2:
        return _open(f"needs two thread counts with fixed seeds; there is {len(within) or 'none'}")
    whole = across.iloc[0]
    if whole.weights == NOT_RECORDED:
        return _open("the project's weights were not recorded: nothing is said of bitwise equality")
    diverged = within[within.weights == DIFFER]
    numbers = {
        "sets_with_repetitions": int(within.weights.isin([IDENTICAL, DIFFER]).sum()),
        "sets_identical_within": int((within.weights == IDENTICAL).sum()),
        "runs": int(whole.n),
        "seeds": int(whole.seeds),
        "thread_counts": len(within),
        "models": int(whole.weights_distinct),
        "prediction_vectors": int(whole.predictions_distinct),
        "metric_values": int(whole.metric_distinct),
    }
    if len(diverged):
        names = ", ".join(
            f"{r.scope} ({r.weights_distinct} models in {r.n} runs)" for r in diverged.itertuples()
        )
        why = f"repetitions already differ at thread counts {names}"
        return Decision(verdict=Verdict.NOT_SUPPORTED, why=why, numbers=numbers)
    if obstacle := _obstacle(runs):
        return _open(obstacle, **numbers)
    if whole.weights == IDENTICAL:
        of_a_seed = f" of each of {whole.seeds} seeds" if whole.seeds > 1 else ""
        why = f"all {whole.n} runs on {len(within)} thread counts gave bitwise the same model{of_a_seed}"
        return Decision(verdict=Verdict.NOT_SUPPORTED, why=why, numbers=numbers)
    several = ""
    if whole.seeds > 1:
        shared = shared_seeds(runs)
        differing = sum(same.last_weights_sha256.nunique() > 1 for same in shared)
        several = f" of {whole.seeds} seeds ({differing} of {len(shared)} differ across them)"
    text = (
        f"{whole.weights_distinct} models{several} on {len(within)} thread counts, "
        f"{whole.predictions_distinct} prediction vectors, {whole.metric_distinct} metric values in "
        f"{whole.n} runs"
    )
    if whole.metric_distinct < whole.weights_distinct:
        text += ": equal metrics hide different models"
    if not numbers["sets_with_repetitions"]:
        return _open(
            f"{text}; one run a thread count and seed cannot show that repetitions are identical", **numbers
        )
    repeated = f"identical within {numbers['sets_identical_within']} of {len(within)} thread counts"
    if numbers["sets_identical_within"] < len(within):
        repeated += " (one run in the others)"
    return Decision(verdict=Verdict.SUPPORTED, why=f"{repeated}; across them {text}", numbers=numbers)


def _obstacle(runs: pd.DataFrame) -> str:
    """Why a difference across these runs could not be put down to the thread count; empty if it could."""
    if not shared_seeds(runs):
        return "the runs used different seeds"
    other = mixture(runs)
    return f"the runs differ in more than threads: {other}" if other else ""


def first_steps(study: StudyData, tables: dict[str, Table], workload: str) -> Decision:
    """F3, from the weights hashed after steps 1, 2, 4, ... of the `fixed-seed` variant. Equal seeds and
    inputs leave only the arithmetic to differ; a difference within the first steps is rounding that
    then accumulates. Holds when it appears by step FIRST_STEPS."""
    before = fixed_seeds(study, tables, workload)
    if before.verdict is not Verdict.SUPPORTED:
        return _open(f"needs runs that repeat within a thread count and differ across them: {before.why}")
    if workload in study.projects:
        return _open("a project's weights are not hashed step by step")
    row = _rows(tables["divergence"], workload, variant="fixed-seed").iloc[0]
    curve = _rows(tables["loss_sd"], workload, variant="fixed-seed", scope=ACROSS).iloc[0]
    if pd.isna(row.different_at):
        return _open(f"no recorded step shows a difference ({row.bracket})")
    equal, step = (None if pd.isna(v) else int(v) for v in (row.equal_up_to, row.different_at))
    numbers: dict[str, Any] = {
        "equal_up_to_step": equal,
        "different_at_step": step,
        "loss_sd_first_epoch": None if pd.isna(curve["first"]) else float(curve["first"]),
        "loss_sd_last_epoch": None if pd.isna(curve.end) else float(curve.end),
    }
    origins = _origins(tables, workload)
    growth = (
        f"SD of the loss across thread counts {spread(curve['first'])} after the first epoch, "
        f"{spread(curve.end)} after the last (n={int(curve.n)} thread counts)"
    )
    if step is None or step > FIRST_STEPS:
        return _open(f"weights {row.bracket}: too late to put it down to rounding; {growth}", **numbers)
    why = (
        f"weights {row.bracket}, with equal seeds and inputs: what differs is the arithmetic; {growth}. "
        f"{'; '.join(origins) or NOT_TRACED}"
    )
    numbers["origins"] = origins
    return Decision(verdict=Verdict.SUPPORTED, why=why, numbers=numbers)


def _origins(tables: dict[str, Table], workload: str) -> list[str]:
    """Which operation started it, by the stored traces: the last one of each pair of thread settings."""
    if "traces" not in tables:
        return []
    rows = _rows(tables["traces"], workload, variant="fixed-seed", outcome=Outcome.OPERATION.value)
    rows = rows.drop_duplicates("threads", keep="last")
    return [f"Traced on {r.threads}: {r.started}" for r in rows.itertuples()]


# ---- F4 and F5 -------------------------------------------------------------------------------------


def model_selection(study: StudyData, tables: dict[str, Table], workload: str) -> Decision:
    """F4, from the largest difference across thread counts with fixed seeds, with model selection and
    without; equal ones decide nothing. A description of these runs, not a test: one seed is one draw."""
    if workload in study.projects:
        return _open("of a project only the last model is known")
    metric = study.metrics[workload][0]
    rows = _rows(tables["max_difference"], workload, variant="fixed-seed", metric=metric).set_index("view")
    if rows.empty or pd.isna(rows.difference).any():
        return _open("needs two thread counts with fixed seeds")
    without, with_ms = float(rows.difference["last"]), float(rows.difference["selected"])
    numbers = {
        "without": without,
        "without_epoch": rows.epochs["last"],
        "with": with_ms,
        "with_epoch": rows.epochs["selected"],
        "n": rows.n["last"],
    }
    why = (
        f"{metric} differs by up to {spread(without)} without (epoch {rows.epochs['last']}) and "
        f"{spread(with_ms)} with model selection (epoch {rows.epochs['selected']}); "
        f"{_runs_text(rows.n['last'])}; one seed, so a description and not a test"
    )
    if without == 0:
        return _open("no difference across thread counts to narrow", **numbers)
    if with_ms == without:
        return _open(f"{why}; at that epoch selection had nothing better to choose", **numbers)
    verdict = Verdict.SUPPORTED if with_ms < without else Verdict.NOT_SUPPORTED
    return Decision(verdict=verdict, why=why, numbers=numbers)


def _runs_text(counts: list[int]) -> str:
    return f"n={sum(counts)} runs on {len(counts)} thread counts"


def more_threads(_study: StudyData, tables: dict[str, Table], workload: str) -> Decision:
    """F5, from the thread counts with comparable times, per variant that leaves the
    implementation as it is. Holds when another count beats the largest by a decided lead; fails
    when the largest of at least three beats all others so."""
    rows = tables["fastest"].frame
    rows = rows[(rows.workload == workload) & rows.variant.isin(["default", "fixed-seed"])]
    if rows.empty:
        return _open("needs runs of the default or the fixed-seed variant")
    each = {str(row["variant"]): _fastest(row) for row in rows.to_dict("records")}
    verdicts = {d.verdict for d in each.values()}
    conflict = {Verdict.SUPPORTED, Verdict.NOT_SUPPORTED} <= verdicts
    verdict = next(
        (v for v in (Verdict.SUPPORTED, Verdict.NOT_SUPPORTED) if v in verdicts), Verdict.INCONCLUSIVE
    )
    left_out = [text for text in rows.left_out.unique() if text]
    return Decision(
        verdict=Verdict.INCONCLUSIVE if conflict else verdict,
        why="; ".join([f"{variant}: {d.why}" for variant, d in each.items()] + left_out),
        numbers={variant: d.numbers for variant, d in each.items()},
    )


def _fastest(row: dict[Any, Any]) -> Decision:
    eligible, best = row["eligible"], row["fastest"]
    if len(eligible) < 2:
        return _open(f"{row['lead'].removeprefix('inconclusive: ')}")
    largest = eligible[-1]
    times = dict(zip([best, *row["others"]], [row["wall_s"], *row["others_s"]], strict=True))
    p = dict(zip(row["others"], row["p_holm"], strict=True))
    numbers = {"seconds": times, "p_holm": p, "n": row["n"]}
    listed = ", ".join(f"{name}: {number(Kind.SECONDS, times[name])} s" for name in eligible)
    text = f"fastest at {best} ({listed})"
    rivals = list(p) if best == largest else [largest]
    if any(p[name] is None for name in rivals):
        return _open(f"{text}, but two runs at each thread count are needed", **numbers)
    worst = max(p[name] for name in rivals)
    if worst >= ALPHA:
        return _open(f"{text}, its lead not decided (p {p_value(worst)}, n={row['n']})", **numbers)
    decided = f"{text}, its lead over {', '.join(rivals)} decided (p {p_value(worst)})"
    if best != largest:
        return Decision(verdict=Verdict.SUPPORTED, why=decided, numbers=numbers)
    if len(eligible) < 3:
        return _open(f"{decided}, but only {' and '.join(eligible)} have comparable times", **numbers)
    return Decision(verdict=Verdict.NOT_SUPPORTED, why=decided, numbers=numbers)


Rule = Callable[[StudyData, dict[str, Table], str], Decision]
RULES: dict[str, tuple[str, str, Rule]] = {
    "F1": ("With free seeds, thread counts show no significant difference", "tests", free_seeds),
    "F2": (
        "With fixed seeds, models are identical within a thread count and differ across thread counts",
        "verdicts",
        fixed_seeds,
    ),
    "F3": (
        "The difference starts as rounding in the first steps, then accumulates",
        "divergence",
        first_steps,
    ),
    "F4": ("Model selection narrows the difference across thread counts", "max_difference", model_selection),
    "F5": ("More threads are not faster", "fastest", more_threads),
}
