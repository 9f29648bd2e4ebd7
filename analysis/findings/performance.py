"""F1, F4 and F5: test performance and time across thread counts, by tests that are corrected over all
workloads."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product
from typing import Any

import numpy as np
import pandas as pd

from analysis.cost.blocks import ratio
from analysis.cost.times import PLAIN, leads
from analysis.findings.decision import SAME_THREADS, Decision, hochberg, open_
from analysis.inference.contrasts import contrasts
from analysis.load.failures import of_training
from analysis.load.study import StudyData, View, by_threads, thread_settings
from analysis.provenance.checks import mixture
from analysis.provenance.overrides import own_threads
from analysis.results.cells import missing, number, p_value, spread
from analysis.results.model import ALPHA, Kind, Table, Verdict
from analysis.stats import paired, statistics
from analysis.stats.observations import distinct, observed
from analysis.stats.power import POWER
from guest.records.printable import counted, series

ENUMERATED = 10_000  # choices of epochs up to which all are looked at
DRAWN = 9_999
SEED = 1

# ---- F1 ------------------------------------------------------------------------------------------


def free_seeds(study: StudyData, tables: dict[str, Table]) -> dict[str, Decision]:
    """F1, from the `default` variant, in the primary metric of the primary model.

    Supported when all pairs of thread counts are equivalent within the margin, each at ALPHA: a claim about
    all of them needs no correction (Berger 1982); over workloads Hochberg's. Not supported when a pair that
    is not equivalent differs (p of the table `tests`, Holm's correction over all pairs of all workloads).
    Else inconclusive, with the smallest difference that these runs show; also where trainings failed, in
    their metric or with an error, for those that did not are a selected sample."""
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
        elif own := own_threads(runs):
            found[workload] = open_(own)
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


def _failed_attempts(study: StudyData, runs: pd.DataFrame) -> int:
    """Of these runs' conditions, by the training itself: a repeated attempt has other seeds."""
    return sum(of_training(study.failures.get(set_id, {})) for set_id in runs.set_id.unique())


def _known(p: Any) -> float | None:
    return None if p is None or np.isnan(p) else float(p)


def _free_seeds(
    study: StudyData, workload: str, rows: list[dict[Any, Any]], family: int, alike: float | None
) -> Decision:
    metric, view = study.primary(workload)
    runs = study.runs_of(workload, variant="default")
    margin = study.margin(workload, metric)
    sets = {name: observed(each, view, metric) for name, each in by_threads(runs).items()}
    crashed = {name: _failed_attempts(study, each) for name, each in by_threads(runs).items()}
    gap = max((abs(row["difference"]) for row in rows if not missing(row["difference"])), default=None)
    within = max((float(np.ptp(each.values)) for each in sets.values() if len(each.values)), default=None)
    pairs, size = list(contrasts(runs, view, metric)), max(1, family) * rows[0]["analyses"]
    power = [c.detectable(size) for c in pairs if c.sd() != 0]
    able = [each for each in power if each is not None]
    seen = max(able) if power and len(able) == len(power) else None
    tested = [row for row in rows if row["p_family"] is not None]
    apart = {row["pair"]: row for row in tested if row["p_family"] < ALPHA}
    near = [name for name, row in apart.items() if _is_near(row)]
    values = len(np.unique(statistics.finite(runs[view.metric(metric)].to_numpy())))
    numbers = {
        "metric": metric,
        "view": view.value,
        "n": [len(each.values) for each in sets.values()],
        "failed": [each.failed for each in sets.values()],
        "failed_attempts": list(crashed.values()),
        "family": family,
        "margin": margin,
        "largest_difference_of_means": gap,
        "largest_range_within_a_set": within,
        "distinct_values": values,
        "least_p_holm": min((row["p_family"] for row in tested), default=None),
        "equivalence_p": alike,
        "significant_within_margin": near,
        "constant": not power,
        "detectable": seen,
        "runs_needed": margin and max(pairs, key=lambda c: c.sd() or 0.0).runs_needed(margin, size),
        "runs": min(each.runs for each in sets.values()),
    }
    extent = f"{counted(values, 'distinct value')} in {counted(len(runs), 'run')}"
    if gap is not None:
        extent = (
            f"means of {metric} ({view} model) lie up to {spread(gap)} apart, runs of one condition up to "
            f"{spread(within)}; {extent}"
        )
    failed = [f"{o.failed} of {o.distinct} at {name}" for name, o in sets.items() if o.failed]
    failed += [f"{counted(n, 'attempt')} before the last at {name}" for name, n in crashed.items() if n]
    if failed:
        why = (
            f"trainings failed at thread counts: {', '.join(failed)}; the remaining runs are a "
            f"selected sample; {extent}"
        )
        return open_(why, **numbers | {"runs_needed": None})

    def named(names: Iterable[str]) -> str:
        return ", ".join(
            f"{name} (difference {spread(apart[name]['difference'])}, p {p_value(apart[name]['p_family'])})"
            for name in names
        )

    by = series(list(dict.fromkeys(map(_test, tested))))
    if far := [name for name in apart if name not in near]:
        over = counted(family, "test")
        why = f"significant in {by} after Holm's correction over {over}: {named(far)}; {extent}"
        return Decision(verdict=Verdict.NOT_SUPPORTED, why=why, numbers=numbers)
    small = f"significant in {by}, but smaller than the margin: {named(near)}" if near else ""
    tost = series(list(dict.fromkeys(row["same_method"] for row in rows)))
    largest = f"largest p {p_value(alike)}, two one-sided t tests: {tost}"
    if alike is not None and alike < ALPHA:
        why = f"all {len(rows)} pairs are equivalent within {margin:g} ({largest})"
        why = "; ".join(filter(None, (why, small, extent)))
        return Decision(verdict=Verdict.SUPPORTED, why=why, numbers=numbers)
    if margin is None:
        what = f"no margin is known for {metric}: study.toml declares none ([analysis])"
    elif alike is None:
        lacking = [row for row in rows if _known(row["same_p"]) is None]
        what = "equivalence is not tested, " + "; ".join(f"{r['pair']}: {r['same_method']}" for r in lacking)
    else:
        what = f"equivalence within {margin:g} is not shown ({largest})"
    difference = small or (
        f"no significant difference is found ({by})" if tested else "there is nothing to test"
    )
    if seen:
        power_text = f"at {POWER:.0%} power these runs show differences from {spread(seen)} on"
    elif power:
        power_text = "these runs show no difference, however large, at 80 % power"
    else:
        power_text = f"{metric} does not vary between runs of a condition"
    return open_(f"{difference}, and {what}; {power_text}; {extent}", **numbers)


def _test(row: dict[Any, Any]) -> str:
    """By which a pair was tested."""
    return str(row["method"]) if row["matched"] else f"Brunner and Munzel's test by {row['method']}"


def _is_near(row: dict[Any, Any]) -> bool:
    """Whether a pair is equivalent within the margin; of constants, which are not tested, whether they lie
    nearer than it."""
    if missing(row["margin"]):
        return False
    p = _known(row["same_p"])
    return abs(row["difference"]) < row["margin"] if p is None else p < ALPHA


# ---- F4 ------------------------------------------------------------------------------------------


def model_selection(study: StudyData, _tables: dict[str, Table]) -> dict[str, Decision]:
    """F4, from the `fixed-seed` variant: by how much the range (max-min) of the thread counts in the primary
    metric is narrower at the epochs that selection chose than at the last, seed by seed: sign flips of pairs,
    Holm's correction over the workloads. Supported when it is narrower, not supported when it is wider.
    Beside it, and deciding nothing, the range at epochs drawn at random for each model: a two-sided
    permutation test, corrected alike."""
    found: dict[str, Decision] = {}
    tested: dict[str, _Spreads] = {}
    last = study.epochs.groupby("run_id").epoch.max()
    for workload in study.metrics:
        runs = study.runs_of(workload, variant="fixed-seed")
        if workload in study.projects:
            found[workload] = open_("of a project only the last model is known")
        elif runs.threads.nunique() < 2:
            found[workload] = open_("needs two thread counts with fixed seeds")
        elif other := mixture(runs):
            found[workload] = open_(f"the thread counts differ in more than threads: {other}")
        elif len(ends := set(last[runs.run_id])) > 1:
            found[workload] = open_(f"the runs end at different epochs ({min(ends)} to {max(ends)})")
        elif (spreads := _Spreads.of(study, workload, runs)) is None:
            found[workload] = open_("no epoch in common, or a metric that is not finite")
        else:
            tested[workload] = spreads
    flips = {workload: paired.sign_flips(each.narrowing) for workload, each in tested.items()}
    corrected = statistics.holm([each.p for each in flips.values()])
    of_random = statistics.holm([each.p for each in tested.values()])
    size = max(1, sum(p is not None for p in corrected))
    for (workload, spreads), p, random in zip(tested.items(), corrected, of_random, strict=True):
        metric, least = study.primary(workload)[0], flips[workload].smallest_p
        smallest = None if least is None else min(1.0, size * least)
        found[workload] = _selected(metric, spreads, p, smallest, 1.0 if random is None else random)
    return {workload: found[workload] for workload in study.metrics}


class _Spreads:
    """Max-min of the thread counts' means, by seed and averaged over the seeds. Models of a seed that are
    copies choose as one."""

    def __init__(
        self, values: np.ndarray, chosen: np.ndarray, groups: np.ndarray, last: np.ndarray | None = None
    ) -> None:
        """`values` (U, E) by model and epoch, `chosen` (U,) the selected ones, `groups` (U, 3) of integers:
        seed, thread setting, and what copies have in common; `last` (U,) the last ones, by default those of
        the last epoch."""
        self.groups = groups
        choosers, mine = np.unique(groups[:, [0, 2]], axis=0, return_inverse=True)
        models, epochs = self.shape = len(choosers), values.shape[1]
        tolerance = 1e-12 * max(1.0, float(np.abs(values).max()))
        ends = values[:, -1] if last is None else last
        without, selected = self._ranges(ends[None, :])[0], self._ranges(chosen[None, :])[0]
        self.without, self.with_ = float(without.mean()), float(selected.mean())
        self.narrowing = np.where(np.abs(without - selected) <= tolerance, 0.0, without - selected)
        self.exact = epochs**models <= ENUMERATED
        if self.exact:
            drawn = np.array(list(product(range(epochs), repeat=models)))
        else:
            drawn = np.random.default_rng(SEED).integers(epochs, size=(DRAWN, models))
        null = self._ranges(values[np.arange(len(values)), drawn[:, mine.ravel()]]).mean(axis=1)
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
        last = models[View.LAST.metric(metric)].to_numpy(float)
        if not values.shape[1] or not all(np.isfinite(each).all() for each in (values, chosen, last)):
            return None
        hashes = models[View.LAST.sha256("weights")]
        alike = hashes.where(hashes.notna() & (hashes != ""), models.run_id)
        groups = [pd.factorize(each)[0] for each in (models.seeds_used, models.threads, alike)]
        return cls(values, chosen, np.stack(groups, axis=1), last)

    def _ranges(self, values: np.ndarray) -> np.ndarray:
        """(D, seeds) of values (D, U)."""
        parts = []
        for seed in np.unique(self.groups[:, 0]):
            mine = self.groups[:, 0] == seed
            threads = self.groups[mine, 1]
            means = np.stack([values[:, mine][:, threads == t].mean(axis=1) for t in np.unique(threads)])
            parts.append(np.ptp(means, axis=0))
        return np.stack(parts, axis=1)


def _selected(
    metric: str, spreads: _Spreads, p: float | None, smallest: float | None, random: float
) -> Decision:
    """By the p value of the narrowing, the smallest corrected one that so many seeds can reach, and that of
    the comparison with random epochs."""
    models, epochs = spreads.shape
    settings, seeds = (len(np.unique(spreads.groups[:, i])) for i in (1, 0))
    narrowing = float(spreads.narrowing.mean())
    low, high = paired.bounds(spreads.narrowing)
    numbers = {
        "without": spreads.without,
        "with": spreads.with_,
        "narrowing": narrowing,
        "narrowing_low": low,
        "narrowing_high": high,
        "p_holm": p,
        "random": spreads.random,
        "random_p_holm": random,
        "models": models,
        "epochs": epochs,
        "thread_counts": settings,
        "seeds": seeds,
    }
    if spreads.without == spreads.with_ == spreads.random == 0:
        return open_("no difference across thread counts to narrow", **numbers)
    n = f"n={counted(seeds, 'seed')}"
    tested = f"{'narrower' if narrowing > 0 else 'wider'} by {spread(abs(narrowing))}"
    if low is not None and high is not None:
        bounds = sorted((low, high) if narrowing > 0 else (-low, -high))
        tested += f" (95 % interval {' to '.join(map(spread, bounds))})"
    if p is None:
        tested = "equally wide at every seed" if not spreads.narrowing.any() else tested
        tested += f", not tested ({n})"
    else:
        tested += f", p {p_value(p)} by sign flips after Holm's correction, {n}"
    why = (
        f"thread counts lie {spread(spreads.with_)} apart in {metric} at the selected epochs, "
        f"{spread(spreads.without)} at the last: {tested}; {spread(spreads.random)} on average at epochs "
        f"drawn at random (p {p_value(random)}; {counted(models, 'distinct model')} on "
        f"{settings} thread counts, {epochs} epochs)"
    )
    if p is not None and p < ALPHA:
        verdict = Verdict.SUPPORTED if narrowing > 0 else Verdict.NOT_SUPPORTED
        return Decision(verdict=verdict, why=why, numbers=numbers)
    if smallest is not None and smallest >= ALPHA and spreads.narrowing.any():
        why += f"; more seeds are needed: so few allow no p below {smallest:.2g}"
    return open_(why, **numbers)


# ---- F5 ------------------------------------------------------------------------------------------


def more_threads(study: StudyData, tables: dict[str, Table]) -> dict[str, Decision]:
    """F5, from the thread counts with comparable times, in the variants that leave the implementation as it
    is. Each of the others is compared with the largest: t tests on the logarithms of times, within blocks
    where they are recorded, Holm's correction over all of these tests of all workloads and variants.
    Supported when one is faster; not supported when the largest of at least three is faster than all others.
    Variants of a workload that disagree decide nothing."""
    found = leads(tables["time"].frame.to_dict("records"))
    rows = [row for row in found if row["variant"] in PLAIN]
    tests = []
    for i, row in enumerate(rows):
        runs = study.runs_of(row["workload"], variant=row["variant"])
        sets = {name: runs[runs.threads == name] for name in row["eligible"]}
        row["means"] = {name: float(mine.wall_s.mean()) for name, mine in sets.items()}
        row["counts"] = [len(mine) for mine in sets.values()]
        row["p"] = {}
        *others, largest = row["eligible"] or [""]
        row["ratios"] = {
            name: ratio(sets[name], sets[largest])
            for name in others
            if thread_settings(pd.concat([sets[name], sets[largest]]))[0] > 1
        }
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
    left_out = dict.fromkeys(row["left_out"] for row in rows)
    if len(left_out) > 1:  # what is not so in all variants is said of each
        left_out = dict.fromkeys(
            f"with {row['variant']}, {piece}"
            for row in rows
            for piece in row["left_out"].split("; ")
            if piece
        )
    return Decision(
        verdict=Verdict.INCONCLUSIVE if conflict else verdict,
        why="; ".join([f"{variant}: {d.why}" for variant, d in each.items()] + list(filter(None, left_out))),
        numbers={variant: d.numbers for variant, d in each.items()},
    )


def _against_largest(row: dict[Any, Any]) -> Decision:
    eligible, means, p = row["eligible"], row["means"], row["p"]
    if len(eligible) < 2:
        return open_(f"{row['lead'].removeprefix('inconclusive: ')}")
    others, largest = list(row["ratios"]), eligible[-1]
    if not others:
        return open_(SAME_THREADS)
    numbers = {"seconds": means, "fastest": row["fastest"], "decided": row["decided"]}
    numbers |= {"p_holm": p, "n": row["counts"]}
    listed = ", ".join(f"{name}: {number(Kind.SECONDS, means[name])} s" for name in eligible)
    text = f"fastest at {row['fastest']} ({listed})"
    if any(p[name] is None for name in others):
        few = min(row["counts"]) < 2
        lacking = (
            "two runs at each thread count are needed" if few else "times that do not vary are not tested"
        )
        return open_(f"{text}, but {lacking}", **numbers)
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
