"""The hooks in real processes, with libraries that stand in for the large ones where that is enough."""

import ast
import os
import subprocess
import sys
import tempfile
import time
import timeit
from pathlib import Path

import pytest

from guest.projects import notices, prepare
from guest.projects.hooks.vbstudy_watch import pairs
from guest.records.run import ThreadSpec
from vbstudy import exact


def run(tmp_path, code: str, *, files=None, watch=False, seed=7, deterministic=False, threads=2,
        python=sys.executable, **more):  # fmt: skip
    work = tmp_path / "work"
    work.mkdir(parents=True, exist_ok=True)
    for name, text in (files or {}).items():
        (work / name).write_text(text)
    (work / "train.py").write_text(code)
    hook = prepare.hook_settings(
        tmp_path,
        work.resolve(),
        prepare.library(),
        watch=watch,
        seed=seed,
        intra_op=threads,
        inter_op=threads,
        deterministic=deterministic,
        **more,
    )
    done = subprocess.run(
        [python, "train.py"],
        cwd=work,
        env=os.environ | hook,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout, notices.read(tmp_path / prepare.NOTICED)


def test_a_folder_that_pythonpath_cannot_name_is_refused_for_the_hook_would_not_run(tmp_path):
    with pytest.raises(
        prepare.ProjectError, match="a:b/hooks: a path with a colon cannot stand in PYTHONPATH"
    ):
        run(tmp_path / "a:b", "")


def older_pythons() -> list[Path]:
    """Those that pyenv has."""
    versions = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    return [python for minor in (8, 9, 10) for python in versions.glob(f"3.{minor}.*/bin/python")]


def overrides(noticed):
    return {(o.what, o.value, o.where) for o in notices.overrides(noticed)}


def test_python_and_numpy_are_seeded_after_their_import(tmp_path):
    code = (
        "import random, numpy as np\n"
        "print(random.random(), np.random.rand(), np.random.default_rng().random())"
    )
    first, _ = run(tmp_path / "a", code)
    again, _ = run(tmp_path / "b", code)
    other, noticed = run(tmp_path / "c", code, seed=8)
    assert first == again
    assert all(a != b for a, b in zip(first.split(), other.split(), strict=True))
    assert not overrides(noticed)


def test_seeds_of_the_script_win_and_are_noticed_where_they_stand(tmp_path):
    code = "import random, helper\nhelper.fix()\nprint(random.random())"
    helper = "import random, numpy\ndef fix():\n    random.seed(3)\n    numpy.random.seed(4)\n"
    one, noticed = run(tmp_path / "a", code, files={"helper.py": helper}, seed=1)
    two, _ = run(tmp_path / "b", code, files={"helper.py": helper}, seed=2)
    assert one == two
    assert overrides(noticed) == {
        ("random.seed", "3", "helper.py:3"),
        ("numpy.random.seed", "4", "helper.py:4"),
    }


def test_thread_settings_in_the_environment_and_processes_are_noticed(tmp_path):
    code = (
        "import os, subprocess\nos.environ['OMP_NUM_THREADS'] = '3'\nsubprocess.run(['true'])\n"
        "os.environ['X'] = '1'"
    )
    _, noticed = run(tmp_path, code)
    found = overrides(noticed)
    assert ("os.environ['OMP_NUM_THREADS']", "3", "train.py:2") in found
    assert {(what, where) for what, _, where in found} == {
        ("os.environ['OMP_NUM_THREADS']", "train.py:2"),
        ("processes started", "train.py:3"),
    }


def test_the_compiler_of_an_installed_exact_mode_is_no_process_of_the_program(tmp_path):
    installed = tmp_path / "elsewhere/vbstudy/exact"
    installed.mkdir(parents=True)
    (installed / "compiled.py").write_text("import subprocess\nsubprocess.run(['true'])\n")
    _, noticed = run(tmp_path, f"import sys\nsys.path.append({str(installed)!r})\nimport compiled")
    assert overrides(noticed) == set()


@pytest.mark.needs("studies")
def test_what_the_script_sets_in_pytorch_is_noticed(tmp_path):
    pytest.importorskip("torch")
    code = (
        "import torch\nfrom torch.utils.data import DataLoader\n"
        "print(torch.get_num_threads(), torch.initial_seed(), torch.backends.mkldnn.enabled)\n"
        "torch.set_num_threads(1)\ntorch.set_num_interop_threads(4)\ntorch.manual_seed(5)\n"
        "if __name__ == '__main__': list(DataLoader(range(4), num_workers=1))\n"  # its worker imports it
    )
    out, noticed = run(tmp_path, code, deterministic=True)
    assert out.split()[:2] == ["2", "7"]
    assert {(what, where) for what, _, where in overrides(noticed)} == {
        ("torch.set_num_threads", "train.py:4"),
        ("torch.set_num_interop_threads", "train.py:5"),
        ("torch.manual_seed", "train.py:6"),
        ("DataLoader worker processes", "train.py:7"),
    }
    asked = ThreadSpec(cpus=2, intra_op=2, inter_op=2)
    assert notices.remarks(noticed, asked) == [
        "torch ended with 1 intra-op thread, not 2: the program sets its own count"
    ]
    assert notices.in_force(noticed)["torch"]["inter_op"] == 2


@pytest.mark.needs("studies", long=True)
def test_what_the_script_sets_in_tensorflow_is_noticed(tmp_path):
    pytest.importorskip("tensorflow")
    code = (
        "import tensorflow as tf\n"
        "print(tf.config.threading.get_intra_op_parallelism_threads())\n"
        "config = tf.compat.v1.ConfigProto(intra_op_parallelism_threads=1, inter_op_parallelism_threads=1)\n"
        "tf.compat.v1.Session(config=config)\ntf.random.set_seed(3)\n"
        "tf.config.threading.set_intra_op_parallelism_threads(2)\n"
    )
    out, noticed = run(tmp_path, code)
    assert out == "2\n"
    found = {what: (value, where) for what, value, where in overrides(noticed)}
    value, where = found["tf.compat.v1.ConfigProto"]
    assert (value, where) == ("intra_op_parallelism_threads=1, inter_op_parallelism_threads=1", "train.py:4")
    assert found["tf.random.set_seed"] == ("3", "train.py:5")
    assert found["tf.config.threading.set_intra_op_parallelism_threads"] == ("2", "train.py:6")


def test_a_sitecustomize_that_was_there_is_still_run(tmp_path, monkeypatch):
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "sitecustomize.py").write_text("print('theirs')\n")
    work = tmp_path / "work"
    work.mkdir()
    hook = prepare.hook_settings(
        tmp_path, work, prepare.library(), seed=1, intra_op=1, inter_op=1, deterministic=False
    )
    hook["PYTHONPATH"] += f":{tmp_path / 'own'}"
    done = subprocess.run(
        [sys.executable, "-c", ""], env=os.environ | hook, capture_output=True, text=True, check=True
    )
    assert done.stdout == "theirs\n"
    assert [n["kind"] for n in notices.read(tmp_path / prepare.NOTICED)] == ["start", "end"]


