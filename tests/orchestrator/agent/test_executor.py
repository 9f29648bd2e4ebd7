"""The host's side of the protocol, against agents that misbehave: small programs in place of the
real one, over a real process and real files."""

import dataclasses
import functools
import hashlib
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from guest.projects.command import LOG_LIMIT_BYTES
from guest.records.codec import to_json
from guest.records.run import (
    ARTIFACTS,
    LOG,
    RECORDING,
    SCHEMA_VERSION,
    Isa,
    Message,
    RunSpec,
    decode_record,
)
from orchestrator.agent.archive import AgentArchive, build
from orchestrator.agent.executor import Executor, GuestContext, RunFailedError
from orchestrator.errors import GuestError, PrerequisiteError, ProtocolError
from orchestrator.study.schema import EngineTable
from orchestrator.transport.connection import LocalConnection
from tests import factories

RUN = factories.spec(cpus=1)
PRELUDE = f"""
import json, os, sys, time
def say(kind, run_id={RUN.run_id!r}, /, **body):
    print(json.dumps({{"kind": kind, "run_id": run_id, "body": body}}), flush=True)
say("hello", "", schema_version={SCHEMA_VERSION})
message = json.loads(sys.stdin.readline())
out = message["out"]
os.makedirs(out)
"""
LIMITS = EngineTable(timeout_s=600)


@pytest.fixture
def executor(tmp_path):
    """Makes an executor whose agent is the given program."""
    guest = tmp_path / "guest"
    guest.mkdir()
    core = min(os.sched_getaffinity(0))
    opened = []

    def make(program: str, engine: EngineTable = LIMITS, **of_the_guest: Any) -> Executor:
        data = program.encode()
        agent = AgentArchive(data, hashlib.sha256(data).hexdigest())
        agent.write(guest)
        connection = LocalConnection(guest, sys.executable, (core,), None, {})
        opened.append(connection)
        context = GuestContext(
            visible_cpus=1,
            oversubscribed=False,
            cpu_vendor="x",
            data_folders=(),
            engine=engine,
            **of_the_guest,
        )
        return Executor(connection, agent, context)

    yield make
    for connection in opened:
        connection.close()


@pytest.fixture
def into(tmp_path):
    folder = tmp_path / "into"
    folder.mkdir()
    return folder


WAIT = "\nsys.stdin.readline()"
LINK = "os.remove(out + '/log.txt'); os.symlink('/etc/passwd', out + '/log.txt')"
ONE_BYTE = {"sha256": "", "size_bytes": 1}


def done(**changes) -> str:
    """A program's last words: files, and a result that describes them, with changes to the manifest."""
    files = {name: f"{name}\n" for name in ARTIFACTS}
    manifest = {
        name: {"sha256": hashlib.sha256(text.encode()).hexdigest(), "size_bytes": len(text)}
        for name, text in files.items()
    }
    result = to_json(factories.result({})) | {"artifacts": manifest | changes}
    return f"""
for name, text in {files!r}.items():
    open(os.path.join(out, name), "w").write(text)
say("done", result=json.loads({json.dumps(result)!r}))
sys.stdin.readline()
"""


def nothing(message: Message) -> None:
    pass


def test_a_run_is_followed_and_its_files_collected(executor, into, tmp_path):
    heard = []
    program = PRELUDE + 'say("hello"); say("epoch", epoch=1); say("heartbeat", step=3)\n' + done()
    result = executor(program).execute(RUN, into, heard.append)
    assert [message.kind for message in heard] == ["hello", "epoch", "heartbeat"]
    assert set(result.artifacts) == {path.name for path in into.iterdir()} == set(ARTIFACTS)
    assert not list(tmp_path.glob("guest/out/*"))  # nothing stays in the guest


@pytest.mark.parametrize(
    ("last_words", "error", "message"),
    [
        (f"print('Segmentation fault', flush=True){WAIT}", ProtocolError, "cannot be read: 'Segmentation"),
        (f"print('[1, 2]', flush=True){WAIT}", ProtocolError, "not a message"),
        (f"say('shout'){WAIT}", ProtocolError, "not a message"),
        (f"say('epoch', 'another/run'){WAIT}", ProtocolError, "got one of 'another/run'"),
        (f"say('done', result={{}}){WAIT}", ProtocolError, "malformed: done.result: field"),
        (f"say('done'){WAIT}", ProtocolError, "malformed"),
        ("sys.exit(3)", GuestError, "ended unexpectedly: exit status 3"),
        ("os.kill(os.getpid(), 9)", GuestError, "ended unexpectedly: killed by SIGKILL"),
        (f"say('error', kind='ValueError', message='no'){WAIT}", RunFailedError, "ValueError: no"),
        (done(extra=ONE_BYTE), ProtocolError, "the manifest is wrong about extra"),
        (done(**{"../../escape": ONE_BYTE}), ProtocolError, "the manifest is wrong about ../../escape"),
        (done(**{LOG: ONE_BYTE | {"size_bytes": -1}}), ProtocolError, "says log.txt has -1 bytes"),
        (done(**{LOG: ONE_BYTE}), GuestError, "larger than the 1 bytes"),
        (done().replace("say(", "os.remove(out + '/log.txt'); say("), GuestError, "not a plain file"),
        (done().replace("say(", f"{LINK}; say("), GuestError, "not a plain file"),
    ],
)  # fmt: skip
def test_what_a_guest_does_wrong_is_told_and_nothing_is_believed(executor, into, last_words, error, message):
    with pytest.raises(error, match=message.replace("(", r"\(").replace("[", r"\[")):
        executor(PRELUDE + last_words).execute(RUN, into, nothing)


