"""Programs that `try`, `trace` and `harden` run, and that do harm: a clear line, a documented exit code, no
escape in what is printed, nothing left behind."""

import os
import re
import sys
from pathlib import Path

import pytest

from orchestrator.cli import main as cli

pytestmark = pytest.mark.needs("studies")

HIDDEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
NUMPY = "import os, sys, shutil, numpy as np\nnp.save('preds.npy', np.arange(8) % 3)\nprint('accuracy=0.5')\n"
TORCH = "import os, sys, shutil, torch\nx = torch.ones(64, 64)\ny = x @ x\n"
ESCAPES = r"""
for e in range(3):
    print(f'epoch {e} \u202eaccuracy={os.urandom(1)[0] / 100 + e} \x9b2J loss: {os.getpid()}\x1b[2J')
sys.stderr.write('\x1b]0;title\x07 \u2066loss=1\n')
"""
NAMES = r"""
for name in ('a\nb.npz', '\u202egnp.npz', '\x1b[2J.npz', 'x' * 250 + '.npz', '\udcff\udcfe.npz'):
    np.savez(name, **{'\x1b[2J\u202e': np.random.rand(3)})
open('h.json', 'w').write('{"\u202eaccuracy": %f, "\\ud800 loss": 1}' % np.random.rand())
os.mkdir('d\n\x1b[2J')
np.save('d\n\x1b[2J/preds.npy', np.arange(8) % (2 + os.urandom(1)[0] % 5))
"""
PARENT = "shutil.rmtree(os.path.dirname(os.getcwd()), ignore_errors=True)\n"
DEEP = """
home = os.getcwd()
for _ in range(1500):
    os.mkdir('d' * 50)
    os.chdir('d' * 50)
os.chdir(home)
"""
PICKLES = """
import pickle
class Harm:
    def __reduce__(self): return os.mkdir, (os.environ['HARM'],)
for name in ('model.pt', 'model.pkl', 'weights.bin'): pickle.dump(Harm(), open(name, 'wb'), protocol=4)
np.save('preds2.npy', np.array([Harm()], dtype=object), allow_pickle=True)
"""
DAEMON = """
import signal, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        time.sleep(600)
    os._exit(0)
"""
WIRE = """
import socket
torch.randn(2000, 2000).sum()
for fd in range(3, 64):
    try:
        if socket.socket(fileno=os.dup(fd)).family == socket.AF_UNIX: os.write(fd, b'%s\\n')
    except OSError: pass
for _ in range(1000): x @ y
"""
TRY = ["try", "--cpus", "1,2"]
TRACE = ["trace", "--cpus", "1,2"]
PROGRAMS = {
    "escapes": (TRY, NUMPY + ESCAPES, 0, "accuracy"),
    "names": (TRY, NUMPY + NAMES, 0, "d??[2J/preds.npy"),
    "the folder above it is removed": (TRY, NUMPY + PARENT, 1, "did the program remove the folder"),
    "folders without end": (TRY, NUMPY + DEEP, 0, "the same"),
    "pickles": (TRY, NUMPY + PICKLES, 0, "1 named number, 5 files"),
    "a process that stays": (TRY, NUMPY + DAEMON, 0, "child processes left running, and ended: 1"),
    "its output closed": (TRY, NUMPY + "os.closerange(0, 4096)\n", 0, "the same"),
    "escapes in what fails": (TRY, "raise Exception('\\x1b[2J\\u202e' * 9)", 1, "Exception: ?[2J?"),
    "escapes, hardened": (
        ["harden", "--cpus", "1,2", "--runs", "2", "--tiers", "0"],
        NUMPY + ESCAPES,
        1,
        "accuracy",
    ),
    "an end without Python's": (TRACE, TORCH + "os._exit(0)\n", 2, "no operation of PyTorch"),
    "operations without Python's end": (
        TRACE,
        TORCH + "for _ in range(1000): x @ y\nos._exit(0)\n",
        0,
        "its last operations were not seen",
    ),
    "the folder above it is removed, traced": (TRACE, TORCH + PARENT, 0, "equal to the last bit"),
    "a log of something else": (TRACE, TORCH + WIRE % "{", 5, "the program wrote into the log"),
}


@pytest.mark.parametrize("kind", PROGRAMS)
def test_a_program_that_does_harm_gets_a_clear_line_and_leaves_nothing(tmp_path, monkeypatch, capfd, kind):
    command, script, code, told = PROGRAMS[kind]
    folder, temporary = tmp_path / "program", tmp_path / ("tmp" * 40)  # longer than a socket's name may be
    folder.mkdir()
    temporary.mkdir()
    (folder / "train.py").write_text(script)
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    monkeypatch.setenv("HARM", str(tmp_path / "harm"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    status = cli.run(["-C", str(folder), *command, "--", sys.executable, "train.py"])
    printed = "".join(capfd.readouterr())
    assert (status, told in printed) == (code, True), printed
    assert not HIDDEN.search(printed)
    assert [path.name for path in folder.iterdir()] == ["train.py"]
    assert list(temporary.iterdir()) == []
    assert not (tmp_path / "harm").exists()
    assert not [path for path in Path("/proc").glob("[0-9]*") if _works_in(path, temporary)]


def _works_in(process: Path, folder: Path) -> bool:
    try:
        return os.readlink(process / "cwd").startswith(str(folder))
    except OSError:
        return False
