"""Programs that nobody edited, traced in two real runs at once."""

import json
import os
import sys
from pathlib import Path

import pytest

from guest.machine import fingerprint
from orchestrator.cli import main as cli
from orchestrator.experiments.trace_program import BY_ITSELF
from tests.needs import at_night
from tests.schemas import validate

pytestmark = pytest.mark.needs("studies")

PUBLIC = Path(__file__).parents[2] / "programs" / "public"
DIFFERING = (
    "mlp",
    *(
        at_night("trainers", name)
        for name in ("cnn", "transformer", "autocast", "checkpointing", "custom_function")
    ),
)


@pytest.fixture
def traced(capsys):
    """Traces a program of the folder; returns what was found."""

    def run(name: str, *options: str, cpus: str = "1,2", folder: Path = PUBLIC) -> dict:
        before = sorted(path.name for path in folder.iterdir())
        command = ["-C", str(folder), "-q", "--json", "trace", "--cpus", cpus, *options]
        assert cli.run([*command, "--", sys.executable, f"{name}.py"]) == 0
        assert sorted(path.name for path in folder.iterdir()) == before  # runs in copies
        found = json.loads(capsys.readouterr().out)
        validate(found, "trace -- PROGRAM")
        return found

    return run


def located(traced, name):
    found = traced(name)
    assert found["outcome"] == "operation"
    origin = found["origin"]
    assert 0 < origin["differing"] <= origin["elements"]
    assert origin["source"].startswith(f"{name}.py:")
    assert found["growth"][0]["step"] == found["step"]
    return found


@pytest.mark.needs("trainers")
def test_own_threads_and_compilation_are_told(traced, tmp_path):
    (tmp_path / "train.py").write_text(
        "import torch\ntorch.set_num_threads(2)\nprint(torch.compile(torch.exp)(torch.zeros(1)))\n"
    )
    assert traced("train", folder=tmp_path)["notes"] == [
        "torch.compile was off: these are the operations of the program uncompiled",
        "torch ended with 2 intra-op threads, not 1: the program sets its own count",
    ]


@pytest.mark.needs("studies")
def test_what_was_not_traced_is_noted_where_an_operation_differs_too(traced, tmp_path):
    (tmp_path / "train.py").write_text(
        "import torch\ntorch.manual_seed(0)\nprint(torch.compile(torch.sum)(torch.randn(70001)))\n"
    )
    found = traced("train", folder=tmp_path)
    assert (found["outcome"], found["origin"]["op"]) == ("operation", "aten.sum.default")
    assert found["notes"] == ["torch.compile was off: these are the operations of the program uncompiled"]


@pytest.mark.needs("studies")
def test_a_program_with_a_module_of_the_agents_name_is_traced_and_keeps_it(traced, tmp_path):
    (tmp_path / "guest.py").write_text("whose = 'mine'\n")
    (tmp_path / "train.py").write_text(
        "import guest, torch\ntorch.manual_seed(0)\nprint(torch.randn(70001).sum())\n"
        "from guest import whose\nimport sys\nassert sys.modules['guest'] is guest\n"
    )
    found = traced("train", folder=tmp_path)
    assert (found["outcome"], found["notes"]) == ("operation", [])


@pytest.mark.needs("studies", long=True)
def test_training_in_another_thread_is_no_traced_step_and_told_at_the_limit_too(traced, tmp_path):
    (tmp_path / "train.py").write_text(
        "import threading, torch\nmodel = torch.nn.Linear(4, 1)\n"
        "optimizer = torch.optim.SGD(model.parameters())\n"
        "def step():\n    model(torch.ones(2, 4)).sum().backward()\n    optimizer.step()\n"
        "thread = threading.Thread(target=step)\nthread.start()\nthread.join()\nstep()\n"
    )
    for options in (), ("--steps", "1"):
        found = traced("train", *options, folder=tmp_path)
        assert (found["outcome"], found["steps"]) == ("equal", 1)
        assert [
            note for note in found["notes"] if "in another thread than the one that imported torch" in note
        ]


