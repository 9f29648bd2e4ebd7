"""A whole study in guests of a real VirtualBox, in its interpreter: the commands of docs/virtualbox.md. Run
by `.ci/run virtualbox-sweep`."""

import hashlib
import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from guest.records.run import WEIGHTS
from tests.docs import test_pages as pages
from tests.orchestrator.sweep.test_pipeline import records
from tests.virtualbox import kit

pytestmark = pytest.mark.needs("virtualbox_sweep")

PATIENCE_S = 4500
# The interpreter's processor ends at SSE 4.2; numpy chooses its functions by that, OpenBLAS its kernels.
SSE4 = "NPY_DISABLE_CPU_FEATURES=X86_V3 X86_V4 AVX512_ICL AVX512_SPR"
KERNELS = """
import ctypes, glob, os, numpy
(file,) = glob.glob(os.path.dirname(numpy.__file__) + "/../numpy.libs/*openblas*")
name = ctypes.CDLL(file).scipy_openblas_get_corename64_
name.restype = ctypes.c_char_p
print(name().decode())
"""


def shell(script: str, home: Path, **more: str) -> str:
    """What it printed; `vbstudy` is that of this checkout."""
    programs = home / "bin"
    programs.mkdir(exist_ok=True)
    (programs / "vbstudy").write_text(f'#!/bin/sh\nexec {sys.executable} -m vbstudy "$@"\n')
    (programs / "vbstudy").chmod(0o755)
    done = subprocess.run(
        ["bash", "-euxc", script],
        cwd=pages.REPOSITORY,
        env=os.environ
        | {"HOME": str(home), "PATH": f"{programs}:{os.environ['PATH']}"}
        | {"PYTHONPATH": f"{pages.REPOSITORY}:{os.environ['PYTHONPATH']}"}
        | more,
        text=True,
        capture_output=True,
        timeout=PATIENCE_S,
    )
    assert done.returncode == 0, f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return done.stdout


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """After all commands of the page but the last, which is executed here."""
    home = tmp_path_factory.mktemp("home")
    base = {
        "BASE": str(kit.image()),
        "KEY": str(kit.folder() / "key"),
        "HOST_KEY": (kit.folder() / "guest.vdi.host_key").read_text().strip(),
    }
    *commands, last = pages.blocks(pages.REPOSITORY / "docs/virtualbox.md")
    assert last == "vbstudy destroy\n"
    study = home / "virtualbox"
    try:
        shell("\n".join(commands), home, **base)
        yield home
    finally:
        shell(f"cd {study} && {last}", home)
        assert not (study / "guests").exists()
        assert kit.machines_in(study) == []
        assert kit.media_in(study) == []
        assert kit.processes_in(study) == []


@pytest.fixture(scope="module")
def swept(home):
    found = records(home / "virtualbox")
    assert [name.split("/")[-2:] for name in found] == [
        [guest, run] for guest in ("cpus-1", "cpus-2") for run in ("0001", "0002")
    ]
    return found


def test_each_run_has_the_fingerprint_of_its_guest(swept):
    for name, record in swept.items():
        cpus = 1 if "/cpus-1/" in name else 2
        environment = record.result.environment
        assert record.spec.threads.intra_op == cpus
        assert record.guest["provider"] == "virtualbox"
        assert environment["hypervisor"] != "none"
        assert "avx" not in environment["cpu"]["flags"]
        assert environment["python"].startswith("3.11.")


def test_the_files_of_each_run_are_those_that_were_hashed_in_its_guest(home, swept):
    for name, record in swept.items():
        for file, artifact in record.result.artifacts.items():
            content = (home / "virtualbox/runs" / name / file).read_bytes()
            assert hashlib.sha256(content).hexdigest() == artifact.sha256


def test_the_network_was_really_trained(swept):
    for record in swept.values():
        assert record.result.last["accuracy"] > 0.85


def test_findings_are_decided_from_the_runs(home, swept):
    found = json.loads((home / "virtualbox/report/findings.json").read_text())["findings"]
    models = {record.result.hashes.weights for record in swept.values()}  # numpy's may be one on both counts
    verdict = "supported" if len(models) > 1 else "not supported"
    assert {each["id"]: each["verdict"] for each in found}["F2"] == verdict
    assert (home / "virtualbox/report/index.html").stat().st_size > 10_000


def test_the_models_are_those_of_the_local_provider_with_the_same_instructions(home, swept):
    study, local = home / "virtualbox", home / "local"
    kernels = shell(f"cd {study} && vbstudy ssh cpus-1 python3 -c {shlex.quote(KERNELS)}", home).split()[-1]
    command = json.dumps(["env", SSE4, f"OPENBLAS_CORETYPE={kernels}", "python", "train.py"])
    text = (study / "study.toml").read_text().partition("[provider]")[0]
    text = text.replace('["python", "train.py"]', command) + '[provider]\nkind = "local"\n'
    local.mkdir()
    (local / "study.toml").write_text(text)
    (local / "digits").symlink_to(study / "digits")
    shell(f"cd {local} && vbstudy provision && vbstudy sweep && vbstudy destroy", home)
    for name, record in records(local).items():
        ours, theirs = (load_file(folder / "runs" / name / WEIGHTS) for folder in (study, local))
        for array in ours:
            np.testing.assert_array_equal(ours[array], theirs[array], err_msg=f"{name} {array}")
        assert record.result.hashes == swept[name].result.hashes
