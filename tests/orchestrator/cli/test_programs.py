import io
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from rich.console import Console

from guest.projects import command as guest_command
from guest.records.codec import from_json
from orchestrator.cli import main as cli
from orchestrator.cli.options import Options
from orchestrator.programs import try_runs
from orchestrator.programs.try_report import evidence
from orchestrator.programs.try_verdicts import Answer, Compared
from tests.processes import ends, wait_until
from tests.schemas import validate

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


def evidence_of(verdict: dict) -> list[str]:
    return [evidence(from_json(Compared, each))[0] for each in verdict["compared"]]


def answers(report: dict) -> dict[str, str]:
    return {verdict["level"]: verdict["answer"] for verdict in report["verdicts"]}


@pytest.mark.needs("studies")
def test_the_three_levels_are_judged_separately(tmp_path, capsys):
    report = attempt(tmp_path, capsys, SCRIPT.format(weights="+ n", predictions="", metric=""))
    assert list(answers(report).values()) == [Answer.MATTERS, Answer.SAME, Answer.SAME, Answer.SAME]
    bitwise, predictions, metric, output = (evidence_of(verdict) for verdict in report["verdicts"])
    assert bitwise == ["model.npz: 2 distinct in 4 runs (1 array)", *predictions]
    assert predictions == ["preds.npy: the same in all 4 runs (8 predictions)"]
    assert metric == ["accuracy @ helper.py:2: the same in all 4 runs (0.700, last of 2)"]
    assert output == ["3 lines: the same in all 4 runs"]
    assert report["conditions"][0] == "1 thread"


def test_a_metric_that_follows_the_thread_count_is_found(tmp_path, capsys):
    report = attempt(
        tmp_path,
        capsys,
        SCRIPT.format(weights="", predictions="+ n - 1", metric="+ n / 100"),
        "--cpus",
        "1,2",
    )
    assert list(answers(report).values()) == [Answer.MATTERS] * 4  # the bits of the predictions, too
    assert "0.710 | 0.720" in evidence_of(report["verdicts"][2])[0]


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
    assert "does not repeat with" in evidence_of(report["verdicts"][0])[0]


def test_without_files_and_numbers_the_output_states_what_to_do(tmp_path, capsys):
    (tmp_path / "train.py").write_text("print('done')")
    assert cli.run(["-C", str(tmp_path), "-q", "try", "--", sys.executable, "train.py"]) == 0
    out = capsys.readouterr().out
    assert "bitwise      no file was compared as a whole" in out
    assert "no loss or score was printed, logged or written with its name" in out
    assert out.startswith("The thread count shows no effect: the output is the same.")


TRAINS = """\
import torch
layer = torch.nn.Linear(3, 1)
optimizer = torch.optim.SGD(layer.parameters(), lr=0.01)
layer(torch.ones(2, 3)).sum().backward()
optimizer.step()
with torch.no_grad():
    layer.weight += torch.get_num_threads() * 1e-4
print("loss %.1f" % 0.5)
"""


@pytest.mark.needs("studies")
def test_weights_that_a_program_trains_and_does_not_save_are_compared(tmp_path, capsys):
    report = attempt(tmp_path, capsys, TRAINS)
    assert report["verdicts"][0]["answer"] == report["answer"] == Answer.MATTERS
    assert evidence_of(report["verdicts"][0]) == [
        "weights in memory at the end: 2 distinct in 4 runs (2 arrays)"
    ]
    assert answers(report)["metric"] == Answer.SAME


def test_of_a_program_that_ends_at_once_versions_are_known_and_missing_weights_are_noted(tmp_path, capsys):
    script = (
        "import os, numpy, vbstudy_weights\nvbstudy_weights._keep(1, iter)\n"
        "print('loss: 1', flush=True)\nos._exit(0)"
    )
    report = attempt(tmp_path, capsys, script, "--cpus", "1,2")
    assert list(report["software"]) == ["numpy"]
    assert [note.partition(":")[0] for note in report["notes"]] == [
        "a process that trained ended without Python's own end (as by os._exit)"
    ]


@pytest.mark.needs("studies", long=True)
def test_weights_that_are_saved_are_not_all_that_is_compared(tmp_path, capsys):
    save = "torch.save(layer.state_dict(), '%s.pt')\n"
    saves = TRAINS.replace("optimizer =", save % "init" + "optimizer =") + save % "model"
    found = evidence_of(attempt(tmp_path, capsys, saves)["verdicts"][0])
    assert sorted(each.partition(" in ")[0] for each in found) == [
        "init.pt: the same",
        "model.pt: 2 distinct",
        "weights",
    ]


KERAS = """\
import keras, numpy as np
model = keras.Sequential([keras.layers.Dense(1)])
model.compile("adam", "mse")
model.fit(np.ones((4, 3)), np.ones(4), verbose=0)
"""


@pytest.mark.needs("studies", long=True)
def test_weights_that_keras_trains_are_compared(tmp_path, capsys):
    pytest.importorskip("tensorflow")
    report = attempt(tmp_path, capsys, KERAS)
    assert evidence_of(report["verdicts"][0]) == [
        "weights in memory at the end: the same in all 4 runs (2 arrays)"
    ]


def test_the_output_of_a_program_that_is_not_python_is_read(tmp_path, capsys):
    command = ["sh", "-c", 'echo "acc: 0.$OMP_NUM_THREADS"']
    assert cli.run(["-C", str(tmp_path), "-q", "--json", "try", "--cpus", "1,2", "--", *command]) == 0
    report = json.loads(capsys.readouterr().out)
    assert answers(report)["metric"] == Answer.MATTERS
    assert any("start-up hook did not run" in note for note in report["notes"])


