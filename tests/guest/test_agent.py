"""The real agent in real processes: cold starts and warm workers of both frameworks."""

import contextlib
import csv
import json
import os
import subprocess
import sys

import numpy as np
import pytest
from safetensors.numpy import load_file

from guest.machine import threads
from guest.records.codec import to_json
from guest.records.run import ARTIFACTS, Framework, Optimizer, RunRequest, Seeds, Variant, history_columns
from guest.training.training import hash_arrays
from orchestrator.agent import archive
from tests import factories
from tests.needs import at_night

pytestmark = pytest.mark.needs("studies")

CORES = len(os.sched_getaffinity(0))


def request_for(framework: Framework, cpus: int = 2, **changes) -> RunRequest:
    workload = factories.workload(framework=framework, model="lenet5", epochs=2)
    spec = factories.spec(cpus=cpus, workload=workload, **changes)
    return RunRequest(spec=spec, visible_cpus=CORES, heartbeat_s=0.2)


@pytest.fixture(scope="module")
def agent(tmp_path_factory):
    return archive.build().write(tmp_path_factory.mktemp("agent"))


def environment(request: RunRequest, home) -> dict[str, str]:
    settings = threads.environment(request.spec, cpu_vendor="other")
    places = dict.fromkeys(("HOME", "TMPDIR", "KERAS_HOME"), str(home))
    return {"PATH": os.environ["PATH"]} | places | settings


