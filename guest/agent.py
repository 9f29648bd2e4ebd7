"""The agent: one run from request to files.

    python agent.pyz run --request request.json --out DIR     a cold start: one run, one process
    python agent.pyz serve --framework torch                  a warm worker: requests on stdin
    python agent.pyz projects                                 user projects: requests on stdin
    python agent.pyz trace --framework torch                  the same, for the tasks of a trace

All write the run's files into DIR and speak JSON lines on stdout (`guest.records.run.Message`):
hello, epoch, heartbeat, then done or error. Whatever libraries print goes to DIR/log.txt.

The warm worker imports the framework once and runs nothing with it; each request is computed by a
fresh fork, so that runs share no state, no generator and no thread, and give the bits of a cold start.
"""

from __future__ import annotations

import argparse
import csv
import ctypes
import json
import os
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from guest.machine import fingerprint, load, seeds, threads, tiers
from guest.machine.signals import how_ended
from guest.records.codec import from_json
from guest.records.run import (
    ARTIFACTS,
    HISTORY,
    LOG,
    PREDICTIONS,
    SCHEMA_VERSION,
    SELECTED,
    WEIGHTS,
    Framework,
    Hashes,
    RunRequest,
    RunResult,
    ThreadSpec,
    Timings,
    history_columns,
)
from guest.runner import MessageWriter, Progress, Warm, artifact, check_threads, heartbeat, load_data

if TYPE_CHECKING:
    from guest.datasets.datasets import Data
    from guest.training.training import Trained

Compute = Callable[[Any, Path, MessageWriter, Warm | None, Progress], Any]
"""What answers a request: (request, folder of its files, writer, what a fork finds ready, progress)."""

SERVED = {
    "serve": "runs forked from this process",
    "trace": "tasks of a trace forked from this process",
    "probe": "operations of the registry",
    "assess": "robustness of stored models",
}
PR_SET_PDEATHSIG = 1
DONE, FAILED = 0, 1  # exit statuses of a run that has said how it ended
UNREPORTED = 70


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="agent", description="The vbstudy guest agent.")
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="one run in this process")
    run.add_argument("--request", type=Path, required=True)
    run.add_argument("--out", type=Path, required=True)
    commands.add_parser("projects", help="user projects, requests on stdin")
    for name, what in SERVED.items():
        served = commands.add_parser(name, help=f"{what}, requests on stdin")
        served.add_argument("--framework", type=Framework, required=True)
        if name == "probe":
            served.add_argument("--threads", type=int, required=True)
    arguments = parser.parse_args(argv)

    # Libraries print to descriptor 1; the protocol gets a private copy and 1 becomes 2.
    writer = MessageWriter(os.dup(1))  # point: agent started
    os.dup2(2, 1)
    if arguments.command == "run":
        request = from_json(RunRequest, json.loads(arguments.request.read_text()), "request")
        return execute(request, arguments.out, writer, None, _run)
    if arguments.command == "projects":
        from guest.projects import service

        return service.serve(writer)
    framework = arguments.framework
    match arguments.command:
        case "assess":
            return assess_models(framework, writer)
        case "probe":
            from guest.probe import tasks

            return tasks.serve(framework, arguments.threads, writer)
        case "trace":
            from guest.records.trace import TraceRequest
            from guest.trace.tasks import trace_run

            return Worker(framework, writer, TraceRequest, trace_run).serve()
    return Worker(framework, writer, RunRequest, _run).serve()


# ---- one run ---------------------------------------------------------------------------------


def execute(request: Any, out: Path, writer: MessageWriter, warm: Warm | None, compute: Compute) -> int:
    """Answers one request in this process and reports; returns DONE or FAILED."""
    run_id = request.spec.run_id
    progress = Progress()  # point: run begun
    out.mkdir(parents=True, exist_ok=True)
    log = os.open(out / LOG, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)  # point: log opened
    # point: run announced
    writer.send("hello", run_id, schema_version=SCHEMA_VERSION, pid=os.getpid(), warm=warm is not None)
    try:
        with heartbeat(writer, run_id, request.heartbeat_s, progress):
            result = compute(request, out, writer, warm, progress)
    except Exception as error:  # noqa: BLE001  (whatever a run dies of is that run's result)
        traceback.print_exc()
        writer.failed(run_id, error)
        return FAILED
    writer.send("done", run_id, result=result)  # point: result sent
    return DONE