@pytest.mark.needs("trainers")
@pytest.mark.parametrize("name", DIFFERING)
def test_the_traced_operation_on_one_thread_moves_the_difference_later(traced, name):
    found = located(traced, name)
    held = traced(name, "--hold", found["origin"]["op"])
    assert held["outcome"] == "equal" or held["operations"] > found["operations"]


@pytest.mark.parametrize(
    ("name", "ran"), [("mm", True), ("aten.mm", True), ("aten.mm.default", True), ("nn", False)]
)
def test_an_operation_to_hold_has_a_short_name_and_must_run(traced, tmp_path, name, ran):
    (tmp_path / "train.py").write_text("import torch\nprint((torch.ones(9, 9) @ torch.ones(9, 9)).sum())\n")
    found = traced("train", "--hold", name, folder=tmp_path)
    assert found["hold"] == ([name] if ran else [])
    assert ["no operation of that name ran" in note for note in found["notes"]] == ([] if ran else [True])


def test_an_unseeded_program_is_traced_to_its_line(traced):
    origin = located(traced, "mlp")["origin"]
    assert origin["op"].startswith("aten.")
    assert "cross_entropy(model(x), y)" in origin["text"]


@pytest.mark.needs("trainers")
def test_instruction_sets_are_compared_on_one_thread_count(traced, capsys):
    if "avx512f" not in fingerprint.cpu()["flags"]:  # no set of instructions to leave out
        command = ["-C", str(PUBLIC), "trace", "--cpus", "1", "--vary", "isa"]
        assert cli.run([*command, "--", sys.executable, "cnn.py"]) == 2
        assert "--vary isa: this CPU has no AVX-512" in capsys.readouterr().err
        return
    found = traced("cnn", "--vary", "isa", cpus="1")
    assert (found["factor"], found["sides"], found["threads"]) == (
        "instruction set",
        ["AVX-512", "AVX2"],
        [1, 1],
    )
    assert found["outcome"] == "operation"
    assert found["origin"]["differing"] > 0


@pytest.mark.needs("studies", long=True)
def test_what_follows_an_environment_variable_is_shown_on_both_sides(traced, tmp_path):
    (tmp_path / "train.py").write_text(
        "import os, torch\ntorch.ones(int(os.environ['ROWS']), 2).add(torch.ones(2))\n"
    )
    found = traced("train", "--vary", "env:ROWS=3,4", cpus="1", folder=tmp_path)
    assert (found["outcome"], found["sides"]) == ("sequence", ["ROWS=3", "ROWS=4"])


@pytest.mark.needs("studies", long=True)
def test_a_program_that_ends_earlier_on_one_side_repeats_itself(traced, tmp_path):
    (tmp_path / "train.py").write_text(
        "import os, torch\nfor _ in range(int(os.environ['N'])):\n    torch.ones(2).add(torch.ones(2))\n"
    )
    found = traced("train", "--vary", "env:N=1,2", cpus="1", folder=tmp_path)
    assert (found["outcome"], found["unrepeatable"]) == ("sequence", "")
    assert found["at"][0] == "the program has ended"


@pytest.mark.needs("trainers")
@pytest.mark.parametrize(
    ("name", "layers", "rows", "weights"),
    [
        at_night("trainers", "keras_cnn", ("sequential/conv2d", "sequential/dense"), 32, True),
        at_night("trainers", "tensorflow_loop", ("", ""), 64, False),
    ],
)
def test_functions_of_tensorflow_run_eagerly_and_are_traced_to_their_line(
    traced, name, layers, rows, weights
):
    found = traced(name)
    origin = found["origin"]
    assert (found["framework"], found["outcome"], found["step"]) == ("tensorflow", "operation", 1)
    expected = {
        ("BiasAddGrad", "backward", layers[0], 16),
        ("MatMul", "forward", layers[1], rows * 10),  # differs already where a CPU has no AVX-512
    }
    assert (origin["op"], origin["phase"], origin["module"], origin["elements"]) in expected
    assert origin["source"].startswith(f"{name}.py:")
    assert 0 < origin["differing"] <= origin["elements"]
    assert "ran eagerly" in found["notes"][0]
    steps = [each["step"] for each in found["growth"]]  # the loop has no optimizer
    assert steps == ([1, 2, 3, 4] if weights else [])


