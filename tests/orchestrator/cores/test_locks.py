"""Locks of cores in a folder that others can write to."""

import fcntl
import os
import socket
import stat
import threading

import pytest

from orchestrator.cores import locks
from orchestrator.cores.leases import CoreLeases
from orchestrator.cores.locks import CoreLocks, LockFolderError
from orchestrator.errors import PrerequisiteError
from tests.mounts import mounted
from tests.needs import needs_root

CORES = {0, 1}


def a_pipe(path):
    os.mkfifo(path)


def a_link(path):
    target = path.with_name("elsewhere")
    target.touch()
    path.symlink_to(target)


def a_socket(path):
    here = os.getcwd()
    os.chdir(path.parent)  # the name of a socket is short
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(path.name)
    finally:
        os.chdir(here)


def a_folder(path):
    path.mkdir()


@pytest.mark.parametrize("make", [a_pipe, a_link, a_socket, a_folder])
def test_what_a_neighbour_puts_in_the_place_of_a_lock_is_an_error_at_once(tmp_path, make):
    make(tmp_path / "core-1")
    held = CoreLocks(tmp_path)
    with pytest.raises(LockFolderError, match=r"core-1: .*; remove it, or name another folder"):
        held.take(CORES)
    assert CoreLocks(tmp_path).take({0}) == set(), "what was locked before the error is held"


def test_a_file_in_the_place_of_the_folder_is_an_error(tmp_path):
    (tmp_path / "locks").touch()
    with pytest.raises(LockFolderError, match=r"locks: Not a directory; remove it"):
        CoreLocks(tmp_path / "locks").take(CORES)


def test_a_link_in_the_place_of_the_folder_is_an_error(tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "locks").symlink_to(tmp_path / "mine")
    with pytest.raises(LockFolderError, match=r"locks: .*; remove it"):
        CoreLocks(tmp_path / "locks").take(CORES)
    assert list((tmp_path / "mine").iterdir()) == []


def test_a_folder_below_one_that_is_not_there_is_an_error(tmp_path):
    with pytest.raises(LockFolderError, match="No such file or directory"):
        CoreLocks(tmp_path / "no" / "locks").take(CORES)


@needs_root  # nobody else gives a folder away
def test_the_folder_of_another_user_is_used_only_where_no_third_user_can_replace_files(tmp_path):
    folder = tmp_path / "locks"
    folder.mkdir()
    os.chown(folder, 12345, 12345)
    with pytest.raises(LockFolderError, match="user 12345 can replace what others put into it"):
        CoreLocks(folder).take(CORES)
    folder.chmod(0o1777)
    assert CoreLocks(folder).take(CORES) == set()


def test_the_folder_is_made_for_all_users(tmp_path):
    CoreLocks(tmp_path / "locks").take(CORES)
    assert stat.S_IMODE((tmp_path / "locks").stat().st_mode) == 0o1777


def test_the_folder_does_not_depend_on_who_asks(monkeypatch):
    """A user's own folder for temporary files is not where root looks."""
    monkeypatch.delenv(locks.FOLDER)
    monkeypatch.setenv("TMPDIR", "/var/tmp")
    assert locks.default_folder().parent.stat().st_mode & 0o1002 == 0o1002
    assert locks.default_folder().parent.as_posix() in ("/run/lock", "/tmp")


def test_cores_that_are_waited_for_go_to_who_waits_and_not_to_who_takes_one_after_the_other(tmp_path):
    holder, waits, small = (CoreLocks(tmp_path) for _ in range(3))
    assert holder.take({0}) == set()
    assert waits.take({0, 1}) == {0}
    assert small.take({1}) == {1}, "it is free, and waited for"
    assert small.take({2}) == set()
    holder.release({0})
    assert holder.take({0}) == {0}, "once more"
    assert waits.take({0, 1}) == set()
    waits.release({0, 1})
    assert holder.take({0}) == small.take({1}) == set(), "it waits no longer"


def test_who_gives_up_waiting_holds_nobody_back(tmp_path):
    holder, waits, small = (CoreLocks(tmp_path) for _ in range(3))
    assert holder.take({0}) == set()
    assert waits.take({0, 1}) == {0}
    assert waits.take(()) == set()
    assert small.take({1}) == set()


def test_two_that_wait_for_the_same_cores_get_them_one_after_the_other(tmp_path):
    holder, first, second = (CoreLocks(tmp_path) for _ in range(3))
    assert holder.take({1}) == set()
    assert first.take({0, 1}) == {1}
    assert second.take({1, 2}) == {1}
    assert CoreLocks(tmp_path).take({2}) == set(), "it waits for all of its cores, or for none"
    holder.release({1})
    assert second.take({1, 3}) == {1}
    assert first.take({0, 1}) == set()
    first.release({0, 1})
    assert second.take({1, 3}) == set()


def test_a_guest_that_cannot_lease_is_told_why(tmp_path, monkeypatch):
    monkeypatch.setenv(locks.FOLDER, str(tmp_path))
    for core in os.sched_getaffinity(0):
        os.mkfifo(tmp_path / f"core-{core}")
    leases = CoreLeases(tuple(sorted(os.sched_getaffinity(0))))
    with pytest.raises(PrerequisiteError, match="not a plain file"), leases.lease("a", 1, threading.Event()):
        pytest.fail("a lease without a lock")
    assert leases.holders() == {}


@needs_root  # to mount
def test_a_lock_of_the_same_inode_in_another_file_system_is_not_a_core_s(tmp_path):
    here, elsewhere = tmp_path / "here", tmp_path / "elsewhere"
    with mounted(here, 64), mounted(elsewhere, 64):
        mine = CoreLocks(here)
        assert mine.take({0}) == set()
        for name in ("next-0", "core-0"):  # as they were made here: both file systems number from the same
            (elsewhere / name).touch()
        assert (elsewhere / "core-0").stat().st_ino == (here / "core-0").stat().st_ino
        with (elsewhere / "core-0").open() as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            assert CoreLocks(here).holders({0}) == {0: os.getpid()}
            mine.release({0})
            assert CoreLocks(here).holders({0}) == {}
