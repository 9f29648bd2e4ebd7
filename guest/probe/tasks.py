"""Computes entries of the registry of operations, forward and backward, from inputs that are the same in
every process: on one thread count, several times."""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

import numpy as np

from guest.machine import fingerprint, threads
from guest.probe.registry import Operation, operations
from guest.records.codec import from_json
from guest.records.probe import Case, CaseResult, Part, PartResult, ProbeRequest
from guest.records.run import SCHEMA_VERSION, Framework, ThreadSpec
from guest.records.trace import TENSORS
from guest.trace.hash import hash_bytes

if TYPE_CHECKING:
    from guest.runner import MessageWriter

_ENGINES = {
    Framework.TORCH: "guest.probe.torch_engine",
    Framework.TENSORFLOW: "guest.probe.tensorflow_engine",
}
HEARTBEAT_S = 2.0


class Engine(Protocol):
    """One framework; a module. Arrays are unsigned integers of the bits, one-dimensional, with the type."""

    def tensors(self, arrays: Mapping[str, np.ndarray], dtype: str) -> dict[str, Any]:
        """Floats of this type, integers as they are."""

    def forward(self, operation: Operation, inputs: Mapping[str, Any]) -> list[Any]:
        """The outputs."""

    def backward(self, operation: Operation, inputs: Mapping[str, Any]) -> Callable[[], list[Any]]:
        """Computes the outputs and returns what computes the gradients of all float inputs."""

    def bits(self, tensor: Any) -> tuple[np.ndarray, str]: ...


class Draw:
    """Inputs of a case, by its name and size alone."""

    def __init__(self, operation: str, size: int) -> None:
        self._generator = np.random.Generator(np.random.PCG64([size, zlib.crc32(operation.encode())]))

    def f(self, *shape: int) -> np.ndarray:
        return self._generator.standard_normal(shape)

    def p(self, *shape: int) -> np.ndarray:
        """Positive, in [0.5, 1.5)."""
        return self._generator.random(shape) + 0.5

    def u(self, *shape: int) -> np.ndarray:
        """In [0, 1)."""
        return self._generator.random(shape)

    def i(self, high: int, *shape: int) -> np.ndarray:
        return self._generator.integers(0, high, shape)

    def perm(self, n: int) -> np.ndarray:
        return self._generator.permutation(n)

    def labels(self, high: int, *shape: int) -> np.ndarray:
        """1 .. high: 0 is blank."""
        return self._generator.integers(1, high + 1, shape)

    def windows(self, *shape: int) -> np.ndarray:
        """Places of maxima in windows of 2, flat within each map, as max_pool gives them."""
        space = shape[2:]
        corner = np.ravel_multi_index(np.indices(space) * 2, [2 * s for s in space])
        return np.broadcast_to(corner, shape).copy()


def cotangent(shape: tuple[int, ...]) -> np.ndarray:
    """What flows back into an output: drawn, equal in all processes."""
    seed = zlib.crc32(str(shape).encode())
    return np.asarray(np.random.Generator(np.random.PCG64(seed)).standard_normal(shape))


def serve(framework: Framework, count: int, writer: MessageWriter) -> int:
    """Answers probe requests on `count` threads until stdin ends."""
    from guest import workloads

    workloads.preload(framework)
    threads.apply(framework, ThreadSpec(cpus=count, intra_op=count, inter_op=count))
    engine = cast(Engine, importlib.import_module(_ENGINES[framework]))
    writer.send("hello", "", schema_version=SCHEMA_VERSION, pid=os.getpid())
    for line in iter(sys.stdin.readline, ""):
        message = json.loads(line)
        request = from_json(ProbeRequest, message["request"], "request")
        try:
            results = _answer(engine, request, Path(message["out"]), writer)
        except Exception as error:  # noqa: BLE001  (told to the orchestrator, which ends this process)
            writer.failed("", error)
            continue
        seen = fingerprint.fingerprint(framework) | {"threads_in_force": threads.in_force(framework)}
        writer.send("done", "", results=results, environment=seen)
    return 0


def _answer(engine: Engine, request: ProbeRequest, out: Path, writer: MessageWriter) -> list[CaseResult]:
    entries = {operation.name: operation for operation in operations()}
    results: list[CaseResult] = []
    kept: dict[str, np.ndarray] = {}
    said = time.monotonic()
    for done, case in enumerate(request.cases):
        results.append(probe(engine, request, entries[case.operation], case, kept))
        if time.monotonic() - said > HEARTBEAT_S:
            said = time.monotonic()
            writer.send("heartbeat", "", step=done)
    if request.keep:
        from safetensors.numpy import save_file

        out.mkdir(parents=True, exist_ok=True)
        save_file(kept, out / TENSORS)
    return results


def probe(
    engine: Engine, request: ProbeRequest, operation: Operation, case: Case, kept: dict[str, np.ndarray]
) -> CaseResult:
    """One case. What a framework does not compute is a result as well."""
    if not operation.computed_in(request.framework):
        return CaseResult(case=case, parts=(), refused=f"not in {request.framework}")
    arrays = operation.draw(Draw(case.operation, case.size), case.size)
    parts = [Part.FORWARD, Part.BACKWARD] if operation.backward else [Part.FORWARD]
    try:
        return CaseResult(
            case=case,
            parts=tuple(_part(engine, request, operation, case, part, arrays, kept) for part in parts),
        )
    except Exception as error:  # noqa: BLE001  (an operation that is not written for a type says so in its own way)
        reason = next(iter(str(error).splitlines()), "without a reason")
        return CaseResult(case=case, parts=(), refused=f"{type(error).__name__}: {reason:.160}")


def _part(
    engine: Engine,
    request: ProbeRequest,
    operation: Operation,
    case: Case,
    part: Part,
    arrays: Mapping[str, np.ndarray],
    kept: dict[str, np.ndarray],
) -> PartResult:
    hashes: list[str] = []
    seconds: list[float] = []
    dtypes: tuple[str, ...] = ()
    for run in range(request.runs + 1):
        inputs = engine.tensors(arrays, case.dtype)
        compute: Callable[[], list[Any]]
        if part is Part.FORWARD:
            compute = lambda: engine.forward(operation, inputs)  # noqa: B023, E731  (called in this turn)
        else:
            compute = engine.backward(operation, inputs)
        began = time.perf_counter()
        results = compute()
        elapsed_s = time.perf_counter() - began
        if run == 0:
            continue
        seconds.append(elapsed_s)
        outputs = [engine.bits(result) for result in results]
        hashes.append(" ".join(f"{hash_bytes(bits):016x}" for bits, _ in outputs))
        dtypes = tuple(dtype for _, dtype in outputs)
        if request.keep and run == 1:
            kept |= {f"{case.key}/{part}/{i}": bits.copy() for i, (bits, _) in enumerate(outputs)}
    return PartResult(part=part, hashes=tuple(hashes), seconds=tuple(seconds), dtypes=dtypes)
