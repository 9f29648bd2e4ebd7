"""One side of a trace, whose agent answers as a test wants."""

import json

import pytest

from guest.records.run import SCHEMA_VERSION, Artifact, Tier
from guest.records.trace import Task, TraceAnswer
from orchestrator.errors import GuestError, PrerequisiteError, ProtocolError, UsageError
from orchestrator.experiments.trace_guests import TraceGuest
from orchestrator.study.schema import EngineTable
from tests import factories

SPEC = factories.spec()


class Agent:
    """Stands for a session, its executor, connection and stream."""

    def __init__(self, *answers, hello="hello", files=()):
        self.connection = self.context = self
        self.engine, self.visible_cpus, self.data_folders = (
            EngineTable(heartbeat_s=0.005, lost_after_s=0.01),
            2,
            (),
        )
        self.cpu_vendor, self.python = "", "python"
        self._files = dict(files)
        first = (hello, "", {"schema_version": SCHEMA_VERSION, "message": "no module"})
        self._lines = [json.dumps(dict(zip(("kind", "run_id", "body"), a, strict=True))).encode() for a in
                       (first, *answers)]  # fmt: skip
        self.removed = []

    def executor(self):
        return self

    def prepare(self, spec):
        assert spec.cure is Tier.NONE

    def open(self, argv, env):
        assert argv[2] == "trace"
        return self

    def send(self, line):
        json.loads(line)

    def receive(self, timeout_s):
        return self._lines.pop(0) if self._lines else None

    def stderr(self):
        return ""

    def get(self, remote, local, max_bytes):
        local.write_bytes(self._files[remote.rpartition("/")[2]])

    def remove(self, remote):
        self.removed.append(remote)


def done(**changes):
    from guest.records.codec import to_json

    values = {"steps": (), "training_steps": 1, "weights_bytes": 1, "artifacts": {}, "environment": {}}
    return "done", SPEC.run_id, {"result": to_json(TraceAnswer(**values | changes))}


def error(kind, message):
    return "error", SPEC.run_id, {"kind": kind, "message": message, "traceback": ""}


def ask(agent, folder, task=Task.STEPS):
    return TraceGuest(agent, "agent.pyz", "cpus-2", SPEC).ask(folder, task, (1, 1))


def test_heartbeats_are_no_answers(tmp_path):
    agent = Agent(("heartbeat", SPEC.run_id, {}), done(training_steps=7))
    assert ask(agent, tmp_path).training_steps == 7
    assert len(agent.removed) == 1


@pytest.mark.parametrize(
    ("agent", "kind", "message"),
    [
        (Agent(error("OSError", "[Errno 28] No space left on device")), GuestError, "its disk is full"),
        (Agent(error("SafetensorError", "No space left on device")), GuestError, "its disk is full"),
        (Agent(error("NoSuchStepError", "the training has no step 9")), UsageError, "no step 9"),
        (Agent(error("ValueError", "bad")), GuestError, "cpus-2: ValueError: bad"),
        (Agent(("done", SPEC.run_id, {"result": {}})), ProtocolError, "malformed"),
        (Agent(("done", "another", {})), ProtocolError, "got one of 'another'"),
        (Agent(), GuestError, "sent nothing for 0.01 s"),
        (Agent(hello="error"), PrerequisiteError, "cpus-2: the agent cannot start: no module"),
        (Agent(hello="done"), ProtocolError, "protocol error: expected hello, got done"),
        (Agent(done(artifacts={"x": Artifact(sha256="0", size_bytes=1)})), ProtocolError, "sent x for steps"),
    ],
)
def test_what_goes_wrong_has_its_kind(agent, kind, message, tmp_path):
    with pytest.raises(kind, match=message):
        ask(agent, tmp_path)


@pytest.mark.parametrize("size", [-1, 1 << 40])
def test_sizes_are_checked_before_anything_is_fetched(tmp_path, size):
    files = {"tensors.safetensors": Artifact(sha256="0", size_bytes=size)}
    with pytest.raises(ProtocolError, match=f"has {size} bytes"):
        ask(Agent(done(artifacts=files)), tmp_path, Task.TENSORS)


def test_a_file_with_another_hash_is_refused(tmp_path):
    files = {"tensors.safetensors": Artifact(sha256="0" * 64, size_bytes=4)}
    agent = Agent(done(artifacts=files), files={"tensors.safetensors": b"data"})
    with pytest.raises(ProtocolError, match="does not match its SHA-256"):
        ask(agent, tmp_path, Task.TENSORS)
