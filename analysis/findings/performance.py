"""F1, F4 and F5: test performance and time across thread counts, by tests that are corrected over all
workloads."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pandas as pd

from analysis.cost.blocks import ratio
from analysis.cost.times import leads
from analysis.findings.decision import Decision, hochberg, open_
from analysis.inference.contrasts import contrasts
from analysis.load.study import StudyData, View
from analysis.provenance.checks import mixture
from analysis.results.cells import number, p_value, spread
from analysis.results.model import ALPHA, Kind, Table, Verdict
from analysis.stats import statistics
from analysis.stats.observations import distinct
from analysis.stats.power import POWER

ENUMERATED = 10_000  # choices of epochs up to which all are looked at
DRAWN = 9_999
SEED = 1

# ---- F1 ------------------------------------------------------------------------------------------


def free_seeds(study: StudyData, tables: dict[str, Table]) -> dict[str, Decision]:
    """F1, from the `default` variant, in the primary metric of the primary model.

    Not supported when a pair of thread counts differs (p of the table `tests`, Holm's correction over all
    pairs of all workloads). Supported when all pairs are equivalent within the margin, each at ALPHA: a
    claim about all of them needs no correction (Berger 1982); over workloads Hochberg's. Else
    inconclusive, with the smallest difference that these runs show."""
    found: dict[str, Decision] = {}
    tests: dict[str, list[dict[Any, Any]]] = {}
    for workload in study.metrics:
        metric, view = study.primary(workload)
        runs = study.runs_of(workload, variant="default")
        counts = [int(n) for n in runs.groupby("threads", sort=False).size()]
        if sum(n >= 2 for n in counts) < 2:
            found[workload] = open_(
                "needs two runs at two thread counts with free seeds; there are "
                + (f"{', '.join(map(str, counts))} by thread count" if counts else "none")
            )
        elif other := mixture(runs):
            found[workload] = open_(f"the thread counts differ in more than threads: {other}")
        else:
            mine = tables["tests"].rows_of(workload, variant="default", metric=metric, view=view.value)
            tests[workload] = mine.to_dict("records")
    family = [(workload, row) for workload, rows in tests.items() for row in rows]
    for (_, row), p in zip(family, statistics.holm([_known(row["p"]) for _, row in family]), strict=True):
        row["p_family"] = p
    size = sum(row["p_family"] is not None for _, row in family)
    shown = {
        workload: max(row["same_p"] for row in rows)
        for workload, rows in tests.items()
        if all(_known(row["same_p"]) is not None for row in rows)
    }
    alike = hochberg(shown)
    for workload, rows in tests.items():
        found[workload] = _free_seeds(study, workload, rows, size, alike.get(workload))
    return {workload: found[workload] for workload in study.metrics}


def _known(p: Any) -> float | None:
    return None if p is None or np.isnan(p) else float(p)


def _free_seeds(
    study: StudyData, workload: str, rows: list[dict[Any, Any]], family: int, alike: float | None
) -> Decision:
    metric, view = study.primary(workload)
    runs = study.runs_of(workload, variant="default")
    margin = study.margin(workload, metric)
    values = runs.groupby("threads", sort=False)[view.metric(metric)]
    gap, within = float(values.mean().max() - values.mean().min()), float((values.max() - values.min()).max())
    pairs, size = list(contrasts(runs, view, metric)), max(1, family) * rows[0]["analyses"]
    power = [c.detectable(size) for c in pairs]
    seen = None if any(each is None for each in power) else max(each for each in power if each is not None)
    tested = [row for row in rows if row["p_family"] is not None]
    numbers = {
        "metric": metric,
        "view": view.value,
        "n": [int(n) for n in values.size()],
        "family": family,
        "margin": margin,
        "largest_difference_of_means": gap,
        "largest_range_within_a_set": within,
        "distinct_values": int(runs[view.metric(metric)].nunique()),
        "least_p_holm": min((row["p_family"] for row in tested), default=None),
        "equivalence_p": alike,
        "detectable": seen,
        "runs_needed": margin and max(pairs, key=lambda c: c.sd() or 0.0).runs_needed(margin, size),
    }
    extent = (
        f"means of {metric} ({view} model) lie up to {spread(gap)} apart, runs of one set up to "
        f"{spread(within)}; {numbers['distinct_values']} distinct values in {len(runs)} runs"
    )
    named = ", ".join(
        f"{r['pair']} (difference {spread(r['difference'])}, p {p_value(r['p_family'])})"
        for r in tested
        if r["p_family"] < ALPHA
    )
    if named:
        why = f"significant after Holm's correction over {family} tests: {named}; {extent}"
        return Decision(verdict=Verdict.NOT_SUPPORTED, why=why, numbers=numbers)
    if alike is not None and alike < ALPHA:
        why = f"all {len(rows)} pairs are equivalent within {margin:g} (largest p {p_value(alike)}); {extent}"
        return Decision(verdict=Verdict.SUPPORTED, why=why, numbers=numbers)
    if margin is None:
        what = f"{metric} is not between 0 and 1, and study.toml declares no margin for it ([analysis])"
    elif alike is None:
        lacking = [row for row in rows if _known(row["same_p"]) is None]
        what = "equivalence is not tested, " + "; ".join(f"{r['pair']}: {r['same_method']}" for r in lacking)
    else:
        what = f"equivalence within {margin:g} is not shown (largest p {p_value(alike)})"
    difference = "no significant difference is found" if tested else "there is nothing to test"
    able = (
        f"at {POWER:.0%} power these runs show differences from {spread(seen)} on"
        if seen
        else "these runs show no difference, however large, at 80 % power"
    )
    return open_(f"{difference}, and {what}; {able}; {extent}", **numbers)


# ---- F4 ------------------------------------------------------------------------------------------


def model_selection(study: StudyData, _tables: dict[str, Table]) -> dict[str, Decision]:
    """F4, from the `fixed-seed` variant: the spread (max-min) of the thread counts in the primary metric at
    the epochs that selection chose, beside that at epochs drawn at random for each model: a permutation
    test, two-sided, Holm's correction over the workloads. Supported when the selected epochs are narrower
    than random ones, and narrower than the last epoch; not supported when they are wider than both."""
    found: dict[str, Decision] = {}
    tested: dict[str, _Spreads] = {}
    for workload in study.metrics:
        runs = study.runs_of(workload, variant="fixed-seed")
        if workload in study.projects:
            found[workload] = open_("of a project only the last model is known")
        elif runs.threads.nunique() < 2:
            found[workload] = open_("needs two thread counts with fixed seeds")
        elif (spreads := _Spreads.of(study, workload, runs)) is None:
            found[workload] = open_("no epoch in common, or a metric that is not finite")
        else:
            tested[workload] = spreads
    corrected = statistics.holm([each.p for each in tested.values()])
    for (workload, spreads), p in zip(tested.items(), corrected, strict=True):
        found[workload] = _selected(study.primary(workload)[0], spreads, 1.0 if p is None else p)
    return {workload: found[workload] for workload in study.metrics}


class _Spreads:
    """Max-min of the thread counts' means, averaged over the seeds. Copies of a run choose as one."""

    def __init__(self, values: np.ndarray, chosen: np.ndarray, groups: np.ndarray) -> None:
        """`values` (U, E) by model and epoch, `chosen` (U,) the selected ones, `groups` (U, 2) of integers:
        seed and thread setting."""
        self.shape = values.shape
        self.groups = groups
        self.without = float(self._spread(values[None, :, -1])[0])
        self.with_ = float(self._spread(chosen[None, :])[0])
        models, epochs = values.shape
        self.exact = epochs**models <= ENUMERATED
        if self.exact:
            drawn = np.array(list(product(range(epochs), repeat=models)))
        else:
            drawn = np.random.default_rng(SEED).integers(epochs, size=(DRAWN, models))
        null = self._spread(values[np.arange(models), drawn])
        tolerance = 1e-12 * max(1.0, float(np.abs(values).max()))
        low, high = (null <= self.with_ + tolerance).sum(), (null >= self.with_ - tolerance).sum()
        extra = 0 if self.exact else 1  # what was seen is one of the choices
        self.p = min(1.0, 2 * (float(min(low, high)) + extra) / (len(null) + extra))
        self.random = float(null.mean())

    @classmethod
    def of(cls, study: StudyData, workload: str, runs: pd.DataFrame) -> _Spreads | None:
        metric, _ = study.primary(workload)
        models = pd.concat(
            distinct(mine, View.LAST) for _, mine in runs.groupby(["threads", "seeds_used"], sort=False)
        )
        counts = models.groupby("seeds_used").threads.nunique()
        models = models[models.seeds_used.map(counts) > 1]
        if models.empty:
            return None
        mine = study.epochs[study.epochs.run_id.isin(models.run_id)]
        wide = mine.pivot(index="run_id", columns="epoch", values=View.LAST.epoch_metric(metric))
        values = wide.loc[models.run_id].dropna(axis=1).to_numpy(float)
        chosen = models[View.SELECTED.metric(metric)].to_numpy(float)
        if not values.shape[1] or not np.isfinite(values).all() or not np.isfinite(chosen).all():
            return None
        groups = [pd.factorize(models[column])[0] for column in ("seeds_used", "threads")]
        return cls(values, chosen, np.stack(groups, axis=1))

    def _spread(self, values: np.ndarray) -> np.ndarray:
        """(D,) of values (D, U)."""
        parts = []
        for seed in np.unique(self.groups[:, 0]):
            mine = self.groups[:, 0] == seed
            threads = self.groups[mine, 1]
            means = np.stack([values[:, mine][:, threads == t].mean(axis=1) for t in np.unique(threads)])
            parts.append(np.ptp(means, axis=0))
        return np.asarray(np.mean(parts, axis=0))


