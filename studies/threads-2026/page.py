"""Writes docs/threads-2026.md from the committed results. Every number on that page comes from here.

python studies/threads-2026/page.py"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

HERE = Path(__file__).parent
RESULTS = HERE / "results"
FIRST = HERE / "first/runs.csv"
PAGE = HERE.parents[1] / "docs/threads-2026.md"
TEXT = HERE / "page.md.in"  # no page: numbers stand in it as {names}

NAMES = {
    "mlp": "MLP",
    "lenet1": "LeNet-1",
    "lenet5": "LeNet-5",
    "cnn-bn": "CNN with BatchNorm",
    "resnet20": "ResNet-20",
    "lstm": "LSTM",
    "transformer": "transformer",
    "memn2n": "memory network",
}
FRAMEWORKS = ("PyTorch", "Keras")
EACH = [(framework, network, name) for framework in FRAMEWORKS for network, name in NAMES.items()]
ACROSS = "across thread counts"
PARTS = {
    "main": "1, 2, 4, 8",
    "isa": "1, 2; portable",
    "qemu": "1, 2; virtual machines, portable",
    "host": "1, 2; the same on the host",
}
TIERS = {
    "1": "switches",
    "2": "MKL's mode, oneDNN off",
    "3": "fixed logical threads",
    "4": "exact mode",
    "5": "one thread",
}
VERDICTS = ("supported", "not supported", "inconclusive")


class Results:
    """The committed tables, read once."""

    def __init__(self, folder: Path = RESULTS) -> None:
        self.folder = folder
        self.runs = pd.read_csv(folder / "runs.csv")
        self.first = pd.read_csv(FIRST)
        self.findings = json.loads((folder / "findings.json").read_text(encoding="utf-8"))["findings"]

    def table(self, name: str) -> pd.DataFrame:
        path = self.folder / "tables" / f"{name}.csv"
        return pd.read_csv(path) if path.exists() else pd.DataFrame()

    def of(self, part: str, variant: str, framework: str = "", network: str = "") -> pd.DataFrame:
        runs = self.runs
        chosen = (runs.part == part) & (runs.variant == variant)
        if framework:
            chosen &= runs.framework == framework
        if network:
            chosen &= runs.network == network
        return runs[chosen]

    @property
    def of_main(self) -> pd.DataFrame:
        return self.runs[self.runs.part == "main"]

    def workload(self, framework: str, network: str) -> str:
        return f"{network}-{'torch' if framework == 'PyTorch' else 'keras'}"

    def across(self, name: str, framework: str, network: str, variant: str = "fixed-seed") -> dict[str, Any]:
        """The row of a table across thread counts, of last models."""
        frame = self.table(name)
        rows = frame[
            (frame.workload == self.workload(framework, network))
            & (frame.variant == variant)
            & (frame["view"] == "last")
            & (frame.scope == ACROSS)
        ]
        return rows.to_dict("records")[0] if len(rows) else {}


# ---- numbers as text ---------------------------------------------------------------------------------


def percent(value: float) -> str:
    return "–" if pd.isna(value) else "0" if value == 0 else f"{100 * value:.1f} %"


def interval(row: dict[str, Any], key: str, low: str = "low", high: str = "high") -> str:
    if not row or pd.isna(row[key]):
        return "–"
    if pd.isna(row[low]):
        return percent(row[key])
    return f"{percent(row[key])} ({100 * row[low]:.1f} to {100 * row[high]:.1f})"


def span(low: Any, high: Any) -> str:
    return str(low) if low == high else f"{low} to {high}"


def table(heads: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines)


def series(words: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(words[:-1]), words[-1]))) if words else "none"


# ---- what the runs say ---------------------------------------------------------------------------------


def models(runs: pd.DataFrame) -> list[int]:
    """Distinct weights of each seed, of seeds that ran on several thread counts."""
    return [s.weights_sha256.nunique() for _, s in runs.groupby("seed") if s.threads.nunique() > 1]


def models_text(runs: pd.DataFrame) -> str:
    counts = models(runs)
    return span(min(counts), max(counts)) if counts else "–"


def accuracy_range(runs: pd.DataFrame, column: str = "accuracy") -> float:
    """The largest max-min across thread counts at one seed."""
    return max((s[column].max() - s[column].min() for _, s in runs.groupby("seed")), default=float("nan"))


def mean_accuracy(runs: pd.DataFrame) -> float:
    """Of each seed and thread count once: runs of both alike are copies."""
    return float(runs.drop_duplicates(["seed", "threads"]).accuracy.mean())


def repeats(runs: pd.DataFrame) -> tuple[int, int]:
    """(cells of seed and thread count that ran twice or more, those of them with one model)."""
    cells = runs.groupby(["workload", "seed", "threads"]).weights_sha256.agg(["size", "nunique"])
    twice = cells[cells["size"] > 1]
    return len(twice), int((twice["nunique"] == 1).sum())


def differing(results: Results, framework: str, variant: str = "fixed-seed") -> list[str]:
    """Networks of which some seed gave several models."""
    return [n for n in NAMES if max(models(results.of("main", variant, framework, n)), default=0) > 1]


def cured(results: Results, variant: str, framework: str) -> tuple[int, int]:
    """(networks with one model for each seed on all thread counts; networks that ran)."""
    each = [max(models(results.of("main", variant, framework, network)), default=0) for network in NAMES]
    return sum(n == 1 for n in each), sum(n > 0 for n in each)


KEYS = ["workload", "variant", "threads", "seed"]


def equal_models(these: pd.DataFrame, those: pd.DataFrame) -> pd.DataFrame:
    """The runs with a workload, variant, thread count and seed that both have, one of each, and whether
    their weights are `equal`."""
    both = these.drop_duplicates(KEYS).merge(those.drop_duplicates(KEYS), on=KEYS, suffixes=("", "_other"))
    return both.assign(equal=both.weights_sha256 == both.weights_sha256_other)


def shares(pairs: pd.DataFrame) -> str:
    return f"{int(pairs.equal.sum()):,} of {len(pairs):,}"


def first_text(results: Results, framework: str) -> str:
    """Q0: the models of the first run, which was on a CPU with AVX-512; free seeds were drawn again."""
    first = results.first[results.first.part != "isa"]
    pairs = {
        variant: equal_models(results.of("main", variant, framework), first)
        for variant in ("fixed-seed", "control", "exact")
    }
    return series([f"{shares(each)} in `{variant}`" for variant, each in pairs.items() if len(each)])


def isa_text(results: Results) -> str:
    lines = []
    for variant, name in (("fixed-seed", "`fixed-seed`"), ("exact", "exact mode")):
        capped, first = results.of("isa", variant), results.first[results.first.part == "isa"]
        other_cpu, uncapped = equal_models(capped, first), equal_models(capped, results.of("main", variant))
        lines.append(
            f"in {name} {shares(other_cpu)} pairs of runs on the two CPUs have equal weights, and "
            f"{shares(uncapped)} pairs with and without the setting, on this one"
        )
    return (
        '**Instructions held to AVX2.** With `isa = "portable"`, PyTorch, the same seeds on 1 and 2 threads: '
        f"{'; '.join(lines)}."
    )


def machines_text(results: Results) -> str:
    fixed, exact = (
        equal_models(results.of("qemu", variant), results.of("host", variant))
        for variant in ("fixed-seed", "exact")
    )
    if fixed.empty:
        return "The registered study in virtual machines did not fit into the time."
    inside = {
        variant: series(
            [
                f"{models_text(results.of('qemu', variant, network=n))} of {NAMES[n]}"
                for n in ("lenet1", "mlp")
            ]
        )
        for variant in ("fixed-seed", "exact")
    }
    return (
        "**Virtual machines.** LeNet-1 and MLP in PyTorch, in machines that QEMU emulates with 1 and 2 "
        "virtual CPUs, and the same study on the host, both with `portable`. Models of one seed in the "
        f"machines: {inside['fixed-seed']} in `fixed-seed`, {inside['exact']} in exact mode. Pairs of "
        "network and number of CPUs in which machine and host gave equal weights: "
        f"{shares(fixed)} in `fixed-seed`, {shares(exact)} in exact mode."
    )


# ---- tables of the page ----------------------------------------------------------------------------------


def results_table(results: Results) -> str:
    rows = []
    for framework, network, name in EACH:
        runs = results.of("main", "fixed-seed", framework, network)
        if runs.empty:
            continue
        distance = results.across("distance", framework, network)
        rows.append(
            [
                name,
                framework,
                models_text(runs),
                percent(distance.get("differing", float("nan"))),
                interval(results.across("churn", framework, network), "churn"),
                f"{100 * mean_accuracy(runs):.1f} %",
                f"{100 * accuracy_range(runs):.1f}",
                tested(results, framework, network),
                cure_text(results, "exact", framework, network),
                cure_text(results, "control", framework, network),
            ]
        )
    heads = (
        "network",
        "framework",
        "models of one seed on 4 thread counts",
        "weights that differ",
        "churn, 95 % interval",
        "accuracy, mean",
        "range at one seed, points",
        "pairs of thread counts, accuracy",
        "models in exact mode",
        "models with switches",
    )
    return table(heads, rows)


def tested(results: Results, framework: str, network: str) -> str:
    """Q2 with fixed seeds: how many of the pairs of thread counts have which result."""
    frame = results.table("tests")
    mine = frame[
        (frame.workload == results.workload(framework, network))
        & (frame.variant == "fixed-seed")
        & (frame["view"] == "last")
        & (frame.metric == "accuracy")
    ]
    texts = {"not tested: all pairs equal": "equal at every seed"}
    return ", ".join(f"{n} {texts.get(what, what)}" for what, n in mine.verdict.value_counts().items())


def cure_text(results: Results, variant: str, framework: str, network: str) -> str:
    runs = results.of("main", variant, framework, network)
    return f"{models_text(runs)} ({runs.seed.nunique()} seeds, {len(runs)} runs)" if len(runs) else "–"


def finding(results: Results, name: str) -> dict[str, int]:
    """How many workloads have each verdict."""
    mine = [f for f in results.findings if f["id"] == name and f["workload"]]
    return {verdict: sum(f["verdict"] == verdict for f in mine) for verdict in VERDICTS}


def finding_text(results: Results, name: str) -> str:
    whole = next(f for f in results.findings if f["id"] == name and not f["workload"])
    counts = ", ".join(f"{n} {verdict}" for verdict, n in finding(results, name).items() if n)
    return f"**{whole['verdict']}**; by workload: {counts}"


def traces_table(results: Results) -> str:
    frame = results.table("traces")
    if frame.empty:
        return "No network was traced."
    rows = []
    for framework, network, name in EACH:
        mine = frame[frame.workload == results.workload(framework, network)]
        found = mine[mine.op.notna()]
        for row in (found if len(found) else mine).to_dict("records")[-1:]:
            threads = row["threads"].replace(" | ", ", ").replace("cpus-", "")
            if isinstance(row["op"], str):
                what = f"`{row['op']}`, {row['phase']}"
                size = f"{int(row['differing']):,} of {int(row['elements']):,}"
                rows.append(
                    [name, framework, threads, what, int(row["step"]), size, governed(row["setting"])]
                )
            else:
                rows.append([name, framework, threads, row["found"], "–", "–", "–"])
    heads = (
        "network",
        "framework",
        "threads",
        "first operation that differs",
        "step",
        "elements",
        "governed by",
    )
    return table(heads, rows)


def governed(setting: Any) -> str:
    """The setting without its switches."""
    return setting.partition(" (")[0].partition("; ")[0] if isinstance(setting, str) else "not known"


def span_of_sizes(runs: pd.DataFrame) -> str:
    """How many runs each network has on each thread count."""
    sizes = runs.groupby(["workload", "threads"]).size()
    return span(sizes.min(), sizes.max())


def runs_table(results: Results) -> str:
    """n of every cell."""
    rows = []
    for part, what in PARTS.items():
        for variant in ("fixed-seed", "default", "exact", "control"):
            cells = []
            for framework in FRAMEWORKS:
                runs = results.of(part, variant, framework)
                n = span_of_sizes(runs)
                cells.append(f"{runs.network.nunique()} × {n} ({len(runs)})" if len(runs) else "–")
            if set(cells) != {"–"}:
                rows.append([what, f"`{variant}`", *cells])
    return table(("threads", "variant", *FRAMEWORKS), rows)


def spreads_table(results: Results) -> str:
    """Between seeds, between thread counts at one seed, and what exact mode leaves."""
    rows = []
    for framework, network, name in EACH:
        fixed, exact, free = (
            results.of("main", variant, framework, network) for variant in ("fixed-seed", "exact", "default")
        )
        if fixed.empty:
            continue
        one = fixed[fixed.threads == 1].accuracy
        churn = results.across("churn", framework, network, "default")
        both = fixed[fixed.seed.isin(exact.seed)]
        rows.append(
            [
                name,
                framework,
                f"{100 * (one.max() - one.min()):.1f}",
                f"{100 * accuracy_range(fixed):.1f} ({100 * accuracy_range(both):.1f})",
                f"{100 * accuracy_range(exact):.1f}" if len(exact) else "–",
                interval(results.across("churn", framework, network), "churn"),
                interval(results.across("churn", framework, network, "exact"), "churn"),
                interval(churn, "churn") if len(free) else "–",
            ]
        )
    heads = (
        "network",
        "framework",
        "accuracy range of seeds, points",
        "of thread counts at one seed (seeds 1 and 2 alone)",
        "seeds 1 and 2, exact mode",
        "churn of thread counts",
        "the same, exact mode",
        "churn of free seeds",
    )
    return table(heads, rows)


def hardening_table(results: Results) -> str:
    """Q8: what came out of every tier of every hardened workload, with its cost where there is one."""
    frame = results.table("hardening")
    if frame.empty:
        return "No workload was hardened: the time was over."
    rows = []
    for framework, network, name in EACH:
        mine = frame[frame.workload == results.workload(framework, network)]
        by_tier = {str(row["tier"])[0]: row for row in mine.to_dict("records")}
        if by_tier:
            rows.append([name, framework, *(proof_text(by_tier[tier]) for tier in TIERS)])
    return table(("network", "framework", *TIERS.values()), rows)


def proof_text(row: dict[str, Any]) -> str:
    if row["proof"] != "proved" or pd.isna(row["mean_cost"]):
        return str(row["proof"])
    bounds = "" if pd.isna(row["mean_low"]) else f" ({row['mean_low']:.2f} to {row['mean_high']:.2f})"
    return f"{row['mean_cost']:.2f}{bounds}"


# ---- the page --------------------------------------------------------------------------------------------


def page(results: Results) -> str:
    """The whole page. Sentences that a number decides are chosen by it."""
    fixed = results.of("main", "fixed-seed")
    torch, keras = (differing(results, framework) for framework in FRAMEWORKS)
    cells, equal = repeats(fixed)
    ranges = {
        (framework, network): accuracy_range(results.of("main", "fixed-seed", framework, network))
        for framework, network, _ in EACH
    }
    (worst_framework, worst), widest = max(ranges.items(), key=lambda item: item[1])
    wide = [each for each in ranges if max(models(results.of("main", "fixed-seed", *each)), default=0) > 1]
    hidden = sum(ranges[each] == 0 for each in wide)
    exact_torch, exact_torch_of = cured(results, "exact", "PyTorch")
    exact_keras, exact_keras_of = cured(results, "exact", "Keras")
    (control_torch, control_torch_of), (control_keras, control_keras_of) = (
        cured(results, "control", framework) for framework in FRAMEWORKS
    )
    values = {
        "runs": f"{len(results.runs):,}",
        "main_runs": f"{len(results.of_main):,}",
        "shared_runs": f"{(results.of_main.variant != 'default').sum():,}",
        "free_runs": f"{(results.of_main.variant == 'default').sum():,}",
        "torch": len(torch),
        "torch_names": series([NAMES[n] for n in torch]),
        "keras": len(keras),
        "keras_alike": series([NAMES[n] for n in NAMES if n not in keras]),
        "alike": series([f"{NAMES[n]} in {f}" for f, n in ranges if (f, n) not in wide]),
        "keras_names": series([NAMES[n] for n in keras]),
        "cells": cells,
        "equal": equal,
        "widest": f"{100 * widest:.1f}",
        "worst": f"{NAMES[worst]} in {worst_framework}",
        "hidden": hidden,
        "differ": len(wide),
        "exact_torch": f"{exact_torch} of {exact_torch_of}",
        "exact_keras": f"{exact_keras} of {exact_keras_of}",
        "control_torch": f"{control_torch} of {control_torch_of}",
        "control_keras": f"{control_keras} of {control_keras_of}",
        "n": span_of_sizes(fixed),
        "seeds": fixed.seed.nunique(),
        "results_table": results_table(results),
        "runs_table": runs_table(results),
        "spreads_table": spreads_table(results),
        "traces_table": traces_table(results),
        "hardening_table": hardening_table(results),
        "first_torch": first_text(results, "PyTorch"),
        "first_keras": first_text(results, "Keras"),
        "late": (results.of_main.started_at > "2026-11-25T10:50").sum(),
        "isa": isa_text(results),
        "machines": machines_text(results),
        "from": results.runs.started_at.min()[:10],
        **{f"f{n}": finding_text(results, f"F{n}") for n in range(1, 6)},
    }
    return TEXT.read_text(encoding="utf-8").format_map(values)


if __name__ == "__main__":
    PAGE.write_text(page(Results()), encoding="utf-8")
