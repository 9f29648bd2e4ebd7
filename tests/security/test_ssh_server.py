"""A hostile SSH server: whatever it greets with, connecting ends in its time, in the documented way,
and little of it is held."""

import contextlib
import socket
import threading
import time
import tracemalloc

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed25519

from orchestrator.errors import GuestError
from orchestrator.transport.ssh_connect import SshTarget, UnreachableError, connect


def kex(payload):
    """A packet of the handshake, with these bytes in it."""
    padding = 8 - (len(payload) + 5) % 8 + 4
    return (len(payload) + padding + 1).to_bytes(4, "big") + bytes([padding]) + payload + bytes(padding)


HELLO = b"SSH-2.0-x\r\n"
WORDS = {
    "nothing": [b""],
    "banners without end": [b"banner\r\n" * 1000] * 10_000,
    "a line without end": [b"a" * 65536] * 10_000,
    "a version without end": [b"SSH-2.0-" + b"a" * 65536] * 10_000,
    "no text": [b"\xff\x00\xfe\r\n" * 1000] * 100,
    "another version": [b"SSH-1.5-x\r\n"],
    "escape sequences": [b"SSH-9-\x1b[2J\r\n"],
    "a packet of 4 GiB": [HELLO + b"\xff\xff\xff\xff" + b"a" * 65536],
    "a packet of nothing": [HELLO + b"\0\0\0\0" * 100],
    "a kex of noise": [HELLO + kex(b"\x14" + b"\xff" * 300)],
    "a kex without algorithms": [HELLO + kex(b"\x14" + bytes(16) + bytes(4) * 10 + bytes(5))],
    "a kex without end": [HELLO + kex(b"\x14" + bytes(16) + b"\x00\xff\xff\xff" + b"a," * 1000)],
    "disconnect, with a text": [HELLO + kex(b"\x01\0\0\0\x02\0\0\0\x04\x1b[2J\0\0\0\0")],
}


@pytest.fixture
def target(tmp_path):
    key = ed25519.Ed25519PrivateKey.generate()
    content = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
    )
    (tmp_path / "key").write_bytes(content)
    return tmp_path


@pytest.mark.parametrize("kind", WORDS)
def test_no_server_holds_up_who_connects_or_fills_its_memory(target, kind, monkeypatch):
    monkeypatch.setattr(threading, "excepthook", lambda _: None)
    ends = threading.Event()

    def serve(server):
        with contextlib.suppress(OSError):
            peer, _ = server.accept()
            with peer:
                for piece in WORDS[kind]:
                    peer.sendall(piece)
                ends.wait(60)

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=serve, args=(server,))
        thread.start()
        where = SshTarget(
            host="127.0.0.1",
            port=server.getsockname()[1],
            user="u",
            key=target / "key",
            known_hosts=target / "known_hosts",
            connect_timeout_s=2.0,
            patience_s=2.0,
        )
        tracemalloc.start()
        began = time.monotonic()
        try:
            with pytest.raises((UnreachableError, GuestError)):
                connect(where)
            assert time.monotonic() - began < 60
            assert tracemalloc.get_traced_memory()[1] < 64 << 20
        finally:
            tracemalloc.stop()
            ends.set()
        thread.join(60)
    assert not thread.is_alive()