@pytest.mark.parametrize(
    ("owner", "limit", "value"), [(try_runs, "LINES_COMPARED", 3), (guest_command, "LOG_LIMIT_BYTES", 12)]
)
def test_of_long_output_the_last_numbers_are_compared_too(tmp_path, capsys, monkeypatch, owner, limit, value):
    monkeypatch.setattr(owner, limit, value)
    command = ["sh", "-c", 'seq 4; echo "accuracy: 0.9$OMP_NUM_THREADS"']
    assert cli.run(["-C", str(tmp_path), "-q", "--json", "try", "--cpus", "1,2", "--", *command]) == 0
    report = json.loads(capsys.readouterr().out)
    assert answers(report)["metric"] == Answer.MATTERS
    assert try_runs.LONG in report["notes"]


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
        (["try", "--vary", "isa", "--cpus", "1,2", "--", "true"], 2, "needs one thread count"),
        (["try", "--vary", "moon", "--", "true"], 2, "one of threads, isa, workers, hash or env:NAME="),
        (["try", "--vary", "env:A=1", "--", "true"], 2, "two values are needed, as in env:A=a,b"),
        (["try", "--vary", "env:OMP_NUM_THREADS=1,2", "--", "true"], 2, "--vary threads varies them"),
        (["try", "--which", "--exact", "--", "true"], 2, "--which cannot be combined with"),
        (["try", "--level", "metric", "--", "true"], 2, "--level metric needs --check"),
        (["try", "--level", "bitwise", "--", "true"], 2, "--level bitwise needs --check"),
        (["try", "--save", "no/such/file", "--", "true"], 2, "is not a folder"),
        (["try", "--against", "no-such-file", "--", "true"], 2, "No such file"),
        (["try", "--against", "/dev/null", "--", "true"], 2, "/dev/null: is "),
        (
            [
                "try",
                "--disk-limit",
                "0.001",
                "--",
                "sh",
                "-c",
                "for i in 1 2 3; do head -c 900000 /dev/zero > $i; done",
            ],
            1,
            "--disk-limit allows 1",
        ),
        (["try", "--disk-limit", "1e300", "--", "true"], 2, "is not in the range 0.001<=x<="),
        (["try", "--disk-limit", "nan", "--", "true"], 2, "'nan' is not a finite number"),
        (["try", "--timeout", "inf", "--", "true"], 2, "'inf' is not a finite number"),
        (["try", "--timeout", "-1", "--", "true"], 2, "-1.0 is not in the range x>0"),
        (["harden", "--timeout", "nan", "--", "true"], 2, "'nan' is not a finite number"),
        (["harden", "--runs", "1", "--", "true"], 2, "a program is run twice or more"),
        (["harden", "--workload", "x", "--", "true"], 2, "--workload cannot be combined with a program"),
        (["harden", "--seed", "3"], 2, "--seed and --timeout need a program"),
        (["harden", "--"], 2, "no program is named after `--`"),
        (["exact", "--", "", "train.py"], 2, "the name of the program is empty"),
        (["harden", "--", "true"], 1, "nothing can be compared"),
        (["try", "false", "--", "--lr", "3"], 1, "false -- --lr 3: "),
        (["harden", "false", "--", "--lr", "3"], 1, "false -- --lr 3: "),
        (["trace", "false", "--", "--lr", "3"], 1, "false -- --lr 3: "),
        (["trace", "a", "b", "--", "true"], 2, "runs, --workload, --framework and --variant cannot be"),
        (["try", "--timeout", "1", "--", "sleep", "600"], 1, "not done within --timeout = 1"),
    ],
)
def test_mistakes_are_reported(tmp_path, capsys, arguments, code, told):
    assert cli.run(["-C", str(tmp_path), "-q", *arguments]) == code
    assert told in capsys.readouterr().err


