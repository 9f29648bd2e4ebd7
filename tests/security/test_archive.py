"""A hostile archive, or a hostile folder of runs: whatever is in it, reading it fails in the documented way,
and nothing is written outside the folder that was asked for."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import shutil
import zipfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from rich.console import Console

from analysis.exchange.archive import ArchiveError, unpack
from analysis.exchange.verify import verify
from analysis.load.predictions import read_predictions
from analysis.load.study import NothingToAnalyse, load_study
from analysis.pipeline import analyze
from analysis.report.page import page
from analysis.report.screen import screen
from analysis.results.printing import Format, all_tables, render, render_tables
from guest.records.codec import NewerSchemaError, digest
from guest.records.run import HISTORY, PREDICTIONS, RECORD
from tests.analysis.conftest import Fabricator
from tests.security.values import HOSTILE_TEXTS, VALUES, mutated

SLOW = settings(deadline=None, suppress_health_check=list(HealthCheck), max_examples=60)
DOCUMENTED = (NothingToAnalyse, NewerSchemaError, ArchiveError, FileExistsError)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A study of two runs; the first is the one that is tampered with."""
    study = Fabricator(tmp_path_factory.mktemp("whole"))
    study.run(1)
    study.run(2)
    return study.directory


RUN = Path("runs/lenet5/fixed-seed/cpus-1/0001")


def tampered(whole, tmp_path_factory):
    directory = tmp_path_factory.mktemp("tampered")
    shutil.copytree(whole, directory, dirs_exist_ok=True)
    return directory


def read_all(directory):
    """Everything that reads a study, but for figures."""
    found = verify(directory)
    with contextlib.suppress(*DOCUMENTED):
        study, _ = read_predictions(load_study(directory))
        assert len(study.runs) >= 1
    return found


def seal(record):
    """A record with the checksum that fits what it says."""
    record.pop("record_sha256", None)
    return json.dumps({**record, "record_sha256": digest(record)})


@pytest.mark.needs("studies")
@SLOW
@given(st.data())
def test_no_record_whose_checksum_fits_makes_reading_fail_otherwise(whole, tmp_path_factory, data):
    directory = tampered(whole, tmp_path_factory)
    record = data.draw(mutated(json.loads((directory / RUN / RECORD).read_text())))
    with contextlib.suppress(UnicodeEncodeError):
        text = seal(record) if isinstance(record, dict) else json.dumps(record)
        (directory / RUN / RECORD).write_text(text)
    with contextlib.suppress(NewerSchemaError):
        read_all(directory)


FIELDS = ("cpu", "framework", "hypervisor", "threads_in_force", "knobs")
ENVIRONMENTS = st.dictionaries(
    st.sampled_from(FIELDS) | HOSTILE_TEXTS,
    VALUES | st.dictionaries(st.sampled_from(["model", "flags", "caches", "version", "name"]), VALUES),
)


@pytest.mark.needs("studies")
@SLOW
@given(ENVIRONMENTS, st.dictionaries(st.sampled_from(["name", "provider", "host", "accelerator"]), VALUES))
@example({"cpu": 5, "framework": [1]}, {})
@example({"cpu": {"caches": [1, None], "flags": 7}}, {"name": {}})
def test_no_fingerprint_makes_reading_fail(whole, tmp_path_factory, environment, guest):
    directory = tampered(whole, tmp_path_factory)
    record = json.loads((directory / RUN / RECORD).read_text())
    record["result"]["environment"] = environment
    record["guest"] = guest
    with contextlib.suppress(UnicodeEncodeError):
        (directory / RUN / RECORD).write_text(seal(record))
    read_all(directory)


@pytest.mark.needs("studies")
def test_no_text_of_a_guest_reaches_a_terminal_a_page_or_a_table_as_it_was(tmp_path):
    hostile = "[/red]\x1b[2J\x9b31m\u202e<script>alert(1)</script>"
    study = Fabricator(tmp_path)
    for cpus, repetition in ((1, 1), (1, 2), (2, 1), (2, 2)):
        study.run(cpus, repetition, cpu_model=f"{hostile}{cpus}", weights=f"w{cpus}")
    analysis = analyze(tmp_path)
    for form in Format:
        assert not {"\x1b", "\x9b", "\u202e"} & set(render(analysis, form))
    terminal = io.StringIO()
    console = Console(file=terminal, force_terminal=True, width=160)
    console.print(screen(analysis))
    terminal.write(render_tables(all_tables(analysis), Format.TABLE, console))
    assert "[/red]" in render(analysis, Format.JSON)
    assert "\x1b[2J" not in terminal.getvalue()
    text = page(analysis, [])
    assert "<script>alert" not in text
    assert "&lt;script&gt;alert" in text


