"""What machine and what software a run was computed by: everything that is known to change bits,
and enough to tell two machines apart."""

from __future__ import annotations

import ctypes
import functools
import importlib.metadata
import os
import platform
from pathlib import Path
from typing import Any

from guest.records.run import Framework

LIBRARIES = ("numpy", "safetensors", "torch", "tensorflow", "tensorflow-cpu", "keras")
KNOB_PREFIXES = (
    "OMP_", "GOMP_", "KMP_", "MKL_", "OPENBLAS_", "NUMEXPR_", "ONEDNN_", "DNNL_", "ATEN_", "TORCH_",
    "TF_", "XLA_", "KERAS_BACKEND", "PYTHONHASHSEED", "CUDA_VISIBLE_DEVICES", "LD_PRELOAD",
)  # fmt: skip


def fingerprint(framework: Framework) -> dict[str, Any]:
    """The fingerprint of this process, as JSON-ready data. The framework must be imported and
    the run finished: reading oneDNN's instruction set runs a small operation."""
    return machine() | {"framework": _torch() if framework is Framework.TORCH else _tensorflow()}


def machine() -> dict[str, Any]:
    """The fingerprint without the framework."""
    return {
        "cpu": cpu(),
        "hypervisor": hypervisor(),
        "kernel": platform.release(),
        "os": _os_name(),
        "libc": " ".join(platform.libc_ver()),
        "machine": platform.machine(),
        "python": platform.python_version(),
        "libraries": _libraries(),
        "knobs": {k: v for k, v in sorted(os.environ.items()) if k.startswith(KNOB_PREFIXES)},
    }


def preload() -> None:
    """Reads ahead what all runs of a warm worker share; runs nothing of the framework."""
    cpu()
    hypervisor()
    _libraries()


@functools.cache
def cpu() -> dict[str, Any]:
    """Model, vendor, family, stepping, microcode, flags and caches of the first core. The kernel of an ARM
    machine names no model: there it is made of the others."""
    fields: dict[str, str] = {}
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if not line.strip():
            break
        key, _, value = line.partition(":")
        fields[key.strip()] = value.strip()
    vendor = fields.get("vendor_id", fields.get("CPU implementer", ""))
    number = fields.get("model", fields.get("CPU part", ""))
    revision = " ".join(filter(None, (fields.get("CPU variant"), fields.get("CPU revision"))))
    stepping = fields.get("stepping", revision)
    made = " ".join(filter(None, (platform.machine(), vendor, number, stepping)))
    return {
        "model": fields.get("model name", made),
        "vendor": vendor,
        "family": fields.get("cpu family", fields.get("CPU architecture", "")),
        "model_number": number,
        "stepping": stepping,
        "microcode": fields.get("microcode", ""),
        "flags": sorted(fields.get("flags", fields.get("Features", "")).split()),
        "caches": _caches(),
    }


def _caches() -> list[str]:
    """`L1 Data 48K`, `L2 Unified 2048K`, ... where the kernel tells."""
    found = []
    for index in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        level, kind, size = (_text(index / name) for name in ("level", "type", "size"))
        found.append(f"L{level} {kind} {size}")
    return found


@functools.cache
def hypervisor() -> str:
    """The hypervisor under this machine, as far as the machine knows; "none" on bare metal. Only x86 has a
    flag that tells; elsewhere it is unknown, and the maker of the machine is named, who may be one."""
    vendor = _text(Path("/sys/class/dmi/id/sys_vendor"))
    product = _text(Path("/sys/class/dmi/id/product_name"))
    named = " ".join(filter(None, (vendor, product))) or _text(Path("/sys/hypervisor/type"))
    if platform.machine() != "x86_64":
        return f"unknown ({named})" if named else "unknown"
    return (named or "unnamed") if "hypervisor" in cpu()["flags"] else "none"


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""  # containers and other kernels do not show everything


def _os_name() -> str:
    try:
        return platform.freedesktop_os_release()["PRETTY_NAME"]
    except (OSError, KeyError):
        return platform.system()


@functools.cache
def _libraries() -> dict[str, str]:
    versions = {}
    for name in LIBRARIES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions


def _torch() -> dict[str, Any]:
    import torch

    from vbstudy import exact

    mkldnn: Any = torch.backends.mkldnn  # carries no types
    library = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"))
    return {
        "name": "torch",
        "version": torch.__version__,
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "onednn_enabled": bool(mkldnn.enabled),
        "onednn_isa": _onednn_isa() if mkldnn.is_available() else "",
        "mkl_cbwr": library.mkl_serv_cbwr_get(-1) if hasattr(library, "mkl_serv_cbwr_get") else None,
        "mkl_auto_branch": (
            library.mkl_serv_cbwr_get_auto_branch()
            if hasattr(library, "mkl_serv_cbwr_get_auto_branch")
            else None
        ),
        "deterministic_algorithms": torch.are_deterministic_algorithms_enabled(),
        "build": " ".join(torch.__config__.show().split()),
        **({"exact": exact.coverage().facts()} if exact.active() else {}),
    }


@functools.cache
def _onednn_isa() -> str:
    """oneDNN names its instruction set only in the header of its verbose output, which it prints
    once a process to file descriptor 1; an operation of its own makes it."""
    import tempfile

    import torch

    mkldnn: Any = torch.backends.mkldnn
    kept, enabled = os.dup(1), mkldnn.enabled
    with tempfile.TemporaryFile() as file:
        os.dup2(file.fileno(), 1)
        try:
            mkldnn.enabled = True
            with mkldnn.verbose(1):
                torch.zeros(16, 16).to_mkldnn().relu()  # exact mode leaves it alone
            ctypes.CDLL(None).fflush(None)
        finally:
            mkldnn.enabled = enabled
            os.dup2(kept, 1)
            os.close(kept)
        file.seek(0)
        for line in file.read().decode(errors="replace").splitlines():
            _, found, isa = line.partition("cpu,isa:")
            if found:
                return isa
    return ""


def _tensorflow() -> dict[str, Any]:
    import tensorflow as tf
    from tensorflow.python.util import _pywrap_util_port  # no public name tells

    return {
        "name": "tensorflow",
        "version": tf.__version__,
        "compiler": tf.version.COMPILER_VERSION,
        # By itself TensorFlow uses it only where the CPU has VNNI or more.
        "onednn_enabled": bool(_pywrap_util_port.IsMklEnabled()),
        "onednn_max_isa": os.environ.get("ONEDNN_MAX_CPU_ISA", ""),
        "deterministic_algorithms": os.environ.get("TF_DETERMINISTIC_OPS") == "1",
        "build": " ".join(f"{k}={v}" for k, v in sorted(tf.sysconfig.get_build_info().items())),
    }
