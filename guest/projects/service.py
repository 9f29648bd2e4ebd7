"""Runs of a user project, one request after another: unpacks the project, runs its command with the study's
thread counts and seed, and turns its output into the files and the result of a run."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import math
import os
import select
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from guest.machine import fingerprint, load, seeds, threads, tiers
from guest.machine.folders import remove_folder
from guest.projects import artifacts, command, environment, notices, numbers, randomness
from guest.projects.prepare import (
    NOTICED,
    REPORTED,
    WORK,
    ProjectError,
    hook_settings,
    library,
    process_environment,
    resolve,
    unpack,
)
from guest.records import bounded
from guest.records.codec import from_json
from guest.records.run import (
    HISTORY,
    LOG,
    LOSSES,
    PREDICTIONS,
    RECORDING,
    SCHEMA_VERSION,
    WEIGHTS,
    Framework,
    Hashes,
    ProjectResult,
    ProjectSpec,
    RunRequest,
    RunResult,
    RunSpec,
    Tier,
    Timings,
    history_columns,
)
from guest.runner import MessageWriter, Progress, artifact, heartbeat
from guest.training.training import hash_arrays
from vbstudy.exact import launch

LARGEST = 8  # bytes of a number in safetensors: it has no long double, and no complex one of two float64
KEPT = ("version", "exact")  # of what a framework was at the end: facts of its own


def serve(writer: MessageWriter) -> int:
    """Reads requests from stdin until it ends."""
    writer.send("hello", "", schema_version=SCHEMA_VERSION, pid=os.getpid(), warm=False)
    for line in iter(sys.stdin.readline, ""):
        message = json.loads(line)
        request = from_json(RunRequest, message["request"], "request")  # point: project request read
        if not execute(request, Path(message["out"]).absolute(), writer):
            break
    return 0


def execute(request: RunRequest, out: Path, writer: MessageWriter) -> bool:
    """One run. False when the orchestrator is gone."""
    run_id, progress = request.spec.run_id, Progress()
    out.mkdir(parents=True, exist_ok=True)
    writer.send("hello", run_id, schema_version=SCHEMA_VERSION, pid=os.getpid(), warm=False)
    with (out / LOG).open("wb") as log:
        try:
            with heartbeat(writer, run_id, request.heartbeat_s, progress):
                result = run(request, out, log, writer, progress)
        except Exception as error:  # noqa: BLE001  (whatever a run dies of is that run's result)
            kind = error.kind if isinstance(error, command.CommandError) else type(error).__name__
            known = isinstance(error, EXPECTED)
            text = getattr(error, "stack", "") if known else traceback.format_exc()
            # The name of a file may be no text.
            log.write(f"\n[vbstudy] {kind}: {error}\n{text}".encode(errors="backslashreplace"))
            if kind == "Orphaned":
                return False
            shown = str(error).replace(f"{(out / WORK).resolve()}/", "")  # paths relative to the project
            writer.send("error", run_id, kind=kind, message=shown or kind, traceback=text)
            return True
    writer.send("done", run_id, result=result)
    return True


EXPECTED = (
    ProjectError,
    command.CommandError,
    environment.RequirementsError,
    numbers.MetricError,
    artifacts.ArtifactError,
    randomness.RandomnessError,
    threads.ThreadMismatchError,
)


def run(
    request: RunRequest, out: Path, log: io.BufferedWriter, writer: MessageWriter, progress: Progress
) -> RunResult:
    """Raises one of EXPECTED when the run failed for a reason that can be named."""
    spec, files = request.spec, request.project
    project = spec.workload.project
    if project is None or files is None:
        raise ProjectError("the request names no project")
    if (visible := len(os.sched_getaffinity(0))) < request.visible_cpus:
        raise threads.ThreadMismatchError(f"visible_cpus is {visible}, {request.visible_cpus} was asked for")
    began = time.perf_counter()
    work = unpack(files, out / WORK)  # point: project unpacked
    python, packages = environment.interpreter(work, project, files)
    prepared_s = time.perf_counter() - began

    drawn = spec.seeds if spec.workload.replays else seeds.draw(spec.seeds)
    control = randomness.begin(request, drawn.initialisation, work, out)
    seen = numbers.Patterns(project.metrics)

    def on_line(text: str, elapsed_s: float) -> None:
        new = seen.line(text, elapsed_s)
        if new:
            progress.step += 1
            epoch = max(map(len, seen.values.values()))
            latest = {
                name if name in LOSSES else f"test_{name}": v for name, v in new.items() if math.isfinite(v)
            }
            writer.send("epoch", spec.run_id, epoch=epoch, **latest)

    env = process_environment(spec.threads.intra_op, python, control.hash_seed)
    env |= hook_settings(
        out,
        work,
        library(),
        # Where the guest's own interpreter finds its libraries; another one has its own.
        paths="" if project.requirements else os.environ.get("PYTHONPATH", ""),
        seed=control.seed,
        intra_op=spec.threads.intra_op,
        inter_op=spec.threads.inter_op,
        **{"deterministic": spec.variant.deterministic} | tiers.hook(spec.tier),
    )
    env |= control.environment(env)
    if spec.cure is Tier.EXACT:
        env = launch.environment(env)
    argv = resolve(project.command, python)
    limits = command.Limits(
        timeout_s=project.timeout_s, disk_bytes=project.disk_limit_mib << 20, check=lambda: _check(control)
    )
    with _temporary_folder() as temporary:
        env |= {"TMPDIR": str(temporary)}
        before = load.look()
        with control.errors_first():
            ended = command.run(argv, work, env, log, limits, on_line)  # point: project command run
        after = load.look()
    by_others = load.load_by_others(before, after, ended.cpu_s, ended.wall_s)
    conditions = load.change(before, after)
    drew, drew_notes = randomness.finish(control, project.command, out / RECORDING)
    noticed = notices.read(out / NOTICED)
    values = numbers.collect(project.metrics, seen, work, out / REPORTED, ended.last_lines)
    rows = numbers.history(values, ended.wall_s)
    _write_history(out / HISTORY, rows, list(spec.workload.metric_names))
    weights_sha256, weights_file = _weights(project, work, out)  # point: project weights read
    predictions = _predictions(project, work, out)  # point: project predictions read

    stray = [f"{ended.strays} processes were left running and were ended"] if ended.strays else []
    stray += [f"{ended.unended} processes were left running and cannot be ended"] if ended.unended else []
    names = [HISTORY, LOG, *(n for n in (PREDICTIONS, WEIGHTS, RECORDING) if (out / n).is_file())]
    log.flush()
    return RunResult(
        seeds_used=drawn,
        step_hashes={},
        selected_epoch=0,
        last={name: values[name][-1].value for name in spec.workload.metric_names},
        selected={},
        hashes=Hashes(
            weights=weights_sha256,
            logits=predictions.get("logits", ""),
            predictions=predictions.get("predictions", ""),
            selected_weights="",
            selected_logits="",
            selected_predictions="",
        ),
        timings=Timings(
            import_s=0.0,
            data_s=prepared_s,
            build_s=0.0,
            train_s=ended.wall_s,
            evaluate_s=0.0,
            wall_s=ended.wall_s,
            cpu_s=ended.cpu_s,
            warm=False,
        ),
        environment=fingerprint.machine() | _software(notices.in_force(noticed)),
        load_by_others=by_others,
        conditions=conditions,
        artifacts={name: artifact(out / name) for name in names},
        project=ProjectResult(
            tree_sha256=files.tree_sha256,
            commit=files.commit,
            seed=control.seed,
            overrides=notices.overrides(noticed),
            absent=tuple(_absent(values, predictions, weights_sha256)),
            notes=(*seen.notes, *_remarks(noticed, spec), *stray, *drew_notes),
            packages=tuple(packages),
            disk_bytes=ended.disk_bytes,
            weights_file_sha256=weights_file,
            random=drew,
        ),
    )


@contextlib.contextmanager
def _temporary_folder() -> Iterator[Path]:
    """Of one run. Its path is short: libraries make sockets in it."""
    folder = Path(tempfile.mkdtemp(prefix=""))
    try:
        yield folder
    finally:
        remove_folder(folder)


def _check(control: randomness.Control) -> None:
    """Raises CommandError when the command need not go on."""
    poll = select.poll()
    poll.register(sys.stdin, select.POLLRDHUP)
    if poll.poll(0):  # the orchestrator's end of stdin is closed
        raise command.CommandError("Orphaned", "the orchestrator is gone")
    control.check()


# ---- after the command -------------------------------------------------------------------------------


def _written(what: str, declared: str, work: Path, out: Path) -> Path | None:
    """The file that the project declared, else what it reported; None without any."""
    if declared:
        return artifacts.locate(work, declared, f"artifacts.{what}")
    reported = out / REPORTED / f"{what}.npz"
    return reported if reported.is_file() else None


def _weights(project: ProjectSpec, work: Path, out: Path) -> tuple[str, str]:
    """SHA-256 of the arrays but for text and times, and of the file as it was written; those that safetensors
    can store go to WEIGHTS. Raises ArtifactError where there are none."""
    import numpy as np
    from safetensors.numpy import save_file

    path = _written("weights", project.weights, work, out)
    if path is None:
        return "", ""
    found = artifacts.load_weights(path)
    arrays = {
        name: array for name, array in found.items() if array.dtype.kind not in artifacts.TEXT_AND_TIMES
    }
    kept = {
        name: np.ascontiguousarray(array)
        for name, array in arrays.items()
        if array.dtype.kind in artifacts.NUMBERS and array.itemsize <= LARGEST
    }
    if not kept:
        types = ", ".join(sorted({str(array.dtype) for array in found.values()}))
        raise artifacts.ArtifactError(
            f"{path.name}: has only arrays of {types}: write float64, or smaller numbers"
        )
    save_file(kept, out / WEIGHTS)
    return hash_arrays(arrays), artifact(path).sha256


def _predictions(project: ProjectSpec, work: Path, out: Path) -> dict[str, str]:
    """SHA-256 of `logits` and `predictions`, what there is of them; the arrays go to PREDICTIONS. Raises
    ArtifactError for more than is read again."""
    import numpy as np

    path = _written("predictions", project.predictions, work, out)
    if path is None:
        return {}
    found = artifacts.load_predictions(path)
    if found.mixed:
        raise artifacts.ArtifactError(
            f"{path.name}: a column of whole numbers is none of scores: name the column of predicted classes "
            "y_pred and that of true ones y_true, or write the scores alone"
        )
    if found.y_true is None:
        np.savez(out / PREDICTIONS, last=found.values)
    else:
        np.savez(out / PREDICTIONS, last=found.values, y_true=found.y_true)
    size, most = (out / PREDICTIONS).stat().st_size, bounded.PREDICTIONS.bytes
    if size > most:
        raise artifacts.ArtifactError(
            f"{path.name}: the predictions take {size / bounded.MIB:.1f} MiB, of which at most "
            f"{most // bounded.MIB} are kept: write classes, or scores as float32 or of fewer samples"
        )
    classes = found.classes()
    hashes = {"predictions": hash_arrays({"predictions": found.values if classes is None else classes})}
    if found.values.ndim == 2:
        hashes["logits"] = hash_arrays({"logits": found.values})
    return hashes


def _remarks(noticed: Sequence[notices.Notice], spec: RunSpec) -> Iterator[str]:
    """What a reader should know of the settings that were in force."""
    seen, asked = notices.in_force(noticed), spec.threads
    if spec.cure is Tier.EXACT:
        if below := seen.get("torch", {}).get("exact", {}).get("below"):
            yield f"operations below level machine, whose bits depend on the CPU: {', '.join(below)}"
        if "torch" in seen and "exact" not in seen["torch"]:
            yield "exact mode was not on at the end: the program, or a library that it uses, switched it off"
        elif "tensorflow" in seen:
            asked = tiers.threads_of(Tier.EXACT, Framework.TENSORFLOW, asked.cpus, most=asked.intra_op)
        elif "torch" not in seen:
            yield "exact mode did nothing: no process of the program imported torch or TensorFlow"
    yield from notices.remarks(noticed, asked)


def _absent(values: dict[str, list[numbers.Value]], predictions: dict[str, str], weights: str) -> list[str]:
    missing = [] if weights else ["weights: none declared or reported; bitwise equality is not judged"]
    missing += [] if predictions else ["predictions: none declared or reported; churn is not judged"]
    missing += [f"metric {name}: only a final value" for name, each in values.items() if len(each) == 1]
    return missing


def _write_history(path: Path, rows: list[numbers.Row], metrics: list[str]) -> None:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, history_columns(metrics))
        writer.writeheader()
        writer.writerows(rows)


def _software(seen: dict[str, Any]) -> dict[str, Any]:
    """The framework that the project imported, and the thread counts at its end."""
    name = next((name for name in ("torch", "tensorflow") if name in seen), "")
    framework = {"name": name, "version": ""} | {k: v for k, v in seen.get(name, {}).items() if k in KEPT}
    return {"framework": framework, "threads_in_force": seen}
