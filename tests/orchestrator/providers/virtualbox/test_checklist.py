"""Hosts as their kernels and systems show them: what VirtualBox lacks there, and how to mend it."""

import pytest

from orchestrator.providers.virtualbox import checklist
from orchestrator.providers.virtualbox.errors import LOAD_DRIVER, NO_VIRTUALISATION

RELEASES = {
    "debian": 'PRETTY_NAME="Debian GNU/Linux 12 (bookworm)"\nVERSION_ID="12"\nID=debian\n',
    "ubuntu": 'NAME="Ubuntu"\nVERSION_ID="24.04"\nID=ubuntu\nID_LIKE=debian\n',
    "mint": 'NAME="Linux Mint"\nID=linuxmint\nID_LIKE="ubuntu debian"\n',
    "fedora": 'NAME="Fedora Linux"\nVERSION_ID=41\nID=fedora\n',
    "arch": 'NAME="Arch Linux"\nID=arch\n',
}
INTEL = "processor\t: 0\nmodel name\t: Intel(R) Core(TM) i7\nflags\t\t: fpu vme sse2 vmx ept avx2\n\n"
AMD = "processor\t: 0\nmodel name\t: AMD Ryzen 7\nflags\t\t: fpu vme sse2 svm npt avx2\n"
GUEST = "processor\t: 0\nmodel name\t: AMD EPYC\nflags\t\t: fpu vme sse2 hypervisor avx2\n"
KVM = "kvm_intel 413696 0 - Live 0x0000000000000000\nkvm 1363968 1 kvm_intel, Live 0x0000000000000000\n"
KERNEL = "6.12.6-amd64"


@pytest.fixture
def host(tmp_path):
    """A healthy Debian laptop; changes name files, None for one that is not there."""

    def make(**changes):
        secure = b"\x06\0\0\0\0"
        files = {
            "etc/os-release": RELEASES["debian"],
            "proc/cpuinfo": INTEL,
            "proc/modules": "vboxdrv 696320 2 vboxnetadp,vboxnetflt, Live 0x0000000000000000\n",
            "dev/vboxdrv": "",
            f"lib/modules/{KERNEL}/build": "",
            checklist.SECURE_BOOT: secure.decode(),
            **changes,
        }
        for name, text in files.items():
            if text is not None:
                (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
                (tmp_path / name).write_text(text)
        return checklist.read(tmp_path, KERNEL)

    return make


def missing(host) -> dict[str, str]:
    return {item.what: item.missing for item in checklist.items(host) if item.missing}


DRIVER = {"dev/vboxdrv": None}
SECURE = {checklist.SECURE_BOOT: "\x06\0\0\0\x01"}


def test_a_host_that_has_all_is_told_nothing(host):
    assert missing(host()) == {}
    found = {item.what: item.found for item in checklist.items(host())}
    assert found["virtualbox CPU"] == "VT-x"
    assert found["nested paging"] == "EPT"
    assert found["virtualbox network"] == "NAT; no host-only network is needed"


@pytest.mark.parametrize(
    ("system", "expected"),
    [
        ("debian", f"sudo apt install linux-headers-{KERNEL}"),
        ("mint", f"sudo apt install linux-headers-{KERNEL}"),
        ("fedora", f"sudo dnf install kernel-devel-{KERNEL}"),
        ("arch", f"install the headers of kernel {KERNEL}"),
    ],
)
def test_a_driver_that_cannot_be_built_needs_the_headers_of_the_running_kernel(host, system, expected):
    there = {"etc/os-release": RELEASES[system], f"lib/modules/{KERNEL}/build": None}
    found = missing(host(**DRIVER, **there, **SECURE))
    assert found["virtualbox driver"].startswith(f"{expected}, then `sudo /sbin/vboxconfig`")


@pytest.mark.parametrize(
    ("system", "expected"),
    [
        ("debian", "sudo mokutil --import /var/lib/dkms/mok.pub"),
        ("ubuntu", "sudo mokutil --import /var/lib/shim-signed/mok/MOK.der"),
        ("fedora", "/etc/pki/akmods/certs/public_key.der"),
    ],
)
def test_secure_boot_asks_for_a_signed_driver(host, system, expected):
    found = missing(host(**DRIVER, **SECURE, **{"etc/os-release": RELEASES[system]}))
    assert found["virtualbox driver"].startswith("Secure Boot loads signed drivers only")
    assert expected in found["virtualbox driver"]


def test_a_driver_that_is_not_loaded_is_to_be_loaded(host):
    assert missing(host(**DRIVER)) == {"virtualbox driver": LOAD_DRIVER}


def test_kvm_of_a_new_kernel_holds_the_processor(host):
    early = {"proc/modules": KVM, "sys/module/kvm/parameters/enable_virt_at_load": "Y\n"}
    assert "sudo modprobe -r kvm_intel; for good:" in missing(host(**early))["virtualbox and KVM"]


@pytest.mark.parametrize("switch", [None, "N\n"])
def test_kvm_that_waits_for_its_first_machine_does_not(host, switch):
    waiting = {"proc/modules": KVM, "sys/module/kvm/parameters/enable_virt_at_load": switch}
    assert missing(host(**waiting)) == {}


def test_a_processor_without_virtualisation_is_told_with_what_works_all_the_same(host):
    found = missing(host(**{"proc/cpuinfo": GUEST}))
    assert found["virtualbox CPU"] == NO_VIRTUALISATION
    assert "provider.nested_paging = false" in found["nested paging"]


def test_amd_has_names_of_its_own(host):
    found = {item.what: item.found for item in checklist.items(host(**{"proc/cpuinfo": AMD}))}
    assert (found["virtualbox CPU"], found["nested paging"]) == ("AMD-V", "NPT")


@pytest.mark.parametrize(
    ("system", "expected"),
    [("debian", "Oracle's repository"), ("ubuntu", "apt install virtualbox"), ("fedora", "sudo dnf install")],
)
def test_what_to_install_is_told_for_the_distribution(host, system, expected):
    assert expected in checklist.install(host(**{"etc/os-release": RELEASES[system]}))
