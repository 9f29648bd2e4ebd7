"""Runs on one guest: keeps its warm workers, hands them one request at a time, and collects what comes
back. Nothing that a guest says is believed before it is checked."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from guest.machine import threads
from guest.projects import command
from guest.records import bounded
from guest.records.codec import sha256_of, to_json
from guest.records.printable import printable
from guest.records.run import (
    HISTORY,
    LOG,
    PREDICTIONS,
    RECORDING,
    Framework,
    Message,
    ProjectFiles,
    RecordingFile,
    RunRequest,
    RunResult,
    RunSpec,
    Tier,
)
from orchestrator.agent import data
from orchestrator.agent.archive import AgentArchive
from orchestrator.agent.client import AgentClient
from orchestrator.agent.protocol import read_result
from orchestrator.errors import GuestError, ProtocolError
from orchestrator.store import recordings
from orchestrator.study.engine import EngineTable
from orchestrator.transport.connection import Connection

MAX_BYTES = {HISTORY: bounded.HISTORY, PREDICTIONS: bounded.PREDICTIONS, RECORDING: bounded.RECORDING}
LOG_BYTES = command.LOG_LIMIT_BYTES + bounded.MIB  # with the error below it
OUT = "out"  # the folder of a guest with a folder for each run; what a killed orchestrator left is removed
CRASHES = ("killed by SIGSEGV", "killed by SIGILL")
EMULATED = (
    "the machine is emulated, and QEMU's AVX2 has flaws, to which oneDNN's LSTM falls victim: try "
    'cpu_model = "SandyBridge" in [provider], which has no AVX2, without isa = "portable", which needs it'
)
REPLACED_AFTER = 20
"""A worker is replaced when its runs have taken so many times what its start took, which costs 5 % at most:
runs forked from one process share its hash seed and its layout of memory, which must not be a condition's."""
OnMessage = Callable[[Message], None]
_Key = tuple[Framework | None, tuple[tuple[str, str], ...]]


class RunFailedError(Exception):
    """The run itself failed: data, not a fault of the infrastructure."""

    def __init__(self, kind: str, message: str, traceback: str = "") -> None:
        super().__init__(f"{kind}: {message}")
        self.error = {"kind": kind, "message": message, "traceback": traceback}


