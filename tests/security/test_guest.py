"""A hostile guest: whatever it says, the host fails in the documented way, keeps its memory, writes nowhere
but into the folder of the attempt, and what it stores can be read and analysed."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import time
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from rich.console import Console

from guest.records.codec import seal, to_json
from guest.records.plain_json import PlainJsonError, parse
from guest.records.run import ARTIFACTS, SCHEMA_VERSION, Message, decode_record
from orchestrator.agent.executor import Executor, GuestContext, RunFailedError
from orchestrator.agent.protocol import parse_message, read_epoch, read_result
from orchestrator.cores.remote import read_answer as read_cores
from orchestrator.errors import GuestError, ProtocolError, VbstudyError
from orchestrator.inventory import Guest, Observation, guest_spec
from orchestrator.providers import inside
from orchestrator.store.integrity import DamagedRunError
from orchestrator.store.store import Store
from orchestrator.study.schema import EngineTable
from orchestrator.study.schema import parse as parse_study
from orchestrator.sweep.live import LiveFile, read_live
from orchestrator.sweep.progress import SweepProgress
from orchestrator.sweep.watch import Watcher, as_json
from orchestrator.sweep.watch_view import render
from orchestrator.transport import connection as connection_module
from orchestrator.transport.connection import LINE_OVERHEAD_BYTES, Completed, Lines
from tests import factories
from tests.orchestrator.sweep.test_pipeline import STUDY
from tests.security.values import HOSTILE_TEXTS, VALUES, deep, line, mutated

RUN = factories.spec(cpus=1)
FILES = {name: f"{name}\n".encode() for name in ARTIFACTS}
MANIFEST = {n: {"sha256": hashlib.sha256(d).hexdigest(), "size_bytes": len(d)} for n, d in FILES.items()}
RESULT = to_json(factories.result({})) | {"artifacts": MANIFEST}
DONE = {"kind": "done", "run_id": RUN.run_id, "body": {"result": RESULT}}
EPOCH = {
    "kind": "epoch",
    "run_id": RUN.run_id,
    "body": {"epoch": 1, "step": 6, "train_loss": 2.1, "test_accuracy": 0.3, "test_loss": 2.0},
}
HEARTBEAT = {"kind": "heartbeat", "run_id": RUN.run_id, "body": {"step": 3}}
ERROR = {
    "kind": "error",
    "run_id": RUN.run_id,
    "body": {"kind": "ValueError", "message": "no", "traceback": "Traceback"},
}
HELLO = {"kind": "hello", "run_id": "", "body": {"schema_version": SCHEMA_VERSION}}
MESSAGES = st.sampled_from([DONE, EPOCH, HEARTBEAT, ERROR, HELLO]).flatmap(mutated)
LINES = st.one_of(
    MESSAGES.map(line),
    VALUES.map(line),
    st.binary(max_size=200),
    st.sampled_from([b"[", b'{"a":', b"1"]).map(lambda piece: piece * 50_000),
    st.sampled_from([b'"\\ud800"', b"\xff\xfe[1]", b"{}\n"]),
)
GUEST = Guest(
    spec=guest_spec(1),
    observed=Observation(provider_cpus=1, guest_cpus=1, oversubscribed=False, start_s=0.1, details={}),
    created_at="2026-01-01T00:00:00Z",
)
TOLD = (
    RunFailedError,
    ProtocolError,
    GuestError,
    DamagedRunError,
)  # what the sweep counts as a failed attempt
TALK = st.builds(
    Message,
    st.sampled_from(["epoch", "heartbeat"]),
    st.just(RUN.run_id),
    st.dictionaries(
        st.sampled_from(["epoch", "step", "train_loss", *(f"test_{i}" * 30 for i in range(20))]),
        st.integers(-(2**64) + 1, 2**64 - 1) | st.floats() | HOSTILE_TEXTS,
    ),
)
SLOW = settings(deadline=None, suppress_health_check=list(HealthCheck))


@given(LINES)
@example(line({"kind": "epoch", "run_id": "x", "body": {"a": deep(40)}}))
def test_a_line_is_a_message_or_a_protocol_error(text):
    with contextlib.suppress(ProtocolError):
        message = parse_message(text)
        json.dumps(message.body).encode()
        encode_like_a_file(message.body)


class Says:
    """A machine that answers one thing."""

    def __init__(self, text: bytes):
        self._text = text

    def receive(self, timeout_s):
        return self._text

    def stderr(self):
        return ""

    how_it_ended = stderr


@given(
    LINES | st.sampled_from([b'{"holders": {"0": true}}', b'{"others": ["0"]}', b'{"others": [0], "x": 1}'])
)
def test_what_a_machine_says_of_its_cores_is_understood_or_a_guest_error(text):
    with contextlib.suppress(GuestError):
        answer = read_cores(Says(text))
        assert all(isinstance(core, int) for core in answer.others)
        assert all(isinstance(process, int) for process in answer.holders.values())


def encode_like_a_file(value) -> None:
    """What is kept of a guest's words is written as UTF-8."""
    json.dumps(value, ensure_ascii=False).encode()


