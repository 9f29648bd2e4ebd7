"""What of a study file is published: what others need to repeat the study. Whatever is not listed here stays
with its owner: comments, addresses and accounts of machines, keys, paths."""

from __future__ import annotations

import dataclasses
import math
import tomllib
from collections.abc import Callable, Iterator
from pathlib import PurePath
from typing import Any

import tomlkit

from analysis.load.runs import Problem, check_run
from analysis.load.study import StudyData
from guest.records.printable import counted
from guest.records.run import RunSpec, portable_source

TABLES: dict[str, frozenset[str]] = {
    table: frozenset(keys.split())
    for table, keys in {
        "": "name seed seeds repetitions repetitions_at_most cpus threads inter_op_threads variants isa "
        "model_selection metrics analysis provider engine workload",
        "workload": "name framework model dataset epochs batch_size learning_rate optimizer momentum "
        "weight_decay augment train_samples test_samples metrics variants project command requirements "
        "artifacts timeout_s disk_limit_mib random",
        "provider": "kind cpuset memory_mib cpu_model accelerator snapshot boot_timeout_s python_version "
        "hypervisor box base base_sha256 cloud_init nested_paging execution_engine image use_ssh_config "
        "connect_timeout_s patience_s",
        "engine": "retries timeout_s heartbeat_s lost_after_s side_by_side hyper_threads reserve "
        "contended_above redo_contended disturbed_above redo_disturbed",
    }.items()
}
"""The published keys by table. Tables that are not named (metrics, artifacts, seeds) are published whole."""

PLACES: dict[str, Callable[[str], str]] = {
    "base": lambda path: PurePath(path).name,
    "image": lambda path: PurePath(path).name,
    "project": portable_source,
}
"""Keys with paths of which the last name is published."""


def public_study_file(text: str) -> tuple[str, list[str]]:
    """A study file as others may have it, and the keys that were left out. Raises ValueError when it is not
    TOML."""
    left_out: list[str] = []
    return tomlkit.dumps(dict(_public("", tomllib.loads(text), left_out))), left_out


def _public(table: str, content: dict[str, Any], left_out: list[str]) -> Iterator[tuple[str, Any]]:
    for key, value in content.items():
        if key not in TABLES[table]:
            left_out.append(f"{table}.{key}".removeprefix("."))
            if (table, key) == ("provider", "hosts") and isinstance(value, list):
                yield key, _nameless(value)
        elif key in TABLES and isinstance(value, dict):
            yield key, dict(_public(key, value, left_out))
        elif key in TABLES and isinstance(value, list):
            yield key, [dict(_public(key, each, left_out)) for each in value if isinstance(each, dict)]
        else:
            yield key, PLACES[key](value) if key in PLACES and isinstance(value, str) else value


def _nameless(hosts: list[Any]) -> list[dict[str, Any]]:
    """Machines by number and size: without any, no command could read the file. `.invalid` is no domain."""
    return [
        {"host": f"machine-{number}.invalid", "cpus": host["cpus"]}
        for number, host in enumerate(hosts, start=1)
        if isinstance(host, dict) and isinstance(host.get("cpus"), int)
    ]


def study_file_of(study: StudyData) -> str:
    """A study file that plans the runs of a study as their records have them. Projects are named alone: their
    settings are in the records. A comment states where it plans more: a file plans all combinations."""
    specs = []
    for run_id in study.runs.drop_duplicates("set_id").run_id:
        checked = check_run(study.directory, study.directory / "runs" / run_id)
        if not isinstance(checked, Problem):
            specs.append(checked[0].spec)
    fixed = [spec.seeds for spec in specs if spec.variant.seeds_fixed]
    content: dict[str, Any] = {
        "name": specs[0].study_id,
        "repetitions": int(study.runs.repetition.max()),
        "cpus": sorted({spec.threads.cpus for spec in specs}),
    }
    if any(spec.threads.intra_op != spec.threads.cpus for spec in specs):
        content["threads"] = sorted({spec.threads.intra_op for spec in specs})
    if any(spec.threads.inter_op != spec.threads.intra_op for spec in specs):
        content["inter_op_threads"] = sorted({spec.threads.inter_op for spec in specs})
    most = study.runs.groupby("variant", sort=False).repetition.max()
    if at_most := {str(name): int(n) for name, n in most.items() if n < most.max()}:
        content["repetitions_at_most"] = at_most
    content["variants"] = list(dict.fromkeys(spec.variant.value for spec in specs))
    content["isa"] = specs[0].isa.value
    if (kinds := set(study.runs.provider)) != {"local"} and len(kinds) == 1:
        content["provider"] = {"kind": kinds.pop()}
    if models := list(dict.fromkeys(spec.cpu_model for spec in specs if spec.cpu_model)):
        content.setdefault("provider", {})["cpu_model"] = models
    if fixed:
        seeds = dataclasses.asdict(fixed[0])
        content["seeds"] = {"count": study.seeds()} | {
            k: "free" if v is None else v for k, v in seeds.items()
        }
    workloads = {spec.workload.name: _workload(spec) for spec in specs}
    planned = 0
    for name, table in workloads.items():
        variants = list(dict.fromkeys(s.variant.value for s in specs if s.workload.name == name))
        if len(variants) < len(content["variants"]) and "project" not in table:
            table["variants"] = variants
        planned += len(table.get("variants", content["variants"])) * max(1, len(models))
    content["workload"] = list(workloads.values())
    planned *= math.prod(len(content.get(key, (1,))) for key in ("cpus", "threads", "inter_op_threads"))
    more = planned - len(specs)
    note = f"# It plans {counted(more, 'condition')} without a run here.\n" if more > 0 else ""
    return note + tomlkit.dumps(content)


def _workload(spec: RunSpec) -> dict[str, Any]:
    settings = dataclasses.asdict(spec.workload)
    project = settings.pop("project")
    if project is not None:
        place = portable_source(project["source"])
        return {"name": spec.workload.name, "project": place, "command": list(project["command"])}
    settings["metrics"] = [metric.value for metric in spec.workload.metrics]
    return {key: getattr(value, "value", value) for key, value in settings.items() if value is not None}
