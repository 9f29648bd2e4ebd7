"""Files that are written whole, for their owner alone where they are private. Folders that programs make
read-only, as Go's module cache and git-annex do, are removed by a user whom permissions bind."""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from orchestrator.errors import UsageError
from orchestrator.files import expand, temporary_folder, write_durably, write_private
from orchestrator.transport.ssh_folders import removal

BOUND = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"] if os.geteuid() == 0 else []

binds = pytest.mark.skipif(bool(BOUND) and not shutil.which("setpriv"), reason="root needs setpriv")

LOCAL = """
import sys
from pathlib import Path
from orchestrator.inventory import guest_spec
from orchestrator.providers import make
from orchestrator.store.store import Store
from orchestrator.study import schema
study = schema.parse('[provider]\\nkind = "local"\\ncpuset = "affinity"\\n'
                     '[[workload]]\\nmodel = "lenet1"\\ndataset = "digits"\\n')
provider = make(study, Store(Path(sys.argv[1])))
connection = provider.start(guest_spec(1), (min(__import__("os").sched_getaffinity(0)),))
script = "mkdir -p out/1/work/cache kept/in; touch out/1/work/cache/big kept/in/file; chmod -R a-w out kept"
assert connection.run(["sh", "-c", script], {}, 120).status == 0
connection.remove("out")
print(Path(sys.argv[1], "guests/cpus-1/out").exists(), flush=True)
provider.destroy(guest_spec(1))
"""


def bound(*argv: str) -> str:
    done = subprocess.run([*BOUND, *argv], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@binds
def test_a_guest_is_rid_of_the_read_only_folders_of_a_run_and_can_be_destroyed(tmp_path):
    assert bound(sys.executable, "-c", LOCAL, str(tmp_path)) == "False\n"
    assert list((tmp_path / "guests").iterdir()) == []


@binds
def test_behind_ssh_too_and_what_links_lead_to_stays_as_it_is(tmp_path):
    other, out = tmp_path / "other", tmp_path / "out 'of' runs"
    (out / "work" / "cache").mkdir(parents=True)
    other.mkdir(mode=0o555)
    (out / "work" / "cache" / "big").touch()
    (out / "work" / "link").symlink_to(other)
    (out / "work" / "cache").chmod(0o555)
    bound("sh", "-c", removal(str(out)))
    bound("sh", "-c", removal(str(out)))
    assert not out.exists()
    assert other.stat().st_mode & 0o777 == 0o555


@binds
def test_a_link_in_the_place_of_a_folder_is_not_followed(tmp_path):
    other, link = tmp_path / "other", tmp_path / "link"
    other.mkdir(mode=0o555)
    link.symlink_to(other)
    bound(
        sys.executable, "-c",
        f"from pathlib import Path; from guest.machine.folders import *; remove_folder(Path({str(link)!r}))",
    )  # fmt: skip
    assert other.stat().st_mode & 0o777 == 0o555


def private(path: Path) -> None:
    write_private(path, b"x")


def durably(path: Path) -> None:
    write_durably(path, "x", 0o600)


@pytest.mark.parametrize("write", [private, durably])
def test_a_private_file_is_for_its_owner_alone_from_the_beginning(tmp_path, monkeypatch, write):
    path, seen, sync = tmp_path / "key", [], os.fsync

    def seeing(number: int) -> None:
        seen.append(os.fstat(number).st_mode)
        sync(number)

    (tmp_path / "key.part").touch(0o644)  # by one that was killed
    monkeypatch.setattr("os.fsync", seeing)
    before = os.umask(0)
    try:
        write(path)
    finally:
        os.umask(before)
    assert [mode & 0o777 for mode in (*seen, path.stat().st_mode)] == [0o600, 0o600]
    assert [each.name for each in tmp_path.iterdir()] == ["key"]


def test_a_private_file_with_the_same_bytes_is_left_alone(tmp_path):
    path = tmp_path / "key"
    write_private(path, b"x")
    first = path.stat().st_ino, path.stat().st_mtime_ns
    write_private(path, b"x")
    assert (path.stat().st_ino, path.stat().st_mtime_ns) == first


def test_a_path_below_the_home_of_nobody_is_named():
    with pytest.raises(UsageError, match=r"^~no-such-user/key: no home is known for ~no-such-user$"):
        expand("~no-such-user/key")


def test_the_same_private_bytes_that_others_may_read_are_restricted_again(tmp_path):
    path = tmp_path / "disk"
    write_private(path, b"x")
    path.chmod(0o644)
    write_private(path, b"x")
    assert path.stat().st_mode & 0o777 == 0o600


KILLED = """
import os, sys, tempfile
from orchestrator.files import temporary_folder
tempfile.tempdir = sys.argv[1]
with temporary_folder("vbstudy-test-") as folder:
    (folder / "file").touch()
    os.kill(os.getpid(), 9)
"""


def test_a_temporary_folder_of_a_killed_process_is_removed_by_the_next_and_one_in_use_stays(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], check=False)
    (left,) = tmp_path.iterdir()
    with temporary_folder("vbstudy-test-") as one, temporary_folder("vbstudy-test-") as two:
        (one / "read-only").mkdir(0o500)
        assert sorted(tmp_path.iterdir()) == sorted([one, two])
        assert left not in (one, two)
    assert not list(tmp_path.iterdir())


def test_no_command_has_temporary_folders_that_stay_when_it_is_killed():
    for path in (Path(__file__).parents[2] / "orchestrator").rglob("*.py"):
        assert 'TemporaryDirectory(prefix="vbstudy-' not in path.read_text(), path
