"""Real programs, recorded and replayed by the commands as a user types them."""

import json
import os
import shutil
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.processes import alive

pytestmark = pytest.mark.needs("studies")

PROGRAMS = Path(__file__).parents[2] / "programs"
needs_compiler = pytest.mark.skipif(
    not (shutil.which("cc") and shutil.which("c++")), reason="the library is compiled with cc and c++"
)
MODELS = ("lenet5", "resnet20", "lstm")
SIDE_BY_SIDE = 2
WAITING = {"OMP_WAIT_POLICY": "PASSIVE"}  # more threads than cores: they wait asleep
LEVELS = (pytest.param("library", marks=needs_compiler), "python")

SOURCES = """
import os, random, secrets, sys, threading, time, uuid
import numpy as np
print(os.urandom(4).hex(), secrets.token_hex(4), uuid.uuid4(), random.random(), random.Random().random())
print(np.random.rand(), np.random.default_rng().random(), np.random.RandomState().rand(), hash("text"))
print(open("/dev/urandom", "rb").read(6).hex(), list(np.random.SeedSequence().generate_state(2)))
random.seed(time.time_ns()); np.random.seed(time.time_ns() % 2**32)
print(random.random(), np.random.rand(), np.random.default_rng([os.getpid(), 1]).random())
drawn = {}
threads = [threading.Thread(target=lambda i=i: drawn.update({i: os.urandom(4).hex()})) for i in range(3)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(sorted(drawn.items()), flush=True)
"""

NATIVE = r"""
#include <fstream>
#include <iostream>
#include <random>
#include <thread>
#include <vector>
#include <fcntl.h>
#include <stdio.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <unistd.h>
int main() {
    unsigned char b[4];
    unsigned sum = 0;
    std::random_device device;
    std::cout << device() << ' ' << std::random_device("/dev/urandom")();
    getentropy(b, 4), std::cout << ' ' << *(unsigned *)b;
    syscall(SYS_getrandom, b, 4, 0), std::cout << ' ' << *(unsigned *)b;
    int f = open("/dev/random", O_RDONLY);
    if (read(dup(f), b, 4) == 4) std::cout << ' ' << *(unsigned *)b;
    FILE *file = fopen("/dev/urandom", "r");
    if (fread(b, 1, 4, file) == 4) std::cout << ' ' << *(unsigned *)b << ' ' << getc(file);
    std::ifstream stream("/dev/urandom");
    stream.read((char *)b, 4), std::cout << ' ' << *(unsigned *)b;
    std::vector<std::thread> threads;
    unsigned drawn[4];
    for (int i = 0; i < 4; i++) threads.emplace_back([&drawn, i] { getrandom(&drawn[i], 4, 0); });
    for (auto &t : threads) t.join();
    for (unsigned each : drawn) sum += each; /* which thread draws first is chance, their sum is not */
    std::cout << ' ' << sum << std::endl;
}
"""


