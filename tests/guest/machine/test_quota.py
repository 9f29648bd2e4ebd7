import contextlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from guest.machine import load, quota

BUSY = """
import time
from guest.machine import load, quota
before, began = load.look(), time.monotonic()
while load.look().conditions.get("quota_s", 0) - before.conditions.get("quota_s", 0) < 0.2:
    assert time.monotonic() - began < 300
print(quota.allowed_cores())
"""


def test_a_process_of_a_limited_group_is_seen_to_be_held_back(tmp_path):
    group = Path("/sys/fs/cgroup/cpu") / f"vbstudy-test-{os.getpid()}"
    try:
        group.mkdir()
        (group / "cpu.cfs_quota_us").write_text("20000")
    except OSError as error:
        with contextlib.suppress(OSError):
            group.rmdir()
        pytest.skip(f"no group with a quota can be made here: {error}")
    try:
        done = subprocess.run(
            [sys.executable, "-c", BUSY],
            preexec_fn=lambda: (group / "cgroup.procs").write_text("0"),
            capture_output=True,
            text=True,
            check=False,
        )
    finally:
        group.rmdir()
    assert (done.stdout, done.stderr) == ("0.2\n", "")


@pytest.fixture
def system(tmp_path, monkeypatch):
    monkeypatch.setattr(quota, "CGROUPS", tmp_path / "cgroup")
    monkeypatch.setattr(quota, "PROC", tmp_path / "proc")
    return tmp_path


def write(folder, files):
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


IN_CONTAINERS = {
    "the narrowest of a group and those above it": (
        {
            "proc/self/cgroup": "0::/pod/container\n",
            "cgroup/pod/cpu.max": "150000 100000\n",
            "cgroup/pod/cpu.stat": "usage_usec 9\nnr_periods 4\nnr_throttled 1\nthrottled_usec 2500000\n",
            "cgroup/pod/container/cpu.max": "max 100000\n",
            "cgroup/pod/container/cpu.stat": "usage_usec 9\nnr_periods 0\nnr_throttled 0\nthrottled_usec 0\n",
        },
        1.5,
        2.5,
    ),
    "a container that is named by its host's path has its own root": (
        {
            "proc/self/cgroup": "5:memory:/docker/ab\n4:cpu,cpuacct:/docker/ab\n0::/docker/ab\n",
            "cgroup/cpu/cpu.cfs_quota_us": "200000\n",
            "cgroup/cpu/cpu.cfs_period_us": "100000\n",
            "cgroup/cpu/cpu.stat": "nr_periods 3\nnr_throttled 1\nthrottled_time 500000000\n",
        },
        2.0,
        0.5,
    ),
}


@pytest.mark.parametrize(("files", "allowed", "held_s"), IN_CONTAINERS.values(), ids=IN_CONTAINERS)
def test_the_quota_of_a_container_is_found(system, files, allowed, held_s):
    write(system, files)
    assert quota.allowed_cores() == allowed
    assert quota.held_s() == held_s


@pytest.mark.parametrize("text", ["0::/\n", "1:cpu:/\n", None])
def test_without_a_quota_nothing_is_reported(system, text):
    if text:
        write(system, {"proc/self/cgroup": text, "cgroup/cpu/cpu.cfs_quota_us": "-1\n"})
        write(system, {"cgroup/cpu/cpu.cfs_period_us": "100000\n", "cgroup/cpu/cpu.stat": "nr_periods 0\n"})
        write(system, {"cgroup/cpu.max": "max 100000\n", "cgroup/cpu.stat": "usage_usec 1\n"})
    assert quota.allowed_cores() is None
    assert quota.held_s() is None
    assert "quota_s" not in load.look().conditions
