"""Trains from the start and looks on: after every step, at every operation of one step, or at what single
operations gave. Framework-neutral; an `Eye` of the framework does the looking.

A task trains from the start, in a process of its own. That costs the steps before the one of interest, and
shows whether a process repeats itself, without which nothing could be said of two."""

from __future__ import annotations

import importlib
import itertools
import json
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, cast

from guest import runner
from guest.machine import seeds, threads, tiers
from guest.records.codec import to_json
from guest.records.run import Framework
from guest.records.trace import OPERATIONS, TENSORS, StepNote, Task, TraceAnswer, TraceRequest
from guest.training import training
from vbstudy.exact import first_call

if TYPE_CHECKING:
    import numpy as np

    from guest.runner import MessageWriter, Progress, Warm
    from guest.trace.log import StepLog
    from guest.workloads import Backend

_EYES = {Framework.TORCH: "guest.trace.torch_log", Framework.TENSORFLOW: "guest.trace.tensorflow_log"}


class Eye(Protocol):
    """Looks at one framework's model in training; a module."""

    AS_WRITTEN: bool
    """Whether operations are seen as the program runs them."""

    def gradients(self, backend: Backend) -> dict[str, np.ndarray]:
        """Those of the last step, by the names of the weights; empty where the framework keeps none."""

    def optimizer_state(self, backend: Backend) -> dict[str, np.ndarray]:
        """What the optimizer carries from step to step."""

    def watch(self, backend: Backend, keep: frozenset[int]) -> AbstractContextManager[StepLog]:
        """Logs every operation within; keeps the outputs of those with these indices."""


class NoSuchStepError(ValueError):
    """The training is over before the step that was asked for."""


def trace_run(
    request: TraceRequest,
    out: Path,
    writer: MessageWriter,  # noqa: ARG001  (a task says nothing before it is done)
    warm: Warm | None,
    progress: Progress,
) -> TraceAnswer:
    """Does a task; its files go to `out`. Raises NoSuchStepError."""
    from guest.machine import fingerprint

    framework = request.spec.workload.network_framework
    eye = cast(Eye, importlib.import_module(_EYES[framework]))
    backend, steps, count = _training(request, warm, progress)
    notes: tuple[StepNote, ...] = ()
    match request.task:
        case Task.STEPS:
            first, last = request.steps
            notes = tuple(_notes(eye, backend, steps, first, last))
        case Task.WEIGHTS:
            _save(out / TENSORS, dict(_weights(backend, steps, request.steps)))
        case Task.OPERATIONS | Task.TENSORS:
            (step,) = request.steps
            _advance(steps, step - 1)
            with eye.watch(backend, frozenset(request.operations)) as log:
                _, loss = _advance(steps, step)
            notes = (_note(eye, backend, step, loss),)
            if request.task is Task.TENSORS:
                _save(out / TENSORS, log.kept)
            else:
                with (out / OPERATIONS).open("w", encoding="utf-8") as file:
                    file.writelines(json.dumps(to_json(note)) + "\n" for note in log.notes)
    in_force = runner.check_threads(request.run)
    files = [out / name for name in (OPERATIONS, TENSORS) if (out / name).exists()]
    return TraceAnswer(
        steps=notes,
        training_steps=count,
        weights_bytes=sum(array.nbytes for array in backend.weights().values()),
        artifacts={file.name: runner.artifact(file) for file in files},
        environment=fingerprint.fingerprint(framework) | {"threads_in_force": in_force},
        as_written=eye.AS_WRITTEN,
    )


Steps = Iterator[tuple[int, float]]
"""(steps done, the last one's loss); the training stands still in between."""


def _training(request: TraceRequest, warm: Warm | None, progress: Progress) -> tuple[Backend, Steps, int]:
    """The model at its initial weights, built as a run builds it, its steps to come, and their number."""
    from guest import workloads

    spec, workload = request.spec, request.spec.workload
    workloads.preload(workload.network_framework)
    data, _ = warm.data if warm is not None and warm.data is not None else runner.load_data(request.run)
    threads.apply(workload.network_framework, tiers.pools(spec))
    runner.check_threads(request.run)
    drawn = seeds.draw(spec.seeds)
    seeds.seed_globals(drawn)
    backend = workloads.build(
        workload, data.info, drawn, deterministic=spec.variant.deterministic, tier=spec.cure
    )
    if workload.network_framework is Framework.TORCH:
        first_call.settle()  # it would differ from run to run

    def steps() -> Steps:
        batches = itertools.chain.from_iterable(training.epochs(data, workload, drawn))
        for step, (x, y) in enumerate(batches, start=1):
            loss = backend.train_step(x, y)
            progress.step = step
            yield step, loss

    count = workload.epochs * (len(data.train.y) // workload.batch_size)
    return backend, steps(), count


def _advance(steps: Steps, to: int) -> tuple[int, float]:
    """Trains up to step `to`; that step and its loss."""
    done, loss = 0, 0.0
    while done < to:
        try:
            done, loss = next(steps)
        except StopIteration:
            raise NoSuchStepError(f"the training has no step {to}") from None
    return done, loss


def _notes(eye: Eye, backend: Backend, steps: Steps, first: int, last: int) -> Iterator[StepNote]:
    for step, loss in itertools.islice(steps, last):
        if step >= first:
            yield _note(eye, backend, step, loss)


def _note(eye: Eye, backend: Backend, step: int, loss: float) -> StepNote:
    from guest.trace.hash import hash_arrays

    weights, gradients, state = backend.weights(), eye.gradients(backend), eye.optimizer_state(backend)
    recorded = step & (step - 1) == 0  # the steps that a run records (guest.training.training)
    return StepNote(
        step=step,
        loss=loss.hex(),
        weights=hash_arrays(weights),
        gradients=hash_arrays(gradients) if gradients else "",
        optimizer=hash_arrays(state) if state else "",
        weights_sha256=training.hash_arrays(weights) if recorded else "",
    )


def _weights(backend: Backend, steps: Steps, wanted: tuple[int, ...]) -> Iterator[tuple[str, np.ndarray]]:
    """`<step>/<place in the model>/<name>` and the weight."""
    for step, _ in itertools.islice(steps, max(wanted)):
        if step in wanted:
            for place, (name, array) in enumerate(backend.weights().items()):
                yield f"{step}/{place}/{name}", array


def _save(path: Path, arrays: dict[str, np.ndarray]) -> None:
    import numpy as np
    from safetensors.numpy import save_file

    save_file({name: np.ascontiguousarray(array) for name, array in arrays.items()}, path)