GOLDEN = Path(__file__).parents[1] / "golden"
HARDENING, TRACED, INTERIM = "harden/lenet5.json", "trace/t/trace.json", "sequential.json"
HIDDEN = "\x1b\x9b\u202e"
HOSTILE, SHOWN = f"a{HIDDEN}b", "a???b"
ANSWER = {"family": ["lenet5", "default", "last"], "metric": "accuracy", "a": "a", "b": "", "value": 0.02}


def beside(directory):
    """What may lie beside the runs, by path, of their workload."""
    workload = json.loads((directory / RUN / RECORD).read_text())["spec"]["workload"]
    golden = {HARDENING: "harden-2.json", TRACED: "trace-2.json"}
    sealed = {name: json.loads((GOLDEN / file).read_text()) for name, file in golden.items()}
    answers = [ANSWER | {"runs": 6, "how": "too wide"}]
    interim = {"plan": {"until": "sd", "interim": [3, 6]}, "interim_done": 2, "answers": answers}
    return {name: data | {"workload": workload} for name, data in sealed.items()} | {INTERIM: interim}


def analysis_with(directory, files):
    """The analysis of a study with these files beside its runs."""
    for name, data in files.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(data) if name == INTERIM else seal(data))
    return analyze(directory)


IMPOSSIBLE = {
    "no CPU count": (HARDENING, lambda data: data.update(cpus=[], measurements=[])),
    "no repetition": (HARDENING, lambda data: data.update(repetitions=0, measurements=[])),
    "a tier without a name": (HARDENING, lambda data: data.update(tiers=[""])),
    "an infinite time": (HARDENING, lambda data: data["measurements"][0].update(train_s=float("inf"))),
    "no number of a step": (HARDENING, lambda data: data["measurements"][0].update(step_hashes={"x": "a"})),
    "a field of a terminal": (HARDENING, lambda data: data.update(not_applicable={HOSTILE: 1})),
    "an operation of no step": (TRACED, lambda data: data.update(step=None)),
    "an infinite count": (INTERIM, lambda data: data["plan"].update(interim=[float("inf")])),
}


def test_what_lies_beside_runs_and_cannot_be_is_left_out_and_reported(whole, tmp_path_factory):
    directory = tampered(whole, tmp_path_factory)
    files = {}
    for number, (name, change) in enumerate(IMPOSSIBLE.values()):
        path = {HARDENING: f"harden/{number}.json", TRACED: f"trace/{number}/trace.json"}.get(name, name)
        files[path] = beside(directory)[name]
        change(files[path])
    analysis = analysis_with(directory, files)
    assert not {"interim", "traces", "hardening"} & set(analysis.tables)
    reported = {problem.path: str(problem) for problem in analysis.study.problems}
    assert set(reported) >= set(files)
    assert not any(set(HIDDEN) & set(text) for text in reported.values())


def test_no_text_beside_runs_reaches_a_terminal_or_a_page_as_it_was(whole, tmp_path_factory):
    directory = tampered(whole, tmp_path_factory)
    files = beside(directory)
    files[HARDENING]["measurements"][4]["error"] = HOSTILE
    files[TRACED]["origins"][0] |= dict.fromkeys(("op", "module", "setting", "text"), HOSTILE)
    files[INTERIM]["plan"]["until"] = files[INTERIM]["answers"][0]["how"] = HOSTILE
    analysis = analysis_with(directory, files)
    for name, column in {"hardening": "why", "traces": "op", "interim": "decision"}.items():
        assert set(analysis.tables[name].frame[column]) & {SHOWN}
    for form in Format:
        assert not set(HIDDEN) & set(render(analysis, form))
    assert not set(HIDDEN) & set(page(analysis, []))


def replace_file(directory, name, content):
    """A file, and a record that promises it."""
    (directory / RUN / name).write_bytes(content)
    record = json.loads((directory / RUN / RECORD).read_text())
    artifact = {"sha256": hashlib.sha256(content).hexdigest(), "size_bytes": len(content)}
    record["result"]["artifacts"][name] = artifact
    (directory / RUN / RECORD).write_text(seal(record))


CELLS = st.sampled_from(["1", "2", "nan", "inf", "-1", "1e400", "1_0", "", "x", "a" * 64, "1.5", "٣"])


@pytest.mark.needs("studies")
@SLOW
@given(st.binary(max_size=60) | st.lists(st.lists(CELLS, min_size=13, max_size=15), max_size=3))
@example(b"\xff\xfe")
def test_no_history_makes_reading_fail(whole, tmp_path_factory, content):
    directory = tampered(whole, tmp_path_factory)
    if isinstance(content, list):
        header = (directory / RUN / HISTORY).read_text().splitlines()[0]
        content = "\n".join([header, *(",".join(row) for row in content)]).encode()
    replace_file(directory, HISTORY, content)
    read_all(directory)