@given(VALUES)
def test_json_of_the_other_side_is_plain_or_refused_in_one_way(value):
    text = json.dumps(value)
    with contextlib.suppress(PlainJsonError):
        encode_like_a_file(parse(text))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[" * 100_000, "nested deeper"),
        (json.dumps(deep(33)), "nested deeper"),
        ('{"a": 1' + "0" * 400 + "}", "beyond 64 bits"),
        ("1" * 5000, "not JSON"),
        ('["\\ud800"]', "surrogate"),
        ('{"\\ud800": 1}', "surrogate"),
        (b"\xff", "not JSON"),
    ],
)
def test_what_python_would_read_and_choke_on_later_is_refused(text, why):
    with pytest.raises(PlainJsonError, match=why):
        parse(text)


@SLOW
@given(mutated({"result": RESULT}))
@example({"result": RESULT | {"step_hashes": {"x": "a" * 64}}})
@example({"result": RESULT | {"timings": RESULT["timings"] | {"wall_s": float("nan")}}})
@example({"result": RESULT | {"artifacts": {"history.csv": MANIFEST["history.csv"]}}})
@example({"result": RESULT | {"environment": {"cpu": "none", "framework": [], "": {"a": None}}}})
def test_a_result_that_is_believed_can_be_stored_read_and_analysed(tmp_path_factory, body):
    from analysis.load.study import NothingToAnalyse, load_study

    store = Store(tmp_path_factory.mktemp("study"))
    with contextlib.suppress(*TOLD):
        message = parse_message(line({"kind": "done", "run_id": RUN.run_id, "body": body}))
        result = read_result(message.body, RUN)
        if RUN.workload.unexpected_artifacts(result.artifacts):
            return  # the executor fetches nothing of it
        record = factories.record(RUN, result)
        assert seal(decode_record(seal(record))) == seal(record)
        folder = store.new_incoming()
        for name, data in FILES.items():
            (folder / name).write_bytes(data)
        store.publish(folder, record)
        with pytest.raises(NothingToAnalyse, match=r"history\.csv"):  # these files are no histories
            load_study(store.directory)


# ---- the whole way: from lines to files --------------------------------------------------------------


class FakeStream:
    def __init__(self, lines):
        self.lines = list(lines)

    def send(self, text):
        pass

    def receive(self, timeout_s):
        return self.lines.pop(0) if self.lines else b""

    def kill(self):
        pass

    def stderr(self):
        return "\x1b[31mstderr\ud800"

    def how_it_ended(self):
        return "exit status 1"


class FakeConnection:
    """A guest whose lines and files are given."""

    python, shares_files = "python3", True

    def __init__(self, lines, files):
        self.lines, self.files = lines, files

    def open(self, argv, env):
        return FakeStream([line(HELLO), *self.lines])

    def get(self, remote, local, max_bytes):
        data = self.files.get(Path(remote).name)
        if data is None or len(data) > max_bytes:
            raise GuestError("not a plain file in the guest")
        local.write_bytes(data)

    def remove(self, remote):
        pass


class Agent:
    name = "agent.pyz"


