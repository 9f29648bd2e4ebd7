"""Programs that nobody edited, with exact mode on: real processes."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from guest.projects.prepare import hook_settings
from vbstudy.exact import launch

pytestmark = pytest.mark.needs("studies")
TRAIN = """
import hashlib, sys
import torch
def train(threads):
    torch.set_num_threads(threads)
    torch.manual_seed(1)
    wide, norm = torch.nn.Linear(300, 200), torch.nn.LayerNorm(200)  # its gradient differs on every CPU
    net = torch.nn.Sequential(wide, norm, torch.nn.ReLU(), torch.nn.Linear(200, 10))
    opt = torch.optim.SGD(net.parameters(), 0.1)
    x, y = torch.randn(512, 300), torch.randint(0, 10, (512,))
    forward = torch.compile(net) if "compiled" in sys.argv else net
    for _ in range(10):
        opt.zero_grad()
        torch.nn.functional.cross_entropy(forward(x), y).backward()
        opt.step()
    weights = b"".join(p.detach().numpy().tobytes() for p in net.parameters())
    print(hashlib.sha256(weights).hexdigest(), flush=True)
"""
TRAIN_HERE = TRAIN + "train(int(sys.argv[1]))\n"
TRAIN_IN_CHILD = (
    TRAIN
    + """
import multiprocessing
if __name__ == "__main__":
    child = multiprocessing.get_context(sys.argv[2]).Process(target=train, args=(int(sys.argv[1]),))
    child.start(); child.join(); sys.exit(child.exitcode)
"""
)

TENSORFLOW = """
import sys
from types import SimpleNamespace
class Context:
    numbers = {}
    intra_op_parallelism_threads = property(
        lambda self: self.numbers["intra"], lambda self, number: self.numbers.update(intra=number)
    )
    inter_op_parallelism_threads = property(
        lambda self: self.numbers["inter"], lambda self, number: self.numbers.update(inter=number)
    )
the_context = Context()
def threading():  # names of its own for each version of the interface
    def set_intra_op_parallelism_threads(num_threads): the_context.intra_op_parallelism_threads = num_threads
    def set_inter_op_parallelism_threads(num_threads): the_context.inter_op_parallelism_threads = num_threads
    def get_intra_op_parallelism_threads(): return the_context.intra_op_parallelism_threads
    def get_inter_op_parallelism_threads(): return the_context.inter_op_parallelism_threads
    return SimpleNamespace(**locals())
class BaseSession:
    def __init__(self, target="", graph=None, config=None): self.config = config
class Session(BaseSession):
    def __init__(self, target="", graph=None, config=None): super().__init__(target, graph, config=config)
config = SimpleNamespace(
    threading=threading(), experimental=SimpleNamespace(enable_op_determinism=lambda: None)
)
v1 = SimpleNamespace(
    config=SimpleNamespace(threading=threading()), Session=Session, ConfigProto=SimpleNamespace
)
compat = SimpleNamespace(v1=v1)
sys.modules["tensorflow.python.eager"] = SimpleNamespace(
    context=SimpleNamespace(Context=Context, context=lambda: the_context)
)
sys.modules["tensorflow.python.client.session"] = SimpleNamespace(BaseSession=BaseSession)
"""


def launched(
    *command: str, options: tuple[str, ...] = (), stdin: str = "", **environment: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "vbstudy", "exact", *options, "--", *command],
        input=stdin, capture_output=True, text=True, check=False, env=os.environ | environment,
    )  # fmt: skip


def script(folder: Path, text: str) -> str:
    file = folder / "train.py"
    file.write_text(text)
    return str(file)


def plain(*command: str) -> str:
    return subprocess.run([*command], capture_output=True, text=True, check=True).stdout


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The hash on one thread with exact mode on."""
    done = launched(sys.executable, script(tmp_path_factory.mktemp("one"), TRAIN_HERE), "1")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


def test_a_program_that_sets_three_threads_learns_the_weights_of_one(tmp_path: Path, weights: str) -> None:
    program = script(tmp_path, TRAIN_HERE)
    done = launched(sys.executable, program, "3", options=("-v",))
    assert done.stdout == weights
    said = (
        r"level machine, arithmetic version 1, torch on 3 threads; operations: [1-9][0-9,]* by its arithmetic"
    )
    assert re.fullmatch(f"vbstudy exact: {said}; below the level: none; unknown: none\n", done.stderr)
    assert plain(sys.executable, program, "1") != plain(sys.executable, program, "2")


