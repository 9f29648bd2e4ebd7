import inspect
import os
import signal
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.cores import cpuset as cpuset_module
from orchestrator.cores import locks
from orchestrator.cores.cpuset import Cpuset, CpusetUnavailable, parse_cores
from orchestrator.inventory import host_name


@given(st.sets(st.integers(0, 300)))
def test_lists_of_cores_are_read_as_the_kernel_writes_them(cores):
    assert parse_cores(",".join(map(str, sorted(cores))) + "\n") == cores


def test_ranges_of_cores_are_read():
    assert parse_cores("0-3,8,10-11\n") == {0, 1, 2, 3, 8, 10, 11}


def test_a_cpuset_holds_a_process_that_asks_for_more_or_says_why_there_is_none(tmp_path):
    cpuset = Cpuset(host_name(tmp_path))
    core = min(os.sched_getaffinity(0))
    try:
        procs = cpuset.create((core,))
    except CpusetUnavailable as reason:
        assert str(reason)
        assert not cpuset.exists()
        return
    try:
        script = (
            f"import os; open({str(procs)!r}, 'w').write(str(os.getpid()))\n"
            "os.sched_setaffinity(0, range(64)); print(*os.sched_getaffinity(0))"
        )
        seen = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
        assert seen.stdout.split() == [str(core)]
    finally:
        cpuset.remove(5)
    assert not cpuset.exists()


def test_what_still_runs_in_a_cpuset_is_killed_when_it_is_removed(tmp_path):
    cpuset = Cpuset(host_name(tmp_path))
    try:
        procs = cpuset.create((min(os.sched_getaffinity(0)),))
    except CpusetUnavailable as reason:
        assert str(reason)
        return
    # It joins late, as a process does that was being started when its guest is stopped, and starts another.
    script = (
        f"import os, subprocess, sys; open({str(procs)!r}, 'w').write(str(os.getpid()))\n"
        "print(subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(3600)']).pid, flush=True)\n"
        "import time; time.sleep(3600)"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as running:
        child = int(running.stdout.readline())
        assert {running.pid, child} <= set(cpuset.processes())
        cpuset.remove(60)
        assert running.wait(60) == -signal.SIGKILL
    assert not cpuset.exists()


@pytest.mark.parametrize("module", [cpuset_module, locks], ids=["cpuset", "locks"])
def test_the_texts_that_hosts_run_over_ssh_need_the_standard_library_alone(module):
    alone = [sys.executable, "-I", "-S", "-c", inspect.getsource(module)]
    assert subprocess.run(alone, capture_output=True, text=True, check=False).stderr == ""


def test_removing_one_that_does_not_exist_does_nothing(tmp_path):
    Cpuset(host_name(tmp_path)).remove(0)


def test_a_host_without_cgroups_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(
        "orchestrator.cores.cpuset.Path.read_text", lambda self: (_ for _ in ()).throw(OSError())
    )
    with pytest.raises(CpusetUnavailable, match="no cgroups"):
        Cpuset(host_name(tmp_path)).create((0,))
    assert Cpuset(host_name(tmp_path)).processes() == []
