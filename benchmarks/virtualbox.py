"""What machines under VirtualBox cost beside VBoxManage: linked clone, configure and start of four guests,
and a look at sixteen.

What is fair about it: the same four machines, cloned from the same snapshot, with the same settings, started
until VirtualBox says that they run, in turns in one run; the script does with VBoxManage what the provider
does through the API. Both make one machine after the other, though `vbstudy provision` makes several at once.
Nothing boots in them. It runs where VirtualBox's Python does: see `.ci/run virtualbox`."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.table import Row
from orchestrator.inventory import GuestSpec, host_name
from orchestrator.providers.virtualbox import host
from orchestrator.providers.virtualbox.provider import VirtualBoxProvider
from orchestrator.store.store import Store
from orchestrator.study import schema

RATIO_AT_MOST, STATUS_AT_MOST_S, PLENTY = 1.1, 1.0, 64
STUDY = """
[provider]
kind = "virtualbox"
base = "{base}"
host_key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIHVudXNlZHVudXNlZHVudXNlZHVudXNlZHVudXNl"
memory_mib = 128
execution_engine = "{engine}"
[[workload]]
model = "lenet1"
dataset = "digits"
"""
MANAGE = shutil.which("VBoxManage") or "VBoxManage"
GUESTS = [GuestSpec(name=f"cpus-{n}", cpus=n) for n in range(1, 5)]
SIXTEEN = [GuestSpec(name=f"cpus-{n}", cpus=n) for n in range(1, 17)]
SCRIPT = """
set -e
base=$1 folder=$2 engine=$3
for cpus in 1 2 3 4; do
    name=script-$cpus
    VBoxManage clonevm "$base" --snapshot vbstudy --options link --name $name \\
        --basefolder "$folder" --register
    VBoxManage modifyvm $name --cpus $cpus --memory 128 --cpuexecutioncap 100 --paravirtprovider default \\
        --nestedpaging on --ioapic on --vm-execution-engine "$engine" --nic1 nat \\
        --nat-pf1 "ssh,tcp,127.0.0.1,$((40000 + cpus)),,22" \\
        --uart1 0x3F8 4 --uartmode1 file "$folder/$name.log"
    VBoxManage startvm $name --type headless
done > /dev/null 2>&1
"""


def measure(name: str, runs: int, report: Callable[[str], None]) -> list[Row]:
    kit = os.environ.get("VBSTUDY_VIRTUALBOX_KIT", "")
    assert kit, "VBSTUDY_VIRTUALBOX_KIT: the folder with guest.vdi is needed"
    engine = "auto" if host.DRIVER.exists() else "interpreter"
    with tempfile.TemporaryDirectory() as folder:
        text = STUDY.format(base=Path(kit) / "guest.vdi", engine=engine)
        provider = VirtualBoxProvider(schema.parse(text), Store(Path(folder)), report)
        problems = provider.check()
        assert not problems, problems
        try:
            provider.create(GUESTS[0])  # the base is made before, for both
            (base,) = (Path(folder) / "guests").glob("base-*")
            report(f"{runs} turns: four machines by the provider, and by a script")
            pairs = [
                (_provider(provider), _script(host_name(base), Path(folder), engine)) for _ in range(runs)
            ]
            report("a look at sixteen machines, of which one runs")
            looks = _looks(provider, runs * 4)
        finally:
            for guest in SIXTEEN:
                provider.destroy(guest)
    ratios, what = [ours / theirs for ours, theirs in pairs], "clone, configure, start four machines"
    return [
        Row.of(f"{what}: API / VBoxManage", ratios, name=name, at_most=RATIO_AT_MOST),
        Row.of("the same in seconds, by the API", [ours for ours, _ in pairs], "s"),
        Row.of("what sixteen machines do now", looks, "s", at_most=STATUS_AT_MOST_S),
    ]


def _provider(provider: VirtualBoxProvider) -> float:
    for guest in GUESTS:
        provider._machine(guest).remove()
    began = time.perf_counter()
    for guest in GUESTS:
        provider.create(guest)
        provider._machine(guest).launch(PLENTY)
    taken = time.perf_counter() - began
    for guest in GUESTS:
        provider.stop(guest)
    return taken


def _script(base: str, folder: Path, engine: str) -> float:
    engine = "default" if engine == "auto" else engine
    began = time.perf_counter()
    subprocess.run(["/bin/bash", "-c", SCRIPT, "script", base, str(folder), engine], check=True)
    taken = time.perf_counter() - began
    for cpus in range(1, 5):
        _until_it_works("controlvm", f"script-{cpus}", "poweroff")
        _until_it_works("unregistervm", f"script-{cpus}", "--delete")
    return taken


def _until_it_works(*arguments: str) -> None:
    """A machine is unlocked a moment after it is off."""
    for _ in range(30):
        if subprocess.run([MANAGE, *arguments], capture_output=True, check=False).returncode == 0:
            return
        time.sleep(0.3)
    raise AssertionError(arguments)


def _looks(provider: VirtualBoxProvider, times: int) -> list[float]:
    for guest in SIXTEEN:
        provider.create(guest)
    provider._machine(GUESTS[0]).launch(PLENTY)
    taken = []
    for _ in range(times):
        began = time.perf_counter()
        assert len(provider.watch(SIXTEEN)) == len(SIXTEEN)
        taken.append(time.perf_counter() - began)
    provider.stop(GUESTS[0])
    return taken
