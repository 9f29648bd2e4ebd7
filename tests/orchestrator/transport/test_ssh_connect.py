"""Keys and host keys: what is read before anything is sent, and what is trusted."""

import base64
import dataclasses
import threading

import paramiko
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key

from orchestrator.errors import GuestError
from orchestrator.store.store import Store
from orchestrator.transport.keys import StudyKeys, host_name, key_pair
from orchestrator.transport.ssh_connect import SshTarget, close, connect


def locked(encoding: serialization.PrivateFormat) -> bytes:
    key = generate_private_key(65537, 2048)
    return key.private_bytes(
        serialization.Encoding.PEM, encoding, serialization.BestAvailableEncryption(b"secret")
    )


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (lambda: locked(serialization.PrivateFormat.OpenSSH), "is locked by a passphrase"),
        (lambda: locked(serialization.PrivateFormat.TraditionalOpenSSL), "is locked by a passphrase"),
        (lambda: b"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI me", "is not a usable private key"),
        (lambda: b"hello", "is not a usable private key"),
        (lambda: None, "there is no such key file"),
    ],
    ids=["locked", "locked PEM", "public half", "garbage", "missing"],
)
def test_a_key_that_is_of_no_use_is_named_before_the_host_is_asked(tmp_path, content, message):
    key = tmp_path / "key"
    if (data := content()) is not None:
        key.write_bytes(data)
    known = tmp_path / "known_hosts"
    target = SshTarget(host="no-such-host.invalid", port=1, user="me", key=key, known_hosts=known)
    with pytest.raises(GuestError, match=message) as caught:
        connect(target)
    assert str(key) in caught.value.message


@pytest.fixture
def target(server, tmp_path):
    return server.target(StudyKeys.of(Store(tmp_path)))


@pytest.mark.needs("sshd")
def test_lines_of_a_known_hosts_file_that_cannot_be_read_are_passed_over(target, server, tmp_path):
    name, cut = host_name(target.host, target.port), base64.b64encode(b"\0\0\0\7ssh-rsa\0\0").decode()
    lines = [
        b"# caf\xe9",
        b"",
        f"@cert-authority *.example.com {server.host.public}".encode(),
        f"other ssh-rsa {cut}".encode(),
        b"other ssh-ed25519 A",
        f"{name}   {server.host.public}".encode(),
    ]
    target.known_hosts.write_bytes(b"\n".join(lines))
    close(connect(target))


@pytest.mark.needs("sshd")
def test_a_revoked_host_key_is_refused_also_where_it_is_pinned(target, server):
    with target.known_hosts.open("a") as file:
        file.write(f"@revoked * {server.host.public}\n")
    with pytest.raises(GuestError, match=f"which is revoked in {target.known_hosts}"):
        connect(target)


@pytest.mark.needs("sshd")
def test_a_known_hosts_file_that_is_not_there_is_named(target):
    target.known_hosts.unlink()
    with pytest.raises(GuestError, match=rf"is not known \({target.known_hosts} does not exist\); it shows"):
        connect(target)


@pytest.mark.needs("sshd")
def test_a_host_that_refuses_the_key_is_not_left_connected(target, tmp_path):
    other = dataclasses.replace(target, key=key_pair(tmp_path / "other").private)
    with pytest.raises(GuestError, match="refuses the key"):
        connect(other)
    transports = [each for each in threading.enumerate() if isinstance(each, paramiko.Transport)]
    for each in transports:
        each.join(60)
    assert not any(each.is_alive() for each in transports)