def _run(
    request: RunRequest, out: Path, writer: MessageWriter, warm: Warm | None, progress: Progress
) -> RunResult:
    from guest import workloads
    from guest.training.training import hash_arrays, train

    spec, workload = request.spec, request.spec.workload
    started, cpu_started, before = time.perf_counter(), time.process_time(), load.look()
    if warm is None:
        workloads.preload(workload.network_framework)
        import_s = time.perf_counter() - started
        data, data_s = load_data(request)
    else:
        import_s = warm.import_s
        data, data_s = warm.data if warm.data is not None else load_data(request)
    threads.apply(workload.network_framework, tiers.pools(spec))  # point: threads set
    check_threads(request)

    building = time.perf_counter()
    drawn = seeds.draw(spec.seeds)
    seeds.seed_globals(drawn)  # point: seeds drawn
    # point: model built
    backend = workloads.build(
        workload, data.info, drawn, deterministic=spec.variant.deterministic, tier=spec.cure
    )
    build_s = time.perf_counter() - building

    def on_epoch(row: dict[str, Any]) -> None:
        writer.send("epoch", spec.run_id, **{k: v for k, v in row.items() if not k.endswith("sha256")})

    def on_step(step: int) -> None:
        progress.step = step

    outcome = train(backend, data, workload, drawn, on_epoch, on_step)  # point: model trained
    elapsed_s, cpu_s = time.perf_counter() - started, time.process_time() - cpu_started
    after = load.look()
    by_others = load.load_by_others(before, after, cpu_s, elapsed_s)
    changed = load.change(before, after)

    in_force = check_threads(request)  # again: some pools stand only after the first operation
    _write(out, outcome, data, history_columns(workload.metrics))
    # point: fingerprint taken
    environment = fingerprint.fingerprint(workload.network_framework) | {"threads_in_force": in_force}
    sys.stdout.flush()
    sys.stderr.flush()

    last, selected = outcome.last, outcome.selected
    return RunResult(
        seeds_used=drawn,
        step_hashes=outcome.step_hashes,
        selected_epoch=outcome.selected_epoch,
        last=last.scores,
        selected=selected.scores,
        hashes=Hashes(
            weights=hash_arrays(last.weights),
            logits=hash_arrays({"logits": last.logits}),
            predictions=hash_arrays({"predictions": last.logits.argmax(axis=1)}),
            selected_weights=hash_arrays(selected.weights),
            selected_logits=hash_arrays({"logits": selected.logits}),
            selected_predictions=hash_arrays({"predictions": selected.logits.argmax(axis=1)}),
        ),
        timings=Timings(
            import_s=import_s,
            data_s=data_s,
            build_s=build_s,
            train_s=outcome.train_s,
            evaluate_s=outcome.evaluate_s,
            wall_s=elapsed_s + (data_s if warm else -import_s),
            cpu_s=cpu_s,
            warm=warm is not None,
        ),
        environment=environment,
        load_by_others=by_others,
        conditions=changed,
        artifacts={name: artifact(out / name) for name in ARTIFACTS},
    )


def _write(out: Path, outcome: Trained, data: Data, columns: list[str]) -> None:
    import numpy as np
    from safetensors.numpy import save_file

    with (out / HISTORY).open("w", newline="") as file:
        writer = csv.DictWriter(file, columns)
        writer.writeheader()  # point: history header written
        writer.writerows(outcome.history)
    # point: predictions written
    np.savez(
        out / PREDICTIONS,
        y_true=data.test.y.astype(np.int64),
        last=outcome.last.logits.astype(np.float32),
        selected=outcome.selected.logits.astype(np.float32),
    )
    for name, model in ((WEIGHTS, outcome.last), (SELECTED, outcome.selected)):
        # point: weights written
        save_file({k: np.ascontiguousarray(v) for k, v in model.weights.items()}, out / name)


