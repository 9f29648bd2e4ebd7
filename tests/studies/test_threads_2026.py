"""docs/threads-2026.md says what the committed results of its study say, and they are whole."""

from __future__ import annotations

import csv
import importlib.util
import json
import re
from collections import defaultdict
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from analysis.stats.paired import sign_flips
from orchestrator.study import schema
from orchestrator.study.plan import plan

REPOSITORY = Path(__file__).parents[2]
STUDY = REPOSITORY / "studies/threads-2026"
RESULTS = STUDY / "results"
PAGE = REPOSITORY / "docs/threads-2026.md"
MOST_BYTES = 20_000_000


def module(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"threads_2026_{name}", STUDY / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


def read(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def runs() -> list[dict[str, str]]:
    return read(RESULTS / "runs.csv")


def models(runs, variant, part="main"):
    """{workload: {seed: the weights of all its runs}}"""
    found = defaultdict(lambda: defaultdict(set))
    for run in runs:
        if run["variant"] == variant and run["part"] == part:
            found[run["workload"]][run["seed"]].add(run["weights_sha256"])
    return found


def on_two_cpus(first, second, variant, framework) -> str:
    """How many models of the first run, without its part `isa`, the second has too."""

    def by_key(rows):
        return {
            (r["workload"], r["threads"], r["seed"]): r["weights_sha256"]
            for r in rows
            if r["part"] in ("main", "eight")
            and r["variant"] == variant
            and r["workload"].endswith(f"-{framework}")
        }

    these, those = by_key(first), by_key(second)
    both = these.keys() & those.keys()
    return f"{sum(these[key] == those[key] for key in both)} of {len(both)}"


@pytest.mark.needs("studies")
def test_the_page_is_what_the_committed_tables_give():
    page = module("page")
    assert PAGE.read_text(encoding="utf-8") == page.page(page.Results(RESULTS))


def test_the_first_paragraph_counts_the_runs_and_networks_of_the_table_of_runs(runs):
    text = " ".join(PAGE.read_text(encoding="utf-8").split())
    main = sum(run["part"] == "main" for run in runs)
    free = sum((run["part"], run["variant"]) == ("main", "default") for run in runs)
    assert f"CPU threads: {main:,} runs, {main - free:,} of them with the same seeds on every" in text
    assert f"thread count and {free:,} with free seeds, on one AMD EPYC" in text
    fixed = models(runs, "fixed-seed")
    differ = {w for w, seeds in fixed.items() if any(len(m) > 1 for m in seeds.values())}
    torch = sum(w.endswith("-torch") for w in differ)
    assert f"for {torch} of 8 networks in PyTorch" in text
    assert f"for {len(differ) - torch} of 8 in Keras" in text
    exact = models(runs, "exact")
    one = {w for w, seeds in exact.items() if all(len(m) == 1 for m in seeds.values())}
    torch, keras = (sum(w.endswith(end) for w in one) for end in ("-torch", "-keras"))
    assert f"for {torch} of 8 networks in PyTorch and {keras} of 8 in Keras." in text


def test_the_widest_range_of_accuracy_at_one_seed_is_that_of_the_runs(runs):
    ranges = defaultdict(list)
    for run in runs:
        if run["variant"] == "fixed-seed" and run["part"] == "main":
            ranges[run["workload"], run["seed"]].append(float(run["accuracy"]))
    widest = max(max(values) - min(values) for values in ranges.values())
    assert f": {100 * widest:.1f} points between thread counts at one seed" in PAGE.read_text(
        encoding="utf-8"
    )


def test_mean_accuracies_count_each_seed_and_thread_count_once(runs):
    once = defaultdict(dict)
    for run in runs:
        if run["variant"] == "fixed-seed" and run["part"] == "main":
            once[run["workload"]][run["seed"], run["threads"]] = float(run["accuracy"])
    means = {workload: f"{100 * np.mean(list(of.values())):.1f} %" for workload, of in once.items()}
    table = PAGE.read_text(encoding="utf-8").partition("## Results\n")[2].partition("- **")[0]
    networks = [f"{name}-{framework}" for framework in ("torch", "keras") for name in module("page").NAMES]
    column = re.findall(r"^(?:\|[^|]*){5}\| ([\d.]+ %) ", table, flags=re.M)
    assert column == [means[network] for network in networks]
    both = f"mean accuracy {means['resnet20-torch']} and {means['resnet20-keras']} of"
    assert both in (REPOSITORY / "README.md").read_text(encoding="utf-8")


def test_readme_has_the_figures_of_the_runs(runs):
    several, ranges, repeats = [], [], []
    for framework in ("torch", "keras"):
        mine = [run for run in runs if run["workload"].endswith(f"-{framework}")]
        several.append(
            [
                sum(any(len(m) > 1 for m in seeds.values()) for seeds in found.values())
                for found in (models(mine, variant) for variant in ("fixed-seed", "exact"))
            ]
        )
        accuracy, weights = defaultdict(list), defaultdict(list)
        for run in mine:
            if run["variant"] == "fixed-seed" and run["part"] == "main":
                accuracy[run["workload"], run["seed"]].append(float(run["accuracy"]))
                weights[run["workload"], run["seed"], run["threads"]].append(run["weights_sha256"])
        ranges.append(f"{100 * max(max(values) - min(values) for values in accuracy.values()):.1f} points")
        pairs = [two for two in weights.values() if len(two) > 1]
        repeats.append(f"{sum(len(set(two)) == 1 for two in pairs)} of {len(pairs)}")
    text = (REPOSITORY / "README.md").read_text(encoding="utf-8")
    main_exact = [run for run in runs if run["part"] == "main" and run["variant"] == "exact"]
    assert {run["seed"] for run in main_exact} == {"1", "2"}
    assert "Exact mode ran with 2 of the 8 seeds, once on each thread count" in text
    assert f"{sum(run['part'] == 'main' for run in runs):,} runs" in text
    (torch_fixed, torch_exact), (keras_fixed, keras_exact) = several
    first = read(STUDY / "first/runs.csv")
    for cells in (
        *(
            " | ".join(on_two_cpus(first, runs, variant, framework) for framework in ("torch", "keras"))
            for variant in ("fixed-seed", "exact")
        ),
        f"{torch_fixed} of 8 | {keras_fixed} of 8",
        f"{torch_exact} of 8 | {keras_exact} of 8",
        " | ".join(ranges),
        " | ".join(repeats),
    ):
        assert f" | {cells} |\n" in text, cells


def test_each_finding_on_the_page_has_its_verdict_and_is_of_all_workloads():
    found = json.loads((RESULTS / "findings.json").read_text(encoding="utf-8"))["findings"]
    lines = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if re.match(r"\| F\d:", line)]
    assert len(lines) == 5
    for line in lines:
        name = line[2:4]
        assert f"**{next(f['verdict'] for f in found if f['id'] == name and not f['workload'])}**" in line
        counts = re.search(r"by workload: ([^|]*) \|", line)
        assert counts is not None
        assert sum(int(n) for n in re.findall(r"\d+", counts[1])) == 16


@pytest.mark.needs("tools", long=True)
def test_stored_findings_are_those_that_the_rules_of_today_give():
    assert json.loads(module("collect").decided_again()) == json.loads(
        (RESULTS / "findings.json").read_text(encoding="utf-8")
    )


def test_stored_numbers_of_f4_are_those_of_the_runs_and_its_words_follow_them(runs):
    found = json.loads((RESULTS / "findings.json").read_text(encoding="utf-8"))["findings"]
    for finding in (f for f in found if f["id"] == "F4" and f["workload"]):
        cells = defaultdict(lambda: defaultdict(dict))
        for run in runs:
            if (run["part"], run["variant"], run["workload"]) == ("main", "fixed-seed", finding["workload"]):
                both = float(run["accuracy"]), float(run["selected_accuracy"])
                cells[run["seed"]][run["threads"]][run["weights_sha256"]] = both
        last, selected = (
            np.array(
                [np.ptp([np.mean([v[i] for v in t.values()]) for t in s.values()]) for s in cells.values()]
            )
            for i in (0, 1)
        )
        p, numbers = sign_flips(np.round(last - selected, 12)).p, finding["numbers"]
        assert numbers["narrowing"] == pytest.approx((last - selected).mean(), abs=1e-9)
        assert (numbers["p_holm"] is None) is (p is None)
        assert (finding["verdict"] == "supported") is (p is not None and numbers["p_holm"] < 0.05)
        assert "chance could explain" not in finding["why"]


@pytest.mark.parametrize(
    ("folder", "table", "parts"),
    [
        (
            STUDY,
            RESULTS / "runs.csv",
            {"main": "", "isa": "isa", "qemu": "qemu", "host": "qemu"},
        ),
        (
            STUDY / "first",
            STUDY / "first/runs.csv",
            {"main": "", "eight": "eight", "isa": "isa"},
        ),
    ],
    ids=["second", "first"],
)
def test_every_run_is_one_that_the_study_files_plan_and_has_its_hashes(folder, table, parts):
    runs = read(table)
    assert {run["part"] for run in runs} <= set(parts)
    for part, name in parts.items():
        study = schema.parse((folder / name / "study.toml").read_text(encoding="utf-8"))
        planned = {
            (s.workload.name, s.variant, s.threads.cpus, s.repetition): s.seeds.initialisation
            for s in plan(study)
        }
        mine = [run for run in runs if run["part"] == part]
        keys = [(r["workload"], r["variant"], int(r["threads"]), int(r["repetition"])) for r in mine]
        assert len(set(keys)) == len(keys)
        for run, key in zip(mine, keys, strict=True):
            assert planned[key] in (None, int(run["seed"])), key  # None: drawn, and recorded
            assert re.fullmatch("[0-9a-f]{64}", run["weights_sha256"])
            assert re.fullmatch("[0-9a-f]{64}", run["predictions_sha256"])
    assert len({run["agent_sha256"] for run in runs}) == 1  # one program trained all of them


@pytest.mark.parametrize(("framework", "name"), [("torch", "PyTorch"), ("keras", "Keras")])
def test_the_page_counts_the_models_that_are_those_of_the_first_run(runs, framework, name):
    first = read(STUDY / "first/runs.csv")
    text = " ".join(PAGE.read_text(encoding="utf-8").split()).partition("Another CPU is another model.")[2]
    text = text.partition(f"in {name} ")[2]
    for variant in ("fixed-seed", "control", "exact"):
        if (counted := on_two_cpus(first, runs, variant, framework)) != "0 of 0":
            assert text.startswith((f"{counted} in", f", {counted} in", f" and {counted} in"))
            text = text.partition(f"in `{variant}`")[2]


def test_the_page_counts_the_models_of_virtual_machines(runs):
    text = PAGE.read_text(encoding="utf-8")
    for variant, name in (("fixed-seed", "`fixed-seed`"), ("exact", "exact mode")):
        inside = models(runs, variant, "qemu")
        (lenet1,), (mlp,) = inside["lenet1-torch"].values(), inside["mlp-torch"].values()
        assert f"{len(lenet1)} of LeNet-1 and {len(mlp)} of MLP in {name}" in text


def test_what_lands_is_small_and_has_no_weights():
    files = [path for path in RESULTS.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < MOST_BYTES
    assert not [path for path in files if path.suffix in (".safetensors", ".npz")]
    assert {path.stem for path in files if path.suffix == ".csv"} == {"runs", *module("collect").TABLES}
    assert {path.stem for path in files if path.suffix == ".parquet"} >= {
        "runs",
        "epochs",
        "verdicts",
        "churn",
    }
