"""What VirtualBox needs of this host, item by item, each with the command that mends it."""

from __future__ import annotations

import platform
from dataclasses import dataclass
from pathlib import Path

from orchestrator.providers.virtualbox.errors import LOAD_DRIVER, NO_VIRTUALISATION

SECURE_BOOT = "sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
ENABLED = 1  # the byte after four of attributes
FAMILIES = ("debian", "ubuntu", "fedora")  # others are told in general
INSTALL = {
    "debian": (
        "install virtualbox-7.2 from Oracle's repository (https://www.virtualbox.org/wiki/Linux_Downloads); "
        "Debian's stable releases have none"
    ),
    "ubuntu": "sudo apt install virtualbox",
    "fedora": "sudo dnf install VirtualBox, from RPM Fusion or Oracle's repository",
    "": "install VirtualBox 6.1 or later (https://www.virtualbox.org/wiki/Linux_Downloads)",
}
HEADERS = {
    "debian": "sudo apt install linux-headers-{kernel}",
    "ubuntu": "sudo apt install linux-headers-{kernel}",
    "fedora": "sudo dnf install kernel-devel-{kernel}",
    "": "install the headers of kernel {kernel}",
}
SIGN = {
    "debian": "sudo mokutil --import /var/lib/dkms/mok.pub",
    "ubuntu": "sudo mokutil --import /var/lib/shim-signed/mok/MOK.der",
    "fedora": "sudo kmodgenca -a && sudo mokutil --import /etc/pki/akmods/certs/public_key.der",
    "": "sign vboxdrv with a key of the machine's owner (mokutil)",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One line: what was looked at, what was found, and what to do where something is missing."""

    what: str
    found: str
    missing: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Linux:
    """What this host shows. `enables_early`: KVM takes VT-x when it is loaded, not with its first machine, as
    it does since Linux 6.12."""

    system: str  # of FAMILIES, or ""
    kernel: str
    flags: frozenset[str]
    kvm: str  # the module of KVM that is loaded, or ""
    enables_early: bool
    has_driver: bool
    has_headers: bool
    secure_boot: bool


def read(root: Path = Path("/"), kernel: str = "") -> Linux:
    kernel = kernel or platform.release()
    modules = {line.split(" ", 1)[0] for line in _text(root / "proc/modules").splitlines()}
    switch = _bytes(root / SECURE_BOOT)
    return Linux(
        system=_system(_text(root / "etc/os-release")),
        kernel=kernel,
        flags=frozenset(_flags(_text(root / "proc/cpuinfo"))),
        kvm=next((module for module in ("kvm_intel", "kvm_amd") if module in modules), ""),
        enables_early=_text(root / "sys/module/kvm/parameters/enable_virt_at_load").strip() == "Y",
        has_driver=(root / "dev/vboxdrv").exists(),
        has_headers=(root / "lib/modules" / kernel / "build").exists(),
        secure_boot=len(switch) > 4 and switch[4] == ENABLED,
    )


def install(host: Linux) -> str:
    return INSTALL[host.system]


def items(host: Linux) -> list[Check]:
    """In the order in which they are to be mended."""
    return [
        Check(what="virtualbox driver", found="vboxdrv" if host.has_driver else "", missing=driver(host)),
        _processor(host),
        _kvm(host),
        _nested_paging(host),
        Check(what="virtualbox network", found="NAT; no host-only network is needed"),
    ]


def driver(host: Linux) -> str:
    """How to get the kernel driver; nothing where it is loaded."""
    if host.has_driver:
        return ""
    if not host.has_headers:
        headers = HEADERS[host.system].format(kernel=host.kernel)
        return f"{headers}, then `sudo /sbin/vboxconfig` or, for the distribution's package, its DKMS again"
    if host.secure_boot:
        return (
            f"Secure Boot loads signed drivers only: {SIGN[host.system]}, restart, choose Enroll MOK, then "
            "`sudo modprobe vboxdrv`"
        )
    return LOAD_DRIVER


def _processor(host: Linux) -> Check:
    names = {"vmx": "VT-x", "svm": "AMD-V"}
    found = next((name for flag, name in names.items() if flag in host.flags), "")
    return Check(what="virtualbox CPU", found=found, missing="" if found else NO_VIRTUALISATION)


def _kvm(host: Linux) -> Check:
    what = "virtualbox and KVM"
    if not host.kvm:
        return Check(what=what, found="KVM is not loaded")
    if not host.enables_early:
        return Check(what=what, found="KVM takes VT-x or AMD-V only while a machine of its own runs")
    return Check(
        what=what,
        found="",
        missing=(
            f"KVM holds VT-x or AMD-V while it is loaded (since Linux 6.12): sudo modprobe -r {host.kvm}; "
            "for good: echo 'options kvm enable_virt_at_load=0' | sudo tee /etc/modprobe.d/kvm.conf"
        ),
    )


def _nested_paging(host: Linux) -> Check:
    found = next((name for name in ("ept", "npt") if name in host.flags), "")
    cure = "this processor has none: set provider.nested_paging = false in study.toml; guests are slower"
    return Check(what="nested paging", found=found.upper(), missing="" if found else cure)


def _system(release: str) -> str:
    pairs = (line.partition("=") for line in release.splitlines())
    values = {key: value.strip("\"'") for key, _, value in pairs}
    names = [values.get("ID", ""), *values.get("ID_LIKE", "").split()]
    return next((name for name in names if name in FAMILIES), "")


def _flags(cpuinfo: str) -> list[str]:
    for line in cpuinfo.splitlines():
        key, _, value = line.partition(":")
        if key.strip() == "flags":
            return value.split()
    return []


def _text(path: Path) -> str:
    return _bytes(path).decode(errors="replace")


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""  # containers and other kernels do not show everything