def test_a_hook_that_did_not_run_is_noted(tmp_path):
    assert notices.remarks(notices.read(tmp_path), ThreadSpec(cpus=1, intra_op=1, inter_op=1)) == [
        notices.NOT_RUN
    ]


def test_processes_are_in_the_order_of_their_numbers(tmp_path):
    for number in (1003, 998, 20):
        (tmp_path / f"{number}.jsonl").write_text(f'{{"kind": "start", "number": {number}}}\n')
    assert [notice["number"] for notice in notices.read(tmp_path)] == [20, 998, 1003]


def test_named_numbers_are_followed_through_print_logging_and_several_files(tmp_path):
    helper = "import logging\ndef show(x):\n    logging.getLogger('m').warning('val_loss=%.2f', x)\n"
    code = (
        "import sys, helper\nprint('epoch 1 loss: 0.50, acc = 93.1%')\nprint({'f1': '0.7', 'lr': 1e-3})\n"
        "helper.show(0.25)\nsys.stdout.write('accuracy 0.9\\n')\n"
    )
    out, noticed = run(tmp_path, code, files={"helper.py": helper}, watch=True)
    assert out.splitlines()[0] == "epoch 1 loss: 0.50, acc = 93.1%"
    told = {
        (name, value, n["where"]) for n in noticed if n["kind"] == "numbers" for name, value in n["pairs"]
    }
    assert {
        ("loss", "0.50", "train.py:2"),
        ("acc", "93.1", "train.py:2"),
        ("f1", "0.7", "train.py:3"),
        ("val_loss", "0.25", "helper.py:3"),
        ("accuracy", "0.9", "train.py:5"),
    } <= told


