"""What `harden` proves of programs, and the cures that it prints."""

import json
import os
import shlex
import subprocess
import sys

import pytest

from orchestrator.cli import main as cli

COUNT = "import os\nn = int(os.environ['OMP_NUM_THREADS'])\n"
CONSTANT = "open('args.txt', 'w').write('model=cnn')\n"


def harden(folder, capsys, script, *options):
    (folder / "train.py").write_text(script)
    program = ["harden", "--cpus", "1,2", "--runs", "2", *options, "--", sys.executable, "train.py"]
    status = cli.run(["-C", str(folder), "-q", *program])
    return status, capsys.readouterr().out


@pytest.mark.parametrize("printed", ["0.3512 if n == 1 else 0.3513", "os.urandom(2).hex()"])
def test_runs_that_print_different_results_are_not_proved_by_a_constant_file(tmp_path, capsys, printed):
    status, out = harden(tmp_path, capsys, f"{COUNT}{CONSTANT}print(1, {printed})", "--tiers", "0")
    assert status == 1
    assert out.startswith("No tier is proved")
    assert "differs         line 1: " in out


def test_a_tier_in_which_what_is_printed_follows_the_threads_is_not_proved(tmp_path, capsys):
    script = f"{COUNT}print('loss: 0.5')\nprint('eig sum', 997.25, -377 - n / 8)"
    status, out = harden(tmp_path, capsys, script, "--tiers", "0")
    assert status == 1
    assert "differs         line 2: " in out


def test_the_thread_count_itself_may_be_printed(tmp_path, capsys):
    status, out = harden(tmp_path, capsys, f"{COUNT}print('loss: 0.5')\nprint('with', n)", "--tiers", "0")
    assert status == 0
    assert out.startswith(
        "Nothing needs to be done: with fixed seeds, on all thread counts, all 4 runs agree.\n"
    )


def test_results_that_agree_prove_a_tier_and_what_else_is_printed_differently_is_reported(tmp_path, capsys):
    script = "import os\nprint('loss: 0.5')\nprint(os.urandom(4).hex())"
    status, out = harden(tmp_path, capsys, script, "--tiers", "0")
    assert status == 0
    assert out.startswith(
        "Nothing needs to be done: with fixed seeds, on all thread counts, all 4 runs agree, but for what "
        "they print (line 2: does not repeat with default, 1 thread and default, 2 threads, 4 distinct in 4 "
        "runs).\n"
    )


def cure(folder, capsys, script, *options):
    """The variables, the command and the lines for the script that the cure consists of."""
    _, out = harden(folder, capsys, script, *options, "--json")
    lines = json.loads(out)["lines"]
    exports = [shlex.split(line)[1] for line in lines if line.startswith("export ")]
    return dict(line.split("=", 1) for line in exports), lines[len(exports)], lines[len(exports) + 2 :]


def run(script, exports):
    done = subprocess.run(
        [sys.executable, "-c", script], env=os.environ | exports, capture_output=True, text=True, check=True
    )
    return done.stdout


def test_the_cure_has_the_seeds_of_the_proof(tmp_path, capsys):
    script = (
        f"{COUNT}import random, numpy\nprint('loss:', (random.random() + numpy.random.rand()) / n, hash('a'))"
    )
    exports, _, lines = cure(tmp_path, capsys, script, "--tiers", "5", "--seed", "7")
    assert lines == ["import random, numpy", "random.seed(7); numpy.random.seed(7)"]
    cured = "\n".join([*lines, script])
    assert run(cured, exports) == run(cured, exports)


def test_a_program_that_seeds_a_generator_itself_is_not_told_to(tmp_path, capsys):
    script = f"{COUNT}import random\nrandom.seed(3)\nprint('loss:', random.random() / n)"
    assert cure(tmp_path, capsys, script, "--tiers", "5")[2] == []
    alone = f"{COUNT}import random, numpy\nrandom.seed(3)\nprint('loss:', numpy.random.rand() / n)"
    assert cure(tmp_path, capsys, alone, "--tiers", "5")[2] == ["import numpy", "numpy.random.seed(1)"]


EXACT = """\
import torch
from vbstudy import exact
print("loss:", torch.rand(1).item() / (1 if exact.active() else torch.get_num_threads()))
"""


@pytest.mark.needs("programs")
def test_exact_mode_as_a_cure_has_the_seeds_of_the_proof(tmp_path, capsys):
    pytest.importorskip("torch")
    exports, command, lines = cure(tmp_path, capsys, EXACT, "--tiers", "exact")
    assert exports == {"PYTHONHASHSEED": "1"}
    assert command == f"vbstudy exact -- {sys.executable} train.py"
    assert lines[1] == "random.seed(1); numpy.random.seed(1); torch.manual_seed(1)"


def test_exact_mode_of_tensorflow_fixes_the_threads_of_numpys_libraries_as_the_proof_did(tmp_path, capsys):
    (tmp_path / "tensorflow.py").touch()
    script = f"import tensorflow\n{COUNT}print('loss:', 1 / n)"
    exports, command, _ = cure(tmp_path, capsys, script, "--tiers", "exact")
    assert exports == {"PYTHONHASHSEED": "1"}
    assert command == f"vbstudy exact --threads 8 -- {sys.executable} train.py"