@pytest.mark.needs("trainers", long=True)
def test_a_program_that_no_seed_reaches_is_traced_with_the_numbers_of_its_first_run(traced, tmp_path):
    program = (PUBLIC / "mlp.py").read_text().replace("x, y =", "torch.seed()\nx, y =")
    (tmp_path / "train.py").write_text(program)
    assert traced("train", folder=tmp_path)["outcome"] == "unrepeatable"
    found = traced("train", "--replay", folder=tmp_path)
    assert (found["outcome"], found["seed"]) == ("operation", None)
    assert "cross_entropy(model(x), y)" in found["origin"]["text"]


@pytest.mark.needs("studies", long=True)
def test_a_program_of_tensorflow_can_set_its_threads_itself(traced, tmp_path):
    (tmp_path / "train.py").write_text(
        "import tensorflow as tf\ntf.config.threading.set_intra_op_parallelism_threads(3)\n"
        "tf.ones(3) + tf.ones(3)\n"
    )
    assert traced("train", folder=tmp_path)["outcome"] == "equal"


@pytest.mark.needs("studies", long=True)
def test_no_operation_of_tensorflow_can_be_held(capsys, tmp_path):
    (tmp_path / "train.py").write_text("import tensorflow as tf\ntf.ones(3) + tf.ones(3)\n")
    command = ["-C", str(tmp_path), "-q", "trace", "--cpus", "1,2", "--hold", "AddV2"]
    assert cli.run([*command, "--", sys.executable, "train.py"]) == 2
    assert "--hold: tensorflow runs no operation on one thread alone" in capsys.readouterr().err


@pytest.mark.needs("studies", long=True)
def test_a_python_outside_the_folder_is_found_by_its_relative_path(capsys, tmp_path, monkeypatch):
    (tmp_path / "train.py").write_text("import torch\ntorch.ones(3).add(torch.ones(3))\n")
    monkeypatch.chdir(tmp_path)
    python = os.path.relpath(sys.executable, tmp_path)
    assert cli.run(["-q", "trace", "--cpus", "1,2", "--", python, "train.py"]) == 0
    assert "equal to the last bit" in capsys.readouterr().out


@pytest.mark.needs("trainers")
@pytest.mark.parametrize("name", ["gan", at_night("trainers", "lstm"), at_night("trainers", "workers")])
def test_operations_of_all_models_are_compared(traced, name):
    found = traced(name)
    assert found["outcome"] in ("equal", "operation")
    assert found["operations"] > 15


@pytest.mark.needs("trainers")
def test_a_program_that_splits_its_work_by_threads_is_shown_on_both_sides(traced):
    found = traced("control_flow")
    assert found["outcome"] == "sequence"
    assert "float32[64, 8]" in found["at"][0]
    assert "float32[32, 8]" in found["at"][1]
    assert all("control_flow.py:7" in each for each in found["at"])


@pytest.mark.needs("trainers")
def test_a_program_that_does_not_repeat_itself_is_named_first(traced):
    found = traced("unrepeatable")
    assert (found["outcome"], found["unrepeatable"]) == ("unrepeatable", "1 thread")


@pytest.mark.needs("studies")
def test_an_operation_with_equal_inputs_that_does_not_repeat_itself_is_named(traced, tmp_path):
    (tmp_path / "train.py").write_text(
        "import os, torch\n@torch.library.custom_op('t::noise', mutates_args=())\n"
        "def noise(x: torch.Tensor) -> torch.Tensor:\n    return torch.tensor(list(os.urandom(9)))\n"
        "torch.ops.t.noise(torch.ones(99))\n"
    )
    found = traced("train", folder=tmp_path)
    assert (found["outcome"], found["unrepeatable"]) == ("unrepeatable", "1 thread")
    assert BY_ITSELF in found["notes"]
    (tmp_path / "train.py").write_text("import os, torch\ntorch.tensor(list(os.urandom(9))).add(1)\n")
    found = traced("train", folder=tmp_path)
    assert found["outcome"] == "unrepeatable"
    assert BY_ITSELF not in found["notes"]