def test_numbers_and_names_in_colour_are_read_from_what_is_printed_and_logged(tmp_path):
    code = (
        "import logging\nprint('\\x1b[1macc\\x1b[0m: \\x1b[32m0.9\\x1b[0m\\x1b[K')\n"
        "logging.warning('loss: \\x1b[1;32m0.5\\x1b[0m')\n"
    )
    _, noticed = run(tmp_path, code, watch=True)
    assert [n["pairs"] for n in noticed if n["kind"] == "numbers"] == [[["acc", "0.9"]], [["loss", "0.5"]]]


def test_files_in_shared_memory_are_noticed_and_streams_are_not(tmp_path):
    with tempfile.TemporaryDirectory(dir="/dev/shm") as shared:
        names = [f"{shared}/model.pt", "/dev/stdout", "/dev/fd/1", "a"]
        _, noticed = run(tmp_path, f"for name in {names}: open(name, 'w').close()", watch=True)
    assert [n["path"] for n in noticed if n["kind"] == "file"] == names[:1]


def test_a_stream_that_is_followed_is_a_context_manager_as_its_own_is(tmp_path):
    code = "import sys\nwith sys.stdout as s:\n    print('loss: 0.5', file=s)\nassert sys.stdout.closed\n"
    out, noticed = run(tmp_path, code, watch=True)
    assert out == "loss: 0.5\n"
    assert [n["pairs"] for n in noticed if n["kind"] == "numbers"] == [[["loss", "0.5"]]]


def test_words_and_values_that_do_not_fit_are_left_to_logging(tmp_path):
    code = "import logging\nlogging.warning('epoch', 3)\nlogging.warning('loss: %s', 0.5)\nprint('end')"
    out, noticed = run(tmp_path, code, watch=True)
    assert out == "end\n"
    assert [n["pairs"] for n in noticed if n["kind"] == "numbers"] == [[["loss", "0.5"]]]


def test_a_program_without_standard_streams_runs_as_without_the_hook(tmp_path):
    code = (
        "import subprocess, sys\nif sys.stdout:\n"
        "    command = f'exec {sys.executable} train.py >&- 2>&-'\n"
        "    assert subprocess.run(command, shell=True).returncode == 0\n"
        "else:\n    print('loss: 0.5')\n    open('done', 'w').close()\n"
    )
    run(tmp_path, code, watch=True)
    assert (tmp_path / "work" / "done").exists()


def test_a_process_that_is_forked_while_another_thread_prints_can_print(tmp_path):
    code = (
        "import os, threading\n"
        "def talk():\n    while not ended:\n        print('loss: 0.5')\n"
        "ended = []\nthread = threading.Thread(target=talk)\nthread.start()\n"
        "for _ in range(60):\n    child = os.fork()\n    if not child:\n"
        "        __import__('vbstudy_hook').write('numbers', where='', pairs=[])\n        os._exit(0)\n"
        "    os.waitpid(child, 0)\nended.append(1)\nthread.join()\n"
    )
    run(tmp_path, code, watch=True)


