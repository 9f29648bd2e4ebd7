"""The readers: what each is given (whole inputs, which are then damaged), and what it may raise."""

from __future__ import annotations

import hashlib
import io
import json
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from analysis.exchange.archive import ArchiveError, pack, unpack
from analysis.exchange.files import ImportFormatError
from analysis.exchange.imported import decode as decode_import
from analysis.exchange.readers import read_results
from analysis.exchange.verify import verify
from analysis.load.study import NothingToAnalyse
from analysis.pipeline import analyze
from analysis.report.page import page
from analysis.sameness.weights import read_weights
from analysis.scan import kept
from analysis.scan.run import scan
from guest.records import harden, robustness, trace
from guest.records.codec import RecordError, digest, to_json
from guest.records.run import HISTORY, PREDICTIONS, RECORD, WEIGHTS, decode_record
from guest.replay import recording
from orchestrator.agent.protocol import parse_message, read_epoch, read_result
from orchestrator.errors import ProtocolError, UsageError, VbstudyError
from orchestrator.inventory import read_inventory
from orchestrator.study import plan, schema
from tests import factories
from tests.analysis.conftest import Fabricator
from tests.analysis.scan.corpus import snippets

GOLDEN = Path(__file__).parent.parent / "golden"
RUN = "runs/lenet5/fixed-seed/cpus-1/0001"
STUDY = b'name = "s"\nrepetitions = 2\ncpus = [1, 2]\n[[workload]]\nmodel = "mlp"\ndataset = "digits"\n'
SOURCE = b"# coding: utf-8\nimport torch\ndef f(x):\n    return torch.randn(3) + x\nprint(f'{f(1)}')\n"
NOTEBOOK = json.dumps(
    {"nbformat": 4, "cells": [{"cell_type": "code", "source": ["%time\n", "import random\n"]}]}
).encode()


@dataclass(frozen=True, kw_only=True)
class Reader:
    """`whole` are inputs that are read; `read` gets a damaged one and raises nothing but `told`."""

    whole: Callable[[], list[bytes]]
    read: Callable[[bytes], object]
    told: tuple[type[Exception], ...]


@contextmanager
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="vbstudy-fuzz-") as name:
        yield Path(name)


@contextmanager
def study() -> Iterator[Path]:
    """Two runs of a study; the first is damaged."""
    with folder() as directory:
        made = Fabricator(directory)
        made.run(1)
        made.run(2, wall_s=8.0)
        yield directory


def of_run(name: str) -> list[bytes]:
    with study() as directory:
        return [(directory / RUN / name).read_bytes()]


def golden(*patterns: str) -> list[bytes]:
    return [path.read_bytes() for pattern in patterns for path in sorted(GOLDEN.glob(pattern))]


def archives() -> list[bytes]:
    with study() as directory:
        pack(directory, directory / "s.zip")
        return [(directory / "s.zip").read_bytes()]


def read_archive(data: bytes) -> None:
    with folder() as directory:
        (directory / "s.zip").write_bytes(data)
        unpack(directory / "s.zip", directory / "into")
        verify(directory / "into")


def read_all(directory: Path) -> None:
    """What `verify` passes, `analyze` and `report` read."""
    found = verify(directory)
    try:
        analysis = analyze(directory, allow_mixed=True)
    except NothingToAnalyse:
        assert found.damaged
        return
    text = page(analysis, [])
    assert not {"\x1b", "\u202e"} & set(text)


def resealed(data: bytes) -> bytes:
    """A record whose checksum fits, where it is JSON at all."""
    try:
        record = json.loads(data)
        record.pop("record_sha256")
        return json.dumps(record | {"record_sha256": digest(record)}).encode()
    except (ValueError, KeyError, AttributeError, TypeError, RecursionError):
        return data


def read_run(data: bytes) -> None:
    with study() as directory:
        (directory / RUN / RECORD).write_bytes(resealed(data))
        read_all(directory)


def in_run(name: str) -> Callable[[bytes], None]:
    """Reads a study with this in the place of a run's file, and a record that promises it."""

    def read(data: bytes) -> None:
        with study() as directory:
            (directory / RUN / name).write_bytes(data)
            record = json.loads((directory / RUN / RECORD).read_bytes())
            promised = {"sha256": hashlib.sha256(data).hexdigest(), "size_bytes": len(data)}
            record["result"]["artifacts"][name] = promised
            (directory / RUN / RECORD).write_bytes(resealed(json.dumps(record).encode()))
            read_all(directory)

    return read


def read_safetensors(data: bytes) -> None:
    with folder() as directory:
        (directory / WEIGHTS).write_bytes(data)
        read_weights(directory / WEIGHTS, hashlib.sha256(data).hexdigest())


def recordings() -> list[bytes]:
    header = recording.Header(
        format="vbstudy-recording", version=1, level="python", command=("python", "x.py"), created_at="2026",
        machine="m", status=0, python_hash_seed="1", modules={"random": "1"}, limits=("none",),
    )  # fmt: skip
    draws = tuple(recording.Draw(stream="s,t", kind="python", site="x.py:1", data=bytes(8)) for _ in range(3))
    with folder() as directory:
        recording.write(directory / "r", recording.Recording(header=header, draws=draws))
        return [(directory / "r").read_bytes()]


def read_recording(data: bytes) -> None:
    lines = data.splitlines(keepends=True)
    tail = {"draws": len(lines) - 2, "sha256": hashlib.sha256(b"".join(lines[:-1])).hexdigest()}
    for content in (data, b"".join(lines[:-1]) + json.dumps(tail).encode()):
        try:
            recording.parse(content, "r")
        except RecordError:
            continue


def read_study(data: bytes) -> None:
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return
    plan.plan(schema.parse(text))


