"""The process that keeps the logs of a machine."""

import os
import resource

import pytest

from orchestrator.providers.qemu import console

MOST = 10_000


@pytest.fixture
def logs(tmp_path, monkeypatch):
    """A process that keeps two logs, and what is written to them; its end is waited for."""
    monkeypatch.setattr(console, "MOST_BYTES", MOST)
    process, descriptors = console.start(tmp_path, "console=test", ("console.log", "qemu.log"))
    written = [os.fdopen(each, "wb", buffering=0) for each in descriptors]

    def end():
        for file in written:
            file.close()
        assert process.wait(120) == 0
        return [(tmp_path / name).read_bytes() for name in ("console.log", "qemu.log")]

    yield written, end
    end()


def test_what_is_printed_without_end_leaves_its_end_and_no_more_than_the_limit(logs, tmp_path):
    (printed, _), end = logs
    text = b"".join(b"line %d\n" % number for number in range(20_000))
    for begin in range(0, len(text), 1000):
        printed.write(text[begin : begin + 1000])
    kept, other = end()
    assert MOST // 2 <= len(kept) <= MOST
    assert text.endswith(kept)
    assert other == b""
    assert sorted(path.name for path in tmp_path.iterdir()) == ["console.log", "qemu.log"]


def test_logs_of_an_honest_machine_are_whole_and_begin_empty(logs, tmp_path):
    (printed, log), end = logs
    printed.write(b"booted\n")
    log.write(b"a warning\n")
    assert end() == [b"booted\n", b"a warning\n"]
    process, descriptors = console.start(tmp_path, "console=test", ("console.log",))
    os.close(*descriptors)
    assert process.wait(120) == 0
    assert (tmp_path / "console.log").read_bytes() == b""


def test_a_disk_that_takes_nothing_holds_up_no_machine(tmp_path):
    """A pipe has 64 KiB, and more is written."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, before[1]))
    try:
        process, (printed,) = console.start(tmp_path, "console=test", ("console.log",))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    with os.fdopen(printed, "wb", buffering=0) as file:
        for _ in range(300):
            file.write(bytes(1000))
    assert process.wait(120) == 0
    assert (tmp_path / "console.log").stat().st_size == 100


def test_a_process_that_cannot_be_started_leaves_no_pipe_open(tmp_path, monkeypatch):
    monkeypatch.setattr(console.sys, "executable", "/no/such/python")
    before = os.listdir("/proc/self/fd")
    with pytest.raises(FileNotFoundError):
        console.start(tmp_path, "console=test", ("console.log", "qemu.log"))
    assert os.listdir("/proc/self/fd") == before
