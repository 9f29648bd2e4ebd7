"""Projects of a study, traced and hardened."""

import json
from pathlib import Path

import pytest

from guest.records import harden, trace
from guest.records.harden import Proof
from guest.records.run import Tier
from orchestrator.cli import main as cli

SCRIPT = """\
import numpy, torch
from torch import nn
x, y = torch.randn(512, 300), torch.randint(0, 10, (512,))
model = nn.Sequential(nn.Linear(300, 256), nn.LayerNorm(256), nn.ReLU(), nn.Linear(256, 10))
optimizer = torch.optim.Adam(model.parameters())
for epoch in range(3):
    loss = nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print("accuracy:", (model(x).argmax(1) == y).float().mean().item())
numpy.savez("weights.npz", **{name: tensor.numpy() for name, tensor in model.state_dict().items()})
"""
STUDY = """\
cpus = [1, 2]
repetitions = 2
variants = ["fixed-seed"]
[[workload]]
name = "mine"
project = "mine"
command = ["python", "train.py"]
metrics = { accuracy = { pattern = "accuracy: ([0-9.]+)" } }
"""
DECLARED = 'framework = "torch"\nartifacts = { weights = "weights.npz" }\n'


def make(directory: Path, keys: str = DECLARED) -> Path:
    (directory / "mine").mkdir()
    (directory / "mine" / "train.py").write_text(SCRIPT)
    (directory / "study.toml").write_text(STUDY + keys)
    return directory


def vbstudy(directory: Path, *arguments: str) -> int:
    return cli.run(["-C", str(directory), "-q", *arguments])


@pytest.mark.needs("trainers")
def test_a_project_is_traced_and_hardened_and_its_findings_name_the_operation(tmp_path, capsys):
    directory = make(tmp_path)
    assert vbstudy(directory, "provision") == 0
    assert vbstudy(directory, "sweep") == 0
    assert vbstudy(directory, "trace", "--cpus", "1,2") == 0
    assert vbstudy(directory, "harden", "--runs", "1", "--tiers", "exact,one-thread") == 0
    (path,) = (directory / "trace").glob("*/trace.json")
    (origin,) = trace.decode(path.read_bytes()).origins
    assert origin.source.startswith("train.py:")
    assert {path.name for path in directory.iterdir()} >= {"mine", "trace", "harden", "runs"}
    assert sorted(path.name for path in (directory / "mine").iterdir()) == ["train.py"]
    found = {r.tier: r.proof for r in harden.decode((directory / "harden/mine.json").read_bytes()).results}
    assert found == {
        Tier.SEEDS: Proof.DIFFERS, Tier.EXACT: Proof.PROVED, Tier.ONE_THREAD: Proof.PROVED,
    }  # fmt: skip
    capsys.readouterr()
    assert vbstudy(directory, "--json", "analyze") == 0
    analysis = json.loads(capsys.readouterr().out)
    assert analysis["tables"]["traces"][0]["op"] == origin.op
    third = next(each for each in analysis["findings"] if each["id"] == "F3")
    assert f"{origin.op} (" in third["why"]
    assert not any("trace" in problem["path"] for problem in analysis["problems"])


@pytest.mark.parametrize(
    ("keys", "command", "told"),
    [
        (
            "",
            ["harden"],
            'mine: tiers need a framework: name it in the workload\'s table, as in framework = "torch"',
        ),
        (
            DECLARED + 'random = "replay"\n',
            ["harden"],
            'mine: random = "replay": only projects whose runs repeat',
        ),
        (DECLARED, ["trace", "--cpus", "1,2", "--variant", "control"], "--variant are for networks"),
        (DECLARED, ["trace", "--cpus", "1,2", "--framework", "torch"], "--framework and --variant are for"),
        (DECLARED, ["trace", "--cpus", "1,2", "--workload", "mime"], "did you mean 'mine'"),
    ],
)
def test_what_cannot_be_done_with_a_project_is_told(tmp_path, capsys, keys, command, told):
    directory = make(tmp_path, keys)
    assert vbstudy(directory, *command) == 2
    assert told in capsys.readouterr().err
    assert not (directory / "harden").exists()
    assert not list(directory.glob("trace/*"))
