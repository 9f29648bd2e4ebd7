"""A hostile SSH server: whatever it greets with, and whatever it answers to a guest's commands, everything
ends in its time, in the documented way, and little of it is held."""

import contextlib
import os
import socket
import struct
import threading
import time
import tracemalloc

import paramiko
import pytest

from guest.records import pace
from orchestrator.errors import GuestError
from orchestrator.transport import ssh, ssh_stream
from orchestrator.transport.keys import StudyKeys, key_pair
from orchestrator.transport.ssh import SshConnection
from orchestrator.transport.ssh_connect import SshTarget, UnreachableError, connect
from tests.security.peers import listening


def kex(payload):
    """A packet of the handshake, with these bytes in it."""
    padding = 8 - (len(payload) + 5) % 8 + 4
    return (len(payload) + padding + 1).to_bytes(4, "big") + bytes([padding]) + payload + bytes(padding)


class Drips(bytes):
    """A byte now and then, so that no limit of silence is ever reached."""


DRIP_S = 0.1
HELD_S, LIMIT_S = 1200, 600  # a server may say nothing for longer than its client may take
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
    "a banner in drips": Drips(b"banner" * 1000),
    "banners in drips": Drips(b"b\r\n" * 1000),
    "a kex in drips": Drips(HELLO + kex(b"\x14" + bytes(250) * 4)),
    "disconnect, with a text": [HELLO + kex(b"\x01\0\0\0\x02\0\0\0\x04\x1b[2J\0\0\0\0")],
}


def drip(peer, data, ends):
    for number in range(len(data)):
        peer.sendall(data[number : number + 1])
        if ends.wait(DRIP_S):
            return


@pytest.fixture
def target(tmp_path):
    key_pair(tmp_path / "key")
    return tmp_path