def vbstudy(*arguments, **env):
    return subprocess.run(
        [sys.executable, "-m", "vbstudy", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", **env},
    )


def program(tmp_path, text, name="program.py"):
    path = tmp_path / name
    path.write_text(text)
    return path


def recorded(tmp_path, level, *command, **env):
    done = vbstudy("record", "--level", level, "--output", tmp_path / "run.rec", "--", *command, **env)
    assert done.returncode == 0, done.stderr
    return done


def replayed(tmp_path, *command, **env):
    return vbstudy("replay", tmp_path / "run.rec", "--", *command, **env)


@pytest.mark.parametrize("level", LEVELS)
def test_every_source_of_random_numbers_in_python_is_replayed(tmp_path, level):
    path = program(tmp_path, SOURCES)
    first = recorded(tmp_path, level, sys.executable, path)
    again = replayed(tmp_path, sys.executable, path)
    assert again.returncode == 0, again.stderr
    assert again.stdout == first.stdout
    assert (
        first.stdout != vbstudy("record", "--output", tmp_path / "other", "--", sys.executable, path).stdout
    )
    assert "the recorded" in again.stderr, "a seed made of the clock is replaced, and that is said"
    assert ("only what Python draws" in again.stderr) == (level == "python")


def test_generators_of_numpy_are_of_their_own_class(tmp_path):
    text = """
import copy
import numpy as np
class Own(np.random.RandomState): pass
old, new, own = np.random.mtrand._rand, np.random.RandomState(), Own(3)
print([isinstance(each, np.random.RandomState) for each in (old, new, copy.deepcopy(new), own, 3)])
print([isinstance(each, Own) for each in (old, new, own)])
print(issubclass(type(old), np.random.RandomState), issubclass(int, np.random.RandomState))
"""
    done = recorded(tmp_path, "python", sys.executable, program(tmp_path, text))
    lines = "[True, True, True, True, False]", "[False, False, True]", "True False"
    assert done.stdout.splitlines()[:3] == list(lines)


@needs_compiler
def test_every_source_of_random_numbers_in_c_is_replayed(tmp_path):
    source = program(tmp_path, NATIVE, "native.cpp")
    subprocess.run(["c++", "-pthread", "-o", tmp_path / "native", source], check=True)
    first = recorded(tmp_path, "library", tmp_path / "native")
    again = replayed(tmp_path, tmp_path / "native")
    assert again.returncode == 0, again.stderr
    assert again.stdout == first.stdout
    assert len(first.stdout.split()) == 9
    assert "ran the hooks in Python" in again.stderr, "that no Python ran is said"


@pytest.mark.parametrize("level", LEVELS)
def test_forked_and_started_processes_get_their_own_numbers_back(tmp_path, level):
    path = program(
        tmp_path,
        """
import multiprocessing, os, subprocess, sys
def work(queue): queue.put(os.urandom(4).hex())
context = multiprocessing.get_context("fork")
for _ in range(2):
    queue = context.Queue()
    process = context.Process(target=work, args=(queue,))
    process.start(); print(queue.get()); process.join()
for _ in range(2):
    print(subprocess.check_output([sys.executable, "-c", "import os; print(os.urandom(4).hex())"], text=True))
""",
    )
    first = recorded(tmp_path, level, sys.executable, path)
    again = replayed(tmp_path, sys.executable, path)
    assert (again.returncode, again.stdout) == (0, first.stdout), again.stderr
    assert len(set(first.stdout.split())) == 4


@pytest.mark.parametrize("level", LEVELS)
def test_a_program_that_closes_all_descriptors_has_its_own_files_to_itself(tmp_path, level):
    text = """
import os, random
os.chdir(os.path.dirname(__file__))
random.seed(os.getpid())
drawn = [os.urandom(8)]
os.closerange(3, 64)  # as daemons do
files = [open(f"own-{i}.txt", "w+") for i in range(8)]
for file in files:
    file.write("my data"); file.flush()
drawn.append(os.urandom(8))
random.seed(os.getpid())
if os.fork() == 0:
    drawn.append(os.urandom(8)); files[0].write("!"); [file.flush() for file in files]; os._exit(0)
os.wait()
for file in files:
    file.seek(0); assert file.read() == ("my data!" if file is files[0] else "my data"), file.name
print(*(each.hex() for each in drawn), random.random())
"""
    path = program(tmp_path, text)
    first = recorded(tmp_path, level, sys.executable, path)
    again = replayed(tmp_path, sys.executable, path)
    assert again.returncode == 0, again.stderr
    assert first.stdout == again.stdout != ""


@pytest.mark.parametrize("level", LEVELS)
def test_seeds_of_the_program_stay_with_their_tasks_whichever_thread_or_process_does_them(tmp_path, level):
    """As in pools: the arguments are the tasks of worker a and of worker b."""
    text = """
import os, sys, threading, time
import numpy as np
drawn = {}
def task(seed):
    drawn[seed] = np.random.default_rng(seed).random(), np.random.RandomState(seed).rand()
for name, seed in zip("ab", map(int, sys.argv[1:])):
    thread = threading.Thread(target=task, args=(seed,), name=name)
    thread.start(); thread.join()
print(sorted(drawn.items()), flush=True)
clock = [np.random.default_rng(seed).random() for seed in (5, time.time_ns(), 5, 6, time.time_ns())]
print(clock, flush=True)
told = []
for seed in map(int, sys.argv[1:]):
    out, into = os.pipe()
    if os.fork() == 0:
        np.random.seed(10 + seed); os.write(into, repr((seed, np.random.rand())).encode()); os._exit(0)
    os.wait(); told.append(os.read(out, 99))
print(sorted(told))
"""
    path = program(tmp_path, text)
    first = recorded(tmp_path, level, sys.executable, path, "1", "2")
    again = replayed(tmp_path, sys.executable, path, "2", "1")
    assert (again.returncode, again.stdout) == (0, first.stdout), again.stderr
    assert again.stderr.count("the recorded") == 2, "of the seeds that a clock made"
    assert "did not run" not in again.stderr


@pytest.mark.parametrize("level", LEVELS)
def test_any_number_of_threads_of_any_name_draw_under_a_limit_of_open_files(tmp_path, level):
    text = """
import os, random, resource, threading
resource.setrlimit(resource.RLIMIT_NOFILE, (32, 32))
drawn = []
def work(): drawn.append(os.urandom(4).hex()); random.seed(3)
for i in range(600):
    thread = threading.Thread(target=work, name=f"loader {i} of {'é/' * 300}{i}")
    thread.start(); thread.join()
print(drawn)
"""
    path = program(tmp_path, text)
    first = recorded(tmp_path, level, sys.executable, path)
    again = replayed(tmp_path, sys.executable, path)
    assert (again.returncode, again.stdout) == (0, first.stdout), again.stderr


@pytest.mark.parametrize("level", LEVELS)
def test_a_stream_that_cannot_be_opened_leaves_no_recording(tmp_path, level):
    text = """
import os, resource
os.urandom(8)
resource.setrlimit(resource.RLIMIT_NOFILE, (8, 8))
files = []
try:
    while True: files.append(os.open("/dev/null", os.O_WRONLY))
except OSError: pass
os.urandom(8)
"""
    command = ("record", "--level", level, "--output", tmp_path / "run.rec", "--", sys.executable)
    done = vbstudy(*command, program(tmp_path, text))
    assert done.returncode == 6
    assert "cannot be written: Too many open files; raise `ulimit -n`" in done.stderr
    assert not (tmp_path / "run.rec").exists()


@pytest.mark.parametrize("level", LEVELS)
def test_processes_that_start_at_the_same_time_are_distinguished_by_what_they_do(tmp_path, level):
    path = program(
        tmp_path,
        """
import multiprocessing, os
def work(queue): queue.put(os.urandom(4).hex())
if __name__ == "__main__":
    context = multiprocessing.get_context("spawn")  # starts a tracker of resources beside the worker
    queue = context.Queue()
    process = context.Process(target=work, args=(queue,))
    process.start(); print(queue.get()); process.join()
""",
    )
    first = recorded(tmp_path, level, sys.executable, path)
    for _ in range(3):
        again = replayed(tmp_path, sys.executable, path)
        assert (again.returncode, again.stdout) == (0, first.stdout), again.stderr


@needs_compiler
def test_a_process_that_outlives_the_program_is_waited_for(tmp_path):
    path = program(
        tmp_path,
        """
import subprocess, sys
helper = "import os, time; time.sleep(0.7); os.write(1, os.urandom(4).hex().encode())"
subprocess.Popen([sys.executable, "-c", helper])
""",
    )
    first = recorded(tmp_path, "library", sys.executable, path)
    again = replayed(tmp_path, sys.executable, path)
    assert (again.returncode, again.stdout) == (0, first.stdout), again.stderr
    assert len(first.stdout) == 8


CHANGES = {
    "more": ("os.urandom(8)\nos.urandom(4)", "runs out"),
    "another size": ("os.urandom(9)", "asks differently"),
    "less": ("pass", "less than was recorded: 1 draw is left"),
}


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("change", CHANGES)
def test_a_program_that_asks_differently_is_reported_with_its_line(tmp_path, level, change):
    recorded(tmp_path, level, sys.executable, program(tmp_path, "import os\nos.urandom(8)\n"))
    text, message = CHANGES[change]
    path = program(tmp_path, f"import os\n{text}\n")
    done = replayed(tmp_path, sys.executable, path)
    assert done.returncode == 5
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    if change != "less":
        assert f"{path}, line {2 + (change == 'more')}" in done.stderr


@pytest.mark.parametrize("level", LEVELS)
def test_a_forked_process_that_asks_for_more_is_reported_with_its_line(tmp_path, level):
    text = "import os\nif os.fork() == 0:\n    os.urandom(8)\n    {}\nelse:\n    os.wait()\n"
    recorded(tmp_path, level, sys.executable, program(tmp_path, text.format("pass")))
    path = program(tmp_path, text.format("os.urandom(4)"))
    done = replayed(tmp_path, sys.executable, path)
    assert (done.returncode, "Traceback" in done.stderr) == (5, False), done.stderr
    assert "runs out" in done.stderr
    assert f"{path}, line 4" in done.stderr


@needs_compiler
def test_a_seed_of_another_function_is_reported_with_its_line(tmp_path):
    recorded(tmp_path, "library", sys.executable, program(tmp_path, "import numpy\nnumpy.random.seed(1)\n"))
    path = program(tmp_path, "import numpy\nnumpy.random.default_rng(1)\n")
    done = replayed(tmp_path, sys.executable, path)
    assert done.returncode == 5
    assert f"{path}, line 2" in done.stderr


def test_the_exit_code_is_the_programs_and_a_failed_program_is_recorded_too(tmp_path):
    path = program(tmp_path, "import os, sys\nsys.exit(40 + os.urandom(1)[0] % 8)\n")
    done = vbstudy("record", "--output", tmp_path / "run.rec", "--", sys.executable, path)
    assert 40 <= done.returncode < 48
    assert replayed(tmp_path, sys.executable, path).returncode == done.returncode


def test_the_next_sitecustomize_still_runs(tmp_path):
    own = "import os\nif 'VBSTUDY_REPLAY_MODE' in os.environ: print('the own one')\n"
    program(tmp_path, own, "sitecustomize.py")
    path = program(tmp_path, "import os\nos.urandom(2)\n")
    done = vbstudy(
        "record", "--output", tmp_path / "run.rec", "--", sys.executable, path, PYTHONPATH=str(tmp_path)
    )
    assert done.stdout == "the own one\n"
    assert done.returncode == 0


def test_without_a_compiler_python_alone_is_recorded_with_a_note(tmp_path):
    path = program(tmp_path, "import os\nprint(os.urandom(8), hash('text'))\n")
    arguments = ("--output", tmp_path / "run.rec", "--", sys.executable, path)
    without = {"CC": "no-such-compiler", "XDG_CACHE_HOME": str(tmp_path / "cache")}
    first = vbstudy("record", *arguments, **without)
    assert first.returncode == 0
    assert "only what Python draws was recorded" in first.stderr
    assert "no-such-compiler" in first.stderr
    assert replayed(tmp_path, sys.executable, path).stdout == first.stdout
    refused = vbstudy("record", "--level", "library", "--force", *arguments, **without)
    assert refused.returncode == 3


def test_the_program_runs_in_its_folder_and_the_recording_lies_in_the_current_one(tmp_path, monkeypatch):
    (tmp_path / "project").mkdir()
    monkeypatch.chdir(tmp_path)
    text = f"#!{sys.executable}\nimport os\nprint(os.urandom(8), os.getcwd())\n"
    program(tmp_path / "project", text, "run").chmod(0o755)
    first = vbstudy("-C", "project", "record", "--output", "run.rec", "--", "./run")
    assert first.stdout.endswith(f"{tmp_path}/project\n"), first.stderr
    assert (tmp_path / "run.rec").exists()
    assert vbstudy("-C", "project", "replay", "run.rec", "--", "./run").stdout == first.stdout
    for command in (["record", "--output", "new.rec"], ["replay", "run.rec"], ["exact"]):
        done = vbstudy("-C", "nowhere", *command, "--", "./run")
        assert (done.returncode, "-C nowhere: is not a folder" in done.stderr) == (2, True), done.stderr


def test_bad_input_is_refused_with_the_code_of_the_table(tmp_path):
    path = tmp_path / "run.rec"
    missing = vbstudy("replay", path, "--", "true")
    assert (missing.returncode, "no such recording" in missing.stderr) == (2, True)
    path.write_text("something else\n")
    assert vbstudy("replay", path, "--", "true").returncode == 6
    assert vbstudy("record", "--output", path, "--", "true").returncode == 2, "it would be overwritten"
    garbage = program(tmp_path, "garbage", "garbage")
    garbage.chmod(0o755)
    for arguments in (
        ("record", "--output", tmp_path / "new.rec", "--", garbage),
        ("record", "--output", tmp_path / "new.rec", "--", "no-such-program"),
        ("record", "--output", tmp_path / "nowhere" / "new.rec", "--", "true"),
        ("record", "--output", tmp_path / "new.rec", "--", "true"),  # draws nothing
    ):
        done = vbstudy(*arguments)
        assert (done.returncode, "Traceback" in done.stderr) == (2, False), done.stderr
    assert not (tmp_path / "new.rec").exists()


def test_a_recording_is_described_as_json(tmp_path):
    path = program(tmp_path, "import os\nos.urandom(8)\n")
    done = vbstudy("--json", "record", "--output", tmp_path / "run.rec", "--", sys.executable, path)
    told = json.loads(done.stdout)
    assert told["draws"] >= 1
    assert any("imported none of" in remark for remark in told["remarks"])


@pytest.mark.needs("studies", long=True)
@needs_compiler
def test_an_unseeded_training_is_replayed_to_the_same_weights(tmp_path):
    command = (sys.executable, PROGRAMS / "train_torch.py", 2, "lenet5")
    first = recorded(tmp_path, "library", *command)
    again = replayed(tmp_path, *command)
    assert again.returncode == 0, again.stderr
    assert again.stdout == first.stdout
    assert vbstudy("record", "--output", tmp_path / "other", "--", *command).stdout != first.stdout


@needs_compiler
@pytest.mark.needs("studies", long=True)
def test_compiled_code_is_a_limit_with_a_note(tmp_path):
    path = program(tmp_path, "import torch\ntorch.compile(torch.nn.Linear(2, 2))\n")
    assert "torch.compile was used" in recorded(tmp_path, "library", sys.executable, path).stderr


def test_a_recording_that_is_stopped_leaves_no_file(tmp_path):
    path = program(tmp_path, "import os, time\nos.urandom(4)\nprint('ready', flush=True)\ntime.sleep(600)\n")
    command = [
        sys.executable,
        "-m",
        "vbstudy",
        "record",
        "--output",
        str(tmp_path / "run.rec"),
        "--",
    ]
    with subprocess.Popen(
        [*command, sys.executable, str(path)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGTERM)
        _, told = process.communicate(timeout=300)
    assert (process.returncode, told) == (130, "vbstudy: stopped\n")
    assert [file.name for file in tmp_path.iterdir()] == ["program.py"]


def test_what_a_program_started_is_ended_with_it(tmp_path):
    text = "import os, time\nos.urandom(4)\nprint(os.getpid(), flush=True)\ntime.sleep(600)\n"
    shell = ["sh", "-c", f"{sys.executable} {program(tmp_path, text)}; true"]
    command = [sys.executable, "-m", "vbstudy", "record", "--output", str(tmp_path / "run.rec"), "--", *shell]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        started = int(process.stdout.readline())
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 130
        assert not alive(started)


def test_a_program_that_waits_for_a_process_that_was_ended_is_ended_with_its_shell(tmp_path):
    text = (
        "import os, subprocess, sys, time\nprint(os.getpid(), flush=True)\nsize = int(sys.argv[1])\n"
        "if os.fork() == 0:\n    os.urandom(size)\n    os._exit(0)\ntime.sleep(100 * (size - 5))\n"
    )
    shell = f"{sys.executable} {program(tmp_path, text)} $SIZE; true"
    recorded(tmp_path, "python", "sh", "-c", shell, SIZE="5")
    done = replayed(tmp_path, "sh", "-c", shell, SIZE="7")
    assert done.returncode == 5
    assert not alive(int(done.stdout.split()[0]))


def test_work_on_cuda_is_a_limit_with_a_note(tmp_path):
    """A stand-in for a torch that has a GPU: what the hooks ask of it."""
    program(
        tmp_path,
        """
import os, types
def manual_seed(seed): return seed
def compile(model): return model
random = types.SimpleNamespace(manual_seed=manual_seed)
cuda = types.SimpleNamespace(is_initialized=lambda: True)
os.urandom(4)
""",
        "torch.py",
    )
    done = recorded(tmp_path, "auto", sys.executable, program(tmp_path, "import torch\n"))
    assert "CUDA was used" in done.stderr


@pytest.mark.parametrize("level", LEVELS)
def test_a_disk_that_is_full_leaves_no_recording(tmp_path, level):
    """A limit on the size of files stands in for the full disk."""
    path = program(tmp_path, "import os\nfor _ in range(3000): os.urandom(64)\n")
    arguments = [sys.executable, "-m", "vbstudy", "record", "--level", level]
    arguments += ["--output", tmp_path / "run.rec", "--", sys.executable, path]
    limited = "import os, resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (65536, 65536)); "
    limited += "os.execv(sys.argv[1], sys.argv[1:])"
    done = subprocess.run(
        [sys.executable, "-c", limited, *map(str, arguments)],
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert (done.returncode, "Traceback" in done.stderr) == (6, False), done.stderr
    assert [file.name for file in tmp_path.iterdir()] == ["program.py"]


@pytest.mark.needs("replay")
@pytest.mark.parametrize("threads", [1, 2, 4])
@pytest.mark.parametrize("framework", ["torch", "keras"])
def test_eight_replays_of_eight_have_the_recorded_weights(tmp_path, framework, threads):
    """Chen et al., ICSE 2022, table 5: 8 of 8; each of another recording here. Three networks in one program:
    most of a training this small is the import of its framework."""
    command = (sys.executable, PROGRAMS / f"train_{framework}.py", threads, *MODELS)

    def pair(number):
        folder = tmp_path / str(number)
        folder.mkdir()
        first = recorded(folder, "library", *command, **WAITING)
        again = replayed(folder, *command, **WAITING)
        assert again.returncode == 0, again.stderr
        return first.stdout.splitlines(), again.stdout.splitlines()

    with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
        pairs = list(pool.map(pair, range(8)))
    for place, model in enumerate(MODELS):
        weights = [(first[place], again[place]) for first, again in pairs]
        assert all(first.startswith(model) and first == again for first, again in weights)
        assert len(set(weights)) == 8, f"unseeded trainings of {model} differ"
