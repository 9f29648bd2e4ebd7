"""VirtualBox's errors, each as one line that states what to do."""

from __future__ import annotations

import re

from orchestrator.errors import GuestError, PrerequisiteError, VbstudyError

INVALID_VM_STATE = 0x80BB0002
FILE_ERROR = 0x80BB0004
INVALID_OBJECT_STATE = 0x80BB0007
XML_ERROR = 0x80BB000A
INVALID_SESSION_STATE = 0x80BB000B
OBJECT_IN_USE = 0x80BB000C
ACCESS_DENIED = 0x80070005
SERVICE_GONE = frozenset({0x80004004, 0x800706BE, 0x800706BA, 0x80040154, 0x80470002, 0xC1F30001})

NO_DRIVER = "VirtualBox's kernel driver is not loaded"
LOAD_DRIVER = (
    "run `sudo modprobe vboxdrv`, or `sudo /sbin/vboxconfig` where the kernel is newer than the driver"
)
DRIVERLESS = f"{NO_DRIVER}: {LOAD_DRIVER}"
OTHER_DRIVER = (
    "VirtualBox's kernel driver is of another version than VirtualBox: build and load it again by "
    "`sudo /sbin/vboxconfig`, or with a distribution's packages `sudo dkms autoinstall` and a restart"
)
TAKEN = (
    "VT-x or AMD-V is taken by another hypervisor: end its machines and unload it "
    "(`sudo modprobe -r kvm_intel kvm_amd`), or use provider qemu, which runs under KVM"
)
NO_VIRTUALISATION = (
    "this processor offers no VT-x or AMD-V: switch it on in the firmware, or nested virtualisation in the "
    "hypervisor below; without either, provider.execution_engine = 'interpreter' works, slowly"
)
LOCKED = (
    "its machine is locked by another program: close the VirtualBox window, VBoxManage or script that has it "
    "open, and run this again"
)
DISK_MISSING = (
    "a disk of its machine is missing; put it back, or run `vbstudy destroy` and `vbstudy provision` for a "
    "new machine"
)

SNAPSHOT_UNFIT = (
    "its snapshot does not fit this VirtualBox or this host any more: run `vbstudy destroy` and `vbstudy "
    "provision` for a new one"
)

# By what the text says, first match first; VirtualBox's own code is the same for very different causes.
BY_TEXT = (
    (r"VERR_(VMX_IN_VMX_ROOT_MODE|SVM_IN_USE|VMX_IN_USE)|in use by another hypervisor", TAKEN),
    (r"VERR_(VMX_NO_VMX|SVM_NO_SVM|SVM_DISABLED|VMX_MSR_\w+|NEM_NOT_AVAILABLE)", NO_VIRTUALISATION),
    (r"VERR_VM_DRIVER_VERSION_MISMATCH", OTHER_DRIVER),
    (r"VERR_(VM_DRIVER_\w+|SUP_DRIVERLESS|SUPDRV_\w+|SUPLIB_\w+)|vboxdrv|[Kk]ernel driver", DRIVERLESS),
    (
        r"VERR_(NO_MEMORY|NO_PHYS_MEMORY|NO_LOW_MEMORY|GMM_\w+|PGM_RAM\w*)|out of memory",
        "the host has too little memory left for it: lower provider.memory_mib, or close other programs",
    ),
    (r"VERR_DISK_FULL|No space left", "the disk is full: make room and run this again"),
    (
        r"[Cc]ould not find an open |Could not open the medium|VERR_(FILE|PATH)_NOT_FOUND|Cannot access",
        DISK_MISSING,
    ),
    (r"already locked|being locked|is locked|not mutable|session is not|Locked", LOCKED),
    (r"[Ss]aved state|VERR_SSM_\w+", SNAPSHOT_UNFIT),
    (r"Assertion failed", "VirtualBox itself failed: run this again"),
)
BY_CODE = {
    INVALID_OBJECT_STATE: LOCKED,
    INVALID_SESSION_STATE: LOCKED,
    OBJECT_IN_USE: (
        "a disk of its machine is used by another machine, a clone of it perhaps: remove that one first, and "
        "run this again"
    ),
    FILE_ERROR: DISK_MISSING,
    XML_ERROR: "its settings file is damaged: run `vbstudy destroy` and `vbstudy provision` for a new one",
    ACCESS_DENIED: "this user may not do that: run vbstudy as the user who owns the machines",
}
HOST_IS_UNFIT = (TAKEN, NO_VIRTUALISATION, OTHER_DRIVER, DRIVERLESS)


class ApiError(Exception):
    """What a call of the API ended with: VirtualBox's code, from 0 to 0xFFFFFFFF, and its text."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(f"0x{code:08x} {text}")
        self.code = code
        self.text = " ".join(text.split())


def explain(error: ApiError, about: str) -> VbstudyError:
    """The error for the user. `about` names the guest, or what was being made."""
    text = re.sub(r"\s*\(?0x[0-9a-fA-F]{8}\)?\s*", " ", error.text).strip() or "nothing"
    evidence = f"0x{error.code:08x}: {error.text}"
    if error.code in SERVICE_GONE:
        return GuestError(
            f"{about}: VirtualBox's service ended in between; run this again, and where that does not help "
            "end what is left of it (`VBoxSVC`, `VBoxXPCOMIPCD`)",
            evidence=evidence,
        )
    advice = next((advice for pattern, advice in BY_TEXT if re.search(pattern, error.text)), None)
    advice = advice or BY_CODE.get(error.code)
    if advice in HOST_IS_UNFIT:
        return PrerequisiteError(f"{about}: {advice}", evidence=evidence)
    if advice:
        return GuestError(f"{about}: {advice} (VirtualBox says: {text[:200]})", evidence=evidence)
    return GuestError(
        f"{about}: VirtualBox refuses: {text[:300]} (code 0x{error.code:08x}); its log is in the folder Logs "
        "of the machine",
        evidence=evidence,
    )
