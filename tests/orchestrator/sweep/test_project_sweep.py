"""Real sweeps of somebody's own projects: scripts that need no framework, and what goes wrong in them."""

import json
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest

from guest.records.run import PREDICTIONS, RECORD, WEIGHTS, decode_record
from orchestrator.cli import main as cli
from tests import environments
from tests.processes import ends
from vbstudy.exact import compiled

pytestmark = pytest.mark.needs("studies")

SCRIPT = """\
import json, os, random, sys
import numpy as np
os.makedirs("out")
weights = np.random.rand(3, 4).astype("float32") + int(os.environ["OMP_NUM_THREADS"])
for epoch in range(1, 4):
    print(f"epoch {epoch} loss {1 / epoch:.3f} acc: {epoch / 4:.2f}")
np.savez("out/weights.npz", w=weights)
np.savez("out/preds.npz", predictions=np.arange(12) % 3, y_true=np.arange(12) % 3)
json.dump({"test": {"f1": random.random()}}, open("out/result.json", "w"))
"""
STUDY = """\
cpus = [1, 2]
repetitions = 2
variants = ["fixed-seed"]
[engine]
retries = 0
[[workload]]
name = "mine"
project = "mine"
command = ["python", "train.py"]
"""
METRICS = """\
[workload.metrics]
accuracy = { pattern = 'acc: ([0-9.]+)' }
train_loss = { pattern = 'loss ([0-9.]+)' }
f1 = { file = "out/result.json", key = "test.f1" }
[workload.artifacts]
predictions = "out/preds.npz"
weights = "out/weights.npz"
"""


def vbstudy(directory: Path, *arguments: str) -> int:
    return cli.run(["-C", str(directory), *arguments])


def make(
    directory: Path, script: str = SCRIPT, *, keys: str = "", metrics: str = METRICS, study: str = STUDY
) -> Path:
    (directory / "mine").mkdir(parents=True)
    (directory / "mine" / "train.py").write_text(script)
    (directory / "study.toml").write_text(study + keys + metrics)
    return directory


def records(directory: Path):
    return {
        path.parent.relative_to(directory / "runs").as_posix(): decode_record(path.read_bytes())
        for path in sorted((directory / "runs").glob("*/*/*/*/" + RECORD))
    }


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    directory = make(tmp_path_factory.mktemp("projects") / "study")
    assert vbstudy(directory, "-q", "provision") == 0
    assert vbstudy(directory, "-q", "sweep") == 0
    return directory


def test_a_project_is_run_as_any_workload(swept):
    found = records(swept)
    assert list(found) == [f"mine/fixed-seed/cpus-{n}/000{r}" for n in (1, 2) for r in (1, 2)]
    for record in found.values():
        result = record.result
        assert result.last["accuracy"] == 0.75
        assert result.seeds_used.initialisation == result.project.seed == 1
        assert result.project.overrides == ()
        assert set(result.artifacts) == {"history.csv", "log.txt", PREDICTIONS, WEIGHTS}
        assert result.environment["threads_in_force"]["visible_cpus"] == record.spec.threads.cpus
    assert len({r.result.project.tree_sha256 for r in found.values()}) == 1


def test_seeds_and_thread_counts_come_from_outside(swept):
    found = records(swept)
    hashes = {name.split("/")[2]: r.result.hashes.weights for name, r in found.items()}
    assert len({r.result.hashes.weights for r in found.values()}) == 2  # each thread count repeats
    assert hashes["cpus-1"] != hashes["cpus-2"]
    assert len({r.result.last["f1"] for r in found.values()}) == 1  # random is seeded


def test_the_history_has_an_epoch_for_each_match(swept):
    lines = (swept / "runs/mine/fixed-seed/cpus-1/0001/history.csv").read_text().splitlines()
    rows = [dict(zip(lines[0].split(","), line.split(","), strict=True)) for line in lines[1:]]
    assert [row["test_accuracy"] for row in rows] == ["0.25", "0.5", "0.75"]
    assert [row["train_loss"] for row in rows] == ["1.0", "0.5", "0.333"]
    assert [row["test_f1"] == "nan" for row in rows] == [True, True, False]