def cold(agent, request, folder) -> list[dict]:
    folder.mkdir(exist_ok=True)
    (folder / "request.json").write_text(json.dumps(to_json(request)))
    done = subprocess.run(
        [sys.executable, agent, "run", "--request", folder / "request.json", "--out", folder / "out"],
        env=environment(request, folder),
        capture_output=True,
        text=True,
        timeout=300,
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


class Worker:
    def __init__(self, agent, request, folder):
        self.process = subprocess.Popen(
            [sys.executable, agent, "serve", "--framework", request.spec.workload.framework],
            env=environment(request, folder),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.hello = json.loads(self.process.stdout.readline())

    def run(self, request, out) -> list[dict]:
        self.process.stdin.write(json.dumps({"request": to_json(request), "out": str(out)}) + "\n")
        self.process.stdin.flush()
        messages = []
        while not messages or messages[-1]["kind"] not in ("done", "error"):
            messages.append(json.loads(self.process.stdout.readline()))
        return messages

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        assert self.process.wait(120) == 0
        self.process.stdout.close()


@pytest.fixture(scope="module")
def workers(agent, tmp_path_factory):
    """A warm worker of each framework, whose tests show that it goes on after all that happens in a run."""
    with contextlib.ExitStack() as stack:
        yield {
            framework: stack.enter_context(
                Worker(agent, request_for(framework), tmp_path_factory.mktemp(framework))
            )
            for framework in Framework
        }


@pytest.fixture
def worker(workers):
    return workers[Framework.TORCH]


@pytest.fixture(scope="module", params=Framework)
def started(request, agent, workers, tmp_path_factory):
    """One cold start and two runs of one warm worker, all from the same request."""
    asked = request_for(request.param)
    folder = tmp_path_factory.mktemp("started")
    said = cold(agent, asked, folder)
    outcomes = {"cold": (said[-1], folder / "out")}
    for name in ("warm", "warm again"):
        outcomes[name] = (workers[request.param].run(asked, folder / name)[-1], folder / name)
    return asked, outcomes, [message["kind"] for message in said if message["kind"] != "heartbeat"]


def test_a_warm_worker_gives_the_bits_of_a_cold_start(started):
    _, outcomes, _ = started
    for name in ("warm", "warm again"):
        for part in ("hashes", "step_hashes", "last"):
            results = [outcomes[n][0]["body"]["result"][part] for n in ("cold", name)]
            assert results[0] == results[1]


def test_every_file_is_what_the_result_says_it_is(started):
    _, outcomes, _ = started
    message, out = outcomes["cold"]
    result = message["body"]["result"]
    assert {p.name for p in out.iterdir()} == set(ARTIFACTS) == set(result["artifacts"])
    predictions = np.load(out / "predictions.npz", allow_pickle=False)
    assert predictions["last"].dtype == np.float32
    assert predictions["last"].shape == (100, 10)
    assert hash_arrays({"logits": predictions["last"]}) == result["hashes"]["logits"]
    assert hash_arrays(load_file(out / "weights.safetensors")) == result["hashes"]["weights"]
    assert hash_arrays(load_file(out / "selected.safetensors")) == result["hashes"]["selected_weights"]
    accuracy = (predictions["last"].argmax(1) == predictions["y_true"]).mean()
    assert result["last"]["accuracy"] == pytest.approx(accuracy)


def test_the_history_has_a_line_an_epoch_and_ends_at_the_result(started):
    asked, outcomes, _ = started
    message, out = outcomes["cold"]
    with (out / "history.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == history_columns(asked.spec.workload.metrics)
    assert [row["epoch"] for row in rows] == ["1", "2"]
    assert rows[-1]["weights_sha256"] == message["body"]["result"]["hashes"]["weights"]
    assert float(rows[-1]["test_accuracy"]) == message["body"]["result"]["last"]["accuracy"]


def test_weights_are_hashed_after_the_first_step_and_after_powers_of_two(started):
    _, outcomes, _ = started
    steps = outcomes["cold"][0]["body"]["result"]["step_hashes"]
    assert list(steps) == ["1", "2", "4", "8"]
    assert len(set(steps.values())) == 4


def test_a_run_says_hello_then_epochs_then_done(started):
    assert started[2] == ["hello", "epoch", "epoch", "done"]


def test_free_seeds_are_drawn_recorded_and_can_be_used_again(agent, worker, tmp_path):
    free = request_for(Framework.TORCH, variant=Variant.DEFAULT, seeds=Seeds())
    first, second = (worker.run(free, tmp_path / name)[-1]["body"]["result"] for name in "ab")
    assert first["seeds_used"] != second["seeds_used"]
    assert first["hashes"]["weights"] != second["hashes"]["weights"]
    again = request_for(Framework.TORCH, seeds=Seeds(**first["seeds_used"]))
    repeated = cold(agent, again, tmp_path)[-1]["body"]["result"]
    assert repeated["hashes"] == first["hashes"]


def test_a_guest_with_other_cores_than_promised_refuses_to_run(agent, tmp_path):
    asked = request_for(Framework.TORCH)
    wrong = RunRequest(spec=asked.spec, visible_cpus=CORES + 5)
    message = cold(agent, wrong, tmp_path)[-1]
    assert message["kind"] == "error"
    assert message["body"]["kind"] == "ThreadMismatchError"
    assert f"visible_cpus is {CORES}, {CORES + 5} was asked for" in message["body"]["message"]


def test_an_error_in_a_run_is_reported_with_its_kind_and_the_worker_goes_on(worker, tmp_path):
    good = request_for(Framework.TORCH)
    workload = factories.workload(batch_size=10**6)
    bad = RunRequest(spec=factories.spec(workload=workload), visible_cpus=CORES)
    error = worker.run(bad, tmp_path / "bad")[-1]
    assert error["kind"] == "error"
    assert error["body"]["kind"] == "ValueError"
    assert "batch_size = 1000000 is more than" in error["body"]["message"]
    assert "Traceback" in (tmp_path / "bad" / "log.txt").read_text()
    assert worker.run(good, tmp_path / "good")[-1]["kind"] == "done"


def test_a_run_that_is_killed_is_reported_by_its_worker(worker, tmp_path):
    long = RunRequest(spec=factories.spec(workload=factories.workload(epochs=100_000)), visible_cpus=CORES)
    worker.process.stdin.write(json.dumps({"request": to_json(long), "out": str(tmp_path / "x")}) + "\n")
    worker.process.stdin.flush()
    hello = json.loads(worker.process.stdout.readline())
    os.kill(hello["body"]["pid"], 9)
    messages = [hello]
    while messages[-1]["kind"] != "error":
        messages.append(json.loads(worker.process.stdout.readline()))
    assert "killed by SIGKILL" in messages[-1]["body"]["message"]
    assert worker.run(request_for(Framework.TORCH), tmp_path / "next")[-1]["kind"] == "done"


@pytest.mark.parametrize("framework", [Framework.TORCH, at_night("studies", Framework.TENSORFLOW)])
def test_control_runs_ask_the_framework_for_determinism(agent, tmp_path, framework):
    asked = request_for(framework, variant=Variant.CONTROL)  # TensorFlow's is in the environment
    result = cold(agent, asked, tmp_path)[-1]["body"]["result"]
    assert result["environment"]["framework"]["deterministic_algorithms"] is True


def test_adam_and_augmentation_repeat_bit_for_bit(worker, tmp_path):
    workload = factories.workload(
        model="cnn-bn", optimizer=Optimizer.ADAM, momentum=0.0, augment=True, epochs=1, train_samples=96
    )
    asked = RunRequest(spec=factories.spec(workload=workload), visible_cpus=CORES)
    first, second = (worker.run(asked, tmp_path / name)[-1]["body"]["result"] for name in "ab")
    assert first["hashes"] == second["hashes"]
