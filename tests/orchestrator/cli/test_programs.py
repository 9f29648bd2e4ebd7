import json
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.cli import main as cli
from orchestrator.cli.programs import summary_text
from orchestrator.programs.try_files import FileSeen, Role, read, role_of
from orchestrator.programs.try_runs import Report
from orchestrator.programs.try_verdicts import Answer, LevelVerdict, Trial, decide

SCRIPT = """\
import os, numpy as np
from helper import say
n = int(os.environ["OMP_NUM_THREADS"])
np.savez("model.npz", w=np.random.rand(3) {weights})
np.save("preds.npy", np.arange(8) % 3 {predictions})
for epoch in range(1, 3):
    say(epoch, 0.5 + epoch / 10 {metric})
print("took 1.%d seconds" % os.getpid())
"""
HELPER = "def say(epoch, accuracy):\n    print(f'epoch {epoch}: accuracy={accuracy:.3f}')\n"


def attempt(tmp_path: Path, capsys, script: str, *options: str) -> dict:
    (tmp_path / "train.py").write_text(script)
    (tmp_path / "helper.py").write_text(HELPER)
    before = sorted(path.name for path in tmp_path.iterdir())
    command = ["-C", str(tmp_path), "-q", "--json", "try", *options, "--", sys.executable, "train.py"]
    assert cli.run(command) == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == before  # runs in copies
    return json.loads(capsys.readouterr().out)


def answers(report: dict) -> dict[str, str]:
    return {verdict["level"]: verdict["answer"] for verdict in report["verdicts"]}


def test_the_three_levels_are_judged_separately(tmp_path, capsys):
    report = attempt(tmp_path, capsys, SCRIPT.format(weights="+ n", predictions="", metric=""))
    assert answers(report) == {"bitwise": Answer.MATTERS, "predictions": Answer.SAME, "metric": Answer.SAME}
    (bitwise, predictions, metric) = (verdict["evidence"] for verdict in report["verdicts"])
    assert bitwise == ["model.npz: repeats on each thread count, 2 distinct in 4 runs (1 arrays)"]
    assert predictions == ["preds.npy: the same in all 4 runs (8 predictions)"]
    assert metric == ["accuracy @ helper.py:2: the same in all 4 runs (last value 0.700, 2 values)"]
    assert report["threads"][0] == 1


def test_a_metric_that_follows_the_thread_count_is_found(tmp_path, capsys):
    report = attempt(
        tmp_path,
        capsys,
        SCRIPT.format(weights="", predictions="+ n - 1", metric="+ n / 100"),
        "--cpus",
        "1,2",
    )
    assert answers(report) == {
        "bitwise": Answer.SAME,
        "predictions": Answer.MATTERS,
        "metric": Answer.MATTERS,
    }
    assert "last value 0.710 | 0.720" in report["verdicts"][2]["evidence"][0]


def made(answers: dict[str, Answer]) -> Report:
    verdicts = tuple(LevelVerdict(level=level, answer=a, evidence=()) for level, a in answers.items())
    return Report(
        command=("python", "train.py"), threads=(1, 2), repetitions=2, seed=1, oversubscribed=(),
        verdicts=verdicts, wall_s={"1": 2.0, "2": 1.0}, overrides=(), notes=(), last_lines=(),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("answers", "first", "last"),
    [
        (
            {"bitwise": Answer.MATTERS, "predictions": Answer.SAME, "metric": Answer.SAME},
            "The thread count matters: it changes the weights, the predictions and metrics are the same.",
            "next, with PyTorch: vbstudy exact -- python train.py",
        ),
        (
            {"bitwise": Answer.INCONCLUSIVE},
            "The thread count was not seen to matter: whether it changes the weights is inconclusive.",
            "next: vbstudy try --replay -- python train.py",
        ),
        (
            {"metric": Answer.SAME},
            "The thread count was not seen to matter: the metrics are the same.",
            "seconds a run (mean of 2): 1: 2.0 s, 2: 1.0 s",
        ),
        (
            {"bitwise": Answer.ABSENT},
            "Nothing was seen that could be compared.",
            "seconds a run (mean of 2): 1: 2.0 s, 2: 1.0 s",
        ),
    ],
)
def test_the_answer_stands_first_and_the_next_command_last(answers, first, last):
    lines = summary_text(made(answers)).splitlines()
    assert (lines[0], lines[-1]) == (first, last)