@pytest.mark.parametrize(("column", "cell"), [("step", "nan"), ("step", "6.5"), ("selected_epoch", "1e400")])
def test_a_history_whose_steps_are_no_numbers_is_damaged(whole, tmp_path_factory, column, cell):
    directory = tampered(whole, tmp_path_factory)
    header, first, *_ = (directory / RUN / HISTORY).read_text().splitlines()
    cells = dict(zip(header.split(","), first.split(","), strict=True)) | {column: cell}
    replace_file(directory, HISTORY, f"{header}\n{','.join(cells.values())}\n".encode())
    (problem,) = read_all(directory).damaged
    assert f"{column} that is no whole number" in problem.what


def npz(**arrays):
    packed = io.BytesIO()
    np.savez(packed, **arrays)
    return packed.getvalue()


def bomb():
    """10 MB of zeros in 10 kB, as an array."""
    packed = io.BytesIO()
    np.savez_compressed(
        packed, y_true=np.zeros(4, int), last=np.zeros((4, 300_000)), selected=np.zeros((4, 3))
    )
    return packed.getvalue()


def compressed_without_bounds():
    """64 MB of zeros, said to be 100."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_BZIP2) as archive:
        archive.writestr("last.npy", bytes(64 << 20))
        archive.infolist()[0].file_size = 100
    return packed.getvalue()


def huge():
    """An array that says it has more numbers than any memory."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name in ("y_true", "last", "selected"):
            head = io.BytesIO()
            np.lib.format.write_array_header_1_0(
                head, {"descr": "<f8", "fortran_order": False, "shape": (10**14, 3)}
            )
            archive.writestr(f"{name}.npy", head.getvalue())
    return packed.getvalue()


ONE = np.zeros((1, 2))
PREDICTED = {
    "a bomb": bomb,
    "compressed without bounds": compressed_without_bounds,
    "more than any memory": huge,
    "objects": lambda: npz(y_true=np.array([object()], dtype=object), last=ONE, selected=ONE),
    "no numbers": lambda: npz(y_true=np.array(["a"]), last=ONE.astype(str), selected=ONE.astype(str)),
    "complex": lambda: npz(y_true=np.zeros(1, int), last=ONE.astype(complex), selected=ONE.astype(complex)),
    "dates": lambda: npz(y_true=np.zeros(1, int), last=ONE.astype("M8[s]"), selected=ONE.astype("M8[s]")),
    "fractions for classes": lambda: npz(y_true=np.array([0.5]), last=ONE, selected=ONE),
    "classes without a logit": lambda: npz(y_true=np.array([2**62]), last=ONE, selected=ONE),
    "no class": lambda: npz(y_true=np.zeros(3, int), last=np.zeros((3, 0)), selected=np.zeros((3, 0))),
    "garbage": lambda: b"PK\x03\x04garbage",
}


@pytest.mark.needs("studies")
@pytest.mark.parametrize("kind", PREDICTED)
def test_predictions_that_are_none_are_damaged_and_cost_no_memory(whole, tmp_path_factory, kind):
    import tracemalloc

    directory = tampered(whole, tmp_path_factory)
    replace_file(directory, PREDICTIONS, PREDICTED[kind]())
    tracemalloc.start()
    try:
        found = read_all(directory)
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()
    assert [problem.path for problem in found.damaged] == [RUN.as_posix()]


@pytest.mark.needs("studies")
@SLOW
@given(st.dictionaries(HOSTILE_TEXTS | st.text(max_size=30), st.just({"sha256": "a" * 64, "size_bytes": 1})))
def test_no_names_in_a_manifest_are_followed(whole, tmp_path_factory, names):
    directory = tampered(whole, tmp_path_factory)
    record = json.loads((directory / RUN / RECORD).read_text())
    record["result"]["artifacts"] |= names
    with contextlib.suppress(UnicodeEncodeError):
        (directory / RUN / RECORD).write_text(seal(record))
    read_all(directory)


NAMES = st.one_of(
    HOSTILE_TEXTS,
    st.sampled_from(
        [
            "s/../../evil",
            "/tmp/evil",
            "s/runs/a/b/c/0001/run.json",
            "s/runs/../b/c/0001/run.json",
            "s/runs/a/b/c/0001/evil.sh",
            "s\\..\\evil",
            "s/study.toml",
            "other/study.toml",
            "s/imported/x.json",
        ]
    ),
    st.text(max_size=20),
)

ENTRIES = st.lists(
    st.tuples(NAMES, st.binary(max_size=20)), max_size=4, unique_by=lambda e: e[0].partition("\0")[0]
)


