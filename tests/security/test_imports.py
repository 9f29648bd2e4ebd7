"""Results of other programs, made to hurt: each is imported and whole, or refused in one line."""

import json
import os
import zipfile
from pathlib import Path

import numpy as np
import pytest

from orchestrator.cli import main as cli

ROW = {"threads": 1, "accuracy": 0.5}
DEEP = "[" * 100_000


def rows(**changes):
    return json.dumps([ROW | changes])


def of_json(content):
    def make(folder):
        (folder / "x.json").write_text(content)
        return "x.json"

    return make


def of_csv(content):
    def make(folder):
        (folder / "x.csv").write_bytes(content)
        return "x.csv"

    return make


def of_array(name, write):
    def make(folder):
        (folder / "x").mkdir()
        write(folder / "x" / name)
        return "x"

    return make


def compressed(path):
    np.savez_compressed(path, predictions=np.zeros((40_000, 1000)))


def huge(path):
    with path.open("wb") as file:
        head = {"descr": "<f8", "fortran_order": False, "shape": (10**12,)}
        np.lib.format.write_array_header_1_0(file, head)


def encrypted(path):
    np.savez(path, predictions=np.zeros(3))
    data = bytearray(path.read_bytes())
    data[6] |= 1
    data[data.index(b"PK\x01\x02") + 8] |= 1
    path.write_bytes(data)


def damaged(path):
    np.savez_compressed(path, predictions=np.arange(1000))
    data = bytearray(path.read_bytes())
    data[200:220] = b"\xff" * 20
    path.write_bytes(data)


SOURCES = {
    "1e30 threads": of_json(rows(threads=1e30)),
    "2**63 threads": of_json(rows(threads=2**63)),
    "infinite threads": of_json('[{"threads": Infinity, "a": 1}]'),
    "threads in a list": of_json(rows(threads=[1])),
    "threads of 5,000 digits": of_json('[{"threads": ' + "1" * 5000 + "}]"),
    "a huge metric": of_json(rows(accuracy=1e308)),
    "a metric of 400 digits": of_json(rows(accuracy=10**400)),
    "a name that turns the direction": of_json(rows(workload="\u202ex")),
    "a name with half a pair": of_json('[{"threads": 1, "workload": "\\ud800", "a": 1}]'),
    "a long name": of_json(rows(workload="x" * 5000)),
    "an object for a name": of_json(rows(workload={"a": 1})),
    "deep": of_json(DEEP),
    "a column a row": of_json(json.dumps([{"threads": 1, f"c{i}": 1} for i in range(3000)])),
    "a column a row, as csv": of_csv(b"threads," + b"a," * 20_000 + b"b\n" + b"1\n" * 20_000),
    "no columns": of_csv(b""),
    "null bytes": of_csv(b"threads,a\n1,\0\n"),
    "a quote without end": of_csv(b'threads,a\n1,"'),
    "no text": of_csv(b"\xff\xfe\x00"),
    "the same column twice": of_csv(b"threads,threads,accuracy\n1,2,0.5\n"),
    "epochs that are texts": of_csv(b"threads,repetition,epoch,a\n1,1,x,1\n1,1,2,2\n"),
    "seconds that are texts": of_csv(b"threads,wall_s,a\n1,x,1\n"),
    "an array that unpacks": of_array("threads-1.npz", compressed),
    "an array that says it is huge": of_array("threads-1.npy", huge),
    "an encrypted array": of_array("threads-1.npz", encrypted),
    "a damaged array": of_array("threads-1.npz", damaged),
    "no array": of_array("threads-1.npz", lambda path: path.write_bytes(b"PK\x05\x06")),
    "a zip of other things": of_array("threads-1.npz", lambda path: zipfile.ZipFile(path, "w").close()),
    "a deep history": of_array("threads-1.json", lambda path: path.write_text(DEEP)),
    "a history of texts": of_array("threads-1.json", lambda path: path.write_text('{"loss": "abc"}')),
    "a history that is a number": of_array("threads-1.json", lambda path: path.write_text("1")),
    "a pipe among arrays": of_array("threads-1.npy", os.mkfifo),
    "threads of 5,000 digits in a pattern": of_array(
        f"threads-{'1' * 200}.json", lambda p: p.write_text("{}")
    ),
}


@pytest.mark.needs("studies")
@pytest.mark.parametrize("kind", SOURCES)
def test_what_is_imported_is_whole_and_what_is_not_is_refused(tmp_path, monkeypatch, capsys, kind):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    source = SOURCES[kind](tmp_path)
    status = cli.run(["import", source])
    said = capsys.readouterr().err
    assert status in (0, 2), said
    assert len(said.splitlines()) <= 1
    if status == 0:
        assert cli.run(["verify", "."]) == 0
    else:
        assert not list(Path("imported").glob("*"))