def watched(directory):
    """Everybody who is told of a guest's words: the terminal, a log, the live file."""
    screens = [
        SweepProgress(Console(file=io.StringIO(), force_terminal=terminal, width=100))
        for terminal in (True, False)
    ]
    return [*screens, LiveFile(directory / ".live", 1)]


@pytest.mark.needs("studies")
@SLOW
@given(
    st.lists(LINES, max_size=4),
    st.booleans(),
    st.dictionaries(st.sampled_from(ARTIFACTS), st.binary(max_size=40)),
)
def test_no_guest_ends_a_sweep_in_an_unforeseen_way_or_writes_elsewhere(tmp_path_factory, lines, ends, files):
    directory = tmp_path_factory.mktemp("study")
    store = Store(directory)
    observers = watched(directory)
    for each in observers:
        each.planned([RUN], [])
        each.started(GUEST.spec.name, RUN, (0,))

    def tell(message):
        for each in observers:
            each.message(GUEST.spec.name, message)

    words = [*lines, line(DONE)] if ends else lines
    context = GuestContext(
        visible_cpus=1, oversubscribed=False, cpu_vendor="x", data_folders=(), engine=EngineTable()
    )
    executor = Executor(FakeConnection(words, FILES | files), Agent(), context)
    folder = store.new_incoming()
    try:
        result = executor.execute(RUN, folder, tell)
        assert store.publish(folder, factories.record(RUN, result))
        for each in observers:
            each.finished(RUN, result)
    except TOLD as error:
        evidence = error.error if isinstance(error, RunFailedError) else {"kind": "x", "message": str(error)}
        kept = store.keep_failure(RUN, 1, folder, evidence)
        for each in observers:
            each.failed(RUN, str(error), kept, again=False)
    observers[-1]._write("running")
    written = {path.relative_to(directory).parts[0] for path in directory.rglob("*")}
    assert written <= {"runs", "failed", "incoming", ".live"}
    frame = Watcher(parse_study(STUDY), store).look()
    assert frame.sweep is not None
    json.loads(json.dumps(as_json(frame), allow_nan=False))
    screen = io.StringIO()
    Console(file=screen, force_terminal=True, width=100).print(render(frame, 40))
    for text in (screen.getvalue(), *(each._console.file.getvalue() for each in observers[:2])):
        assert "\x1b[2J" not in text
        assert "\x1b]" not in text
        assert "\u202e" not in text


@pytest.mark.needs("studies")
@given(st.text() | HOSTILE_TEXTS, st.dictionaries(st.text(max_size=10) | HOSTILE_TEXTS, VALUES))
def test_an_epoch_s_numbers_are_shown_and_nothing_else_of_it(name, body):
    with contextlib.suppress(ProtocolError):
        message = parse_message(line(EPOCH | {"body": {name: "x"} | body}))
        told = read_epoch(message.body)
        assert all(isinstance(value, float) for value in told.scores.values())
        assert told.epoch >= 0


@SLOW
@given(st.lists(TALK, max_size=100))
def test_the_live_file_stays_small_and_readable_whatever_is_said(tmp_path_factory, messages):
    path = tmp_path_factory.mktemp("live") / ".live"
    live = LiveFile(path, 1)
    live.started(GUEST.spec.name, RUN, (0,))
    for message in messages:
        live.message(GUEST.spec.name, message)
    live._write("running")
    assert path.stat().st_size < 20_000
    assert read_live(path) is not None


class Answering:
    python = "python3"

    def __init__(self, stdout, status=0):
        self.done = Completed(status=status, stdout=stdout, stderr="")

    def run(self, argv, env, timeout_s):
        return self.done


SEEN = {"cpus": 2, "cores": [0, 1], "python": "3.11", "vendor": "v", "model": "m"}


@given(st.one_of(mutated(SEEN).map(json.dumps), st.text()), st.integers(0, 2))
def test_what_a_guest_says_of_its_cpus_is_plausible_or_a_guest_error(stdout, status):
    with contextlib.suppress(GuestError):
        seen = inside.inspect("g", Answering(stdout, status))
        assert 1 <= seen.cpus <= inside.MAX_CPUS
        assert all(0 <= core < inside.MAX_CPUS for core in seen.cores)
    with contextlib.suppress(GuestError):
        seen, _ = inside.inspect_with_shell("g", Answering(stdout, status), ["torch"], 1)
        assert 1 <= seen.cpus <= inside.MAX_CPUS


