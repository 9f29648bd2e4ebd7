"""What an SSH connection asks the shell of a guest, and how long it waits."""

from __future__ import annotations

import shlex
import shutil
import stat
import subprocess

import pytest

from orchestrator.errors import GuestError
from orchestrator.providers.ssh import KILL
from orchestrator.transport.ssh import (
    HASHED_BYTES_PER_S,
    REMOVAL_TIMEOUT_S,
    TRANSFER_TIMEOUT_S,
    SshConnection,
    _in_sh,
)
from orchestrator.transport.ssh_folders import private_folder, removal


@pytest.fixture
def asked(monkeypatch):
    """(timeout_s, name, script) of each command."""
    found = []

    class Ends:
        status, stdout, stderr = 0, "", ""

        def __init__(self, script):
            self._script = script

        def complete(self, name, timeout_s):
            found.append((timeout_s, name, self._script))
            return self

    monkeypatch.setattr(SshConnection, "_housekeeping", lambda _, script: Ends(script))
    return found


def test_a_large_file_is_given_longer_to_be_hashed_and_an_error_names_it(asked):
    connection = SshConnection(None, "/guest", "python3")
    assert connection._sha256("/guest/weights", 0) == connection._sha256(
        "/guest/weights", 60 * HASHED_BYTES_PER_S
    )
    name = "sha256sum of /guest/weights"
    assert [each[:2] for each in asked] == [(TRANSFER_TIMEOUT_S, name), (TRANSFER_TIMEOUT_S + 60, name)]


def test_a_slow_removal_spares_what_comes_next_in_its_place_and_the_next_one_ends_it(asked, tmp_path):
    def sh(script):
        subprocess.run(["sh", "-c", script], check=True)

    guest, out = tmp_path / "guest 'of' one", tmp_path / "guest 'of' one" / "out"
    connection = SshConnection(None, str(guest), "python3")
    connection.remove("out")
    (_, _, rename), (timeout_s, _, remove) = asked
    assert timeout_s == REMOVAL_TIMEOUT_S
    out.mkdir(parents=True)
    sh(rename)
    out.mkdir()  # the next run's, while the removal goes on
    sh(remove)
    assert list(guest.iterdir()) == [out]
    (guest / ".gone-out-1" / "rest").mkdir(parents=True)
    sh(removal(str(out)))
    assert not list(guest.iterdir())
    sh(removal(str(out)))


def test_a_temporary_folder_that_cannot_be_made_is_reported_in_the_words_of_mkdir(tmp_path):
    folder = tmp_path / "no 'such' folder" / "own"
    done = subprocess.run(["sh", "-c", private_folder(str(folder))], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (125, "")
    assert done.stderr.endswith(": No such file or directory\n")
    folder.parent.touch()
    folder = folder.parent
    done = subprocess.run(["sh", "-c", private_folder(str(folder))], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (125, f"{folder}: is not this user's folder; remove it\n")
    folder.unlink()
    for _ in ("made", "there"):
        done = subprocess.run(["sh", "-c", private_folder(str(folder))], capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (0, "")
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_a_process_that_does_not_end_is_named():
    """`kill` ends nothing in this shell."""
    mark = "VBSTUDY_GUEST=test of a process that stays"
    with subprocess.Popen(["sleep", "300"], env=dict([mark.split("=")])) as stays:
        script = f"kill() {{ :; }}\n{KILL.format(mark=shlex.quote(mark))}"
        done = subprocess.run(["sh", "-c", script], capture_output=True, text=True)
        stays.kill()
    said = f"process {stays.pid} does not end, although it was killed; see ps -l {stays.pid} there\n"
    assert (done.returncode, done.stderr) == (1, said)
    assert subprocess.run(["sh", "-c", script], capture_output=True, text=True).returncode == 0


def test_an_error_of_a_command_has_its_last_words(monkeypatch):
    class Fails:
        status, stdout, stderr = 1, "", "warning: old\nmkdir: no space left\n"

        def complete(self, name, timeout_s):
            return self

    monkeypatch.setattr(SshConnection, "_housekeeping", lambda _, script: Fails())
    with pytest.raises(GuestError, match="making it failed with status 1: mkdir: no space left$") as caught:
        SshConnection("me@host", "/guest", "python3").shell("mkdir it", what="making it")
    assert caught.value.evidence == Fails.stderr


SHELLS = [shell for shell in ("sh", "bash", "zsh", "csh", "tcsh", "fish") if shutil.which(shell)]


@pytest.mark.parametrize("shell", SHELLS)
def test_a_script_reaches_sh_through_any_login_shell_as_it_is(shell):
    text = "it's\n! !! !x $HOME `id` \\n \\0101 \\' \"%s\" * ~ é # {a,b} ^x\t; & |"
    script = f"printf %s {shlex.quote(text)}\nexit 3"
    done = subprocess.run([shell, "-c", _in_sh(script)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (3, text, "")
    assert not set("\n!") & set(_in_sh(script))
