"""Level machine on other sets of instructions, compilers, torch versions and processors: the same weights."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from guest.machine import fingerprint, threads
from guest.records.run import Isa, Optimizer, Variant
from tests import factories
from tests.vbstudy.exact.test_training import COMMITTED, NETWORKS, STEPS

pytestmark = [
    pytest.mark.needs("portable"),
    pytest.mark.skipif(platform.machine() != "x86_64", reason="compares x86-64 with ARM"),
]
THREADS = ("1", "2", "3", "4", "8", "16")
SETS = {
    "avx2": {"VBSTUDY_EXACT_ISA": "avx2", "ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2"},
    "avx512": {"VBSTUDY_EXACT_ISA": "avx512"},
}
OWN_SETS = ["avx2", *["avx512"] * ("avx512dq" in fingerprint.cpu()["flags"])]  # of this CPU
CPU_MODELS = ("Haswell-noTSX", "EPYC")  # Intel's and AMD's, with AVX2; QEMU emulates no AVX-512
ARM_TORCH = "torch==2.9.1"  # the last whose wheels for ARM need no CUDA
ARM_PACKAGES = "numpy typing_extensions sympy mpmath networkx jinja2 MarkupSafe filelock fsspec setuptools"
WHEELS = [f"--platform=manylinux_{version}_aarch64" for version in ("2_28", "2_27", "2_17")]


def hashes(python: list[str], arguments: list[str], environment: dict[str, str]) -> set[str]:
    done = subprocess.run(
        [*python, "-m", "tests.vbstudy.exact.training", *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return set(found["hashes"].values())


@pytest.mark.parametrize("optimizer", list(Optimizer))
@pytest.mark.parametrize("model", NETWORKS)
@pytest.mark.parametrize("steps", [3, STEPS])
@pytest.mark.parametrize("instructions", OWN_SETS)
@pytest.mark.parametrize("compiler", ["g++", "clang++"])
def test_compilers_sets_of_instructions_and_threads_give_the_committed_weights(
    compiler: str,
    instructions: str,
    steps: int,
    model: str,
    optimizer: Optimizer,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    cache = tmp_path_factory.getbasetemp() / compiler  # else the library of another compiler would do
    environment = {**SETS[instructions], "CXX": compiler, "XDG_CACHE_HOME": str(cache)}
    counts = THREADS if steps < STEPS else THREADS[1:2]
    found = hashes([sys.executable], [model, optimizer, *counts, f"--steps={steps}"], environment)
    assert found == {COMMITTED["weights"][str(steps)][model][optimizer]}


def convolutions(python: list[str], environment: dict[str, str]) -> str:
    command = [*python, "-m", "tests.vbstudy.exact.drawn_convolutions"]
    environment = {**os.environ, **environment}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("instructions", OWN_SETS)
@pytest.mark.parametrize("compiler", ["g++", "clang++"])
def test_compilers_and_sets_of_instructions_give_the_same_convolutions(
    compiler: str, instructions: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    cache = tmp_path_factory.getbasetemp() / compiler
    environment = {**SETS[instructions], "CXX": compiler, "XDG_CACHE_HOME": str(cache)}
    assert convolutions([sys.executable], environment) == convolutions([sys.executable], {})


@pytest.fixture(scope="module")
def arm(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[str], dict[str, str]]:
    """A Python of Debian for ARM with torch, emulated; the compiler is one of this machine that makes code
    for ARM."""
    folder = tmp_path_factory.mktemp("arm")
    root, packages = folder / "root", folder / "packages"
    needs = "python3.11,libpython3.11-stdlib,libstdc++6,libgomp1,zlib1g"
    make = ["mmdebstrap", "--arch=arm64", "--variant=extract", f"--include={needs}", "bookworm", str(root)]
    subprocess.run(make, check=True, timeout=600)
    install = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--only-binary=:all:", *WHEELS]
    version = ["--python-version=3.11", "--implementation=cp", "--abi=cp311", f"--target={packages}"]
    subprocess.run([*install, *version, ARM_TORCH, *ARM_PACKAGES.split()], check=True, timeout=1200)
    environment = {
        "CXX": "aarch64-linux-gnu-g++",
        "PYTHONPATH": f"{packages}:{Path(__file__).parents[3]}",
        "PYTHONDONTWRITEBYTECODE": "1",
        "XDG_CACHE_HOME": str(folder / "cache"),
    }
    return ["qemu-aarch64", "-L", str(root), str(root / "usr/bin/python3.11")], environment


@pytest.mark.parametrize("optimizer", list(Optimizer))
@pytest.mark.parametrize("model", NETWORKS)
def test_an_arm_processor_with_another_torch_gives_the_weights_of_this_one(
    model: str, optimizer: Optimizer, arm: tuple[list[str], dict[str, str]]
) -> None:
    arguments = [model, optimizer, "1", "3", "--steps=5", "--small"]
    emulated = hashes(arm[0], arguments, arm[1])
    assert emulated == hashes([sys.executable], arguments, {})
    assert len(emulated) == 1


def test_an_arm_processor_gives_the_convolutions_of_this_one(
    arm: tuple[list[str], dict[str, str]],
) -> None:
    assert convolutions(*arm) == convolutions([sys.executable], {})


def emulated(cpu: str) -> list[str]:
    return ["qemu-x86_64", "-cpu", cpu, sys.executable]


@pytest.mark.parametrize("optimizer", list(Optimizer))
@pytest.mark.parametrize("model", NETWORKS)
@pytest.mark.parametrize("cpu", CPU_MODELS)
def test_emulated_cpus_of_intel_and_amd_give_the_weights_of_this_one(
    cpu: str, model: str, optimizer: Optimizer
) -> None:
    arguments = [model, optimizer, "1", "3", "--steps=5", "--small"]
    found = hashes(emulated(cpu), arguments, {})
    assert found == hashes([sys.executable], arguments, {})
    assert len(found) == 1


def test_without_exact_mode_emulated_cpus_give_weights_of_their_own() -> None:
    arguments = ["lenet5", Optimizer.SGD, "1", "3", "--steps=2", "--small", "--default"]
    found = [hashes(python, arguments, {}) for python in ([sys.executable], *map(emulated, CPU_MODELS))]
    assert len(set.union(*found)) == 6, found  # three CPUs, two thread counts


@pytest.mark.parametrize("model", ["mlp", "lenet1", "lenet4", "lenet5", "lstm"])
def test_keras_with_fixed_pools_and_portable_instructions_learns_the_same_on_emulated_cpus(
    model: str,
) -> None:
    spec = factories.spec(variant=Variant.EXACT, isa=Isa.PORTABLE)
    settings = threads.environment(spec, cpu_vendor="")

    def learnt(*before: str) -> str:
        return subprocess.run(
            [*before, sys.executable, "-m", "tests.vbstudy.exact.keras_training", model],
            env=os.environ | settings,
            capture_output=True,
            text=True,
            check=True,
        ).stdout

    assert {learnt(*emulated(cpu)[:-1]) for cpu in CPU_MODELS} == {learnt()}