def test_operations_below_the_level_and_unknown_ones_are_named_apart(tmp_path: Path) -> None:
    program = "import torch\ntorch.fft.fft(torch.randn(8))\ntorch.special.bessel_j0(torch.randn(3))\n"
    done = launched(sys.executable, script(tmp_path, program), options=("-v",))
    assert "below the level: _fft_r2c (1); unknown: special_bessel_j0 (1)\n" in done.stderr


def test_what_would_be_compiled_runs_uncompiled_and_is_told(tmp_path: Path) -> None:
    program = "import torch\nprint(torch.compile(torch.exp)(torch.zeros(1)).item())\n"
    done = launched(sys.executable, script(tmp_path, program), options=("-v",))
    assert done.stdout == "1.0\n"
    assert "threads, torch.compile off; operations: " in done.stderr


@pytest.mark.parametrize("method", ["spawn", "fork", "forkserver"])
def test_a_child_process_has_exact_mode_too(tmp_path: Path, weights: str, method: str) -> None:
    done = launched(sys.executable, script(tmp_path, TRAIN_IN_CHILD), "2", method)
    assert (done.returncode, done.stdout) == (0, weights), done.stderr


def test_what_a_shell_script_starts_has_exact_mode(tmp_path: Path, weights: str) -> None:
    program = script(tmp_path, TRAIN_HERE)
    assert launched("sh", "-c", f"{sys.executable} {program} 2").stdout == weights


def test_a_program_that_compiles_runs_uncompiled_with_the_same_weights(tmp_path: Path, weights: str) -> None:
    done = launched(sys.executable, script(tmp_path, TRAIN_HERE), "2", "compiled")
    assert done.stdout == weights, done.stderr


def test_strict_mode_refuses_to_compile(tmp_path: Path) -> None:
    done = launched(sys.executable, script(tmp_path, TRAIN_HERE), "1", "compiled", options=("--strict",))
    assert done.returncode == 1
    assert "torch.compile generates code that exact mode cannot reach" in done.stderr


def test_the_module_runs_a_script(tmp_path: Path, weights: str) -> None:
    program = script(tmp_path, TRAIN_HERE)
    assert plain(sys.executable, "-m", "vbstudy.exact", "--threads", "2", program, "2") == weights