def test_of_settings_without_end_the_first_are_noticed(tmp_path):
    code = "import random\nfor i in range(10_100):\n    random.seed(i)\n"
    _, noticed = run(tmp_path, code)
    assert sum(n["kind"] == "override" for n in noticed) == 10_000


def test_of_a_progress_bar_the_last_state_counts(tmp_path):
    code = (
        "import sys\nfor i in range(3):\n    sys.stderr.write(f'\\r{i}/3 loss: 0.{i}')\n"
        "sys.stderr.write('\\r3/3 loss: 0.25\\n')\n"
        "for i in range(3):\n    sys.stderr.write(f'\\n\\rinner acc: 0.{i}\\x1b[A')\n"
        "sys.stderr.write('\\n\\r        \\rval_loss: 0.5\\n')\n"
    )
    _, noticed = run(tmp_path, code, watch=True)
    told = [pair for n in noticed if n["kind"] == "numbers" for pair in n["pairs"]]
    assert told == [["loss", "0.25"], ["val_loss", "0.5"]]


@pytest.mark.needs("studies")
def test_of_a_keras_progress_bar_the_last_state_counts_where_a_callback_prints_before_it(
    tmp_path, monkeypatch
):
    pytest.importorskip("keras")
    monkeypatch.setenv("KERAS_BACKEND", "torch")
    code = (
        "import keras\nbar = keras.utils.Progbar(2, interval=0)\n"
        "bar.update(1, [('loss', 0.75)], finalize=False)\nbar.update(2, [('loss', 0.5)], finalize=False)\n"
        "print('\\nEpoch 1: saving model to x.keras')\nbar.update(2, [('loss', 0.25)], finalize=True)\n"
    )
    out, noticed = run(tmp_path, code, watch=True)
    told = [value for n in noticed if n["kind"] == "numbers" for name, value in n["pairs"] if name == "loss"]
    assert [told, out.count("loss")] == [["0.2500"], 1]


@pytest.mark.parametrize(
    ("line", "values"),
    [
        ("Test accuracy is 0.910.", ["0.910"]),
        ("version: 1.2.3", []),
        ("{'mse': np.float64(0.91)}", ["0.91"]),
        ("Accuracy: 9920/10000", ["9920"]),
        ("epoch 3/10", []),
        ("MSE: 1,334.50", ["1,334.50"]),
        ("cv scores: [0.91, 0.93 0.95]", ["0.91", "0.93", "0.95"]),
        ("loss: 0.5, 0.6 of all", ["0.5"]),
        ("{'fit_time': array([1., 2.]), 'test_score': array([0.93, 0.91])}", ["1.", "2.", "0.93", "0.91"]),
        ("loss: tensor([0.1, 0.2])", ["0.1", "0.2"]),
        ("loss: Array(0.5, dtype=float32)", ["0.5"]),
        ("loss: tf.Tensor(0.5, shape=(), dtype=float32)", ["0.5"]),
        ("loss = [[0.5 0.6]]", ["0.5", "0.6"]),
        ("│ test_acc   │ 0.91   │", ["0.91"]),
        ("┃ Test metric ┃ DataLoader ┃", []),
        ("| ep_rew_mean | 23.4 |", ["23.4"]),
        ("epoch |  3/10 | 2024-01-02 | 12:30", []),
        ("INFO | 2024-01-02 | train | 12:30", []),
        ("loss (train): 0.5", ["0.5"]),
        ("epoch (train) 5", []),
        ("latency (ms): 0.5", []),
        ("R^2: 0.87, R² = 0.88", ["0.87", "0.88"]),
    ],
)
def test_numbers_are_read_as_people_print_them(line, values):
    assert [value for _, value in pairs(line)] == values


