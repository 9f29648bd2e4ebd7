"""Real sweeps of projects without seeds: their random numbers are recorded once, and given to other runs."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from guest.records.run import RECORDING, WEIGHTS
from guest.replay import recording
from tests.orchestrator.sweep.test_project_sweep import make, records, vbstudy, waited

pytestmark = pytest.mark.needs("studies")

STUDY = """\
cpus = [1, 2]
repetitions = 2
variants = ["fixed-seed", "default"]
[engine]
retries = 0
[[workload]]
name = "mine"
project = "mine"
command = ["python", "train.py"]
random = "replay"
"""
METRICS = """\
[workload.metrics]
accuracy = { pattern = 'acc: ([0-9.]+)' }
[workload.artifacts]
weights = "out/weights.npz"
"""
ONE_VARIANT = STUDY.replace(', "default"', "")
SCRIPT = """\
import os, random, secrets, time
import numpy as np
os.makedirs("out")
numbers = [
    np.random.default_rng().random(), np.random.RandomState(time.time_ns() % 2**31).rand(), np.random.rand(),
    random.random(), secrets.randbelow(2**40), hash("text"), random.Random(os.getpid()).random(),
]
np.savez("out/weights.npz", numbers=np.array(numbers), threads=int(os.environ["OMP_NUM_THREADS"]))
print("acc: 0.5")
"""


def swept(directory: Path, script: str, study: str = STUDY) -> Path:
    make(directory, script, study=study, metrics=METRICS)
    assert vbstudy(directory, "-q", "provision") == 0
    assert vbstudy(directory, "-q", "sweep") == 0
    return directory


def drawn(directory: Path) -> dict[str, bytes]:
    return {
        name: load_file(directory / "runs" / name / WEIGHTS)["numbers"].tobytes()
        for name in records(directory)
    }


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    return swept(tmp_path_factory.mktemp("replay") / "study", SCRIPT)


def test_with_fixed_seeds_all_runs_draw_what_the_first_one_recorded(study):
    found = records(study)
    how = {name: r.result.project.random.how for name, r in found.items() if "fixed-seed" in name}
    assert [name for name, each in how.items() if each == "recorded"] == ["mine/fixed-seed/cpus-1/0001"]
    assert set(how.values()) == {"recorded", "replayed"}
    assert len({numbers for name, numbers in drawn(study).items() if "fixed-seed" in name}) == 1
    assert {r.result.hashes.weights for r in found.values() if r.spec.threads.cpus == 1}.isdisjoint(
        r.result.hashes.weights for r in found.values() if r.spec.threads.cpus == 2
    )


def test_with_free_seeds_each_repetition_has_its_own_numbers_on_all_thread_counts(study):
    numbers = drawn(study)
    first, second = (
        [numbers[f"mine/default/cpus-{cpus}/{repetition}"] for cpus in (1, 2)]
        for repetition in ("0001", "0002")
    )
    assert first[0] == first[1]
    assert second[0] == second[1]
    assert first[0] != second[0]


def test_every_record_tells_how_randomness_was_controlled_and_holds_the_recording(study):
    hashes = set()
    for name, record in records(study).items():
        assert record.result.project.seed is None
        assert record.result.seeds_used == record.spec.seeds == type(record.spec.seeds)()
        kept = recording.read(study / "runs" / name / RECORDING)
        assert record.result.project.random.draws == len(kept.draws) > 0
        assert record.result.project.random.level == kept.header.level
        hashes.add(record.result.artifacts[RECORDING].sha256)
    assert len(hashes) == 3


def test_runs_are_verified_done_again_and_archived_with_their_numbers(study, tmp_path, capsys):
    assert vbstudy(study, "-q", "verify", "--rerun", "2") == 0
    assert capsys.readouterr().out.count("the same bits") == 2
    assert vbstudy(study, "export", str(tmp_path / "study.zip")) == 0
    assert vbstudy(tmp_path, "import", str(tmp_path / "study.zip")) == 0
    assert vbstudy(tmp_path / "study", "verify") == 0
    assert drawn(tmp_path / "study") == drawn(study)


def test_the_numbers_outlive_the_run_that_recorded_them(study, tmp_path):
    directory = tmp_path / "study"
    shutil.copytree(study, directory)
    before = drawn(directory)
    (directory / "runs/mine/fixed-seed/cpus-1/0001" / WEIGHTS).write_bytes(b"damaged")
    (directory / "runs/mine/fixed-seed/cpus-1/0002" / RECORDING).write_bytes(b"damaged")
    assert vbstudy(directory, "-q", "sweep") == 0
    assert drawn(directory) == before
    assert {
        r.result.project.random.how for n, r in records(directory).items() if "fixed-seed/cpus-1" in n
    } == {"replayed"}


ASKS_MORE = SCRIPT.replace(
    "numbers = [", 'if os.environ["OMP_NUM_THREADS"] == "2":\n    secrets.token_bytes(3)\nnumbers = ['
)
ASKS_LESS = SCRIPT.replace(
    "np.savez(", 'if os.environ["OMP_NUM_THREADS"] == "1":\n    secrets.token_bytes(3)\nnp.savez('
)


@pytest.mark.parametrize(
    ("script", "told"),
    [
        (ASKS_MORE, ("the program asks differently", "of 3 bytes", "in Python at train.py, line 5")),
        (ASKS_LESS, ("asked for less than was recorded", "1 draw is left", "of 3 bytes")),
    ],
    ids=["more", "less"],
)
def test_a_script_that_asks_differently_on_another_thread_count_is_a_failed_run_with_the_place(
    tmp_path, script, told
):
    directory = make(
        tmp_path / "study",
        script,
        metrics=METRICS,
        study=ONE_VARIANT.replace("repetitions = 2", "repetitions = 1"),
    )
    assert vbstudy(directory, "-q", "provision") == 0
    assert vbstudy(directory, "-q", "sweep") == 1
    assert list(records(directory)) == ["mine/fixed-seed/cpus-1/0001"]
    (path,) = (directory / "failed").glob("mine/*/cpus-2/*/error.json")
    error = json.loads(path.read_text())
    assert error["kind"] == "ReplayError"
    for text in told:
        assert text in error["message"]


def test_where_the_first_run_fails_the_next_one_records(tmp_path):
    begun = f"__import__('pathlib').Path({str(tmp_path / 'begun')!r})"
    script = f"if not {begun}.exists():\n    {begun}.touch()\n    raise SystemExit('why')\n{SCRIPT}"
    directory = make(tmp_path / "study", script, metrics=METRICS, study=ONE_VARIANT)
    assert vbstudy(directory, "-q", "provision") == 0
    assert vbstudy(directory, "-q", "sweep") == 1
    (failed,) = (directory / "failed").glob("*/*/*/*/error.json")
    assert json.loads(failed.read_text())["kind"] == "ProjectFailed"
    how = [record.result.project.random.how for record in records(directory).values()]
    assert sorted(how) == ["recorded", "replayed", "replayed"]
    assert vbstudy(directory, "-q", "sweep") == 0
    assert len(drawn(directory)) == 4
    assert len(set(drawn(directory).values())) == 1


HELD = """\
print("pid", os.getpid(), flush=True)
while not os.path.exists(OPEN):
    try:
        os.rmdir(PASS)
        break
    except OSError:
        time.sleep(0.05)
