"""Gathers what the study lands from the folders that were swept into results/: no weights, but every hash.

    python studies/threads-2026/collect.py FOLDER     # with main/, eight/, isa/ and, where they ran, others

The tables are those of `vbstudy analyze`, which must have run in each folder."""

from __future__ import annotations

import csv
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
RESULTS = HERE / "results"
PARTS = ("main", "eight", "isa", "qemu")


def runs(folder: Path) -> Iterator[dict[str, Any]]:
    """A line a run, of every part of the study."""
    for part in PARTS:
        for file in sorted((folder / part / "runs").glob("*/*/*/*/run.json")):
            record = json.loads(file.read_text(encoding="utf-8"))
            spec, result = record["spec"], record["result"]
            network, _, framework = spec["workload"]["name"].rpartition("-")
            hashes = result["hashes"]
            yield {
                "part": part,
                "workload": spec["workload"]["name"],
                "network": network,
                "framework": {"torch": "PyTorch", "keras": "Keras"}[framework],
                "variant": spec["variant"],
                "isa": spec["isa"],
                "threads": spec["threads"]["intra_op"],
                "repetition": spec["repetition"],
                "seed": result["seeds_used"]["initialisation"],
                "accuracy": result["last"]["accuracy"],
                "selected_accuracy": result["selected"]["accuracy"],
                "weights_sha256": hashes["weights"],
                "predictions_sha256": hashes["predictions"],
                "selected_weights_sha256": hashes["selected_weights"],
                "step_hashes": ";".join(f"{k}:{v}" for k, v in result["step_hashes"].items()),
                "wall_s": result["timings"]["wall_s"],
                "train_s": result["timings"]["train_s"],
                "cpu_s": result["timings"]["cpu_s"],
                "load_by_others": result["load_by_others"],
                "started_at": record["started_at"],
                "guest": f"{record['guest']['provider']} {record['guest'].get('accelerator', '')}".strip(),
                "agent_sha256": record["agent_sha256"],
            }


def collect(folder: Path) -> None:
    RESULTS.mkdir(exist_ok=True)
    rows = list(runs(folder))
    with (RESULTS / "runs.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    report = folder / "main/report"
    for name in ("tables", "traces", "harden", "figures"):
        shutil.rmtree(RESULTS / name, ignore_errors=True)
    shutil.copytree(report / "tables", RESULTS / "tables")
    shutil.copy(report / "findings.json", RESULTS)
    shutil.copy(report / "index.html", RESULTS / "report.html")
    (RESULTS / "figures").mkdir()
    for file in report.glob("figures/overview.*"):
        shutil.copy(file, RESULTS / "figures")
    for file in sorted((folder / "main/trace").glob("*/trace.json")):
        (RESULTS / "traces").mkdir(exist_ok=True)
        shutil.copy(file, RESULTS / "traces" / f"{file.parent.name}.json")
    for file in sorted((folder / "main/harden").glob("*.json")):
        (RESULTS / "harden").mkdir(exist_ok=True)
        shutil.copy(file, RESULTS / "harden")
    table = [sys.executable, "-m", "vbstudy", "analyze", "-C", str(folder / "main"), "--against", "issre21"]
    text = subprocess.run(
        [*table, "--table", "against", "--format", "csv"], check=True, capture_output=True
    ).stdout
    (RESULTS / "tables/against.csv").write_bytes(text)


if __name__ == "__main__":
    collect(Path(sys.argv[1]))
