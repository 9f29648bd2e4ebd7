import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from guest.machine import fingerprint
from guest.records.run import Framework
from vbstudy import exact
from vbstudy.exact.registry import ARITHMETIC_VERSION


def test_the_cpu_is_described_as_the_kernel_does():
    cpu = fingerprint.cpu()
    text = Path("/proc/cpuinfo").read_text()
    assert cpu["model"] in text
    assert cpu["flags"] == sorted(cpu["flags"])


ARM = """processor\t: 0
BogoMIPS\t: 243.75
Features\t: fp asimd sve
CPU implementer\t: 0x41
CPU architecture: 8
CPU variant\t: 0x1
CPU part\t: 0xd40
CPU revision\t: 1

processor\t: 1
"""


@pytest.fixture
def arm(monkeypatch):
    """The files of /proc and /sys of a machine, which the test may change."""
    shown = {"/proc/cpuinfo": ARM}

    def read(path, *_):
        if str(path) not in shown:
            raise FileNotFoundError(path)
        return shown[str(path)]

    monkeypatch.setattr(Path, "read_text", read)
    monkeypatch.setattr(fingerprint.platform, "machine", lambda: "aarch64")
    for cached in (fingerprint.cpu, fingerprint.hypervisor):
        cached.cache_clear()
    yield shown
    for cached in (fingerprint.cpu, fingerprint.hypervisor):
        cached.cache_clear()


def test_two_arm_cpus_are_told_apart(arm):
    first = fingerprint.cpu()
    assert (first["vendor"], first["family"], first["model_number"]) == ("0x41", "8", "0xd40")
    assert first["stepping"] == "0x1 1"
    assert first["model"] == "aarch64 0x41 0xd40 0x1 1"
    arm["/proc/cpuinfo"] = ARM.replace("0xd40", "0xd4f")
    fingerprint.cpu.cache_clear()
    assert fingerprint.cpu()["model"] == "aarch64 0x41 0xd4f 0x1 1"


def test_an_arm_machine_does_not_know_whether_a_hypervisor_is_below(arm):
    assert fingerprint.hypervisor() == "unknown"
    arm["/sys/class/dmi/id/sys_vendor"] = "QEMU\n"
    fingerprint.hypervisor.cache_clear()
    assert fingerprint.hypervisor() == "unknown (QEMU)"


@pytest.mark.needs("studies")
@pytest.mark.parametrize("framework", Framework)
def test_a_fingerprint_is_json_and_names_library_versions(framework):
    found = fingerprint.fingerprint(framework)
    assert json.loads(json.dumps(found)) == found
    assert found["framework"]["name"] == framework
    assert (
        found["framework"]["version"].split("+")[0]
        == found["libraries"]["torch" if framework is Framework.TORCH else "tensorflow-cpu"].split("+")[0]
    )


def test_onednn_names_its_instruction_set():
    assert fingerprint.fingerprint(Framework.TORCH)["framework"]["onednn_isa"]


@pytest.mark.needs("studies", long=True)
@pytest.mark.parametrize("asked", ["0", "1"])
def test_tensorflow_tells_whether_it_uses_onednn(asked):
    program = """
from guest.machine import fingerprint
from guest.records.run import Framework
print(fingerprint.fingerprint(Framework.TENSORFLOW)["framework"]["onednn_enabled"])
"""
    environment = os.environ | {"TF_ENABLE_ONEDNN_OPTS": asked}
    told = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    ).stdout
    assert told == f"{asked == '1'}\n"


def test_exact_mode_is_told_by_its_level_its_arithmetic_and_what_was_below():
    assert "exact" not in fingerprint.fingerprint(Framework.TORCH)["framework"]
    with exact.mode():
        torch.lgamma(torch.ones(3))
        found = fingerprint.fingerprint(Framework.TORCH)["framework"]["exact"]
    assert found.pop("instructions") in ("avx2", "avx512", "neon")
    assert found == {"level": "machine", "arithmetic": ARITHMETIC_VERSION, "below": ["lgamma"]}


def test_knobs_that_steer_threads_are_recorded_and_secrets_are_not(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    monkeypatch.setenv("API_TOKEN", "secret")
    knobs = fingerprint.fingerprint(Framework.TORCH)["knobs"]
    assert knobs["OMP_NUM_THREADS"] == "3"
    assert "API_TOKEN" not in knobs