def test_what_does_not_repeat_is_inconclusive(tmp_path, capsys):
    report = attempt(
        tmp_path,
        capsys,
        SCRIPT.format(weights="+ os.urandom(1)[0] + os.urandom(1)[0] / 7", predictions="", metric=""),
    )
    assert answers(report)["bitwise"] in (
        Answer.INCONCLUSIVE,
        Answer.MATTERS,
    )  # four equal bytes are possible, hardly
    assert "does not repeat with" in report["verdicts"][0]["evidence"][0]


def test_without_files_and_numbers_the_output_states_what_to_do(tmp_path, capsys):
    (tmp_path / "train.py").write_text("print('done')")
    assert cli.run(["-C", str(tmp_path), "-q", "try", "--", sys.executable, "train.py"]) == 0
    out = capsys.readouterr().out
    assert "no model file seen: have the program write one" in out
    assert "no number with a name was printed or logged" in out
    assert "the last lines of its output: done" in " ".join(out.split())


def test_the_output_of_a_program_that_is_not_python_is_read(tmp_path, capsys):
    command = ["sh", "-c", 'echo "acc: 0.$OMP_NUM_THREADS"']
    assert cli.run(["-C", str(tmp_path), "-q", "--json", "try", "--cpus", "1,2", "--", *command]) == 0
    report = json.loads(capsys.readouterr().out)
    assert answers(report)["metric"] == Answer.MATTERS
    assert any("start-up hook did not run" in note for note in report["notes"])


def test_a_program_that_fails_ends_with_one_and_its_last_lines(tmp_path, capsys):
    (tmp_path / "train.py").write_text("raise SystemExit('the reason')")
    assert cli.run(["-C", str(tmp_path), "-q", "try", "--", sys.executable, "train.py"]) == 1
    error = capsys.readouterr().err
    assert "on 1 thread: the command ended with status 1; last lines:\nthe reason" in error


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (["try", "--", "no-such-program"], 1, "no-such-program: command not found"),
        (["try", "--cpus", "2", "--", "true"], 2, "--cpus 2: two thread counts are needed"),
        (["try", "--cpus", "1,x", "--", "true"], 2, "'x' is not a whole number"),
        (["try"], 2, "Missing argument 'COMMAND"),
        (["try", "--timeout", "1", "--", "sleep", "600"], 1, "not done within --timeout = 1"),
    ],
)
def test_mistakes_are_reported(tmp_path, capsys, arguments, code, told):
    assert cli.run(["-C", str(tmp_path), "-q", *arguments]) == code
    assert told in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "role"),
    [
        ("out/model.pt", Role.WEIGHTS),
        ("m.weights.h5", Role.WEIGHTS),
        ("old.pkl", Role.WEIGHTS),
        ("test_logits.npy", Role.PREDICTIONS),
        ("submission.csv", Role.PREDICTIONS),
        ("history.csv", None),
        ("features.npy", None),
        ("checkpoint.npz", Role.WEIGHTS),
        ("train.py", None),
    ],
)
def test_files_are_known_by_their_names(name, role):
    assert role_of(name) is role


def test_a_pickle_is_compared_by_its_bytes_with_a_caveat_and_never_loaded(tmp_path):
    (tmp_path / "model.pkl").write_bytes(b"cos\nsystem\n(S'false'\ntR.")
    seen = read(tmp_path / "model.pkl", Role.WEIGHTS)
    assert not seen.parsed
    assert "is a pickle, which is never loaded; compared byte for byte" in seen.caveat


@pytest.mark.parametrize(
    ("script", "told"),
    [
        ("def f():\n    raise ValueError('bad data')\nf()", 'File "train.py", line 2, in f'),
        ("input('name? ')", "its standard input is empty"),
        ("open('../elsewhere/x.csv')", "what lies elsewhere needs an absolute path"),
        (
            "import argparse; p = argparse.ArgumentParser(); p.add_argument('x'); p.parse_args()",
            "usage: train.py",
        ),
    ],
    ids=["traceback", "input", "data", "arguments"],
)
def test_the_error_of_a_script_that_fails_is_reported(tmp_path, capsys, script, told):
    (tmp_path / "train.py").write_text(script)
    assert cli.run(["-C", str(tmp_path), "-q", "try", "--", sys.executable, "train.py"]) == 1
    error = capsys.readouterr().err
    assert told in error
    assert "vbstudy-try" not in error  # the copy's place is nobody's business


UNSEEDED = """\
import os, random, time, numpy as np
n = int(os.environ["OMP_NUM_THREADS"])
random.seed(time.time_ns())
np.savez("model.npz", w=[random.random(), random.SystemRandom().random()])
np.savez("weights.npz", w=[n + np.random.RandomState(time.time_ns() % 2**31).rand()])
"""