def test_a_second_sweep_finds_all_runs_done_and_a_changed_project_is_refused(swept, capsys):
    assert vbstudy(swept, "sweep") == 0
    assert "0 runs done" in capsys.readouterr().out
    script = swept / "mine" / "train.py"
    text = script.read_text()
    script.write_text(text + "\n")
    try:
        assert vbstudy(swept, "sweep") == 2
        assert "changed since the study took it" in capsys.readouterr().err
    finally:
        script.write_text(text)


def test_a_sweep_of_projects_is_verified_archived_and_analysed(swept, tmp_path, capsys):
    assert vbstudy(swept, "verify") == 0
    assert vbstudy(swept, "export", str(tmp_path / "study.zip")) == 0
    assert vbstudy(swept, "verify", str(tmp_path / "study.zip")) == 0
    capsys.readouterr()
    assert vbstudy(swept, "--json", "analyze", "--output", str(tmp_path / "report")) == 0
    tables = json.loads(capsys.readouterr().out)["tables"]
    across = tables["verdicts"][-1]
    assert (across["view"], across["weights"], across["predictions"], across["metric"]) == (
        "last", "differ", "identical", "identical",
    )  # fmt: skip
    assert {row["view"] for row in tables["performance"]} == {"last"}
    assert (tmp_path / "report" / "index.html").is_file()


def test_a_colleague_repeats_the_runs_of_an_archive_without_the_projects_folder(swept, tmp_path, capsys):
    for name, options in (("whole", []), ("alone", ["--without-projects"])):
        assert vbstudy(swept, "export", *options, str(tmp_path / f"{name}.zip")) == 0
        noted = capsys.readouterr().err
        assert "note: of mine the archive has the command with all arguments, the path or URL" in noted
        assert ("and its files (--without-projects leaves them out)" in noted) is not bool(options)
        assert vbstudy(tmp_path, "import", f"{tmp_path / name}.zip") == 0
    whole, alone = tmp_path / "whole", tmp_path / "alone"
    assert not (whole / "mine").exists()
    assert vbstudy(whole, "provision") == 0
    assert vbstudy(whole, "verify", "--rerun", "2") == 0
    assert vbstudy(whole, "destroy") == 0
    capsys.readouterr()
    assert vbstudy(alone, "provision") == 0
    assert vbstudy(alone, "verify", "--rerun", "2") == 3
    (record,) = list((alone / "runs").glob("*/*/*/0001/run.json"))[:1]
    tree = json.loads(record.read_text())["result"]["project"]["tree_sha256"]
    assert f"mine.json there, from projects/ of the study that made the runs (tree_sha256 {tree}" in (
        capsys.readouterr().err
    )
    assert vbstudy(alone, "destroy") == 0


HANGS = "import time; print('x', flush=True); time.sleep(600)"
FLOODS = "f = open('big', 'wb')\nfor i in range(64): f.write(bytes([i]) * (1 << 20))"
OTHER_NAME = SCRIPT.replace("out/weights.npz", "out/w.npz")
OBJECTS = SCRIPT.replace("w=weights", "w=np.array([{}])")


@pytest.mark.parametrize(
    ("script", "keys", "kind", "told"),
    [
        ("raise SystemExit('why')", "", "ProjectFailed", "ended with status 1; last lines:\nwhy"),
        (
            "import no_such_module",
            "",
            "ProjectFailed",
            '(most recent call last):\n  File "train.py", line 1',
        ),
        (HANGS, "timeout_s = 1\n", "Timeout", "not done within timeout_s = 1; last lines:"),
        (
            "print('93 percent')",
            "",
            "MetricError",
            "matched no line of the output; its last lines:\n93 percent",
        ),
        (OTHER_NAME, "", "ArtifactError", "there are preds.npz, result.json, w.npz"),
        (OBJECTS, "", "ArtifactError", "weights.npz: cannot be read"),
        (FLOODS, "disk_limit_mib = 8\n", "DiskLimit", "disk_limit_mib allows 8"),
    ],
    ids=[
        "fails",
        "lacks-a-module",
        "hangs",
        "prints-no-metric",
        "writes-no-weights",
        "pickles",
        "writes-too-much",
    ],
)
def test_a_project_that_misbehaves_is_a_failed_run_with_a_clear_reason(tmp_path, script, keys, kind, told):
    directory = make(
        tmp_path / "study", script, keys=keys, study=STUDY.replace("[1, 2]", "[1]").replace("= 2", "= 1")
    )
    assert vbstudy(directory, "-q", "provision") == 0
    assert vbstudy(directory, "-q", "sweep") == 1
    (path,) = (directory / "failed").glob("*/*/*/*/error.json")
    error = json.loads(path.read_text())
    assert error["kind"] == kind
    assert told in error["message"]
    assert error["traceback"] == ""
    assert not list((directory / "guests").glob("*/out/*"))