# ---- stored models ---------------------------------------------------------------------------


def assess_models(framework: Framework, writer: MessageWriter) -> int:
    """Answers robustness requests in this process, all on one thread: only the models differ."""
    from guest import workloads
    from guest.records.robustness import RobustnessRequest
    from guest.training.perturbation import Assessor

    workloads.preload(framework)
    threads.apply(framework, ThreadSpec(cpus=1, intra_op=1, inter_op=1))
    writer.send("hello", "", schema_version=SCHEMA_VERSION, pid=os.getpid())
    assessor = Assessor()
    for line in iter(sys.stdin.readline, ""):
        message = json.loads(line)
        request = from_json(RobustnessRequest, message["request"], "request")
        run_id = request.model.run_id
        try:
            with heartbeat(writer, run_id, message["heartbeat_s"], Progress()):
                result = assessor.assess(request)
        except Exception as error:  # noqa: BLE001  (one model's trouble is not the next one's)
            writer.failed(run_id, error)
            continue
        writer.send("done", run_id, result=result)
    return DONE


# ---- the warm worker -------------------------------------------------------------------------


class Worker:
    """Reads requests from stdin, forks a process for each, and ends when stdin does."""

    def __init__(self, framework: Framework, writer: MessageWriter, kind: type, compute: Compute) -> None:
        self._framework = framework
        self._writer = writer
        self._kind = kind  # of its requests
        self._compute = compute

    def serve(self) -> int:
        from guest import workloads

        began = time.perf_counter()
        try:
            workloads.preload(self._framework)
            fingerprint.preload()
        except ImportError as error:
            self._writer.send("error", "", kind="ImportError", message=str(error), traceback="")
            return FAILED
        warm = Warm(time.perf_counter() - began)  # point: framework imported
        # point: worker announced
        self._writer.send(
            "hello", "", schema_version=SCHEMA_VERSION, pid=os.getpid(), warm=True, import_s=warm.import_s
        )
        for line in iter(sys.stdin.readline, ""):
            message = json.loads(line)
            request: Any = from_json(self._kind, message["request"], "request")  # point: request read
            warm.load(request)  # point: data loaded
            if not self._fork(request, Path(message["out"]), warm):
                break
        return DONE

    def _fork(self, request: Any, out: Path, warm: Warm) -> bool:
        """One run in a child. False when stdin ended meanwhile: nobody waits for the answer."""
        child = os.fork()
        if child == 0:
            status = UNREPORTED
            try:
                die_with_parent()  # point: run forked
                status = execute(request, out, self._writer, warm, self._compute)
            finally:
                os._exit(status)  # the parent's exit handlers are not this process's to run
        descriptor = os.pidfd_open(child)
        try:
            poll = select.poll()
            poll.register(descriptor, select.POLLIN)
            # Only its end is waited for: the next request may come before this child has gone.
            poll.register(sys.stdin, select.POLLRDHUP)  # a pipe hangs up, a socket is shut down
            orphaned = descriptor not in dict(poll.poll())
            if orphaned:
                os.kill(child, signal.SIGKILL)
        finally:
            os.close(descriptor)
        _, status = os.waitpid(child, 0)
        code = os.waitstatus_to_exitcode(status)
        if code not in (DONE, FAILED) and not orphaned:
            hint = " (out of memory?)" if code == -signal.SIGKILL else ""
            self._writer.send(
                "error", request.spec.run_id, kind="Died", message=how_ended(code) + hint, traceback=""
            )
        return not orphaned


def die_with_parent() -> None:
    """Linux: this process is killed when the one that started it dies, however it dies."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG) failed")


if __name__ == "__main__":
    sys.exit(main())
