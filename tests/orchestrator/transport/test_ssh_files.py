"""What a guest may answer while a file is fetched, against an SFTP server made for it."""

from __future__ import annotations

import contextlib
import socket
import stat
import struct
import threading

import paramiko
import pytest

from orchestrator.errors import GuestError
from orchestrator.transport.ssh import AHEAD_BYTES, CHUNK_BYTES, SshConnection, _Files

OPEN, CLOSE, READ, LSTAT = 3, 4, 5, 7  # requests
VERSION, STATUS, HANDLE, DATA, ATTRS = 2, 101, 102, 103, 105  # answers
OK, PERMISSION_DENIED = 0, 3
SIZE = 2 * AHEAD_BYTES + 100


class Server:
    """Serves one file of SIZE bytes. `answer` gets the reads of AHEAD_BYTES, or of what is left, once all
    have come, and yields the packets to send."""

    def __init__(self, answer):
        self.answer = answer
        self.offsets = []  # of all reads
        self.client, self._socket = socket.socketpair()
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def close(self):
        self.client.close()
        self._thread.join()

    def _serve(self):
        waiting = []
        with contextlib.suppress(OSError), self._socket, self._socket.makefile("rwb") as file:
            while head := file.read(4):
                kind, *content = file.read(*struct.unpack(">I", head))
                body = bytes(content)
                number = body[:4]
                if kind == READ:
                    offset, size = struct.unpack(">QI", body[-12:])
                    self.offsets.append(offset)
                    waiting.append((number, offset, size))
                    packets = []
                    if (end := offset + size) % AHEAD_BYTES == 0 or end >= SIZE:
                        packets, waiting = self.answer(waiting), []
                else:
                    packets = [
                        {
                            LSTAT: (ATTRS, number, struct.pack(">IQI", 1 | 4, SIZE, stat.S_IFREG | 0o644)),
                            OPEN: (HANDLE, number, struct.pack(">I", 1) + b"h"),
                            CLOSE: status(number, OK),
                        }.get(kind, (VERSION, struct.pack(">I", 3), b""))
                    ]
                for answered, about, rest in packets:
                    file.write(struct.pack(">IB", 1 + len(about) + len(rest), answered) + about + rest)
                file.flush()


def status(number, code):
    return STATUS, number, struct.pack(">II", code, 4) + b"nope" + struct.pack(">I", 0)


def data(number, content):
    return DATA, number, struct.pack(">I", len(content)) + content


@pytest.fixture
def serve(monkeypatch):
    """A connection to a server that answers reads so."""
    servers = []

    def make(answer):
        server = Server(answer)
        servers.append(server)
        monkeypatch.setattr(_Files, "_log", lambda *_: None)  # a socket has no name, as a channel has
        files = _Files(server.client)

        @contextlib.contextmanager
        def transfer(_):
            yield files, lambda _: None

        monkeypatch.setattr(SshConnection, "_transfer", transfer)
        return server, SshConnection("guest", "/guest", "python3")

    yield make
    for server in servers:
        server.close()


def test_a_guest_that_refuses_to_have_a_file_read_is_blamed_and_not_this_disk(serve, tmp_path):
    _, connection = serve(lambda reads: [status(reads[0][0], PERMISSION_DENIED)])
    with pytest.raises(GuestError, match=r"^guest: weights: the download failed: nope$"):
        connection.get("weights", tmp_path / "weights", SIZE)


@pytest.mark.parametrize("sent", [CHUNK_BYTES + 1, 0])  # paramiko fills up with zeros what does not come
def test_more_data_than_was_asked_for_is_refused(serve, tmp_path, sent):
    stated = struct.pack(">I", CHUNK_BYTES + 1)
    _, connection = serve(lambda reads: [(DATA, read[0], stated + bytes(sent)) for read in reads])
    with pytest.raises(GuestError, match="the download failed: more data than was asked for"):
        connection.get("weights", tmp_path / "weights", SIZE)


def test_a_file_is_requested_once_and_little_ahead_whatever_order_the_answers_have(
    serve, tmp_path, monkeypatch
):
    whole = bytes(range(256)) * (SIZE // 256 + 1)

    def backwards(reads):
        for number, offset, size in reversed(reads):
            yield data(number, whole[offset : offset + min(size, SIZE - offset)])

    requested = []
    request = paramiko.SFTPFile._prefetch_thread

    def recorded(source, chunks, limit):
        requested.append(sum(chunks[-1]) - source.tell())
        request(source, chunks, limit)

    monkeypatch.setattr(paramiko.SFTPFile, "_prefetch_thread", recorded)
    server, connection = serve(backwards)
    connection.get("weights", tmp_path / "weights", SIZE)
    assert (tmp_path / "weights").read_bytes() == whole[:SIZE]
    assert max(requested) == AHEAD_BYTES
    read = [offset for offset in server.offsets if offset < SIZE]
    assert len(read) == len(set(read))
