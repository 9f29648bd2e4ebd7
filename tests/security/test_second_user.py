"""A second user's account on the same machine: another process under another uid, which root starts."""

import json
import os
import shutil
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from orchestrator.cores import cpuset, locks
from orchestrator.cores.locks import CoreLocks, LockFolderError
from orchestrator.providers.qemu.machine import QemuMachine
from orchestrator.providers.virtualbox import host
from orchestrator.store.store import Store
from orchestrator.transport.keys import StudyKeys
from tests.needs import needs_root

PYTHON = "/usr/bin/python3"  # that of the tests may lie where no other user reads
MODULES = (locks, cpuset)  # of the standard library alone

pytestmark = [
    needs_root,
    pytest.mark.skipif(
        not shutil.which("setpriv") or not Path(PYTHON).exists(),
        reason="needs setpriv and the Python of the system",
    ),
]


class User:
    """Another account, with the modules in a folder that it can read."""

    def __init__(self, folder: Path, uid: int) -> None:
        self._folder, self.uid = folder, uid
        self._started: list[subprocess.Popen] = []

    def start(self, script: str, *arguments: object) -> subprocess.Popen:
        command = ["setpriv", f"--reuid={self.uid}", f"--regid={self.uid}", "--clear-groups", PYTHON, "-B"]
        process = subprocess.Popen(
            [*command, "-c", script, *map(str, arguments)],
            cwd=self._folder,
            env={"PATH": os.defpath},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._started.append(process)
        return process

    def does(self, script: str, *arguments: object) -> str:
        """What the script prints."""
        return self.start(f"import sys\n{script}", *arguments).communicate(timeout=120)[0].strip()

    def end(self) -> None:
        for process in self._started:
            process.kill()
            process.communicate()


class Holder:
    """Locks of another user, asked for as those of a machine behind SSH are."""

    def __init__(self, user: User, folder: Path) -> None:
        script = "import sys, pathlib, locks; locks.default_folder = lambda: pathlib.Path(sys.argv[1])\n"
        self._process = user.start(script + "locks.serve(300)", folder)
        self.process = self._process.pid

    def ask(self, do: str, *cores: int) -> dict[str, object]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"do": do, "cores": cores}) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def killed(self) -> None:
        self._process.kill()
        self._process.wait()


@pytest.fixture
def everybodys():
    """A folder as /tmp is, which all may enter; those of pytest are its user's alone."""
    with tempfile.TemporaryDirectory(prefix="vbstudy-test-", dir="/tmp") as name:
        folder = Path(name)
        folder.chmod(0o1777)
        yield folder


@pytest.fixture
def users(everybodys):
    code = everybodys / "code"
    code.mkdir()
    code.chmod(0o755)
    for module in MODULES:
        copy = code / Path(module.__file__).name
        copy.write_bytes(Path(module.__file__).read_bytes())
        copy.chmod(0o644)
    made = [User(code, uid) for uid in (65534, 65533)]
    yield made
    for user in made:
        user.end()


@pytest.fixture
def user(users):
    return users[0]


@pytest.mark.parametrize("umask", [0o022, 0o077])
def test_root_and_another_user_wait_for_the_cores_of_each_other(everybodys, user, umask):
    folder, mine = everybodys / "locks", CoreLocks(everybodys / "locks")
    before = os.umask(umask)
    try:
        assert mine.take({0}) == set()
    finally:
        os.umask(before)
    theirs = Holder(user, folder)
    assert theirs.ask("take", 0, 1) == {"others": [0]}
    assert theirs.ask("take", 2) == {"others": []}
    assert mine.take({1, 2}) == {2}
    assert mine.holders({0, 1, 2}) == {2: theirs.process}
    mine.release({0})
    assert theirs.ask("take", 0) == {"others": []}
    assert mine.take({0}) == {0}
    theirs.killed()
    assert mine.take({0, 1, 2}) == set()


def test_the_folder_of_another_user_serves_root_and_third_users(everybodys, users):
    folder, mine = everybodys / "locks", CoreLocks(everybodys / "locks")
    first, second = (Holder(user, folder) for user in users)
    assert first.ask("take", 0) == {"others": []}
    assert folder.stat().st_uid == users[0].uid
    assert second.ask("take", 0, 1) == {"others": [0]}
    assert mine.take({0}) == {0}
    first.killed()
    assert mine.take({0}) == {0}, "the second waited for it before"
    second.killed()
    assert mine.take({0}) == set()


def test_cores_that_a_user_waits_for_are_kept_from_root_and_third_users(everybodys, users):
    mine = CoreLocks(everybodys / "locks")
    first, second = (Holder(user, everybodys / "locks") for user in users)
    assert mine.take({0}) == set()
    assert first.ask("take", 0, 1) == {"others": [0]}
    assert second.ask("take", 1) == {"others": [1]}
    mine.release({0})
    assert mine.take({0}) == {0}
    assert first.ask("take", 0, 1) == {"others": []}
    first.killed()
    assert second.ask("take", 1) == {"others": []}