def read_guests(data: bytes) -> None:
    with folder() as directory:
        (directory / "guests.json").write_bytes(data)
        read_inventory(directory / "guests.json")


def inventories() -> list[bytes]:
    observed = {"provider_cpus": 1, "guest_cpus": 1, "oversubscribed": False, "start_s": 0.1, "details": {}}
    spec = {"name": "cpus-1", "cpus": 1, "cpu_model": ""}
    guest = {"spec": spec, "observed": observed, "created_at": "2026"}
    return [json.dumps({"version": 2, "provider": "local", "guests": [guest]}).encode()]


def importing(name: str) -> Callable[[bytes], None]:
    """Reads the bytes as a file of this name; one in a folder as the folder."""

    def read(data: bytes) -> None:
        with folder() as directory:
            path = directory / name
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(data)
            source = path if path.parent == directory else path.parent
            found = read_results(source, "x", "2026-01-01T00:00:00.000+00:00")
            assert decode_import(_sealed(found)) == found

    return read


def _sealed(found: object) -> str:
    from analysis.exchange.imported import CHECKSUM
    from guest.records.codec import seal

    return seal(found, checksum=CHECKSUM, indent=None)


def arrays(save: Callable[..., None]) -> Callable[[], list[bytes]]:
    def make() -> list[bytes]:
        packed = io.BytesIO()
        named = {} if save is np.save else {"predictions": np.array([0, 1, 2])}
        save(packed, *([np.array([0, 1, 2])] if save is np.save else []), **named)
        return [packed.getvalue()]

    return make


def messages() -> list[bytes]:
    result = to_json(factories.result({}))
    bodies = [("done", {"result": result}), ("epoch", {"epoch": 1, "test_accuracy": 0.5}), ("heartbeat", {})]
    run = factories.spec(cpus=1).run_id
    return [json.dumps({"kind": kind, "run_id": run, "body": body}).encode() for kind, body in bodies]


def read_message(data: bytes) -> None:
    message = parse_message(data)
    read_epoch(message.body)
    read_result(message.body, factories.spec(cpus=1))


def scanning(name: str) -> Callable[[bytes], None]:
    def read(data: bytes) -> None:
        with folder() as directory:
            (directory / name).write_bytes(data)
            scan([directory], jobs=1)

    return read


def read_scan(data: bytes) -> None:
    with folder() as directory:
        (directory / "scan.json").write_bytes(data)
        kept.read_scan(directory / "scan.json")


def sources() -> list[bytes]:
    some = snippets()[::20]  # each is tried before any is damaged
    return [SOURCE, *(text.encode() for snippet in some for text in snippet.files.values())]


def sealed(decode: Callable[[bytes], object]) -> Callable[[bytes], object]:
    return lambda data: decode(resealed(data))


ROWS = [
    b'[{"threads": 1, "accuracy": 0.5, "wall_s": 1.0}]',
    b'[{"threads": 1, "repetition": 1, "epoch": 1, "a": 1}]',
]
TABLE = b"threads,repetition,epoch,accuracy\n1,1,1,0.5\n1,1,2,0.6\n2,1,1,0.7\n"
REFUSED = (ImportFormatError,)

READERS: dict[str, Reader] = {
    "archive": Reader(whole=archives, read=read_archive, told=(ArchiveError, RecordError)),
    "record": Reader(whole=lambda: golden("run-*.json"), read=sealed(decode_record), told=(RecordError,)),
    "run": Reader(whole=lambda: of_run(RECORD), read=read_run, told=(RecordError,)),
    "history": Reader(whole=lambda: of_run(HISTORY), read=in_run(HISTORY), told=()),
    "predictions": Reader(whole=lambda: of_run(PREDICTIONS), read=in_run(PREDICTIONS), told=()),
    "weights": Reader(whole=lambda: of_run(WEIGHTS), read=read_safetensors, told=(RecordError,)),
    "trace": Reader(whole=lambda: golden("trace-*"), read=sealed(trace.decode), told=(RecordError,)),
    "harden": Reader(whole=lambda: golden("harden-*"), read=sealed(harden.decode), told=(RecordError,)),
    "robustness": Reader(whole=lambda: golden("*.json"), read=sealed(robustness.decode), told=(RecordError,)),
    "recording": Reader(whole=recordings, read=read_recording, told=()),
    "study": Reader(whole=lambda: [STUDY], read=read_study, told=(UsageError,)),
    "inventory": Reader(whole=inventories, read=read_guests, told=(VbstudyError,)),
    "import-json": Reader(whole=lambda: ROWS, read=importing("x.json"), told=REFUSED),
    "import-csv": Reader(whole=lambda: [TABLE], read=importing("x.csv"), told=REFUSED),
    "import-npy": Reader(whole=arrays(np.save), read=importing("x/threads-1.npy"), told=REFUSED),
    "import-npz": Reader(whole=arrays(np.savez), read=importing("x/threads-1.npz"), told=REFUSED),
    "import-history": Reader(
        whole=lambda: [b'{"loss": [1.0, 0.5]}', *ROWS], read=importing("x/threads-1.json"), told=REFUSED
    ),
    "message": Reader(whole=messages, read=read_message, told=(ProtocolError,)),
    "scan-source": Reader(whole=sources, read=scanning("a.py"), told=()),
    "scan-notebook": Reader(whole=lambda: [NOTEBOOK], read=scanning("a.ipynb"), told=()),
    "scan-manifest": Reader(
        whole=lambda: [b'[project]\nname = "a"\ndependencies = ["torch>=2"]\n'],
        read=scanning("pyproject.toml"), told=(),
    ),
    "scan-kept": Reader(whole=lambda: [b'{"schema_version": 1}'], read=read_scan, told=(kept.KeptScanError,)),
}  # fmt: skip
