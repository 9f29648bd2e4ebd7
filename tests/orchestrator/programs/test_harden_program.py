"""What `harden` proves of programs, and the cures that it prints."""

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


def test_results_that_agree_prove_a_tier_and_what_else_is_printed_differently_is_reported(tmp_path, capsys):
    script = f"{COUNT}print('loss: 0.5')\nprint(n)"
    status, out = harden(tmp_path, capsys, script, "--tiers", "0")
    assert status == 0
    assert out.startswith(
        "Nothing needs to be done: with fixed seeds, on all thread counts, all 4 runs agree, but for what "
        "they print (line 2: 2 distinct in 4 runs).\n"
    )