def test_a_guest_that_falls_silent_is_lost(executor, into):
    with pytest.raises(RunFailedError, match=r"Lost: silent for engine.lost_after_s = 1.5"):
        executor(PRELUDE + "time.sleep(6000)", EngineTable(heartbeat_s=1, lost_after_s=1.5)).execute(
            RUN, into, nothing
        )


@pytest.mark.parametrize(("model", "told"), [("max", True), ("", False)])
def test_a_crash_on_an_emulated_cpu_is_told_with_the_model_that_avoids_it(executor, into, model, told):
    program = PRELUDE + f"say('error', kind='Died', message='killed by SIGSEGV'){WAIT}"
    with pytest.raises(RunFailedError, match="Died: killed by SIGSEGV") as failure:
        executor(program, emulated_model=model).execute(RUN, into, nothing)
    assert ('cpu_model = "SandyBridge"' in str(failure.value)) is told


@pytest.mark.parametrize("pause", ["time.sleep(0.05)", "pass"])
def test_a_run_that_takes_too_long_is_ended(executor, into, pause):
    program = PRELUDE + f"while True: say('heartbeat', step=0); {pause}"
    with pytest.raises(RunFailedError, match=r"Timeout: not done within engine.timeout_s = 0.5"):
        executor(program, EngineTable(timeout_s=0.5)).execute(RUN, into, nothing)


@pytest.mark.needs("studies", long=True)  # half a minute, so that no other work silences it
def test_heartbeats_keep_a_slow_run_alive(executor, into):
    program = PRELUDE + "for _ in range(25): say('heartbeat', step=0); time.sleep(1)\n" + done()
    assert executor(program, EngineTable(heartbeat_s=1, lost_after_s=20)).execute(RUN, into, nothing)


def test_the_log_of_a_failed_run_is_collected_however_much_is_kept(executor, into):
    log = f"with open(out + '/log.txt', 'w') as log: log.seek({LOG_LIMIT_BYTES}); log.write('tail')\n"
    program = PRELUDE + log + f"say('error', kind='E', message='m'){WAIT}"
    with pytest.raises(RunFailedError):
        executor(program).execute(RUN, into, nothing)
    with (into / "log.txt").open() as file:
        file.seek(LOG_LIMIT_BYTES)
        assert file.read() == "tail"


def one_line(kind: str, **body) -> str:
    """A program that says one thing and ends."""
    return f"print({json.dumps({'kind': kind, 'run_id': '', 'body': body})!r})"


LACKING = f"{sys.executable} has no torch: install it with `{sys.executable} -m pip install torch numpy"


@pytest.mark.parametrize(
    ("program", "error", "message"),
    [
        (one_line("hello", schema_version=99), ProtocolError, f"schema {SCHEMA_VERSION}, got hello with"),
        (one_line("error", message="No module named x"), PrerequisiteError, "cannot start: No module"),
        (one_line("error", message="No module named 'torch'"), PrerequisiteError, LACKING),
        ("raise SystemExit('broken')", GuestError, "ended unexpectedly"),
    ],
)  # fmt: skip
def test_an_agent_that_cannot_start_is_told(executor, into, program, error, message):
    with pytest.raises(error, match=message):
        executor(program).execute(RUN, into, nothing)


def test_after_a_fault_the_next_run_gets_a_fresh_worker(executor, into, tmp_path):
    marker = tmp_path / "was-here"
    die_once = (
        f"if not os.path.exists({str(marker)!r}):\n"
        f"    open({str(marker)!r}, 'w')\n"
        "    os.kill(os.getpid(), 9)\n"
    )
    program = PRELUDE + die_once + done()
    runner = executor(program)
    with pytest.raises(GuestError):
        runner.execute(RUN, into, nothing)
    assert runner.execute(RUN, into, nothing)