def test_a_project_does_not_outlive_the_orchestrator_that_is_killed(tmp_path):
    script = "import os, time\nprint('pid', os.getpid(), flush=True)\ntime.sleep(600)"
    directory = make(tmp_path / "study", script, study=STUDY.replace("[1, 2]", "[1]"))
    assert vbstudy(directory, "-q", "provision") == 0
    command = [sys.executable, "-m", "vbstudy", "-q", "-C", str(directory), "sweep"]
    sweeping = subprocess.Popen(command, cwd=Path(__file__).parents[3])
    pid = int(waited(lambda: next(iter(pids(directory)), None)))
    sweeping.kill()
    sweeping.wait()
    assert ends(pid)


def pids(directory: Path) -> list[str]:
    """Of the programs that run in the guests, as they print them."""
    logs = [path.read_text() for path in directory.glob("guests/*/out/*/log.txt")]
    return [line.split()[1] for text in logs for line in text.splitlines() if line.startswith("pid ")]


def waited(found):
    for _ in range(1200):
        if value := found():
            return value
        time.sleep(0.1)
    raise AssertionError("it did not happen")


def test_what_is_not_written_is_not_judged(tmp_path, capsys):
    metrics = "[workload.metrics]\naccuracy = { pattern = 'acc: ([0-9.]+)' }\n"
    script = "import os\nos.environ['OMP_NUM_THREADS'] = '7'\nprint('acc: 0.5')"
    directory = make(tmp_path / "study", script, metrics=metrics)
    assert vbstudy(directory, "-q", "provision") == 0
    assert vbstudy(directory, "-q", "sweep") == 0
    capsys.readouterr()
    assert vbstudy(directory, "analyze") == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "not recorded" in text
    assert "project's weights were not recorded" in text
    assert (
        "the project overrides the study: os.environ['OMP_NUM_THREADS'] = 7 (train.py:2) in 4 of 4 runs"
        in text
    )
    tables = {path.stem for path in (directory / "report" / "tables").glob("*.csv")}
    assert "overrides" in tables
    assert not tables & {"churn", "loss_sd_by_epoch", "convergence"}


def wheel(folder: Path, version: str) -> None:
    """A package of one module, as pip installs it."""
    folder.mkdir(exist_ok=True)
    with zipfile.ZipFile(folder / f"tiny_net-{version}-py3-none-any.whl", "w") as archive:
        info = f"tiny_net-{version}.dist-info"
        archive.writestr("tiny_net.py", f"score = {version}\n")
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: tiny-net\nVersion: {version}\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")


def test_requirements_are_installed_once_a_guest_without_a_network(tmp_path):
    study = STUDY.replace("[1, 2]", "[1]") + 'requirements = "requirements.txt"\nwheels = "wheels"\n'
    metrics = "[workload.metrics]\naccuracy = { pattern = 'acc: ([0-9.]+)' }\n"
    directory = make(
        tmp_path / "study", "import tiny_net; print('acc:', tiny_net.score)", metrics=metrics, study=study
    )
    (directory / "mine" / "requirements.txt").write_text("tiny-net==0.5\n")
    wheel(directory / "wheels", "0.5")
    assert vbstudy(directory, "-q", "provision") == 0
    assert vbstudy(directory, "-q", "sweep") == 0
    found = records(directory)
    assert [r.result.last["accuracy"] for r in found.values()] == [0.5, 0.5]
    assert all("tiny-net==0.5" in r.result.project.packages for r in found.values())
    assert len(list((directory / "guests" / "cpus-1" / "environments").iterdir())) == 1


def test_requirements_that_cannot_be_had_are_told_with_what_pip_said(tmp_path):
    study = STUDY.replace("[1, 2]", "[1]").replace("= 2", "= 1")
    keys = 'requirements = "requirements.txt"\nwheels = "wheels"\n'
    directory = make(tmp_path / "study", "print()", keys=keys, study=study)
    (directory / "mine" / "requirements.txt").write_text("no-such-package==9\n")
    (directory / "wheels").mkdir()
    assert vbstudy(directory, "-q", "provision") == 0
    assert vbstudy(directory, "-q", "sweep") == 1
    (path,) = (directory / "failed").glob("*/*/*/*/error.json")
    error = json.loads(path.read_text())
    assert error["kind"] == "RequirementsError"
    assert "No matching distribution found for no-such-package==9" in error["message"]