@pytest.mark.parametrize("count", ["99999999999", "0", "²", "-1", "70000"])
def test_a_count_of_cpus_that_no_machine_has_is_refused(count):
    with pytest.raises(GuestError):
        inside.inspect_with_shell("g", Answering(f"{count}\n3.11\n\nvendor_id : x\nx86\n"), [], 1)


# ---- memory ------------------------------------------------------------------------------------------


def test_a_guest_that_floods_is_held_up_and_not_remembered(tmp_path, monkeypatch):
    """A command that writes without end, and a reader that reads nothing: little is held, and it ends."""
    import sys

    limit = 1 << 20
    monkeypatch.setattr(connection_module, "MAX_UNREAD_BYTES", limit)
    monkeypatch.setattr(connection_module, "MAX_LINE_BYTES", limit // 4)
    monkeypatch.setattr(connection_module, "MAX_OUTPUT_BYTES", limit)
    core = min(os.sched_getaffinity(0))
    host = connection_module.LocalConnection(tmp_path, sys.executable, (core,), None, {})
    flood = (
        "import sys\nwhile True: sys.stdout.write('x' * 65536 + sys.argv[1]); sys.stderr.write('y' * 4096)"
    )
    for end in ("", "\n"):
        stream = host.open([sys.executable, "-c", flood, end], {})
        first = stream.receive(120)
        assert len(first) <= limit // 4
        for _ in range(200):
            assert len(stream.receive(120)) <= limit // 4
        assert stream._lines._held_bytes <= limit + limit // 4 + LINE_OVERHEAD_BYTES
        stream.kill()
        assert len(stream.stderr()) <= connection_module.STDERR_TAIL_BYTES
        with pytest.raises(GuestError, match="prints more"):
            host.run([sys.executable, "-c", flood, end], {}, 30)


def test_who_waits_to_put_a_line_goes_on_when_nobody_reads_any_more(monkeypatch):
    import threading

    monkeypatch.setattr(connection_module, "MAX_UNREAD_BYTES", 1000)
    lines = Lines()
    writer = threading.Thread(target=lambda: [lines.put(b"x" * 600) for _ in range(10)], daemon=True)
    writer.start()
    deadline = time.monotonic() + 120
    while lines._held_bytes < 2 * (600 + LINE_OVERHEAD_BYTES):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    writer.join(0.2)
    assert writer.is_alive()
    assert lines._held_bytes == 2 * (600 + LINE_OVERHEAD_BYTES)
    lines.close()
    writer.join(120)
    assert not writer.is_alive()
    assert (lines.receive(0), lines.receive(0), lines.receive(0)) == (b"x" * 600, b"x" * 600, None)


@pytest.mark.parametrize("unit", [b"[],", b"{},", b'"a",', b"1,", b'{"a":{}},'])
def test_the_longest_line_costs_a_bounded_multiple_of_its_length(unit):
    size = 1 << 17
    text = b'{"kind":"epoch","run_id":"","body":{"a":[' + unit * (size // len(unit))
    text = text.rstrip(b",") + b"]}}"
    tracemalloc.start()
    try:
        parse_message(text)
        assert tracemalloc.get_traced_memory()[1] < 60 * len(text)
    finally:
        tracemalloc.stop()


def test_errors_with_a_guest_s_words_do_not_reach_the_terminal_as_they_are(tmp_path, capsys, monkeypatch):
    from orchestrator.cli import main as cli
    from orchestrator.guests import doctor

    def fail(store):
        raise VbstudyError("\x1b[2Jwiped", evidence="\x1b]0;title\x07\nline")

    monkeypatch.setattr(doctor, "examine", fail)
    assert cli.run(["-v", "-C", str(tmp_path), "doctor"]) == 2
    assert capsys.readouterr().err == "vbstudy: ?[2Jwiped\n?]0;title?\nline\n"
