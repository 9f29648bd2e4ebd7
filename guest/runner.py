"""What every task in a guest needs: messages to the orchestrator, a heartbeat, the data, and the check of the
thread counts in force."""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from guest.machine import threads, tiers
from guest.records.codec import sha256_of, to_json
from guest.records.run import Artifact, RunRequest

if TYPE_CHECKING:
    from guest.datasets.datasets import Data


class MessageWriter:
    """Writes messages to the orchestrator, one JSON line each, from any thread."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._lock = threading.Lock()

    def send(self, kind: str, run_id: str, /, **body: Any) -> None:
        line = json.dumps({"kind": kind, "run_id": run_id, "body": to_json(body)}) + "\n"
        with self._lock:
            data = line.encode()  # point: message encoded
            while data:
                data = data[os.write(self._descriptor, data) :]

    def failed(self, run_id: str, error: Exception) -> None:
        kind, text = type(error).__name__, "".join(traceback.format_exception(error))
        self.send("error", run_id, kind=kind, message=str(error) or kind, traceback=text)


class Progress:
    """The training step reached, for the heartbeat."""

    step = 0


@contextlib.contextmanager
def heartbeat(writer: MessageWriter, run_id: str, every_s: float, progress: Progress) -> Iterator[None]:
    """Reports every few seconds that the process is alive, and which step it has reached. What ends the run,
    done or error, is sent after this: the orchestrator takes whatever follows for the next run's."""
    stop = threading.Event()

    def beat() -> None:
        while not stop.wait(every_s):
            writer.send("heartbeat", run_id, step=progress.step)

    thread = threading.Thread(target=beat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def check_threads(request: RunRequest) -> dict[str, Any]:
    in_force = threads.in_force(request.spec.workload.network_framework)
    wrong = threads.mismatches(tiers.pools(request.spec), request.visible_cpus, in_force)
    if wrong:
        raise threads.ThreadMismatchError("; ".join(wrong))
    return in_force


def load_data(request: RunRequest) -> tuple[Data, float]:
    from guest.datasets import datasets

    began = time.perf_counter()
    workload = request.spec.workload
    folders, train, test = request.data_folders, workload.train_samples, workload.test_samples
    data = datasets.load(workload.dataset, folders, train, test)
    return data, time.perf_counter() - began


def artifact(path: Path) -> Artifact:
    return Artifact(sha256=sha256_of(path), size_bytes=path.stat().st_size)


class Warm:
    """What a fork finds ready: the seconds the import took, and the data of the last request."""

    def __init__(self, import_s: float) -> None:
        self.import_s = import_s
        self.data: tuple[Data, float] | None = None
        self._key: tuple[Any, ...] | None = None

    def load(self, request: Any) -> None:
        """Loads the request's data unless it is here already. An error is left to the run, which
        meets it again and reports it."""
        from guest.datasets.datasets import DatasetError

        w = request.spec.workload
        key = (w.dataset, w.train_samples, w.test_samples, request.data_folders)
        if key == self._key:
            return
        self._key, self.data = None, None
        with contextlib.suppress(DatasetError, OSError):
            self.data = load_data(request)
            self._key = key