@pytest.mark.parametrize("options", [(), ("--level", "threads", "--strict")])
def test_the_module_runs_a_module(tmp_path: Path, options: tuple[str, ...]) -> None:
    program = "import sys, torch; from vbstudy import exact; print(__name__, *sys.argv[1:], exact.active())"
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "train.py").write_text(program)
    command = [sys.executable, "-m", "vbstudy.exact", *options, "-m", "package.train", "--strict", "-m", "3"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.stdout == "__main__ --strict -m 3 True\n", done.stderr


def test_a_program_without_torch_reads_stdin_and_imports_nothing_for_it() -> None:
    text = "import sys; print(input(), sorted({'torch', 'numpy', 'vbstudy'} & set(sys.modules))); sys.exit(3)"
    done = launched(sys.executable, "-c", text, stdin="hello\n")
    assert (done.returncode, done.stdout, done.stderr) == (3, "hello []\n", "")


def test_threads_are_set_in_the_environment() -> None:
    assert launched("sh", "-c", "echo $OMP_NUM_THREADS", options=("--threads", "3")).stdout == "3\n"


def test_a_signal_reaches_the_program_itself() -> None:
    text = "import time; print('up', flush=True); time.sleep(600)"
    command = [sys.executable, "-m", "vbstudy", "exact", "--", sys.executable, "-c", text]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait() == -signal.SIGTERM


def test_the_users_own_sitecustomize_runs(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("print('mine')\n")
    done = launched(sys.executable, "-c", "print('program')", PYTHONPATH=str(tmp_path))
    assert done.stdout.endswith("mine\nprogram\n")


def test_behind_another_hook_exact_mode_is_switched_on_once(tmp_path: Path) -> None:
    env = launch.environment(os.environ, verbose=True)
    paths, library = env["PYTHONPATH"], Path(launch.__file__).parents[2]
    pools = {"intra_op": 1, "inter_op": 1, "deterministic": False}
    env |= hook_settings(tmp_path, tmp_path, library, paths=paths, seed=1, **pools)
    command = [sys.executable, "-c", "import torch"]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
    assert done.stderr.count("level machine") == 1


@pytest.mark.needs("studies", long=True)
def test_whether_exact_mode_cures_a_program_can_be_tried(tmp_path: Path) -> None:
    """Two hooks in one process, whichever is first: each runs the other once."""
    program = script(tmp_path, "import torch; print('loss:', float(torch.ones(3).sum()))")
    exact, tried = ("vbstudy", "exact", "--"), ("vbstudy", "-C", str(tmp_path), "try", "--cpus", "1,2", "--")
    for outer, inner in ((tried, exact), (exact, tried)):
        command = [sys.executable, "-m", *outer, sys.executable, "-m", *inner, sys.executable, program]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert "THREAD COUNT MATTERS" not in done.stdout
        assert "loss" in done.stdout


def test_where_exact_mode_cannot_be_had_the_program_does_not_run_without_it(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("compile = None\n")  # a torch that is too old
    done = launched(sys.executable, "-c", "import torch; print('ran')", PYTHONPATH=str(tmp_path))
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.startswith("vbstudy exact: ")


@pytest.mark.parametrize(("torch", "ends"), [("", (0, "True\n")), ("too old", (3, ""))])
def test_a_torch_that_was_imported_before_the_hook_is_served_too(
    tmp_path: Path, torch: str, ends: tuple[int, str]
) -> None:
    """As by a .pth file, before any sitecustomize."""
    hook = launch.HOOK / "sitecustomize.py"
    (tmp_path / "sitecustomize.py").write_text(f"import torch, runpy\nrunpy.run_path({str(hook)!r})\n")
    if torch:
        (tmp_path / "torch.py").write_text("compile = None\n")
    settings = launch.environment(os.environ)
    environment = settings | {"PYTHONPATH": f"{tmp_path}:{settings['PYTHONPATH']}"}
    command = [sys.executable, "-c", "from vbstudy import exact; print(exact.active())"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == ends, done.stderr


@pytest.mark.parametrize("config", ["tf.config", "tf.compat.v1.config"])
def test_tensorflows_pools_stay_fixed_whatever_the_program_sets(tmp_path: Path, config: str) -> None:
    (tmp_path / "tensorflow.py").write_text(TENSORFLOW)
    program = (
        "import tensorflow as tf\n"
        f"{config}.threading.set_intra_op_parallelism_threads(3)\n"
        f"{config}.threading.set_inter_op_parallelism_threads(num_threads=3)\n"
    )
    done = launched(sys.executable, script(tmp_path, program), options=("-v",))
    in_force = "TensorFlow on 8 threads within an operation, 1 between operations"
    assert (done.returncode, done.stderr) == (0, f"vbstudy exact: {in_force}\n")


def test_a_session_of_tensorflow_has_the_fixed_pools_whatever_its_config_has(tmp_path: Path) -> None:
    (tmp_path / "tensorflow.py").write_text(TENSORFLOW)
    program = (
        "import tensorflow as tf\n"
        "both = 'intra_op_parallelism_threads', 'inter_op_parallelism_threads'\n"
        "mine = tf.compat.v1.ConfigProto(**dict.fromkeys(both, 3), session_inter_op_thread_pool=[])\n"
        "mine.session_inter_op_thread_pool.append(tf.compat.v1.ConfigProto(num_threads=3))\n"
        "for config in (mine, tf.compat.v1.Session(config=mine).config):\n"
        "    own = config.session_inter_op_thread_pool[0].num_threads\n"
        "    print(*(getattr(config, name) for name in both), own)\n"
        "print(tf.compat.v1.Session().config)\n"
    )
    done = launched(sys.executable, script(tmp_path, program))
    assert done.stdout == "3 3 3\n8 1 1\nNone\n", done.stderr


def test_a_python_that_is_too_old_is_named(tmp_path: Path) -> None:
    (tmp_path / "torch.py").touch()
    program = "import sys; sys.version_info = (3, 10, 12); import torch"
    done = launched(sys.executable, "-c", program, PYTHONPATH=str(tmp_path))
    assert done.returncode == 3
    assert done.stderr.startswith("vbstudy exact: exact mode needs Python 3.11 or newer, and this is 3.")


def test_a_program_that_is_not_there_is_named() -> None:
    done = launched("no-such-program")
    assert (done.returncode, done.stderr) == (
        2,
        "vbstudy: no-such-program: command not found, neither in the folder that it runs in nor in PATH\n",
    )
