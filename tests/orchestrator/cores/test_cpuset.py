import os
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.cores.cpuset import Cpuset, CpusetUnavailable, parse_cores


@given(st.sets(st.integers(0, 300)))
def test_lists_of_cores_are_read_as_the_kernel_writes_them(cores):
    assert parse_cores(",".join(map(str, sorted(cores))) + "\n") == cores


def test_ranges_of_cores_are_read():
    assert parse_cores("0-3,8,10-11\n") == {0, 1, 2, 3, 8, 10, 11}


def test_unlike_folders_have_unlike_cgroups(tmp_path):
    assert Cpuset.of(tmp_path / "a").name != Cpuset.of(tmp_path / "b").name


def test_a_cpuset_holds_a_process_that_asks_for_more_or_says_why_there_is_none(tmp_path):
    cpuset = Cpuset.of(tmp_path)
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


def test_removing_one_that_does_not_exist_does_nothing(tmp_path):
    Cpuset.of(tmp_path).remove(0)


def test_a_host_without_cgroups_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(
        "orchestrator.cores.cpuset.Path.read_text", lambda self: (_ for _ in ()).throw(OSError())
    )
    with pytest.raises(CpusetUnavailable, match="no cgroups"):
        Cpuset.of(tmp_path).create((0,))
    assert Cpuset.of(tmp_path).processes() == []
