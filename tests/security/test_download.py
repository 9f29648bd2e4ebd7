"""A server of data sets that cuts off what it sends, anywhere, or sends something else: nothing is kept, and
one error says so."""

import contextlib
import dataclasses
import hashlib
import time

import pytest

from guest.datasets import datafiles, download
from guest.datasets.catalogue import DATASETS, DatasetError
from guest.records import pace
from tests.security.peers import listening

DATA = bytes(range(256)) * 400
HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(DATA)
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
CHUNKS = b"%x\r\n" % len(DATA) + DATA + b"\r\n0\r\n\r\n"
CUTS = {
    **{f"the head, after {at} bytes": HEAD[:at] for at in (0, 1, 8, 9, 12, 15, 17, 30, len(HEAD) - 2)},
    **{f"the data, after {at} bytes": HEAD + DATA[:at] for at in (0, 1, 8192, 65536, len(DATA) - 1)},
    **{f"chunks, after {at} bytes": CHUNKED + CHUNKS[:at] for at in (0, 1, 4, 6, 7, 100, len(DATA))},
    "a length that is none": HEAD.replace(b"%d" % len(DATA), b"x") + DATA[:-1],
    "a length below zero": HEAD.replace(b"%d" % len(DATA), b"-1") + DATA[:-1],
    "a length of 5,000 digits": HEAD.replace(b"%d" % len(DATA), b"9" * 5000) + DATA[:-1],
    "a longer file": HEAD.replace(b"%d" % len(DATA), b"%d" % (1 << 40)) + DATA * 2,
    "a chunk that is none": CHUNKED + b"xyz\r\n",
    "a chunk below zero": CHUNKED + b"-5\r\n" + DATA,
    "a chunk of 4 EiB": CHUNKED + b"%x\r\n" % (1 << 62) + DATA[:-1],
    "a head without end": b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * 100_000,
    "a line without end": b"HTTP/1.1 200 OK\r\nA: " + b"b" * 10_000_000,
    "answers to go on": b"HTTP/1.1 100 Continue\r\n\r\n" * 1000,
    "a file of this machine": b"HTTP/1.1 302 Found\r\nLocation: file:///etc/passwd\r\n\r\n",
    "itself": b"HTTP/1.1 302 Found\r\nLocation: /\r\nContent-Length: 0\r\n\r\n",
    "escapes": b"HTTP/1.1 404 \x1b[2J\r\n\r\n",
    "no HTTP": b"\xff\xfe\x00" * 1000,
}


@contextlib.contextmanager
def serving(says: bytes):
    """The address of what says this to everybody, and then hangs up."""

    def talk(connection, ends):
        connection.settimeout(600)
        connection.recv(65536)
        connection.sendall(says)

    with listening(talk) as port:
        yield f"http://127.0.0.1:{port}/"


def source(url):
    known = DATASETS["mnist"].files[0]
    sha256 = hashlib.sha256(DATA).hexdigest()
    return dataclasses.replace(known, urls=(url,), sha256=sha256, size_bytes=len(DATA))


@pytest.mark.parametrize("kind", CUTS)
def test_a_download_that_is_cut_anywhere_is_refused_and_leaves_nothing(tmp_path, kind):
    began = time.monotonic()
    with serving(CUTS[kind]) as url, pytest.raises(DatasetError, match="could not be downloaded"):
        datafiles.fetch(source(url), tmp_path)
    assert time.monotonic() - began < 300
    assert list(tmp_path.iterdir()) == []


DRIPS = {
    "the head": HEAD + DATA,
    "the data": DATA,
    "the length of a chunk": b"0" * 1000,
    "a handshake": b"\x16\x03\x03\x03\xe8" + bytes(1000),
}


@pytest.mark.parametrize("kind", DRIPS)
def test_a_download_that_comes_in_drips_is_given_up_and_leaves_nothing(tmp_path, kind, monkeypatch):
    monkeypatch.setattr(pace, "GRACE_S", 1.0)
    monkeypatch.setattr(download, "SILENT_S", 2.0)

    def talk(connection, ends):
        if kind != "a handshake":
            connection.recv(65536)
            connection.sendall({"the data": HEAD, "the length of a chunk": CHUNKED}.get(kind, b""))
        for number in range(len(DRIPS[kind])):
            connection.sendall(DRIPS[kind][number : number + 1])
            if ends.wait(0.1):
                return

    began, scheme = time.monotonic(), "https" if kind == "a handshake" else "http"
    with listening(talk) as port, pytest.raises(DatasetError, match="came or went within .* run this again"):
        datafiles.fetch(source(f"{scheme}://127.0.0.1:{port}/"), tmp_path)
    assert time.monotonic() - began < 60
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("says", [HEAD + DATA, CHUNKED + CHUNKS])
def test_what_comes_whole_is_kept(tmp_path, says):
    with serving(says) as url:
        assert datafiles.fetch(source(url), tmp_path).read_bytes() == DATA