def _selected(metric: str, spreads: _Spreads, p: float) -> Decision:
    models, epochs = spreads.shape
    settings, seeds = (len(np.unique(spreads.groups[:, i])) for i in (1, 0))
    numbers = {
        "without": spreads.without,
        "with": spreads.with_,
        "random": spreads.random,
        "p_holm": p,
        "models": models,
        "epochs": epochs,
        "thread_counts": settings,
        "seeds": seeds,
    }
    why = (
        f"thread counts lie {spread(spreads.with_)} apart in {metric} at the selected epochs, "
        f"{spread(spreads.without)} at the last, {spread(spreads.random)} on average at epochs drawn at "
        f"random (p {p_value(p)} after Holm's correction; n={models} distinct models of {seeds} "
        f"seed{'s' * (seeds > 1)} on {settings} thread counts, {epochs} epochs)"
    )
    if spreads.without == spreads.with_ == spreads.random == 0:
        return open_("no difference across thread counts to narrow", **numbers)
    if p < ALPHA and spreads.with_ < min(spreads.random, spreads.without):
        return Decision(verdict=Verdict.SUPPORTED, why=why, numbers=numbers)
    if p < ALPHA and spreads.with_ > max(spreads.random, spreads.without):
        return Decision(verdict=Verdict.NOT_SUPPORTED, why=why, numbers=numbers)
    if p >= ALPHA:
        return open_(f"{why}; chance could explain it", **numbers)
    than = "narrower" if spreads.with_ < spreads.random else "wider"
    return open_(f"{why}; {than} than at random epochs, not than at the last", **numbers)


