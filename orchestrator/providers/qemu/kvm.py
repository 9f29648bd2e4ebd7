"""Whether hardware virtualisation works here. A KVM device that opens proves nothing: a paravirtual one
may be unable to run a stock kernel. So: the CPU's flags, then a kernel that really boots."""

from __future__ import annotations

import functools
import hashlib
import json
import os
import platform
import signal
from pathlib import Path

from guest.machine import fingerprint
from orchestrator.providers import processes
from orchestrator.providers.qemu import scripts
from orchestrator.providers.qemu.machine import QEMU

PROBE_TIMEOUT_S = 20
DEVICE = Path("/dev/kvm")


def excluded() -> str:
    """Why KVM is out of the question, in a few words; empty when it is worth a try."""
    if not {"vmx", "svm"} & set(fingerprint.cpu()["flags"]):
        return "the CPU shows neither vmx nor svm"
    if not DEVICE.exists():
        return f"there is no {DEVICE}"
    if not os.access(DEVICE, os.R_OK | os.W_OK):
        return f"{DEVICE} may not be used by this user (join group kvm)"
    return ""


def host() -> str:
    """The identity of what KVM hands on of this machine."""
    cpu = fingerprint.cpu()
    return hashlib.sha256(json.dumps([cpu["model"], cpu["flags"], platform.release()]).encode()).hexdigest()


@functools.cache
def probe(kernel: Path, initrd: Path) -> str:
    """Why this kernel does not boot under KVM; empty when it does."""
    command = [
        "timeout", "-s", "KILL", str(PROBE_TIMEOUT_S),  # also when this process is killed
        QEMU, "-nodefaults", "-no-user-config", "-no-reboot", "-display", "none",
        "-machine", "q35", "-accel", "kvm", "-cpu", "host", "-m", "256", "-serial", "stdio",
        "-kernel", str(kernel), "-initrd", str(initrd),
        "-append", "console=ttyS0 quiet panic=-1 vbstudy.probe",
    ]  # fmt: skip
    done = processes.run(command, 2 * PROBE_TIMEOUT_S)
    if done.returncode == -signal.SIGKILL:
        return f"a kernel did not boot under it within {PROBE_TIMEOUT_S} s"
    return "" if scripts.PROBED in done.stdout else "a kernel did not boot under it"
