"""Programs that use public libraries, through the whole flow: does the thread count matter, where does it
start, which tier is proved, does exact mode cure it. Run by `.ci/run programs`, which installs them."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.needs("programs")
FOLDER = Path(__file__).parent / "public" / "libraries"
PROGRAMS = sorted(path.stem for path in FOLDER.glob("*.py"))
TORCH = [name for name in PROGRAMS if "import torch" in (FOLDER / f"{name}.py").read_text()]
EAGERLY = [name for name in PROGRAMS if name.startswith(("jax_", "keras_", "tensorflow_"))]
NO_FRAMEWORK = ("sklearn_", "xgboost_", "lightgbm_", "numpy_")


def vbstudy(folder: Path, *arguments: str) -> dict:
    command = [sys.executable, "-m", "vbstudy", "-C", str(folder), "-q", "--json", *arguments]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        command, stdout=subprocess.PIPE, check=True, timeout=1200, env=os.environ | {"PATH": path}
    )
    return json.loads(done.stdout)


@pytest.fixture(scope="module", params=PROGRAMS)
def tried(request, tmp_path_factory):
    """The program's folder and what `try` says of it."""
    folder = tmp_path_factory.mktemp(request.param)
    (folder / "train.py").write_bytes((FOLDER / f"{request.param}.py").read_bytes())
    exact = ["--exact"] if not request.param.startswith((*NO_FRAMEWORK, "jax_")) else []
    found = vbstudy(folder, "try", *exact, "--cpus", "1,2", "--runs", "2", "--", "python", "train.py")
    return request.param, folder, found


def test_a_program_repeats_itself_and_something_of_it_is_compared(tried):
    name, _, found = tried
    assert found["answer"] in ("same", "matters"), found["verdicts"]
    levels = {verdict["level"]: verdict for verdict in found["verdicts"]}
    assert levels["bitwise"]["answer"] != "nothing seen" or levels["predictions"]["answer"] != "nothing seen"
    if name != "numpy_pca":
        assert levels["metric"]["answer"] != "nothing seen"


def test_exact_mode_cures_a_program_of_pytorch_or_tensorflow(tried):
    _, _, found = tried
    if found["exact"] is not None:
        assert found["exact"]["answer"] == "same", found["exact"]["verdicts"]


def test_the_traced_operation_is_the_origin(tried):
    """Computed on one thread, it alone moves the first difference behind it, or removes it. Of TensorFlow and
    JAX no operation can be, alone."""
    name, folder, found = tried
    if name not in TORCH + EAGERLY:
        return
    trace = vbstudy(folder, "trace", "--cpus", "1,2", "--", "python", "train.py")
    assert (trace["outcome"] == "equal") == (found["answer"] == "same")
    if trace["outcome"] == "equal":
        return
    origin = trace["origin"]
    assert origin["source"].startswith("train.py:")
    if name in EAGERLY:
        return
    held = vbstudy(folder, "trace", "--hold", origin["op"], "--cpus", "1,2", "--", "python", "train.py")
    assert held["outcome"] == "equal" or held["origin"]["index"] > origin["index"]


def test_the_pool_that_matters_is_named_in_a_program_without_a_framework(tried):
    name, folder, found = tried
    if not name.startswith(NO_FRAMEWORK):
        return
    which = vbstudy(folder, "try", "--which", "--cpus", "1,2", "--", "python", "train.py")
    mattering = [pool["name"] for pool in which["pools"] if pool["answer"] == "matters"]
    assert bool(mattering) == (found["answer"] == "matters"), which["pools"]


def test_a_tier_is_proved(tried):
    _, folder, found = tried
    tiers = ["--tiers", "exact,one-thread", "--cpus", "1,2", "--runs", "2"]
    hardened = vbstudy(folder, "harden", *tiers, "--", "python", "train.py")
    assert hardened["cheapest"]
    assert (hardened["cheapest"] == "seeds") == (found["answer"] == "same")
