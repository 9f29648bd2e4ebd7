"""What this host can do, and what to install for the rest."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shutil
import sys
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from guest.datasets import datasets
from guest.machine import fingerprint, quota
from guest.records.printable import pip_install
from guest.records.run import Framework
from orchestrator.agent.frameworks import install
from orchestrator.cores import topology
from orchestrator.cores.cpuset import Cpuset, CpusetUnavailable
from orchestrator.cores.leases import host_cores
from orchestrator.cores.locks import CoreLocks
from orchestrator.errors import GuestError, PrerequisiteError, VbstudyError
from orchestrator.inventory import host_name
from orchestrator.providers.virtualbox import checklist
from orchestrator.providers.virtualbox.checklist import Check
from orchestrator.store.store import Store
from vbstudy import caches

NAMES = 22  # characters of the column of names


def examine(store: Store) -> list[Check]:
    cpu = fingerprint.cpu()
    cores = host_cores()
    free_gib = shutil.disk_usage(store.directory).free / 2**30
    return [
        Check(what="CPU", found=f"{cpu['model']} ({cpu['vendor']}), {len(cores)} usable cores"),
        _cores(cores),
        Check(what="hypervisor below", found=fingerprint.hypervisor()),
        Check(what="kernel, libc", found=f"{platform.release()}, {' '.join(platform.libc_ver())}"),
        Check(what="free disk", found=f"{free_gib:.1f} GiB", missing="" if free_gib > 1 else "make room"),
        _cpuset(store),
        _qemu(),
        _vagrant(),
        *_virtualbox(),
        _dask(),
        *_frameworks(),
        *_programs(),
        *(_dataset(name) for name in datasets.DATASETS),
    ]


def _cores(cores: tuple[int, ...]) -> Check:
    """How they belong together, which are leased now, and how many a quota allows."""
    held = CoreLocks().holders(cores)
    leased = "; ".join(
        f"process {process} has leased {', '.join(str(core) for core in cores if held.get(core) == process)}"
        for process in sorted(set(held.values()))
    )
    found = [topology.describe(topology.read(cores)), leased]
    allowed = quota.allowed_cores()
    if allowed is not None:
        found.append(f"a CPU quota allows {allowed:g} at a time, and slows runs with more threads")
    return Check(what="cores", found="; ".join(filter(None, found)))


def _cpuset(store: Store) -> Check:
    try:
        Cpuset(host_name(store.guests / "doctor")).probe()
    except CpusetUnavailable as error:
        return Check(
            what="provider local", found="cores by affinity", missing=f"for a cgroup cpuset: {error}"
        )
    return Check(what="provider local", found="cores by affinity and cgroup cpuset")


def _dask() -> Check:
    version = _version("distributed")
    if not version:
        return Check(what="many hosts", found="", missing=pip_install("distributed", "bokeh"))
    return Check(what="many hosts", found=f"dask.distributed {version}")


def _qemu() -> Check:
    from orchestrator.providers.qemu.provider import missing_packages

    missing = missing_packages()
    flags = {"vmx", "svm"} & set(fingerprint.cpu()["flags"])
    speed = "with KVM, if a kernel boots under it" if flags else "emulated: this CPU shows no vmx or svm"
    return Check(
        what="provider qemu",
        found="" if missing else speed,
        missing=f"apt install {' '.join(missing)}" if missing else "",
    )


def _vagrant() -> Check:
    from orchestrator.providers.vagrant import command
    from orchestrator.providers.vagrant.hypervisors import HYPERVISORS

    if missing := command.missing():
        return Check(what="provider vagrant", found="", missing=missing)
    try:
        plugins = command.plugins()
        problems = {name: make().check(plugins) for name, make in HYPERVISORS.items()}
    except (PrerequisiteError, GuestError) as error:
        return Check(what="provider vagrant", found="", missing=error.message)
    works = [name for name, found in problems.items() if not found]
    return Check(
        what="provider vagrant",
        found=f"with {' and '.join(works)}" if works else "",
        missing="" if works else "; or ".join(found[0] for found in problems.values()),
    )


def _virtualbox() -> list[Check]:
    """Item by item where VirtualBox is installed, else how to install it."""
    from orchestrator.providers.virtualbox import api

    host, what = checklist.read(), "provider virtualbox"
    if shutil.which("VBoxManage") is None:
        return [Check(what=what, found="", missing=checklist.install(host))]
    if missing := api.why_not():
        return [Check(what=what, found="", missing=missing)]
    try:
        version = api.shared().call("VirtualBox", lambda vbox: vbox.version)
    except VbstudyError as error:
        return [Check(what=what, found="", missing=error.message)]
    items = checklist.items(host)
    problems = [item.what for item in items if item.missing]
    ready = Check(
        what=what,
        found="" if problems else f"VirtualBox {version}",
        missing=f"VirtualBox {version} is installed; see {', '.join(problems)}" if problems else "",
    )
    return [ready, *items]


def _frameworks() -> list[Check]:
    found = {"torch": _version("torch"), "tensorflow": _version("tensorflow") or _version("tensorflow-cpu")}
    cures = {name: install(name, sys.executable) for name in found}
    if sys.version_info >= (3, 14):
        cures["tensorflow"] = "TensorFlow has no release for Python 3.14 yet: use Python 3.13"
    return [
        Check(what=name, found=version, missing="" if version else cures[name])
        for name, version in found.items()
    ]


def _programs() -> Iterator[Check]:
    """What compiles and clones, by what needs it."""
    for what, programs, packages in (
        ("exact mode", (os.environ.get("CXX"), "g++", "c++"), "g++"),
        ("try --replay", (os.environ.get("CC") or "cc",), "gcc libc6-dev"),
        ("projects by git URL", ("git",), "git"),
    ):
        found = next(filter(None, (shutil.which(each.split()[0]) for each in programs if each)), "")
        missing = f"apt install {packages}"
        if what == "exact mode" and any((caches.folder() / "exact").glob("exact-*.so")):
            missing += "; without it, what was compiled before is used"
        yield Check(what=what, found=found, missing="" if found else missing)


def _version(distribution: str) -> str:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return ""


def _dataset(name: str) -> Check:
    info = datasets.DATASETS[name]
    if info.embedded:
        return Check(what=f"dataset {name}", found="embedded")
    path = datasets.find(name, ())
    return Check(
        what=f"dataset {name}",
        found=str(path or ""),
        missing="" if path else "downloaded by `vbstudy provision` when a study asks for it",
    )


def next_command(checks: list[Check]) -> str:
    """What a study of the default workload needs first, or the command that begins one."""
    if not _has_framework(checks):
        return next(check.missing for check in checks if check.what == Framework.TORCH)
    counts = [n for n in (1, 2, 4, 8) if n <= max(2, len(host_cores()))]
    return f"vbstudy provision --cpus {','.join(map(str, counts))}"


def _has_framework(checks: list[Check]) -> bool:
    return any(check.found for check in checks if check.what in set(Framework))


def as_json(checks: list[Check]) -> Any:
    return [asdict(check) for check in checks]


def as_text(checks: list[Check]) -> Group:
    """The answer, then what is ready and what more there is, each with what to do."""
    found = {check.what: check.found for check in checks}
    ready = ", ".join(
        what.removeprefix("provider ") for what in found if what.startswith("provider") and found[what]
    )
    answer = f"Studies run here; guests by {ready}."
    if not _has_framework(checks):
        answer += " Without PyTorch and TensorFlow, studies of your own projects only."
    missing: dict[str, list[str]] = {}
    for check in checks:
        if check.missing:
            missing.setdefault(check.missing, []).append(check.what)
    groups = {
        "Ready": [(check.what, check.found) for check in checks if check.found],
        "Optional": [(", ".join(names), todo) for todo, names in missing.items()],
    }
    parts: list[RenderableType] = [Text(answer, style="bold")]
    for title, lines in groups.items():
        if not lines:
            continue
        grid = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
        grid.add_column(max_width=NAMES)
        grid.add_column(overflow="fold")
        for name, text in lines:
            grid.add_row(Text(name), Text(text))
        parts += [Text(f"\n{title}", style="bold"), grid]
    return Group(*parts)