@pytest.mark.parametrize("text", ["loss" + 1600 * " ", 400 * "QUJDREVGR-"])
def test_a_line_four_times_as_long_takes_less_than_the_square_of_it(text):
    def took(each: str) -> float:
        return min(timeit.repeat(lambda: pairs(each), timer=time.process_time, number=10, repeat=5))

    assert took(text) < 10 * took(text[: len(text) // 4])  # the square: 16


def test_numbers_of_lines_that_are_written_together_or_have_no_end_are_followed(tmp_path):
    code = "import sys\nsys.stdout.writelines(['loss: 0.5\\n', 'acc: 1\\n'])\nprint('f1: 0.7', end='')"
    out, noticed = run(tmp_path, code, watch=True)
    told = [pair for n in noticed if n["kind"] == "numbers" for pair in n["pairs"]]
    assert out == "loss: 0.5\nacc: 1\nf1: 0.7"
    assert told == [["loss", "0.5"], ["acc", "1"], ["f1", "0.7"]]


def test_of_numbers_without_end_the_last_of_each_place_and_name_is_kept(tmp_path):
    code = "for i in range(101):\n    print('a=1 ' * 990)\n    print(f'loss: {i}')\nprint('accuracy: 0.9')"
    _, noticed = run(tmp_path, code, watch=True)
    told = {(n["where"], *pair) for n in noticed[-4:] if n["kind"] == "numbers" for pair in n["pairs"]}
    assert {("train.py:3", "loss", "100"), ("train.py:4", "accuracy", "0.9")} <= told


def test_the_library_comes_last_and_modules_of_the_project_are_found_before_it(tmp_path):
    code = "import guest, vbstudy\nprint(guest.whose, vbstudy.whose)"
    mine = {"guest.py": "whose = 'mine'", "vbstudy.py": "whose = 'mine'"}
    assert run(tmp_path, code, files=mine)[0] == "mine mine\n"


def test_of_the_library_a_project_sees_vbstudy_alone(tmp_path):
    work = tmp_path / "work"
    for name in ("guest", "orchestrator", "vbstudy"):  # folders without __init__.py; one may hold a study
        (work / name).mkdir(parents=True)
        (work / name / "utils.py").write_text("whose = 'mine'")
    code = (
        "from guest import utils as a\nfrom orchestrator import utils as b\nfrom vbstudy import report\n"
        "print(a.whose, b.whose)\ntry:\n    import analysis\nexcept ImportError as error:\n    print(error)\n"
    )
    ours = {str(prepare.library()), *(path for path in sys.path if path.endswith("-packages"))}
    out, _ = run(tmp_path, f"import sys\nsys.path[:] = [p for p in sys.path if p not in {ours}]\n{code}")
    assert out == "mine mine\nNo module named 'analysis'\n"


IN_ANY_PYTHON = """\
import os
from vbstudy import report
report.metric("accuracy", 1)
if not (child := os.fork()):
    os._exit(0)
os.waitpid(child, 0)
print("loss: 0.5")
open("x.csv", "w").close()
open("../y.csv", "w").close()
try:
    from vbstudy import exact
except ImportError as error:
    print(error)
"""


def test_a_program_in_an_older_python_runs_as_in_this_one_but_for_exact_mode(tmp_path):
    hooks = Path(prepare.__file__).parents[1].glob("*/hooks/*.py")
    for each in (*hooks, *Path(exact.__file__).parent.glob("hook/*.py")):
        ast.parse(each.read_text(), feature_version=(3, 8))
    for python in (Path(sys.executable), *older_pythons()):
        folder = tmp_path / python.parents[1].name
        pools = {"counts": {}, "others": 1}
        out, noticed = run(folder, IN_ANY_PYTHON, watch=True, python=python, pools=pools)
        assert out.splitlines()[0] == "loss: 0.5"
        assert ("exact mode needs Python 3.11 or later" in out) == (python != Path(sys.executable))
        assert noticed[0]["kind"] == "start"
        assert noticed[-1]["kind"] == "end"
        assert [n["path"] for n in noticed if n["kind"] == "file"][-1] == str(folder / "y.csv")
        assert (folder / prepare.REPORTED / "metrics.jsonl").exists()
