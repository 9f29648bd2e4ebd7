"""An installed vbstudy: one name in site-packages, beside modules of its users that have the names of its own
packages, and a library that needs nothing but torch and numpy."""

import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from orchestrator.providers.vagrant.command import files
from tests import environments

REPOSITORY = Path(__file__).parents[2]
PACKAGES = ("vbstudy", "orchestrator", "guest", "analysis", "vagrant")
MINE = "whose = 'mine'\n"
TRAIN = """\
import os
os.environ["KERAS_BACKEND"] = "torch"
import analysis, guest, keras, numpy as np, vbstudy
from vbstudy import exact, report
assert analysis.whose == guest.whose == "mine"
assert "site-packages" in vbstudy.__file__
exact.enable()
x, y = np.random.rand(32, 4).astype("float32"), np.arange(32) % 3
model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(3)])
model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"])
model.fit(x, y, epochs=2, verbose=0, callbacks=[report.keras_callback(x, y)])
"""
STUDY = """\
cpus = [1]
variants = ["fixed-seed"]
[engine]
retries = 0
[[workload]]
name = "mine"
project = "mine"
command = ["python", "train.py"]
[workload.metrics]
accuracy = { report = true }
"""
# The library alone: whatever else vbstudy depends on cannot be imported.
BLOCK = """\
from importlib.machinery import PathFinder
find = PathFinder.find_spec
def find_spec(name, path=None, target=None):
    return None if name.partition(".")[0] in {names!r} else find(name, path, target)
PathFinder.find_spec = find_spec
"""


def run(command: list, folder: Path, **env: str) -> subprocess.CompletedProcess:
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run(
        list(map(str, command)), cwd=folder, env=kept | env, capture_output=True, text=True, check=False
    )


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    ignored = shutil.ignore_patterns("__pycache__", ".vagrant")
    for name in PACKAGES:
        shutil.copytree(REPOSITORY / name, folder / "source" / name, ignore=ignored)
    key = folder / "source" / "vagrant" / ".vagrant" / "private_key"  # as `vagrant up` leaves them
    key.parent.mkdir()
    key.touch()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(REPOSITORY / name, folder / "source")
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-index"]
    command += [
        "--no-build-isolation",
        "--disable-pip-version-check",
        "--wheel-dir",
        folder,
        folder / "source",
    ]
    done = run(command, folder)
    assert done.returncode == 0, done.stderr
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def python(wheel, tmp_path_factory) -> Path:
    """An environment with the wheel, and with a stand-in for the distribution python-vagrant."""
    folder = tmp_path_factory.mktemp("installed")
    python = environments.make(folder)
    pip = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-index", "--no-deps"]
    done = run([*pip, "--ignore-installed", "--disable-pip-version-check", wheel], folder)
    assert done.returncode == 0, done.stderr
    (environments.site_packages(folder) / "vagrant").mkdir()
    (environments.site_packages(folder) / "vagrant" / "__init__.py").write_text(MINE)
    return python


@pytest.fixture
def folder(tmp_path) -> Path:
    """A user's folder, with modules that have the names of packages of vbstudy's."""
    for there in (tmp_path, tmp_path / "mine"):
        (there / "analysis").mkdir(parents=True)
        (there / "analysis" / "__init__.py").write_text(MINE)
        (there / "guest.py").write_text(MINE)
    (tmp_path / "study.toml").write_text(STUDY)
    return tmp_path


def test_a_wheel_has_one_name_and_its_types(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    version = wheel.name.split("-")[1]
    assert {name.split("/")[0] for name in names} == {"vbstudy", f"vbstudy-{version}.dist-info"}
    assert "vbstudy/py.typed" in names


@pytest.mark.needs("studies")
def test_an_installed_vbstudy_finds_its_vagrantfile(python, folder):
    code = (
        "from vbstudy.__main__ import find_application; find_application(); import vagrant; "
        "from orchestrator.providers.vagrant.command import files; print(files())"
    )
    done = run([python, "-c", code], folder)
    assert done.returncode == 0, done.stderr
    found = Path(done.stdout.strip())
    assert found.is_relative_to(python.parents[1])
    assert {p.relative_to(found) for p in found.rglob("*") if p.is_file()} == {
        p.relative_to(files()) for p in files().rglob("*") if p.is_file() and ".vagrant" not in p.parts
    }


@pytest.mark.needs("studies", long=True)
@pytest.mark.parametrize("installed", [True, False], ids=["wheel", "clone"])
def test_a_study_beside_modules_with_the_names_of_its_own(python, folder, installed):
    pytest.importorskip("torch")
    pytest.importorskip("keras")
    (folder / "mine" / "train.py").write_text(TRAIN if installed else "print('accuracy: 0.5')\n")
    if not installed:
        (folder / "study.toml").write_text(STUDY.replace("report = true", "pattern = 'accuracy: (.*)'"))
    module = [python if installed else sys.executable, "-m", "vbstudy"]
    env = {} if installed else {"PYTHONPATH": str(REPOSITORY)}
    script = [python.with_name("vbstudy")] if installed else module
    environments.bring_exact_library(folder / "guests" / "cpus-1")
    for command in (
        [*module, "-q", "provision", "--cpus", "1"],
        [*script, "-q", "sweep", "--runs", "1"],
        [*module, "-q", "analyze"],
    ):
        done = run(command, folder, **env)
        assert done.returncode == 0, (command, done.stdout, done.stderr)
    (record,) = (folder / "runs").glob("*/*/*/*/run.json")
    assert (record.parent / "weights.safetensors").is_file() == installed
    assert (folder / "report" / "index.html").is_file()


@pytest.fixture
def block() -> str:
    """Code that leaves a process nothing but what torch itself depends on, and numpy."""
    stated = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["dependencies"]
    ours, torchs = (
        {re.match(r"[\w-]+", each)[0].lower() for each in needed}
        for needed in (stated, importlib.metadata.requires("torch"))
    )
    return BLOCK.format(names=ours - torchs - {"numpy"})


@pytest.mark.needs("studies")
def test_the_library_needs_nothing_but_torch_and_numpy(python, folder, block):
    pytest.importorskip("torch")
    code = "import torch\nfrom vbstudy import exact, report\nexact.enable(strict=True)\n"
    code += "report.weights({'sum': torch.ones(9).sum()})\nprint(exact.active(), report.active())"
    done = run([python, "-c", block + code], folder, VBSTUDY_REPORT=str(folder))
    assert (done.returncode, done.stdout) == (0, "True True\n"), done.stderr
    assert (folder / "weights.npz").is_file()


@pytest.mark.needs("studies")
def test_the_command_line_of_the_library_alone_names_what_is_missing(python, folder, block):
    pytest.importorskip("torch")
    code = "import runpy; runpy.run_module('vbstudy', run_name='__main__')"
    done = run([python, "-c", block + code], folder)
    message = f"vbstudy: the command line needs the package click: {python} -m pip install vbstudy\n"
    assert (done.returncode, done.stderr) == (3, message)


def test_the_command_line_of_a_clone_names_the_clone_to_install(tmp_path):
    code = "import sys; sys.modules['click'] = None; import runpy; "
    code += "runpy.run_module('vbstudy', run_name='__main__')"
    clone = tmp_path / "a clone"
    clone.mkdir()
    for name in PACKAGES:
        (clone / name).symlink_to(REPOSITORY / name)
    (clone / "vbstudy").unlink()
    shutil.copytree(REPOSITORY / "vbstudy", clone / "vbstudy")
    done = run([sys.executable, "-c", code], clone)
    assert done.returncode == 3
    assert done.stderr.endswith(f"-m pip install '{clone}'\n")