PLANTED = {
    "a pipe": "import os; os.mkfifo(sys.argv[1])",
    "a link": "import os; os.symlink('/etc/passwd', sys.argv[1])",
    "a folder": "import os; os.mkdir(sys.argv[1])",
    "a socket": "import socket; socket.socket(socket.AF_UNIX).bind(sys.argv[1])",
}


@pytest.mark.parametrize("kind", PLANTED)
def test_what_another_user_plants_is_one_error_for_root_and_for_third_users(everybodys, users, kind):
    folder = everybodys / "locks"
    mine = CoreLocks(folder)
    assert mine.take({0}) == set()
    assert users[0].does(PLANTED[kind], folder / "core-1") == ""
    with pytest.raises(LockFolderError, match=r"core-1: .*; remove it, or name another folder") as caught:
        mine.take({0, 1})
    assert "\n" not in str(caught.value)
    assert set(Holder(users[1], folder).ask("take", 1)) == {"error"}


def test_a_file_that_a_user_keeps_to_themselves_is_one_error_for_third_users(everybodys, users):
    folder = everybodys / "locks"
    CoreLocks(folder).take({0})
    users[0].does("import os; os.close(os.open(sys.argv[1], os.O_CREAT | os.O_WRONLY, 0))", folder / "core-1")
    answer = Holder(users[1], folder).ask("take", 1)
    assert "core-1: Permission denied; remove it" in str(answer["error"])
    assert CoreLocks(folder).take({1}) == set(), "root reads it"


@pytest.mark.parametrize(
    "attack",
    [
        "os.unlink(path)",
        "os.rename(path, path + 'x')",
        "open(path, 'w')",
        "os.truncate(path, 0)",
        "os.chmod(path, 0)",
        "os.rename(os.path.dirname(path), os.path.dirname(path) + 'x')",
        "os.chmod(os.path.dirname(path), 0o700)",
    ],
)
def test_another_user_can_neither_remove_nor_change_the_locks_of_root(everybodys, user, attack):
    folder = everybodys / "locks"
    mine = CoreLocks(folder)
    mine.take({0})
    said = user.does(f"import os; path = sys.argv[1]\n{attack}", folder / "core-0")
    assert "PermissionError" in said
    assert CoreLocks(folder).take({0}) == {0}


READ = """
import os
for folder, _, names in os.walk(sys.argv[1]):
    for name in names:
        path = os.path.join(folder, name)
        try:
            open(path, "a").close()
            print("written", path)
        except OSError:
            pass
        try:
            print(path, open(path).read())
        except OSError:
            pass
"""


@pytest.mark.parametrize("umask", [0o000, 0o022])
def test_another_user_reads_no_key_of_a_study_whatever_the_umask(everybodys, user, umask):
    before = os.umask(umask)
    try:
        study = everybodys / "study"
        study.mkdir(mode=0o755)
        keys = StudyKeys.of(Store(study))
        pairs = [keys.client(), keys.host()]
    finally:
        os.umask(before)
    for pair in pairs:
        assert stat.S_IMODE(pair.private.stat().st_mode) == 0o600
    assert user.does(READ, study) == ""
    keys.folder.chmod(0o755)  # as where the folder was there before
    assert user.does(READ, study) == ""


def test_another_user_cannot_hold_root_s_study_locked(everybodys, user):
    study = everybodys / "study"
    study.mkdir(mode=0o755)
    with Store(study).lock("sweep"):
        pass
    held = user.start(
        "import fcntl, sys, time\n"
        "file = open(sys.argv[1])\n"
        "fcntl.flock(file, fcntl.LOCK_EX)\n"
        "print('held', flush=True); time.sleep(300)",
        study / ".lock",
    )
    assert held.stdout is not None
    assert "PermissionError" in held.stdout.read(), "who may not write there may not lock it either"
    with Store(study).lock("sweep"):
        pass


def test_another_user_gets_no_cgroup_and_is_told_so(user):
    said = user.does("import cpuset; cpuset.Cpuset('vbstudy-test-of-another-user').probe()")
    assert "CpusetUnavailable" in said.splitlines()[-1]


def test_a_process_of_another_user_with_the_words_of_a_guest_s_machine_is_not_one_of_its_processes(
    tmp_path, user
):
    machine = QemuMachine(tmp_path)
    words = [f"guest={machine.name}", f"console={machine.name}", "--startvm", machine.name]
    theirs = user.start("print('here', flush=True); input()", *words)
    assert theirs.stdout is not None
    assert theirs.stdout.readline() == "here\n"
    assert machine.is_over()
    assert host.processes_of(machine.name, tmp_path) == []
    machine.kill()
    assert theirs.poll() is None


AS_ANOTHER_USER = """
import os, sys
from orchestrator.errors import GuestError
from orchestrator.providers import processes
os.setgroups([])
os.setuid(65534)
try:
    processes.kill([int(sys.argv[1])])
except GuestError as error:
    print(error)
"""


def test_a_process_that_another_user_owns_and_that_has_to_end_is_an_error_that_names_it():
    with subprocess.Popen(["sleep", "300"]) as other:
        try:
            command = [sys.executable, "-c", AS_ANOTHER_USER, str(other.pid)]
            done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
        finally:
            other.kill()
    assert done.stdout == f"process {other.pid} belongs to another user and cannot be ended\n"