@pytest.mark.needs("studies")
@pytest.mark.parametrize(
    ("number", "wrapper", "status"),
    [(signal.SIGTERM, [], 130), (signal.SIGHUP, [], 130), (signal.SIGHUP, ["nohup"], 0)],
)
def test_a_terminal_that_is_gone_stops_a_program_as_sigterm_does(tmp_path, number, wrapper, status):
    folder, scratch, ready = (tmp_path / name for name in ("folder", "scratch", "ready"))
    folder.mkdir()
    scratch.mkdir()
    seconds = 1 if wrapper else 600
    command = [*wrapper, sys.executable, "-m", "vbstudy", "-q", "-C", str(folder), "try", "--"]
    program = ["sh", "-c", f"echo $$ >> {ready}; exec sleep {seconds}"]
    with subprocess.Popen(
        [*command, *program],
        env={**os.environ, "TMPDIR": str(scratch)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        wait_until(lambda: ready.exists() and ready.read_text().endswith("\n"), process)
        process.send_signal(number)
        process.communicate(timeout=120)
    assert process.returncode == status
    assert not list(scratch.iterdir())
    assert all(ends(int(pid)) for pid in ready.read_text().split())


@pytest.mark.needs("studies")
@pytest.mark.parametrize(("command", "status"), [("try", 0), ("trace", 2), ("harden", 0)])
def test_a_program_is_recognised_without_dashes(tmp_path, capsys, command, status):
    (tmp_path / "train.py").write_text("print('loss: 1')")
    program = [sys.executable, "train.py", "--seed", "x"]  # which are not options of vbstudy's
    options = ["--json", command, "--cpus", "1,2"]
    assert cli.run(["-C", str(tmp_path), "-q", *options, *program]) == status
    assert f"{sys.executable} train.py --seed x: no operation" in capsys.readouterr().err or not status


@pytest.mark.needs("studies")
@pytest.mark.parametrize("terminal", [True, False])
def test_a_terminal_shows_how_long_a_run_takes(tmp_path, monkeypatch, terminal):
    shown = io.StringIO()
    console = Console(file=shown, force_terminal=terminal, color_system=None)
    monkeypatch.setattr(Options, "stderr", lambda _: console)
    assert cli.run(["-C", str(tmp_path), "try", "--timeout", "3", "--", "sleep", "600"]) == 1
    assert "run 1 of 4: 1 thread\n" in shown.getvalue()
    assert bool(re.search(r"running 0:00:0[1-9]", shown.getvalue())) == terminal


def test_links_that_lead_out_of_the_folder_are_named(tmp_path, capsys):
    folder = tmp_path / "project"
    for each in (folder / "kept", tmp_path / "real"):
        each.mkdir(parents=True)
    links = {"out": tmp_path / "real", "kept/up": "../../real", "own": folder / "kept", "inside": "kept"}
    for name, target in links.items():
        (folder / name).symlink_to(target)
    (folder / "train.py").write_text("open('out/log', 'a').write('x')\nprint('loss: 1')")
    assert cli.run(["-C", str(folder), "-q", "--json", "try", "--", sys.executable, "train.py"]) == 0
    (note,) = json.loads(capsys.readouterr().out)["notes"]
    assert note.startswith("links that lead out of the folder: out, own, kept/up; what is written there")


ELSEWHERE = """\
import os, pathlib, tempfile, numpy as np
n = int(os.environ["OMP_NUM_THREADS"])
np.save(os.path.abspath("weights.npy"), np.ones(3))
np.save("../weights.npy", np.ones(3) * n)
np.save("{there}/weights.npy", np.ones(3) * n)
np.save("part.npy", np.ones(3) * n)
os.replace("part.npy", "{there}/model.npy")
for path in ("../beside.txt", "{there}/a.txt", "{there}/a.txt", "{there}/2026-11-23/b.txt", "{there}/.c/d"):
    pathlib.Path(path).parent.mkdir(exist_ok=True)
    pathlib.Path(path).write_text("x")
open("{there}/library.log", "w").close()
open(tempfile.gettempdir() + "/x.txt", "w").close()
open("/dev/null", "w").close()
tempfile.TemporaryFile(dir="..").close()
open(b"inside.txt", "w").close()
print("loss: 1")
"""


def test_files_outside_of_the_folder_are_compared_or_named(tmp_path, capsys, monkeypatch):
    folder, there, scratch = (tmp_path / name for name in ("project", "there", "scratch"))
    for each in (folder, there, scratch):
        each.mkdir()
    monkeypatch.setenv("TMPDIR", str(scratch))
    monkeypatch.setattr(tempfile, "tempdir", None)
    report = attempt(folder, capsys, ELSEWHERE.format(there=there), "--cpus", "1,2")
    assert {(each["name"], each["distinct"]) for each in report["verdicts"][0]["compared"]} == {
        ("../weights.npy", 2),
        (f"{there}/weights.npy", 2),
        (f"{there}/model.npy", 2),
        ("inside.txt", 1),
        ("weights.npy", 1),
    }
    (note,) = report["notes"]
    assert note.startswith("written outside of the folder, neither kept apart nor compared: ")
    assert note.partition(": ")[2].split(", ") == ["../beside.txt", f"{there}/*/b.txt", f"{there}/a.txt"]


DOWNLOADS = """\
import os, pathlib
if not ({there}):
    pathlib.Path({name}).write_text("x")
print("loss: 1")
"""


@pytest.mark.parametrize(
    ("name", "there", "bitwise"),
    [
        ("'{cache}/resnet.pt'", "os.path.exists('{cache}/resnet.pt')", Answer.ABSENT),
        ("'{cache}/%d.pt' % len(os.listdir('{cache}'))", "None", Answer.SAME),
        ("'../resnet.pt'", "os.listdir('{cache}') or os.mkdir('{cache}/x')", Answer.INCONCLUSIVE),
    ],
)
def test_a_model_that_the_first_run_alone_downloads_is_not_compared(tmp_path, capsys, name, there, bitwise):
    folder, cache = tmp_path / "project", tmp_path / "models"
    folder.mkdir()
    cache.mkdir()
    script = DOWNLOADS.format(name=name.format(cache=cache), there=there.format(cache=cache))
    report = attempt(folder, capsys, script, "--cpus", "1,2")
    assert answers(report)["bitwise"] == bitwise
    note = f"written outside of the folder in the first run alone, and not compared: {cache}/resnet.pt"
    assert report["notes"] == ([note] if bitwise is Answer.ABSENT else [])


def test_a_program_that_no_copy_of_the_folder_has_is_run_where_it_lies(tmp_path, capsys):
    environment = tmp_path / "project" / ".venv" / "bin"
    environment.mkdir(parents=True)
    for folder in (tmp_path, environment):
        (folder / "python").symlink_to(sys.executable)
    (tmp_path / "project" / "train.py").write_text("print('loss: 1')")
    for python in (".venv/bin/python", "../python"):
        command = ["-C", str(tmp_path / "project"), "-q", "try", "--", python, "train.py"]
        assert cli.run(command) == 0
        assert f"\n{python} train.py: 1 thread and " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("script", "told"),
    [
        ("def f():\n    raise ValueError('bad data')\nf()", 'File "train.py", line 2, in f'),
        ("input('name? ')", "its standard input is empty"),
        ("open('../elsewhere/x.csv')", "what lies elsewhere needs an absolute path"),
        (
            "open('../x.csv')",
            f"run it from the folder above: sh -c 'cd FOLDER && {sys.executable} train.py')",
        ),
        ("raise RuntimeError('No CUDA GPUs are available')", "GPUs are hidden from it by CUDA_VISIBLE_"),
        ("import subprocess; subprocess.check_output(['git', 'log'])", "without .git: set GIT_DIR to the"),
        (
            "import argparse; p = argparse.ArgumentParser(); p.add_argument('x'); p.parse_args()",
            "usage: train.py",
        ),
    ],
    ids=["traceback", "input", "data", "data above", "gpu", "git", "arguments"],
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
    weights, model = evidence_of(report["verdicts"][0])
    assert weights.startswith("weights.npz: 2 distinct in 4 runs")
    assert model.startswith("model.npz: the same in all 4 runs")


def test_where_a_seed_is_not_enough_replay_is_named(tmp_path, capsys):
    (tmp_path / "train.py").write_text(UNSEEDED)
    assert cli.run(["-C", str(tmp_path), "-q", "try", "--", sys.executable, "train.py"]) == 0
    out = capsys.readouterr().out
    assert out.splitlines()[-1] == f"next: vbstudy -C {tmp_path} try --replay -- {sys.executable} train.py"


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


@pytest.mark.needs("studies", long=True)
def test_a_program_imports_exact_mode_and_report_without_an_install(tmp_path, capsys, without_vbstudy):
    pytest.importorskip("torch")
    (tmp_path / "train.py").write_text(REPORTING)
    program = [str(without_vbstudy), "train.py"]
    assert cli.run(["-C", str(tmp_path), "-q", "--json", "try", "--cpus", "1,2", "--", *program]) == 0
    report = json.loads(capsys.readouterr().out)
    assert answers(report)["bitwise"] == answers(report)["predictions"] == Answer.SAME
    assert evidence_of(report["verdicts"][0])[0].startswith("vbstudy.report.weights: the same in all 4 runs")
    assert [one["what"] for one in report["overrides"]] == ["torch.manual_seed", "processes started"]
    assert report["last_lines"] == ["False True"]


def test_metrics_that_a_program_reports_are_compared(tmp_path, capsys):
    script = """
import os
from vbstudy import report
for epoch in (1, 2):
    report.metric("accuracy", epoch / 4 + float(os.environ["OMP_NUM_THREADS"]) / 100, epoch=epoch)
"""
    report = attempt(tmp_path, capsys, script, "--cpus", "1,2")
    assert evidence_of(report["verdicts"][2]) == [
        "vbstudy.report.metric: accuracy: 2 distinct in 4 runs (0.51 | 0.52, last of 2)"
    ]
    damage = "open(os.environ['VBSTUDY_REPORT'] + '/metrics.jsonl', 'a').write('{')"
    (note,) = attempt(tmp_path, capsys, script + damage, "--cpus", "1,2")["notes"]
    assert note.startswith("vbstudy.report.metric: metrics.jsonl: cannot be read")


def test_numbers_that_python_does_not_print_are_compared_beside_those_that_it_does(tmp_path, capsys):
    script = """
import logging, os, subprocess, sys
logging.basicConfig(format="%(levelname)s %(message)s", level="INFO")
logging.info("loss: 0.5")
for i in range(3): print(f"score: {i}", end="\\r", flush=True)
print("score: 3", flush=True)
os.write(1, b"auc: 0.7\\n")
subprocess.run(["sh", "-c", "echo accuracy: 0.9$OMP_NUM_THREADS"])
"""
    report = attempt(tmp_path, capsys, script, "--cpus", "1,2")
    assert evidence_of(report["verdicts"][2]) == [
        "accuracy: 2 distinct in 4 runs (0.91 | 0.92)",
        "loss @ train.py:4: the same in all 4 runs (0.5)",
        "score @ train.py:6: the same in all 4 runs (3)",
        "auc: the same in all 4 runs (0.7)",
    ]


EVERYTHING = """\
import json, os, sys, warnings, numpy as np
n = int(os.environ["OMP_NUM_THREADS"])
warnings.warn(f"suggested max number of worker in current system is {n}")
print("config: batch_size=32 embd_pdrop=0.1")
np.save("features.npy", np.ones(3) * n)
json.dump({"eval": {"loss": 0.5 + n}, "runtime": os.getpid()}, open("metrics.json", "w"))
print("a line of text" + "!" * n)
"""


def test_everything_that_a_program_writes_and_prints_is_compared(tmp_path, capsys):
    report = attempt(tmp_path, capsys, EVERYTHING, "--cpus", "1,2")
    files, _, metric, output = report["verdicts"]
    assert [each["name"] for each in files["compared"]] == ["features.npy"]
    assert [(each["name"], each["answer"]) for each in metric["compared"]] == [
        ("metrics.json: eval.loss", Answer.MATTERS)
    ]
    assert metric["constants"] == 2
    assert output["compared"][0]["remark"] == "a line of text!\na line of text!!"
    assert {label: len(times) for label, times in report["wall_s"].items()} == {"1 thread": 1, "2 threads": 2}


@pytest.mark.needs("studies")
@pytest.mark.parametrize(("level", "code"), [("bitwise", 1), ("predictions", 0), ("metric", 0)])
def test_a_check_fails_where_something_differs_at_its_level(tmp_path, capsys, level, code):
    (tmp_path / "train.py").write_text(SCRIPT.format(weights="+ n", predictions="", metric=""))
    (tmp_path / "helper.py").write_text(HELPER)
    program = ["--check", "--level", level, "--", sys.executable, "train.py"]
    assert cli.run(["-C", str(tmp_path), "-q", "try", *program]) == code
    assert ("not everything that was compared is the same" in capsys.readouterr().err) is bool(code)


@pytest.mark.needs("studies")
@pytest.mark.parametrize(
    ("count", "code", "first"),
    [
        (
            "2",
            1,
            "The thread count was not varied, because the program sets its own: the metrics are the same.",
        ),
        ("torch.get_num_threads()", 0, "The thread count shows no effect: the metrics are the same."),
    ],
)
def test_runs_that_a_program_gave_the_same_thread_count_are_no_check(tmp_path, capsys, count, code, first):
    (tmp_path / "train.py").write_text(f"import torch\ntorch.set_num_threads({count})\nprint('loss: 0.5')\n")
    assert cli.run(["-C", str(tmp_path), "-q", "try", "--check", "--", sys.executable, "train.py"]) == code
    out, error = capsys.readouterr()
    assert out.splitlines()[0] == first
    assert ("--check: the thread count was not varied" in error) is bool(code)
    assert ("next: remove that setting" in out) is bool(code)


@pytest.mark.parametrize(
    ("program", "level", "told"),
    [
        ("true", "bitwise", "at level bitwise nothing was seen that could be compared"),
        ("echo accuracy: 0.$$", "predictions", "at level predictions runs differ within one condition"),
        ("echo x > file", "metric", "at level metric nothing was seen that could be compared"),
    ],
)
def test_a_check_that_proves_nothing_fails_and_states_why(tmp_path, capsys, program, level, told):
    options = ["try", "--check", "--level", level, "--cpus", "1,2", "--", "sh", "-c", program]
    assert cli.run(["-C", str(tmp_path), "-q", *options]) == 1
    assert told in capsys.readouterr().err


@pytest.mark.parametrize(("factor", "code"), [("1", 0), ("n", 1)])
def test_a_check_compares_files_of_numbers_alone_whatever_these_are_called(tmp_path, capsys, factor, code):
    script = (
        "import json, os\nn = int(os.environ['OMP_NUM_THREADS'])\n"
        f"json.dump({{'iteration': [0.1], 'data': [0.3 * {factor}]}}, open('chart.json', 'w'))"
    )
    program = ["--check", "--cpus", "1,2", "--", sys.executable, "-c", script]
    assert cli.run(["-C", str(tmp_path), "-q", "try", *program]) == code
    assert ("chart.json: the same in all 4 runs (its numbers)" in capsys.readouterr().out) is not bool(code)


CURED = """\
import os, sys
sys.modules["torch"] = sys  # so that exact mode is applicable
exact = "VBSTUDY_EXACT" in os.environ
n = len(os.sched_getaffinity(0)) / 8
print("loss:", 0.5 + n * ({matters}) + ("OTHER" in os.environ and {matters}))
"""


@pytest.mark.parametrize(
    ("matters", "code", "told"),
    [
        ("not exact", 0, ""),
        ("exact", 1, "in exact mode at level bitwise not everything that was compared is the same"),
    ],
)
def test_a_check_with_exact_mode_is_of_the_runs_with_it_alone(
    tmp_path, capsys, monkeypatch, matters, code, told
):
    (tmp_path / "train.py").write_text(CURED.format(matters=matters))
    options = ["--exact", "--cpus", "1,2", "--runs", "2", "--", sys.executable, "train.py"]
    command = ["-C", str(tmp_path), "-q", "try"]
    assert cli.run([*command, "--check", "--save", str(tmp_path / "s"), *options]) == code
    assert told in capsys.readouterr().err
    monkeypatch.setenv("OTHER", "")  # which another machine has
    assert cli.run([*command, "--check", "--against", str(tmp_path / "s"), *options]) == code


def test_a_check_with_exact_mode_fails_where_it_is_not_applicable(tmp_path, capsys):
    program = ["--exact", "--cpus", "1,2", "--runs", "2", "--", sys.executable, "-c", "print('loss: 1')"]
    assert cli.run(["-C", str(tmp_path), "-q", "try", "--check", *program]) == 1
    assert "in exact mode at level bitwise nothing was seen" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("vary", "labels", "expression"),
    [
        ("hash", ["PYTHONHASHSEED=0", "PYTHONHASHSEED=1"], "hash('a') % 997"),
        ("env:MODE=a,b", ["MODE=a", "MODE=b"], "len(os.environ['MODE']) + ord(os.environ['MODE'])"),
    ],
)
def test_another_factor_is_varied_alone(tmp_path, capsys, vary, labels, expression):
    script = f"import os\nprint('loss:', {expression})\nprint('cpus', len(os.sched_getaffinity(0)))"
    report = attempt(tmp_path, capsys, script, "--vary", vary, "--cpus", "1")
    assert report["conditions"] == labels
    assert answers(report)["metric"] == Answer.MATTERS
    assert "cpus" not in str(report["verdicts"][2]["compared"])


LOADER = """\
import torch
data = torch.utils.data.TensorDataset(torch.arange(8.0))
info = lambda _: torch.utils.data.get_worker_info() is not None
made = torch.utils.data.DataLoader(data, 2, False, num_workers=1, collate_fn=info, persistent_workers=True)
print("loss:", float(sum(made)))
"""


@pytest.mark.needs("studies", long=True)
def test_the_number_of_workers_is_varied_whatever_the_program_asks_for(tmp_path, capsys):
    pytest.importorskip("torch")
    report = attempt(tmp_path, capsys, LOADER, "--vary", "workers", "--cpus", "1")
    (loss,) = report["verdicts"][2]["compared"]
    assert (report["conditions"], loss["answer"]) == (["0 workers", "2 workers"], Answer.MATTERS)
    assert "0.0 | 4.0" in loss["remark"]


def test_without_a_loader_varying_its_workers_is_said_to_do_nothing(tmp_path, capsys):
    report = attempt(tmp_path, capsys, "print('loss: 1')", "--vary", "workers", "--cpus", "1")
    assert "no DataLoader of PyTorch was made: nothing was varied" in report["notes"]


@pytest.mark.parametrize("command", [["try", "--save"], ["record", "--output"]])
def test_a_file_that_cannot_be_written_is_reported_before_the_program_runs(tmp_path, capsys, command):
    began = tmp_path / "began"
    program = [*command, "/proc/self/there", "--", "touch", str(began)]
    assert cli.run(["-C", str(tmp_path), "-q", *program]) == 6
    assert "/proc/self/there: cannot be written: " in capsys.readouterr().err
    assert not began.exists()


def test_a_finished_trial_is_not_lost_for_a_file(tmp_path, capsys):
    command = ["-C", str(tmp_path), "-q", "try", "--cpus"]
    program = ["--", "sh", "-c", f"echo loss: 1; echo >> {tmp_path}/began"]
    there, gone = tmp_path / "there", tmp_path / "gone" / "there"
    gone.parent.mkdir()
    removes = ["--", "sh", "-c", f"echo loss: 1; rm -rf {gone.parent}"]
    assert cli.run([*command, "1,2", "--save", str(gone), *removes]) == 6
    out, err = capsys.readouterr()
    assert "metric       SAME" in out
    assert f"{gone}: cannot be written" in err
    assert cli.run([*command, "1,2", "--save", str(there), *program]) == 0
    before = (tmp_path / "began").read_text()
    assert cli.run([*command, "3,4", "--against", str(there), *program]) == 2
    assert "the file has other conditions (1 thread, 2 threads)" in capsys.readouterr().err
    assert (tmp_path / "began").read_text() == before


@pytest.mark.needs("studies")
def test_two_machines_are_compared_by_a_file_without_their_output(tmp_path, capsys):
    script = (
        "import os\nprint('loss:', os.environ.get('SIDE', 0.5))\nprint('a secret')\nopen('o', 'w').write('x')"
    )
    (tmp_path / "train.py").write_text(script)
    program = ["--", sys.executable, "train.py"]
    file = tmp_path / "there.json"
    assert cli.run(["-C", str(tmp_path), "-q", "try", "--save", str(file), *program]) == 0
    assert "secret" not in file.read_text()
    capsys.readouterr()
    same = ["-C", str(tmp_path), "-q", "try", "--check", "--against", str(file)]
    assert cli.run([*same, *program]) == 0
    assert "The results are the same on both machines." in capsys.readouterr().out
    other = ["--", "env", "SIDE=0.25", sys.executable, "train.py"]
    assert cli.run([*same, *other]) == 1
    out = capsys.readouterr().out
    assert "The results differ between the two machines." in out
    assert "numbers: loss @ train.py:2: 2 distinct in 4 runs (0.5 | 0.25)" in out
    assert "note: the file was saved for another command line" in out


@pytest.mark.parametrize(
    ("own", "options", "noted"),
    [
        ("0,1", [], True),
        ("", [], False),
        ("-1", [], False),
        ("0", ["--cpus", "1", "--vary", "env:CUDA_VISIBLE_DEVICES=0,-1"], False),
    ],
)
def test_that_gpus_of_the_users_choice_are_hidden_is_noted(
    tmp_path, capsys, monkeypatch, own, options, noted
):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", own)
    report = attempt(tmp_path, capsys, "print('loss: 1')", *options)
    note = f"CUDA_VISIBLE_DEVICES={own} of your environment is replaced by -1: the program runs without a GPU"
    assert report["notes"] == [note] * noted


def test_a_program_that_fails_with_exact_mode_alone_is_not_cured_by_it(tmp_path, capsys):
    script = "import os, sys\nif 'VBSTUDY_EXACT' in os.environ:\n    print('loss: 1.5')\n    sys.exit(3)\n"
    script += "print('loss:', len(os.sched_getaffinity(0)) + 0.5)"
    (tmp_path / "train.py").write_text(script)
    program = ["try", "--exact", "--cpus", "1,2", "--", sys.executable, "train.py"]
    assert cli.run(["-C", str(tmp_path), "-q", *program]) == 0
    told = capsys.readouterr().out
    assert "Exact mode was not measured: the program fails with it" in told
    assert "note: with exact mode it ended with status 3: loss: 1.5\n" in told
    assert "cures" not in told


FAILING_IN_EXACT = """\
import os, sys
exact = "VBSTUDY_EXACT" in os.environ
print("exact" if exact else "plain", file=open({began!r}, "a"))
if exact:
    print({error!r})
    sys.exit({status})
print("loss: 0.5")
"""


@pytest.mark.parametrize(
    ("error", "status", "code", "runs"),
    [("vbstudy exact: there is no C++ compiler", 3, 3, ["plain", "exact"]),
     ("no such operation", 1, 0, ["plain", "exact", "plain", "plain", "plain"])],
)  # fmt: skip
def test_exact_mode_that_fails_is_not_run_again(tmp_path, capsys, error, status, code, runs):
    program, began = tmp_path / "program", tmp_path / "began"
    program.mkdir()
    (program / "train.py").write_text(FAILING_IN_EXACT.format(began=str(began), error=error, status=status))
    command = ["try", "--exact", "--cpus", "1,2", "--runs", "2", "--", sys.executable, "train.py"]
    assert cli.run(["-C", str(program), "-q", *command]) == code
    out, err = capsys.readouterr()
    assert began.read_text().split() == runs
    if code:
        assert err == "vbstudy: --exact: there is no C++ compiler\n"
    else:
        assert "note: with exact mode it ended with status 1: no such operation\n" in out


def test_exact_mode_is_not_applicable_without_its_frameworks_in_json_too(tmp_path, capsys):
    report = attempt(tmp_path, capsys, "print('loss: 0.5')", "--exact", "--cpus", "1,2", "--runs", "2")
    assert report["exact"]["answer"] == "not applicable"
    validate(report, "try")


@pytest.mark.needs("programs")
def test_exact_mode_is_tried_beside_the_default(tmp_path, capsys):
    pytest.importorskip("torch")
    script = (Path(__file__).parents[2] / "programs" / "public" / "mlp.py").read_text()
    report = attempt(tmp_path, capsys, script, "--exact", "--cpus", "1,2", "--runs", "2")
    cure = report["exact"]
    assert (cure["answer"], cure["pairs"], cure["low"]) == (Answer.SAME, 2, None)
    assert sorted(report["wall_s"]) == ["1 thread", "1 thread, exact", "2 threads", "2 threads, exact"]


@pytest.mark.needs("studies")
@pytest.mark.parametrize(
    ("script", "noted"),
    [("print('loss: 0.5')", True), ("import sys\nprint('loss: 0.5', '--timeout' in sys.argv)", False)],
)
@pytest.mark.parametrize("command", [["try"], ["harden", "--runs", "2", "--tiers", "5"]])
def test_an_option_behind_the_program_that_it_does_not_have_is_noted(
    tmp_path, capsys, script, noted, command
):
    (tmp_path / "train.py").write_text(script)
    program = [*command, "--cpus", "1,2", "--", sys.executable, "train.py", "--timeout=9", "--epochs", "1"]
    assert cli.run(["-C", str(tmp_path), *program]) == 0
    told = "note: --timeout after the program is passed to the program; vbstudy's options go before it\n"
    assert capsys.readouterr().err.startswith(told) == noted


@pytest.mark.parametrize("command", ["try", "harden", "trace"])
def test_the_counts_to_compare_are_named_cpus_or_threads(capsys, command):
    for option in "--cpus", "--threads":
        assert cli.run([command, option, "1,x", "--", "true"]) == 2
        assert "1,x: 'x' is not a whole number" in capsys.readouterr().err


def test_the_usage_of_harden_names_the_program(capsys):
    assert cli.run(["harden", "--help"]) == 0
    assert "[OPTIONS] [-- PROGRAM ...]" in capsys.readouterr().out


POOLS = """\
import numpy, scipy.linalg
from threadpoolctl import threadpool_info
counts = {each["filepath"].rsplit("/", 2)[1]: each["num_threads"] for each in threadpool_info()}
print("loss:", 1 / counts["scipy.libs"])
"""


@pytest.mark.needs("studies")
def test_the_pool_that_matters_is_named(tmp_path, capsys):
    (tmp_path / "train.py").write_text(POOLS)
    program = ["try", "--which", "--cpus", "1,2", "--", sys.executable, "train.py"]
    assert cli.run(["-C", str(tmp_path), "-q", *program]) == 0
    out = capsys.readouterr().out
    assert out.startswith("What matters: the threads of scipy (openblas).")
    assert "numpy (openblas): SAME" in out


def test_a_program_without_pools_has_none_that_matters(tmp_path, capsys):
    program = ["try", "--which", "--cpus", "1,2", "--", sys.executable, "-c", "print('loss: 1')"]
    assert cli.run(["-C", str(tmp_path), "-q", *program]) == 0
    assert capsys.readouterr().out.startswith("No thread pool of OpenMP, OpenBLAS, MKL, BLIS or TensorFlow")


TIERS = """\
import os, sys
n = int(os.environ["OMP_NUM_THREADS"])
print("loss:", 1 / (n + 2))
"""


def test_the_cheapest_tier_of_a_program_is_proved_and_given_as_lines(tmp_path, capsys):
    (tmp_path / "train.py").write_text(TIERS)
    program = ["harden", "--cpus", "1,2", "--runs", "2", "--", sys.executable, "train.py"]
    assert cli.run(["-C", str(tmp_path), "-q", "--json", *program]) == 0
    found = json.loads(capsys.readouterr().out)
    proofs = {each["tier"]: each["proof"] for each in found["results"]}
    assert proofs == {
        "seeds": "differs", "switches": "not applicable", "environment": "not applicable",
        "logical-threads": "proved", "exact": "not applicable", "one-thread": "proved",
    }  # fmt: skip
    assert found["cheapest"] in ("logical-threads", "one-thread")
    count = 2 if found["cheapest"] == "logical-threads" else 1
    assert found["lines"][0] == f"export OMP_NUM_THREADS={count}"
    assert (found["compared"], found["repetitions"]) == (["metric", "output"], 2)


@pytest.mark.needs("studies")
def test_a_program_that_no_tier_makes_agree_ends_with_one(tmp_path, capsys):
    (tmp_path / "train.py").write_text("import os\nprint('loss:', len(os.sched_getaffinity(0)) + 0.5)")
    program = ["harden", "--cpus", "1,2", "--runs", "2", "--", sys.executable, "train.py"]
    assert cli.run(["-C", str(tmp_path), "-q", *program]) == 1
    told = capsys.readouterr()
    assert told.out.startswith("No tier is proved: with each tier, something differs between the runs.")
    assert "no tier is proved to make all runs of" in told.err
    assert "does not repeat itself" not in told.out


@pytest.mark.needs("studies")
def test_harden_tells_that_a_program_does_not_repeat_itself_on_one_thread(tmp_path, capsys):
    (tmp_path / "train.py").write_text("import os\nprint('loss:', int.from_bytes(os.urandom(6)) + 0.5)")
    program = ["harden", "--cpus", "1,2", "--runs", "2", "--", sys.executable, "train.py"]
    assert cli.run(["-C", str(tmp_path), "-q", *program]) == 1
    told = capsys.readouterr().out
    assert "note: on one thread it does not repeat itself either: " in told
    assert f"\nnext:\n  vbstudy -C {tmp_path} try --replay --cpus 1,2 -- {sys.executable} train.py\n" in told


@pytest.mark.needs("studies")
@pytest.mark.parametrize(
    ("script", "counts"),
    [
        ("", "on all thread counts"),
        ("import torch; torch.set_num_threads(2)", "with the thread count that the program sets itself"),
    ],
)
def test_a_program_that_repeats_on_all_thread_counts_needs_no_cure(tmp_path, capsys, script, counts):
    (tmp_path / "train.py").write_text(f"{script}\nprint('loss: 0.5')")
    program = ["harden", "--cpus", "1,2", "--runs", "2", "--tiers", "0", "--", sys.executable, "train.py"]
    assert cli.run(["-C", str(tmp_path), "-q", *program]) == 0
    assert capsys.readouterr().out.startswith(f"Nothing needs to be done: with fixed seeds, {counts}, all")


def test_a_study_is_made_elsewhere_and_of_the_python_that_the_path_finds(tmp_path, capsys, monkeypatch):
    program, study, other = (tmp_path / name for name in ("program", "study", "env/bin"))
    for folder in (program, study, other):
        folder.mkdir(parents=True)
    (other.parent / "pyvenv.cfg").write_text(f"home = {Path(sys.executable).resolve().parent}\n")
    (other / "python").symlink_to(Path(sys.executable).resolve())
    (program / "t.py").write_text("print('accuracy: 1')")
    for path, python in ((other, str(other / "python")), (Path(sys.executable).parent, "python")):
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
        monkeypatch.setenv("PATH", f"{path}{os.pathsep}{os.environ['PATH']}")
        assert cli.run(["-C", str(program), "-q", "try", "--cpus", "1,2", "--", "python", "t.py"]) == 0
        assert cli.run(["-C", str(study), "init", "--force", "--from-try"]) == 0
        assert f'command = ["{python}", "t.py"]' in (study / "study.toml").read_text()
    assert cli.run(["-C", str(program), "init", "--from-try"]) == 2
    assert "is the program's own folder" in capsys.readouterr().err
    assert not (program / "study.toml").exists()


@pytest.mark.needs("studies")
def test_a_program_that_was_tried_becomes_a_study(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    program, study = tmp_path / "My Program", tmp_path / "study"
    program.mkdir()
    study.mkdir()
    assert cli.run(["-C", str(study), "init", "--from-try"]) == 2
    assert "no program was tried yet" in capsys.readouterr().err
    attempt(program, capsys, SCRIPT.format(weights="+ n", predictions="", metric=""), "--cpus", "1,2")
    assert cli.run(["-C", str(study), "init", "--from-try"]) == 0
    for command in (["provision"], ["sweep", "--runs", "1"]):
        assert cli.run(["-C", str(study), "-q", *command]) == 0
    capsys.readouterr()
    assert cli.run(["-C", str(study), "--json", "analyze"]) == 0
    told = json.loads(capsys.readouterr().out)
    verdicts = {row["scope"]: row["weights"] for row in told["tables"]["verdicts"]}
    assert verdicts["across thread counts"] == "differ"
    assert cli.run(["-C", str(study), "-q", "destroy"]) == 0


@pytest.mark.needs("studies")
@pytest.mark.parametrize(
    ("script", "code", "told"),
    [
        ("pass", 0, "Nothing was seen that could be compared."),
        ("import shutil, os; shutil.rmtree(os.getcwd()); print('loss: 1')", 0,
         "the metrics are the same"),
        ("import os, time\nif os.fork() == 0: os.setsid(); time.sleep(600)\nprint('loss: 1')", 0,
         "note: child processes left running, and ended: 1"),
        ("import os; os.write(1, bytes(range(256)) * 4)", 0, "the output is the same"),
        ("import os; os.get_terminal_size()", 1, "it runs without a terminal"),
        ("get_ipython().system('ls')", 1, "it was a notebook: remove the lines with get_ipython()"),
        ("import getpass; getpass.getpass()", 1, "its standard input is empty"),
        ("import os; open('x', 'w').close(); os.chmod('x', 0); os.symlink('nowhere', 'y'); os.mkfifo('z')", 0,
         "the files are the same"),
        ("import sys\nfor i in range(3): print(f'\\r{i}/3 loss: {i}', end='')\nsys.exit()", 0, "loss"),
        ("import os; os.kill(os.getpid(), 9)", 1, "was killed by SIGKILL (out of memory?)"),
        ("import os; print('loss: 1'); os._exit(int(os.environ['OMP_NUM_THREADS']) - 1)", 0, "exit status"),
    ],
)  # fmt: skip
def test_an_odd_program_gets_a_clear_line_and_leaves_nothing(tmp_path, capsys, script, code, told):
    (tmp_path / "train.py").write_text(script)
    assert (
        cli.run(["-C", str(tmp_path), "-q", "try", "--cpus", "1,2", "--", sys.executable, "train.py"]) == code
    )
    printed = capsys.readouterr()
    assert told in printed.out + printed.err
    assert "Traceback" not in printed.err.partition("last lines")[0]
    assert [path.name for path in tmp_path.iterdir()] == ["train.py"]


def test_a_folder_that_changes_while_it_is_copied_is_told(tmp_path, capsys):
    (tmp_path / "train.py").write_text("print('loss: 1')")
    busy = "i=0; while :; do i=$((i+1)); mkdir d$i; echo x > d$i/f; rm -r d$i; done"
    with subprocess.Popen(["sh", "-c", busy], cwd=tmp_path, stderr=subprocess.DEVNULL) as other:
        code = cli.run(["-C", str(tmp_path), "-q", "try", "--cpus", "1,2", "--", sys.executable, "train.py"])
        other.kill()
    told = capsys.readouterr()
    assert code == 0 or "does another process change it?" in told.err or "cannot be copied" in told.err
    assert "Traceback" not in told.err


@pytest.mark.parametrize(
    ("script", "answer"),
    [
        ("open('a.csv', 'w').write(f'id,trip_duration\\n1,{a}\\n')", "matters"),
        ("open('a.json', 'w').write('{\"usage\": %s}' % a)", "matters"),
        ("open('a.log', 'w').write(f'{datetime.now()} loss {a}\\n')", "matters"),
        ("open('a.log', 'w').write(f'{datetime.now()} end\\n')", "same"),
        ("open('a.yaml', 'w').write(f'num_threads: {a}\\n')", "same"),
        ("open('a.pdf', 'w').write(f'{datetime.now()}'); print('loss', 1)", "same"),
    ],
)
def test_files_of_text_are_compared_but_for_what_passes(tmp_path, capsys, script, answer):
    (tmp_path / "t.py").write_text(
        f"import os\nfrom datetime import datetime\na = os.environ['A']\n{script}\n"
    )
    command = ["try", "--vary", "env:A=1,2", "--cpus", "1", "--", sys.executable, "t.py"]
    assert cli.run(["-C", str(tmp_path), "-q", "--json", *command]) == 0
    assert json.loads(capsys.readouterr().out)["answer"] == answer