# ---- F5 ------------------------------------------------------------------------------------------


def more_threads(study: StudyData, tables: dict[str, Table]) -> dict[str, Decision]:
    """F5, from the thread counts with comparable times, in the variants that leave the implementation as it
    is. Each of the others is compared with the largest: t tests on the logarithms of times, within blocks
    where they are recorded, Holm's correction over all of these tests of all workloads and variants.
    Supported when one is faster; not supported when the largest of at least three is faster than all others.
    Variants of a workload that disagree decide nothing."""
    found = leads(tables["time"].frame.to_dict("records"))
    rows = [row for row in found if row["variant"] in ("default", "fixed-seed")]
    tests = []
    for i, row in enumerate(rows):
        runs = study.runs_of(row["workload"], variant=row["variant"])
        sets = {name: runs[runs.threads == name] for name in row["eligible"]}
        row["means"] = {name: float(mine.wall_s.mean()) for name, mine in sets.items()}
        row["counts"] = [len(mine) for mine in sets.values()]
        row["p"] = {}
        row["ratios"] = {name: ratio(sets[name], sets[row["eligible"][-1]]) for name in row["eligible"][:-1]}
        tests += [(i, name, found.p) for name, found in row["ratios"].items()]
    for (i, name, _), p in zip(tests, statistics.holm([p for *_, p in tests]), strict=True):
        rows[i]["p"][name] = p
    return {workload: _more([r for r in rows if r["workload"] == workload]) for workload in study.metrics}


