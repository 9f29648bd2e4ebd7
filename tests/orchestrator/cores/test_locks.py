"""Locks of cores in a folder that others can write to."""

import os
import socket
import stat
import threading

import pytest

from orchestrator.cores import locks
from orchestrator.cores.leases import CoreLeases
from orchestrator.cores.locks import CoreLocks, LockFolderError
from orchestrator.errors import PrerequisiteError
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


def test_a_guest_that_cannot_lease_is_told_why(tmp_path, monkeypatch):
    monkeypatch.setenv(locks.FOLDER, str(tmp_path))
    for core in os.sched_getaffinity(0):
        os.mkfifo(tmp_path / f"core-{core}")
    leases = CoreLeases(tuple(sorted(os.sched_getaffinity(0))))
    with pytest.raises(PrerequisiteError, match="not a plain file"), leases.lease("a", 1, threading.Event()):
        pytest.fail("a lease without a lock")
    assert leases.holders() == {}