def test_a_program_that_no_seed_reaches_replays_the_numbers_of_its_first_run(tmp_path, capsys):
    report = attempt(tmp_path, capsys, UNSEEDED, "--replay")
    assert (report["seed"], answers(report)["bitwise"]) == (None, Answer.MATTERS)
    evidence = report["verdicts"][0]["evidence"]
    assert evidence[0].startswith("weights.npz: repeats on each thread count, 2 distinct in 4 runs")
    assert evidence[1].startswith("model.npz: the same in all 4 runs")


def test_where_a_seed_is_not_enough_replay_is_named(tmp_path, capsys):
    (tmp_path / "train.py").write_text(UNSEEDED)
    assert cli.run(["-C", str(tmp_path), "-q", "try", "--", sys.executable, "train.py"]) == 0
    out = capsys.readouterr().out
    assert out.splitlines()[-1] == f"next: vbstudy try --replay -- {sys.executable} train.py"


def test_a_program_that_draws_otherwise_on_more_threads_fails_with_its_line(tmp_path, capsys):
    (tmp_path / "train.py").write_text(
        "import os\nos.urandom(int(os.environ['OMP_NUM_THREADS']))\nprint('a: 1')"
    )
    assert cli.run(["-C", str(tmp_path), "-q", "try", "--replay", "--", sys.executable, "train.py"]) == 1
    told = capsys.readouterr().err
    assert "on 2 threads: the program asks differently" in told
    assert "in Python at train.py, line 2" in told


REPORTING = """\
import subprocess, sys, torch, vbstudy
from vbstudy import exact, report
assert ".pyz/" in vbstudy.__file__, vbstudy.__file__
torch.manual_seed(1)
with exact.mode(strict=True):
    x = torch.rand(64, 64, requires_grad=True)
    (x @ x).softmax(1).sum().backward()
report.weights({"gradient": x.grad})
report.predictions((x.grad > 0).long()[0])
child = "from vbstudy import exact, report; print(exact.active(), report.active())"
print(subprocess.run([sys.executable, "-c", child], capture_output=True, text=True, check=True).stdout)
"""


def test_a_program_imports_exact_mode_and_report_without_an_install(tmp_path, capsys, without_vbstudy):
    pytest.importorskip("torch")
    (tmp_path / "train.py").write_text(REPORTING)
    program = [str(without_vbstudy), "train.py"]
    assert cli.run(["-C", str(tmp_path), "-q", "--json", "try", "--cpus", "1,2", "--", *program]) == 0
    report = json.loads(capsys.readouterr().out)
    assert answers(report)["bitwise"] == answers(report)["predictions"] == Answer.SAME
    assert report["verdicts"][0]["evidence"][0].startswith("vbstudy.report.weights: the same in all 4 runs")
    assert [one["what"] for one in report["overrides"]] == ["torch.manual_seed", "processes started"]
    assert report["last_lines"] == ["False True"]


def file(digest: str, parsed: bool = True) -> FileSeen:
    return FileSeen(role=Role.WEIGHTS, digest=digest, parsed=parsed, caveat="")


def trials(*digests: str, metrics=(), parsed: bool = True) -> list[Trial]:
    """Two runs on one thread, then two on four."""
    return [
        Trial(
            threads=1 if i < 2 else 4,
            repetition=i % 2 + 1,
            wall_s=1.0,
            last_lines="",
            metrics={name: (values[i],) for name, values in metrics},
            files={"m.pt": file(digest, parsed)},
        )
        for i, digest in enumerate(digests)
    ]


@given(st.lists(st.sampled_from("ab"), min_size=4, max_size=4))
def test_thread_counts_matter_only_where_runs_repeat_on_each(digests):
    a, b, c, d = digests
    expected = Answer.INCONCLUSIVE if a != b or c != d else Answer.SAME if a == c else Answer.MATTERS
    assert decide(trials(*digests))[0].answer is expected


def test_times_and_thread_counts_are_no_metrics():
    named = [("time", "1234"), ("threads @ a.py:3", "1144"), ("it/s", "5678"), ("epoch", "1111")]
    assert decide(trials("a", "a", "a", "a", metrics=named))[2].answer is Answer.ABSENT


def test_files_that_were_read_outweigh_those_that_were_not():
    runs = [
        Trial(threads=t.threads, repetition=t.repetition, wall_s=1.0, last_lines="", metrics={},
              files={"m.pt": file("x"), "args.bin": file(str(i), parsed=False)})
        for i, t in enumerate(trials("a", "a", "a", "a"))
    ]  # fmt: skip
    verdict = decide(runs)[0]
    assert verdict.answer is Answer.SAME
    assert "args.bin: does not repeat with 1 and 4 threads" in verdict.evidence[0]