def _more(rows: list[dict[Any, Any]]) -> Decision:
    if not rows:
        return open_("needs runs of the default or the fixed-seed variant")
    each = {str(row["variant"]): _against_largest(row) for row in rows}
    verdicts = {d.verdict for d in each.values()}
    conflict = {Verdict.SUPPORTED, Verdict.NOT_SUPPORTED} <= verdicts
    verdict = next(
        (v for v in (Verdict.SUPPORTED, Verdict.NOT_SUPPORTED) if v in verdicts), Verdict.INCONCLUSIVE
    )
    left_out = list(dict.fromkeys(row["left_out"] for row in rows if row["left_out"]))
    return Decision(
        verdict=Verdict.INCONCLUSIVE if conflict else verdict,
        why="; ".join([f"{variant}: {d.why}" for variant, d in each.items()] + left_out),
        numbers={variant: d.numbers for variant, d in each.items()},
    )


def _against_largest(row: dict[Any, Any]) -> Decision:
    eligible, means, p = row["eligible"], row["means"], row["p"]
    if len(eligible) < 2:
        return open_(f"{row['lead'].removeprefix('inconclusive: ')}")
    *others, largest = eligible
    numbers = {"seconds": means, "p_holm": p, "n": row["counts"]}
    listed = ", ".join(f"{name}: {number(Kind.SECONDS, means[name])} s" for name in eligible)
    text = f"fastest at {min(means, key=lambda name: means[name])} ({listed})"
    if any(p[name] is None for name in others):
        return open_(f"{text}, but two runs at each thread count are needed", **numbers)
    decided = {name: p[name] for name in others if p[name] < ALPHA}
    faster = {
        name: f"{name} (p {p_value(q)})"
        for name, q in decided.items()
        if (row["ratios"][name].estimate.value or 1) < 1
    }
    if faster:
        why = f"{text}; faster than {largest}: {', '.join(faster.values())}"
        return Decision(verdict=Verdict.SUPPORTED, why=why, numbers=numbers)
    if len(decided) < len(others):
        worst = max(q for q in p.values())
        return open_(
            f"{text}; none is shown to be faster than {largest}, nor {largest} to be the fastest (largest p "
            f"{p_value(worst)}, n={row['counts']})",
            **numbers,
        )
    if len(eligible) < 3:
        return open_(f"{text}, but only {' and '.join(eligible)} have comparable times", **numbers)
    why = f"{text}; {largest} is faster than all others (largest p {p_value(max(p.values()))})"
    return Decision(verdict=Verdict.NOT_SUPPORTED, why=why, numbers=numbers)