@pytest.mark.needs("studies", long=True)
def test_equal_runs_are_compared_to_the_limit_of_steps(traced):
    found = traced("invariant", "--steps", "2")
    assert (found["outcome"], found["steps"], found["step"]) == ("equal", 2, None)
    assert found["notes"] == ["the comparison ended with optimizer step 2: --steps compares more"]


@pytest.mark.needs("studies")
def test_what_a_loader_computes_in_the_process_itself_is_no_other_operation_than_a_workers(traced, tmp_path):
    (tmp_path / "train.py").write_text(
        "import torch\nfrom torch.utils.data import DataLoader\nif __name__ == '__main__':\n"
        "    for batch in DataLoader(torch.ones(12, 3), 2, shuffle=True):\n        print(batch.exp().sum())\n"
    )
    found = traced("train", "--vary", "workers", cpus="1", folder=tmp_path)
    assert (found["outcome"], found["sides"]) == ("equal", ["0 workers", "2 workers"])
    assert found["operations"] >= 12


@pytest.mark.parametrize(
    ("script", "status", "message"),
    [
        ("print(1)", 2, "no operation of PyTorch, TensorFlow or JAX was seen"),
        ("import sys; sys.exit(3)", 1, "ended with status 3"),
        ("raise OSError(98, 'Address already in use')", 1, "as `torchrun --standalone` does"),
    ],
)
def test_what_cannot_be_traced_is_reported_in_a_line(tmp_path, capsys, script, status, message):
    (tmp_path / "train.py").write_text(script)
    assert cli.run(["-C", str(tmp_path), "-q", "trace", "--", sys.executable, "train.py"]) == status
    assert message in capsys.readouterr().err
    assert cli.run(["trace", "--help"]) == 0
    assert f"with {status} when " in " ".join(capsys.readouterr().out.split())


@pytest.mark.needs("studies", long=True)
def test_a_framework_whose_hook_fails_is_named_with_its_version(traced, tmp_path, capsys):
    (tmp_path / "jax.py").write_text('__version__ = "99.0"')  # without what a tracer looks for
    (tmp_path / "train.py").write_text("import jax")
    assert cli.run(["-C", str(tmp_path), "-q", "trace", "--", sys.executable, "train.py"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "train.py: jax 99.0 cannot be traced: ModuleNotFoundError: " in line
    (tmp_path / "train.py").write_text("import jax, torch\ntorch.ones(3).add(torch.ones(3))\n")
    found = traced("train", folder=tmp_path)
    assert found["outcome"] == "equal"
    assert any("jax 99.0 cannot be traced" in note for note in found["notes"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--cpus", "1,2,3", "--", "true"], "two are compared, and these are 3"),
        (["--vary", "env:A=1,2,3", "--", "true"], "two are compared, and these are 3"),
        (["--vary", "hash", "--cpus", "1,2", "--", "true"], "needs one thread count"),
        (["--vary", "hash", "--cpus", "1,2"], "need a program"),
        (["--workload", "w", "--", "true"], "cannot be combined with a program"),
        (["--hold", "aten.mm.default", "--cpus", "1,2"], "need a program"),
        (["--replay", "--cpus", "1,2"], "need a program"),
        (["--replay", "--seed", "2", "--", "true"], "--seed and --replay: choose one"),
        (["--"], "no program is named after `--`"),
    ],
)
def test_options_that_do_not_fit_are_refused(tmp_path, capsys, arguments, message):
    assert cli.run(["-C", str(tmp_path), "trace", *arguments]) == 2
    assert message in capsys.readouterr().err
