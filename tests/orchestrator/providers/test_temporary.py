"""The folder for temporary files of a guest's programs, in a study whose path is long."""

import os
import tempfile
from pathlib import Path

import pytest

from guest.machine.folders import remove_folder
from orchestrator.cores.leases import host_cores
from orchestrator.errors import GuestError
from orchestrator.files import make_private
from orchestrator.inventory import guest_spec
from orchestrator.providers import make
from orchestrator.store.store import Store
from orchestrator.study import schema
from tests.needs import needs_root
from tests.orchestrator.providers.test_contract import WORKLOAD, local, ssh
from tests.orchestrator.transport.test_connection import python

ONE = guest_spec(1)
SOCKET = (  # as the workers of a DataLoader do
    "import os, stat\nfrom multiprocessing.connection import Listener\n"
    "Listener(family='AF_UNIX')\nfolder = os.environ['TMPDIR']\n"
    "open(f'{folder}/left', 'w').close()\nprint(oct(stat.S_IMODE(os.stat(folder).st_mode)), folder)"
)


@pytest.fixture(params=[local, pytest.param(ssh, marks=pytest.mark.needs("sshd"))])
def provider(request, tmp_path):
    folder = tmp_path / ("a-study-in-a-folder-with-a-long-name" * 3)
    folder.mkdir()
    for table in request.param(folder, "affinity"):
        made = make(schema.parse(table + WORKLOAD), Store(folder))
        yield made
        made.destroy(ONE)


def run(provider) -> tuple[str, Path]:
    connection = provider.start(ONE, host_cores()[:1])
    done = connection.run(python(SOCKET), {}, 120)
    connection.close()
    assert done.status == 0, done.stderr
    mode, _, folder = done.stdout.strip().partition(" ")
    return mode, Path(folder)


@pytest.mark.parametrize("end", ["stop", "destroy"])
def test_sockets_of_programs_have_short_names_and_what_programs_leave_goes(provider, end):
    mode, folder = run(provider)
    assert mode == "0o700"
    assert folder.parent in (Path("/tmp"), Path(tempfile.gettempdir())), "a host of its own has its own"
    assert (folder / "left").exists(), "as after an orchestrator that was killed"
    assert run(provider) == (mode, folder)
    getattr(provider, end)(ONE)
    assert not folder.exists()


def test_a_link_in_its_place_is_neither_followed_nor_removed(provider, tmp_path):
    _, folder = run(provider)
    provider.stop(ONE)
    other = tmp_path / "other"
    other.mkdir()
    (other / "kept").touch()
    folder.symlink_to(other)
    try:
        with pytest.raises((GuestError, AssertionError), match=f"{folder}: is not this user's folder"):
            run(provider)
        provider.stop(ONE)
        assert [path.name for path in other.iterdir()] == ["kept"]
        assert folder.is_symlink()
    finally:
        folder.unlink()


@needs_root  # nobody else makes a folder of another user
def test_a_folder_of_another_user_in_its_place_is_neither_used_nor_removed(provider):
    _, folder = run(provider)
    provider.stop(ONE)
    folder.mkdir()
    os.chown(folder, 65534, 65534)
    try:
        with pytest.raises((GuestError, AssertionError), match=f"{folder}: is not this user's folder"):
            run(provider)
        provider.stop(ONE)
        assert folder.exists()
    finally:
        folder.rmdir()


@needs_root
def test_a_folder_of_another_user_that_looks_like_a_renamed_one_stays_and_stop_removes_ours(provider):
    _, folder = run(provider)
    other, link = (folder.with_name(f".gone-{folder.name}-{name}") for name in ("other", "link"))
    other.mkdir()
    (other / "kept").touch()
    os.chown(other, 65534, 65534)
    link.symlink_to(folder.parent)
    try:
        provider.stop(ONE)
        assert (folder.exists(), link.is_symlink()) == (False, True)
        assert [path.name for path in other.iterdir()] == ["kept"]
    finally:
        link.unlink(missing_ok=True)
        remove_folder(other)


def test_a_short_place_for_temporary_files_that_this_machine_names_is_used(tmp_path, monkeypatch):
    made = make(schema.parse(next(local(tmp_path, "affinity")) + WORKLOAD), Store(tmp_path))
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="t") as short:
        monkeypatch.setattr(tempfile, "tempdir", short)
        assert run(made)[1].parent == Path(short)
        made.destroy(ONE)
        assert list(Path(short).iterdir()) == []


def test_a_private_folder_that_is_there_is_kept(tmp_path):
    make_private(tmp_path / "mine")
    make_private(tmp_path / "mine")
    assert (tmp_path / "mine").stat().st_mode & 0o777 == 0o700