@SLOW
@given(ENTRIES, VALUES | st.just(None), st.integers(0, 0o177777))
def test_an_archive_is_unpacked_whole_or_not_at_all(tmp_path_factory, entries, manifest, mode):
    directory = tmp_path_factory.mktemp("archive")
    files = {
        name.partition("/")[2]: {"sha256": hashlib.sha256(data).hexdigest(), "size_bytes": len(data)}
        for name, data in entries
    }
    told = {"schema_version": 1, "files": files} if manifest is None else manifest
    path = directory / "s.zip"
    with contextlib.suppress(UnicodeEncodeError, ValueError), zipfile.ZipFile(path, "w") as archive:
        for name, data in [*entries, ("s/MANIFEST.json", json.dumps(told).encode())]:
            entry = zipfile.ZipInfo(name)
            entry.external_attr = mode << 16
            archive.writestr(entry, data)
    if not path.exists():
        return
    target = directory / "into"
    try:
        unpack(path, target)
    except DOCUMENTED:
        assert [each.name for each in directory.iterdir()] == ["s.zip"]
        return
    assert {each.name for each in directory.iterdir()} == {"s.zip", "into"}
    assert all(each.resolve().is_relative_to(target) and not each.is_symlink() for each in target.rglob("*"))


@SLOW
@given(st.binary(max_size=300), st.integers(0, 2000), st.integers(0, 2000))
def test_no_bytes_are_an_archive_by_accident(whole, tmp_path_factory, junk, start, length):
    from analysis.exchange.archive import pack

    directory = tmp_path_factory.mktemp("cut")
    path = directory / "s.zip"
    pack(whole, path)
    data = path.read_bytes()
    path.write_bytes(data[:start] + junk + data[start + length :])
    with contextlib.suppress(*DOCUMENTED):
        unpack(path, directory / "into")
        assert verify(directory / "into").runs == 2


def zipped(path, files, names=(), compression=zipfile.ZIP_DEFLATED):
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, data in files.items():
            archive.writestr(f"s/{name}", data)
        for name in names:
            archive.writestr(zipfile.ZipInfo(f"s/{name}"), b"")


MANIFESTS = {
    "an infinite version": '{"schema_version": Infinity, "files": {}}',
    "an infinite size": '{"schema_version": 1, "files": {"a": {"sha256": "", "size_bytes": Infinity}}}',
    "a negative size": '{"schema_version": 1, "files": {"a": {"sha256": "", "size_bytes": -1}}}',
    "nested deep": "[" * 100_000,
    "millions of items": "[" + "{}," * 4_000_000 + "1]",
    "a version of 5,000 digits": '{"schema_version": ' + "1" * 5000 + "}",
}


@pytest.mark.parametrize("kind", MANIFESTS)
def test_a_manifest_that_is_none_is_refused_within_bounded_memory(tmp_path, kind):
    import tracemalloc

    path = tmp_path / "s.zip"
    zipped(path, {"MANIFEST.json": MANIFESTS[kind]})
    assert path.stat().st_size < 100_000
    tracemalloc.start()
    try:
        with pytest.raises(ArchiveError):
            unpack(path, tmp_path / "into")
        assert tracemalloc.get_traced_memory()[1] < 128 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("compression", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_what_decompresses_without_bounds_is_refused_before_it_is_read(tmp_path, compression, monkeypatch):
    path = tmp_path / "s.zip"
    zipped(path, {"MANIFEST.json": " " * 1000}, compression=compression)
    monkeypatch.setattr(zipfile.ZipFile, "open", None)
    with pytest.raises(ArchiveError, match="MANIFEST.json is compressed in a way"):
        unpack(path, tmp_path / "into")


def test_an_archive_that_lists_more_files_than_a_study_may_have_is_refused(tmp_path, monkeypatch):
    from analysis.exchange import archive

    monkeypatch.setattr(archive, "LISTED_BYTES", 100_000)
    path = tmp_path / "s.zip"
    zipped(path, {}, [f"runs/a/b/c/{i:04d}/log.txt" for i in range(2000)])
    with pytest.raises(ArchiveError, match="it lists more than"):
        unpack(path, tmp_path / "into")


def test_a_history_of_more_cells_than_any_training_has_is_damaged_and_not_parsed(whole, tmp_path_factory):
    import tracemalloc

    directory = tampered(whole, tmp_path_factory)
    header = (directory / RUN / HISTORY).read_bytes().splitlines()[0]
    replace_file(directory, HISTORY, header + b"\n" + b"1,1,1,1,1,1,1,1,1,,,,1\n" * 200_000)
    tracemalloc.start()
    try:
        (problem,) = verify(directory).damaged
        assert tracemalloc.get_traced_memory()[1] < 64 << 20
    finally:
        tracemalloc.stop()
    assert "has more than 1000000 cells" in problem.what
