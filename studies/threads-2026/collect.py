"""Analyses the main study and gathers what lands in results/: no weights, but every hash of every part.

python studies/threads-2026/collect.py FOLDER     # where repeat.sh worked; needs vbstudy[parquet]
python studies/threads-2026/collect.py            # decides the findings again, from results/parquet"""

from __future__ import annotations

import csv
import json
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pandas as pd

from analysis.cost.times import times
from analysis.exchange.parquet import write_parquet
from analysis.findings.findings import decide
from analysis.findings.implications import draw
from analysis.inference.pairwise import comparisons
from analysis.load.design import read_design
from analysis.load.study import StudyData
from analysis.pipeline import analyze
from analysis.report.report import write_report
from analysis.results.model import Table
from analysis.results.printing import to_json

HERE = Path(__file__).parent
RESULTS = HERE / "results"
PICTURE = HERE.parents[1] / "docs/pictures/threads-2026.svg"
PARTS = ("main", "isa", "qemu", "host")
TABLES = ("against", "churn", "distance", "hardening", "max_difference", "tests", "traces")  # as CSV, too


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
    analysis = analyze(folder / "main", against="issre21")
    for name in ("tables", "parquet", "traces", "harden"):
        shutil.rmtree(RESULTS / name, ignore_errors=True)
    RESULTS.mkdir(exist_ok=True)
    rows = list(runs(folder))
    with (RESULTS / "runs.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    with tempfile.TemporaryDirectory() as temporary:
        report = Path(temporary) / "report"
        write_report(analysis, report)
        (RESULTS / "tables").mkdir()
        for name in TABLES:
            shutil.copy(report / f"tables/{name}.csv", RESULTS / "tables")
        shutil.copy(report / "findings.json", RESULTS)
        with zipfile.ZipFile(RESULTS / "report.zip", "w", zipfile.ZIP_DEFLATED) as archive:
            archive.write(report / "index.html", "report.html")
        shutil.copy(report / "figures/overview.svg", PICTURE)
    for file_ in sorted((folder / "main" / "trace").glob("*/trace.json")):
        (RESULTS / "traces").mkdir(exist_ok=True)
        shutil.copy(file_, RESULTS / "traces" / f"{file_.parent.name}.json")
    for file_ in sorted((folder / "main" / "harden").glob("*.json")):
        (RESULTS / "harden").mkdir(exist_ok=True)
        shutil.copy(file_, RESULTS / "harden")
    write_parquet(analysis, RESULTS / "parquet")


def decided_again() -> str:
    """findings.json with F1 to F5 and the implications, by the rules of today, from the committed runs and
    epochs; what is measured on weights and traces is read from the committed tables."""
    kept = {
        name: pd.read_parquet(RESULTS / f"parquet/{name}.parquet") for name in ("runs", "epochs", "steps")
    }
    kept["runs"]["intra_op_in_force"] = float("nan")  # not in these tables, and asked for since then
    metrics = {str(name): ("accuracy",) for name in kept["runs"].workload.unique()}
    study = StudyData(directory=HERE, metrics=metrics, design=read_design(HERE)[0], **kept)
    tables = {"tests": comparisons(study), "time": times(study)}
    for name in ("distance", "traces"):
        frame = pd.read_parquet(RESULTS / f"parquet/tables/{name}.parquet")
        tables[name] = Table(name=name, title="", note="", frame=frame)
    findings = decide(study, tables)
    data = json.loads((RESULTS / "findings.json").read_text(encoding="utf-8"))
    others = [each for each in data["findings"] if each["id"] not in {f.id for f in findings}]
    data["findings"] = [asdict(f) | {"workload": f.workload or None} for f in findings] + others
    data["implications"] = [asdict(each) for each in draw(study, tables, findings)]
    return to_json(data)


if __name__ == "__main__":
    if sys.argv[1:]:
        collect(Path(sys.argv[1]))
    else:
        (RESULTS / "findings.json").write_text(decided_again(), encoding="utf-8")
