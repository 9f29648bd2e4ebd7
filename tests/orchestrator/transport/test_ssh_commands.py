"""What an SSH connection asks the shell of a guest, and how long it waits."""

from __future__ import annotations

import pytest

from orchestrator.transport.ssh import HASHED_BYTES_PER_S, TRANSFER_TIMEOUT_S, SshConnection


@pytest.fixture
def asked(monkeypatch):
    """(timeout_s, name) of each command."""
    found = []

    class Ends:
        status, stdout, stderr = 0, "", ""

        def complete(self, name, timeout_s):
            found.append((timeout_s, name))
            return self

    monkeypatch.setattr(SshConnection, "_housekeeping", lambda *_: Ends())
    return found


def test_a_large_file_is_given_longer_to_be_hashed_and_an_error_names_it(asked):
    connection = SshConnection(None, "/guest", "python3")
    assert connection._sha256("/guest/weights", 0) == connection._sha256(
        "/guest/weights", 60 * HASHED_BYTES_PER_S
    )
    name = "sha256sum of /guest/weights"
    assert asked == [(TRANSFER_TIMEOUT_S, name), (TRANSFER_TIMEOUT_S + 60, name)]
