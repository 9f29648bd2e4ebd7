"""A run's last message follows its last heartbeat: what comes later would be taken for the next run's."""

import contextlib
import io
import json
import os
from types import SimpleNamespace

import pytest

from guest import agent
from guest.projects import service
from guest.records.run import Framework, RunRequest
from tests import factories


class Sent:
    """A writer; the heartbeat writes "beat" when it ends."""

    def __init__(self):
        self.kinds = []

    def send(self, kind, run_id, /, **body):
        self.kinds.append(kind)

    def failed(self, run_id, error):
        self.kinds.append(f"error: {error}")

    @contextlib.contextmanager
    def heartbeat(self, *_):
        try:
            yield
        finally:
            self.kinds.append("beat")


def fail(*_):
    raise ValueError("no")


def one_run(folder, writer, patch):
    patch.setattr(os, "dup2", lambda *_: None)  # the descriptors are pytest's
    agent.execute(RunRequest(spec=factories.spec(), visible_cpus=1), folder, writer, None, fail)


def a_project(folder, writer, patch):
    patch.setattr(service, "run", fail)
    service.execute(RunRequest(spec=factories.spec(), visible_cpus=1), folder, writer)


def a_stored_model(folder, writer, patch):
    asked = SimpleNamespace(model=SimpleNamespace(run_id="net/0001"))
    patch.setattr("guest.workloads.preload", lambda _: None)
    patch.setattr("guest.machine.threads.apply", lambda *_: None)
    patch.setattr("guest.training.perturbation.Assessor", lambda: SimpleNamespace(assess=fail))
    patch.setattr(agent, "from_json", lambda *_: asked)
    patch.setattr("sys.stdin", io.StringIO(json.dumps({"request": {}, "heartbeat_s": 1}) + "\n"))
    agent.assess_models(Framework.TORCH, writer)


@pytest.mark.parametrize("task", [one_run, a_project, a_stored_model])
def test_an_error_is_sent_after_the_last_heartbeat(tmp_path, monkeypatch, task):
    writer = Sent()
    with monkeypatch.context() as patch:
        for module in (agent, service):
            patch.setattr(module, "heartbeat", writer.heartbeat)
        task(tmp_path, writer, patch)
    assert [kind.partition(":")[0] for kind in writer.kinds] == ["hello", "beat", "error"]