EXACT = """\
import subprocess, sys, torch, vbstudy
from vbstudy import exact, report
assert ".pyz/" in vbstudy.__file__, vbstudy.__file__
exact.enable(strict=True)
torch.manual_seed(1)
x = torch.rand(64, 64, requires_grad=True)
(x @ x).softmax(1).sum().backward()
report.metric("accuracy", x.grad.sum().item())
report.weights({"gradient": x.grad})
subprocess.run([sys.executable, "-c", "from vbstudy import report; report.metric('f1', 0.5)"], check=True)
"""


def test_a_project_imports_exact_mode_and_report_in_an_environment_without_vbstudy(tmp_path):
    pytest.importorskip("torch")
    study = STUDY.replace("repetitions = 2", "repetitions = 1")
    keys = 'framework = "torch"\nrequirements = "requirements.txt"\nwheels = "wheels"\n'
    metrics = "[workload.metrics]\naccuracy = { report = true }\nf1 = { report = true }\n"
    directory = make(tmp_path / "study", EXACT, keys=keys, metrics=metrics, study=study)
    (directory / "mine" / "requirements.txt").write_text("")
    (directory / "wheels").mkdir()
    assert vbstudy(directory, "-q", "provision") == 0
    for guest in (directory / "guests").iterdir():
        environments.bring_exact_library(guest)
    assert vbstudy(directory, "-q", "sweep") == 0
    one, two = (r.result for r in records(directory).values())
    assert one.hashes.weights == two.hashes.weights != ""
    assert one.last == two.last
    assert one.last["f1"] == 0.5


TRAINS = """\
import torch
from vbstudy import report
model = torch.nn.Sequential(torch.nn.Linear(900, 64), torch.nn.Linear(64, 9))
x, y = torch.rand(512, 900), torch.randint(9, (512,))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(5):
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
report.metric("accuracy", loss.item())
report.weights(model.state_dict())
"""


@pytest.mark.needs("exact")
def test_a_project_that_nobody_edited_trains_in_exact_mode_in_the_variant_exact(tmp_path):
    study = STUDY.replace("repetitions = 2", "repetitions = 1")
    study = study.replace('["fixed-seed"]', '["fixed-seed", "exact"]')
    metrics = "[workload.metrics]\naccuracy = { report = true }\n"
    directory = make(tmp_path / "study", TRAINS, keys='framework = "torch"\n', metrics=metrics, study=study)
    assert vbstudy(directory, "-q", "provision") == 0
    assert vbstudy(directory, "-q", "sweep") == 0
    done = {key: record.result for key, record in records(directory).items()}
    exact = [result for key, result in done.items() if "exact" in str(key)]
    on = {"level": "machine", "arithmetic": 1, "instructions": compiled.load().instructions(), "below": []}
    assert [each.environment["framework"].get("exact") for each in exact] == [on] * 2
    assert exact[0].hashes.weights == exact[1].hashes.weights != ""
    others = [result for key, result in done.items() if "fixed-seed" in str(key)]
    assert [each.environment["framework"].get("exact") for each in others] == [None, None]


def test_a_project_without_a_framework_is_told_that_exact_mode_did_nothing(tmp_path):
    study = STUDY.replace('["fixed-seed"]', '["exact"]').replace("[1, 2]", "[1]").replace("= 2", "= 1")
    directory = make(tmp_path / "study", study=study)
    assert vbstudy(directory, "-q", "provision") == 0
    assert vbstudy(directory, "-q", "sweep") == 0
    (record,) = records(directory).values()
    assert record.result.project.notes == (
        "exact mode did nothing: no process of the program imported torch or TensorFlow",
    )


def test_a_project_without_a_folder_is_a_mistake_in_the_study_file(tmp_path, capsys):
    directory = make(tmp_path / "study", study=STUDY.replace('project = "mine"', 'project = "yours"'))
    assert vbstudy(directory, "-q", "provision") == 0
    assert vbstudy(directory, "sweep") == 2
    assert "project = 'yours': there is no such folder" in capsys.readouterr().err