def test_a_worker_stops_at_once_when_told(executor, into):
    runner = executor(PRELUDE + done())
    runner.execute(RUN, into, nothing)
    began = time.monotonic()
    runner.stop_workers()
    assert time.monotonic() - began < 30


def started_workers(into: Path) -> int:
    return len((into.parent / "guest" / "starts").read_text())


def serving() -> str:
    """An agent that serves one run after the other, and leaves a letter when it starts."""
    lines = (PRELUDE + done()).strip().splitlines()
    before = lines[: lines.index("message = json.loads(sys.stdin.readline())")]
    served = lines[len(before) + 1 : -1]
    return "\n".join(
        [
            *before,
            "open('starts', 'a').write('x')",
            "for line in iter(sys.stdin.readline, ''):",
            "    message = json.loads(line)",
            *(f"    {line}" for line in served),
        ]
    )


PORTABLE = dataclasses.replace(RUN, isa=Isa.PORTABLE)  # with another environment, under the same name


@pytest.mark.parametrize(("warm_workers", "starts"), [(2, 2), (1, 6)])
def test_workers_of_different_environments_stay_warm_as_far_as_there_is_room(
    executor, into, warm_workers, starts
):
    runner = executor(serving(), warm_workers=warm_workers)
    for run in (RUN, PORTABLE) * 3:
        runner.execute(run, into, nothing)
    assert started_workers(into) == starts


def test_a_worker_is_replaced_when_its_runs_have_taken_long_enough(executor, into, monkeypatch):
    runner = executor(serving())
    for _ in range(3):
        runner.execute(RUN, into, nothing)
    assert started_workers(into) == 1
    monkeypatch.setattr("orchestrator.agent.executor.REPLACED_AFTER", 0)
    for _ in range(3):
        runner.execute(RUN, into, nothing)
    assert started_workers(into) == 4


def test_what_a_worker_imported_before_it_was_attached_to_counts_as_its_start(executor, into, monkeypatch):
    monkeypatch.setattr("orchestrator.agent.executor.REPLACED_AFTER", 1)
    hour = dataclasses.replace(factories.result({}).timings, import_s=3600.0)
    monkeypatch.setattr(factories, "result", functools.partial(factories.result, timings=hour))
    runner = executor(serving().replace("    message", "    time.sleep(1)\n    message", 1))
    for _ in range(3):
        runner.execute(RUN, into, nothing)
    assert started_workers(into) == 1


def test_the_same_sources_make_the_same_agent():
    assert build().sha256 == build().sha256
    assert build().name.startswith("agent-")


GOLDEN = Path(__file__).parents[2] / "golden" / "run-schema-6-project.json"


def replaying(numbers: str, **changes) -> tuple[RunSpec, str]:
    """A run that replays, and an agent that has done so, with this recording and changes of its result."""
    record = decode_record(GOLDEN.read_text())
    files = {name: f"{name}\n" for name in record.result.artifacts} | {RECORDING: numbers}
    manifest = {
        name: {"sha256": hashlib.sha256(text.encode()).hexdigest(), "size_bytes": len(text)}
        for name, text in files.items()
    }
    result = to_json(record.result) | {"artifacts": manifest} | changes
    program = f"""
for name, text in {files!r}.items():
    open(os.path.join(out, name), "w").write(text)
say("done", result=json.loads({json.dumps(result)!r}))
sys.stdin.readline()
"""
    return record.spec, PRELUDE.replace(repr(RUN.run_id), repr(record.spec.run_id)) + program


SEEDED = {"initialisation": 1, "data_order": 1, "augmentation": 1, "dropout": 1}


@pytest.mark.parametrize(
    ("numbers", "changes", "message"),
    [
        ("no recording", {}, "the guest's recording cannot be read: .*is not a recording"),
        ("", {"seeds_used": SEEDED}, "seeds_used.initialisation: 1 where none was to be set"),
        ("", {"project": None}, "project.random: says nothing of a recording"),
    ],
    ids=["garbage", "seeds", "silence"],
)
def test_a_recording_is_looked_at_before_it_is_believed(executor, into, numbers, changes, message):
    spec, program = replaying(numbers, **changes)
    with pytest.raises(ProtocolError, match=message):
        executor(program).execute(spec, into, nothing)


def test_a_run_must_have_drawn_the_numbers_that_it_was_given(executor, into, tmp_path):
    given = tmp_path / "given.rec"
    given.write_text("the right ones")
    spec, program = replaying("the right ones")
    assert executor(program).execute(spec, into, nothing, given).project is not None
    spec, program = replaying("other ones")
    with pytest.raises(ProtocolError, match="was given a recording of random numbers, and has another one"):
        executor(program).execute(spec, into, nothing, given)
