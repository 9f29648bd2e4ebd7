"""What an SSH connection asks the shell of a guest, and how long it waits."""

from __future__ import annotations

import shlex
import shutil
import subprocess

import pytest

from orchestrator.transport.ssh import (
    HASHED_BYTES_PER_S,
    REMOVAL_TIMEOUT_S,
    TRANSFER_TIMEOUT_S,
    SshConnection,
    _in_sh,
)
from orchestrator.transport.ssh_folders import removal


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


SHELLS = [shell for shell in ("sh", "bash", "zsh", "csh", "tcsh", "fish") if shutil.which(shell)]


@pytest.mark.parametrize("shell", SHELLS)
def test_a_script_reaches_sh_through_any_login_shell_as_it_is(shell):
    text = "it's\n! !! !x $HOME `id` \\n \\0101 \\' \"%s\" * ~ é # {a,b} ^x\t; & |"
    script = f"printf %s {shlex.quote(text)}\nexit 3"
    done = subprocess.run([shell, "-c", _in_sh(script)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (3, text, "")
    assert not set("\n!") & set(_in_sh(script))