class RunLostError(RunFailedError):
    """The run may go on in the guest: nothing came in time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GuestContext:
    """What is the same for all runs on a guest."""

    visible_cpus: int
    oversubscribed: bool
    cpu_vendor: str
    data_folders: tuple[str, ...]
    engine: EngineTable
    emulated_model: str = ""  # the CPU model that QEMU imitates
    projects: Mapping[str, ProjectFiles] = field(default_factory=dict)  # by the name of the workload
    warm_workers: int = 1  # that the guest's memory has room for

    def is_oversubscribed(self, spec: RunSpec) -> bool:
        """More threads than cores: by the guest as a whole, or by this run in it."""
        return self.oversubscribed or spec.threads.intra_op > self.visible_cpus


@dataclass(slots=True, kw_only=True)
class _Worker:
    """`start_s` is what it took to get ready, `served_s` what its runs have taken since."""

    client: AgentClient
    start_s: float
    served_s: float = 0.0


class Executor:
    """One guest's side of the host. Not thread-safe, but for `Connection.close`."""

    def __init__(self, connection: Connection, agent: AgentArchive, context: GuestContext) -> None:
        self.connection = connection
        self._agent = agent
        self.context = context
        self._workers: dict[_Key, _Worker] = {}  # the one used last comes last
        self._exact_library = False  # whether the guest has been given it

    def execute(
        self, spec: RunSpec, into: Path, on_message: OnMessage, recording: Path | None = None
    ) -> RunResult:
        """Runs one spec and collects its files into the folder `into`; `recording` has the random numbers
        that it is given, where it is not to record some. Raises RunFailedError when
        the run failed or was lost, ProtocolError when the agent broke the protocol, GuestError
        when the guest is gone. After any of them the next call starts a fresh worker."""
        out = f"{OUT}/{uuid.uuid4().hex}"  # point: run requested
        try:
            self.prepare(spec)
            worker, began = self._warm_worker(spec), time.monotonic()
            numbers = self._bring(recording)
            request = RunRequest(
                spec=spec,
                visible_cpus=self.context.visible_cpus,
                data_folders=self.context.data_folders,
                heartbeat_s=self.context.engine.heartbeat_s,
                project=self.context.projects.get(spec.workload.name),
                recording=numbers,
            )
            worker.client.send({"request": to_json(request), "out": out})  # point: request sent
            try:
                result = self._follow(worker.client, spec, on_message)
            except RunFailedError:
                self._collect_log(out, into)
                raise
            self._collect(out, into, spec, result)  # point: files collected
            _check_numbers(result, into, numbers)
            worker.served_s += time.monotonic() - began
            # One that slept in a snapshot had imported before, and its successor has to.
            worker.start_s = max(worker.start_s, result.timings.import_s)
        except RunFailedError as error:
            if isinstance(error, RunLostError):
                self.stop_workers()
            raise
        except BaseException:
            self.stop_workers()
            raise
        finally:
            self._clear()
        return result

    def prepare(self, spec: RunSpec) -> None:
        """Brings what the guest needs for this run alone."""
        if spec.cure is Tier.EXACT and spec.workload.framework is not Framework.TENSORFLOW:
            if not self._exact_library:
                data.bring_exact_library(self.connection)
            self._exact_library = True

    def stop_workers(self) -> None:
        while self._workers:
            _, worker = self._workers.popitem()
            worker.client.kill()

    def _warm_worker(self, spec: RunSpec) -> _Worker:
        """The worker whose environment is this run's: libraries read theirs when they load, so
        another environment needs another process. Those used longest ago give way to a new one."""
        env = threads.environment(spec, cpu_vendor=self.context.cpu_vendor)
        key = (spec.workload.framework, tuple(sorted(env.items())))
        worker = self._workers.pop(key, None)
        if worker is not None and worker.served_s > REPLACED_AFTER * worker.start_s:
            worker.client.kill()
            worker = None
        if worker is not None:
            self._workers[key] = worker
            return worker
        while len(self._workers) >= self.context.warm_workers:
            self._workers.pop(next(iter(self._workers))).client.kill()
        framework = spec.workload.framework
        serve = ["projects"] if framework is None else ["serve", "--framework", framework]
        began = time.monotonic()
        client = AgentClient(self.connection, self._agent.name, serve, env)
        self._workers[key] = worker = _Worker(client=client, start_s=0.0)
        client.greeting()
        worker.start_s = time.monotonic() - began
        return worker

    def _follow(self, worker: AgentClient, spec: RunSpec, on_message: OnMessage) -> RunResult:
        """Reads messages until the run's last one."""
        engine = self.context.engine
        deadline = time.monotonic() + engine.timeout_s
        while True:
            message = worker.next(min(deadline, time.monotonic() + engine.lost_after_s), spec.run_id)
            if time.monotonic() >= deadline:
                raise RunLostError("Timeout", f"not done within engine.timeout_s = {engine.timeout_s:g}")
            if message is None:
                raise RunLostError("Lost", f"silent for engine.lost_after_s = {engine.lost_after_s:g}")
            if message.kind == "error":  # point: message read
                body = message.body
                kind, text = str(body.get("kind")), str(body.get("message"))
                if self.context.emulated_model and kind == "Died" and text in CRASHES:
                    text += f" ({EMULATED})"
                raise RunFailedError(kind, text, str(body.get("traceback", "")))
            if message.kind == "done":
                return read_result(message.body, spec)
            on_message(message)  # point: message passed on

    def _collect(self, out: str, into: Path, spec: RunSpec, result: RunResult) -> None:
        """Fetches exactly the files a run consists of, none larger than announced; the store
        checks their hashes before it publishes them."""
        odd = spec.workload.unexpected_artifacts(result.artifacts)
        if odd:
            raise ProtocolError(f"the manifest is wrong about {printable(', '.join(odd), limit=200)}")
        for name, artifact in result.artifacts.items():
            if not 0 <= artifact.size_bytes <= MAX_BYTES.get(name, bounded.ARTIFACT).bytes:
                raise ProtocolError(f"the manifest says {name} has {artifact.size_bytes} bytes")
            # point: file collected
            self.connection.get(str(PurePosixPath(out) / name), into / name, artifact.size_bytes)

    def _bring(self, recording: Path | None) -> RecordingFile | None:
        """Makes a recording readable in the guest."""
        if recording is None:
            return None
        sha256 = sha256_of(recording)
        path = str(recording.absolute())
        if not self.connection.shares_files:
            path = f"recordings/{sha256[:16]}.rec"
            self.connection.put(recording, path)
        return RecordingFile(path=path, sha256=sha256)

    def _clear(self) -> None:
        """Also of what a run did that nobody asked for."""
        try:
            self.connection.remove(OUT)  # point: guest files removed
        except GuestError:
            self.stop_workers()  # the guest is gone: what was raised says so, or the next run will

    def _collect_log(self, out: str, into: Path) -> None:
        try:
            self.connection.get(str(PurePosixPath(out) / LOG), into / LOG, LOG_BYTES)
        except GuestError:
            return  # a run that died early may have none


def _check_numbers(result: RunResult, folder: Path, given: RecordingFile | None) -> None:
    """Raises ProtocolError when a run was given random numbers and has others, or recorded none."""
    made = result.artifacts.get(RECORDING)
    if given is not None and (made is None or made.sha256 != given.sha256):
        raise ProtocolError("the run was given a recording of random numbers, and has another one")
    if given is None and made is not None:
        recordings.check(folder / RECORDING)