print("acc: 0.5")"""


@pytest.mark.parametrize("finished", [0, 1], ids=["while it records", "while others replay"])
def test_a_sweep_that_was_killed_goes_on_with_the_same_numbers(tmp_path, finished):
    """A run ends when it finds the one pass there is; the others wait."""
    opened, one = tmp_path / "open", tmp_path / "pass"
    if finished:
        one.mkdir()
    held = HELD.replace("OPEN", repr(str(opened))).replace("PASS", repr(str(one)))
    script = SCRIPT.replace('print("acc: 0.5")', held)
    directory = make(tmp_path / "study", script, metrics=METRICS, study=ONE_VARIANT)
    assert vbstudy(directory, "-q", "provision") == 0
    command = [sys.executable, "-m", "vbstudy", "-q", "-C", str(directory), "sweep"]
    sweeping = subprocess.Popen(command, cwd=Path(__file__).parents[3])
    logs = lambda: [p for p in directory.glob("guests/*/out/*/log.txt") if "pid" in p.read_text()]  # noqa: E731
    waited(lambda: len(records(directory)) == finished and logs())
    sweeping.kill()
    sweeping.wait()
    opened.touch()
    before = drawn(directory)
    assert len(before) == finished
    assert vbstudy(directory, "-q", "sweep") == 0
    after = drawn(directory)
    assert len(after) == 4
    assert set(before.items()) <= set(after.items())
    assert len(set(after.values())) == 1


TORCH = """\
import os, time
import numpy as np, torch
x = torch.randn(512, 64)
y = (x @ torch.randn(64) > 0).long()
model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
start = {f"start.{name}": value.clone() for name, value in model.state_dict().items()}
for step in range(20):
    batch = torch.randperm(512)[:256]
    loss = torch.nn.functional.cross_entropy(model(x[batch]), y[batch])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print("acc:", float((model(x).argmax(1) == y).float().mean()))
os.makedirs("out")
np.savez("out/weights.npz", numbers=torch.cat([v.flatten() for v in start.values()]).numpy(),
         **{name: value.numpy() for name, value in model.state_dict().items()})
"""


@pytest.mark.needs("studies", long=True)
def test_an_unseeded_training_in_pytorch_differs_by_its_thread_count_alone(tmp_path):
    study = swept(tmp_path / "study", TORCH, ONE_VARIANT.replace("repetitions = 2", "repetitions = 1"))
    found = records(study)
    assert len(found) == 2
    assert len(set(drawn(study).values())) == 1  # both start from the same weights
    accuracies = [r.result.last["accuracy"] for r in found.values()]
    assert np.ptp(accuracies) < 0.05  # rounding, not other numbers