@pytest.mark.needs("studies")
@pytest.mark.parametrize("kind", WORDS)
def test_no_server_holds_up_who_connects_or_fills_its_memory(target, kind, monkeypatch):
    monkeypatch.setattr(threading, "excepthook", lambda _: None)

    def answer(peer, ends):
        if isinstance(WORDS[kind], Drips):
            drip(peer, WORDS[kind], ends)
        else:
            for piece in WORDS[kind]:
                peer.sendall(piece)
        ends.wait(HELD_S)

    with listening(answer) as port:
        where = SshTarget(
            host="127.0.0.1",
            port=port,
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
            assert time.monotonic() - began < LIMIT_S
            assert tracemalloc.get_traced_memory()[1] < 64 << 20
        finally:
            tracemalloc.stop()


class Server(paramiko.ServerInterface):
    """Lets everybody in; `acts` say what is done on a channel that was opened, by what it was opened for."""

    def __init__(self, acts, ends) -> None:
        self._acts, self._ends = acts, ends

    def check_auth_publickey(self, username, key):
        return paramiko.AUTH_SUCCESSFUL

    def check_channel_request(self, kind, chanid):
        if "channel" in self._acts:
            self._ends.wait(HELD_S)
        return paramiko.OPEN_SUCCEEDED

    def check_channel_exec_request(self, channel, command):
        return self._act(channel, "exec")

    def check_channel_subsystem_request(self, channel, name):
        return self._act(channel, "sftp")

    def _act(self, channel, name):
        act = self._acts.get(name, well)
        if act is None:
            self._ends.wait(HELD_S)
        else:
            threading.Thread(target=self._done, args=(act, channel), daemon=True).start()
        return True

    def _done(self, act, channel):
        with contextlib.suppress(OSError, EOFError, paramiko.SSHException):
            act(channel, self._ends)


def well(channel, ends):
    channel.send_exit_status(0)
    channel.shutdown_write()
    channel.close()


def silent(channel, ends):
    ends.wait(HELD_S)


def gone(channel, ends):
    channel.get_transport().close()


def sending(data, times=100_000):
    def send(channel, ends):
        for _ in range(times):
            channel.sendall(data)
        ends.wait(HELD_S)

    return send


def sending_errors(channel, ends):
    for _ in range(100_000):
        channel.sendall_stderr(b"e" * 65536)


def of_status(code):
    def end(channel, ends):
        message = paramiko.Message()
        message.add_byte(bytes([paramiko.common.MSG_CHANNEL_REQUEST]))
        message.add_int(channel.remote_chanid)
        message.add_string("exit-status")
        message.add_boolean(False)
        message.add_int(code)
        channel.transport._send_user_message(message)
        channel.close()

    return end


def dripping(channel, ends):
    drip(channel, bytes(1000), ends)


def dripping_lines(channel, ends):
    drip(channel, b"\n" * 1000, ends)


def ignoring(channel, ends):
    while not ends.wait(0.001):
        channel.get_transport().send_ignore(30_000)


def sftp_of(*answers):
    """Answers each request with the next of these, the last one again and again."""

    def serve(channel, ends):
        for number in range(100_000):
            head = channel.recv(4)
            if len(head) < 4:
                return
            left, request = struct.unpack(">I", head)[0], b""
            while len(request) < left:
                request += channel.recv(left - len(request))
            answer = answers[min(number, len(answers) - 1)]
            content = answer[:1] + (request[1:5] if number else b"") + answer[1:]
            if isinstance(answer, Drips):
                drip(channel, struct.pack(">I", len(content)) + content, ends)
            elif ends.wait(DRIP_S if answer is ONE_BYTE else 0):
                return
            else:
                channel.sendall(struct.pack(">I", len(content)) + content)

    return serve


VERSION = b"\x02\x00\x00\x00\x03"
SIZE = b"\x69" + struct.pack(">IQI", 5, 1000, 0o100644)  # of a plain file
HANDLE = b"\x66\x00\x00\x00\x01h"
ONE_BYTE = b"\x67\x00\x00\x00\x01x"
DATA = b"\x67" + struct.pack(">I", 1000) + bytes(1000)
STATUS = b"\x65" + struct.pack(">II", 0, 1000) + bytes(1000)


def shell(connection, folder):
    connection.shell("true", 1)


def run(connection, folder):
    assert connection.run(["true"], {}, 1).status == 0


def put(connection, folder):
    (folder / "large").write_bytes(os.urandom(1 << 20) * 64)
    connection.put(folder / "large", "x")


def get(connection, folder):
    connection.get("x", folder / "x", 1000)


def talk(connection, folder):
    """More than the server's window has room for."""
    connection.open(["cat"], {}).send("x" * (8 << 20))


ACTS = {
    "channels are not answered": ({"channel": None}, shell),
    "commands are not answered": ({"exec": None}, run),
    "commands never end": ({"exec": silent}, run),
    "output without end": ({"exec": sending(b"x" * 65536)}, run),
    "lines without end": ({"exec": sending(b"\n" * 65536)}, run),
    "errors without end": ({"exec": sending_errors}, run),
    "the connection goes": ({"exec": gone}, run),
    "a status that is none": ({"exec": of_status(2**32 - 1)}, shell),
    "messages to ignore": ({"exec": ignoring}, run),
    "transfers are not answered": ({"sftp": None}, get),
    "transfers never begin": ({"sftp": silent}, get),
    "noise for a transfer": ({"sftp": sending(b"\xff" * 1000)}, get),
    "a packet of 16 MiB": ({"sftp": sending(b"\x00\xff\xff\xff" + b"x" * 65536)}, get),
    "packets of nothing": ({"sftp": sending(bytes(4096))}, get),
    "another protocol": ({"sftp": sftp_of(b"\x02\xff\xff\xff\xff")}, get),
    "a text for a state": ({"sftp": sftp_of(VERSION, b"\x68\xff\xff\xff\xff")}, get),
    "attributes without end": ({"sftp": sftp_of(VERSION, b"\x69" + b"\xff" * 100)}, get),
    "escapes in an error": ({"sftp": sftp_of(VERSION, b"\x65\0\0\0\x04\0\0\0\x04\x1b[2J\0\0\0\0")}, get),
    "no handle": ({"sftp": sftp_of(VERSION, SIZE, b"\x66\xff\xff\xff\xff")}, get),
    "more bytes than were asked for": (
        {"sftp": sftp_of(VERSION, SIZE, HANDLE, b"\x67" + struct.pack(">I", 100_000) + b"x" * 100_000)},
        get,
    ),
    "fewer bytes than it says": ({"sftp": sftp_of(VERSION, SIZE, HANDLE, b"\x67\xff\xff\xff\xffx")}, get),
    "the connection goes in a transfer": ({"sftp": gone}, get),
    "output in drips": ({"exec": dripping}, run),
    "lines in drips": ({"exec": dripping_lines}, run),
    "a version in drips": ({"sftp": sftp_of(Drips(b"\x02" + bytes(1000)))}, get),
    "a state in drips": ({"sftp": sftp_of(VERSION, Drips(SIZE + bytes(1000)))}, get),
    "a file in drips": ({"sftp": sftp_of(VERSION, SIZE, HANDLE, Drips(DATA))}, get),
    "a file of one byte an answer": ({"sftp": sftp_of(VERSION, SIZE, HANDLE, ONE_BYTE)}, get),
    "requests are not taken": ({"exec": silent}, talk),
    "an upload is answered in drips": ({"sftp": sftp_of(VERSION, HANDLE, Drips(STATUS))}, put),
    "an upload is not answered": ({"sftp": silent}, put),
    "an upload is answered with noise": ({"sftp": sending(b"\xff" * 1000)}, put),
    "an upload is not read": ({"sftp": sftp_of(VERSION, HANDLE)}, put),
}


LIMITS = (
    (ssh, "COMMAND_TIMEOUT_S"),
    (ssh, "TRANSFER_TIMEOUT_S"),
    (ssh_stream, "SEND_TIMEOUT_S"),
    (pace, "GRACE_S"),
)


@pytest.mark.needs("studies")
@pytest.mark.parametrize("kind", ACTS)
def test_no_server_holds_up_who_gives_it_commands_or_fills_its_memory(target, kind, monkeypatch):
    monkeypatch.setattr(threading, "excepthook", lambda _: None)
    for module, name in LIMITS:
        monkeypatch.setattr(module, name, 1.0)
    acts, does = ACTS[kind]
    ends, made = threading.Event(), []
    host, keys = key_pair(target / "host"), StudyKeys(target / "keys", target / "known_hosts")

    def serve(server):
        while not ends.is_set():
            with contextlib.suppress(OSError):
                transport = paramiko.Transport(server.accept()[0])
                made.append(transport)
                transport.add_server_key(paramiko.Ed25519Key(filename=str(host.private)))
                with contextlib.suppress(paramiko.SSHException, EOFError):
                    transport.start_server(event=threading.Event(), server=Server(acts, ends))

    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.1)
        thread = threading.Thread(target=serve, args=(server,))
        thread.start()
        port = server.getsockname()[1]
        keys.pin("127.0.0.1", port, host.public)
        where = SshTarget(
            host="127.0.0.1",
            port=port,
            user="u",
            key=target / "key",
            known_hosts=keys.known_hosts,
            patience_s=2.0,
        )
        connection = SshConnection(where, "guest", "python3")
        connection.connect()
        tracemalloc.start()
        began = time.monotonic()
        try:
            with pytest.raises(GuestError) as caught:
                does(connection, target)
            assert "\n" not in str(caught.value)
            assert time.monotonic() - began < LIMIT_S
            assert tracemalloc.get_traced_memory()[1] < 200 << 20
        finally:
            tracemalloc.stop()
            ends.set()
            connection.close()
            thread.join(LIMIT_S)
            for each in made:
                each.close()
    assert not thread.is_alive()
