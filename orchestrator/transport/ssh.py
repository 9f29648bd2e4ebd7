"""A guest behind SSH, through fabric. Only the pinned host key is accepted, only the given key is
offered, the user's own SSH set-up plays no part, and everything has a time limit."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import stat
import struct
import threading
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

import paramiko
from paramiko.sftp import CMD_ATTRS, CMD_DATA

from guest.records.codec import sha256_of
from guest.records.pace import Moved, paced
from guest.records.printable import last_line
from orchestrator.errors import GuestError
from orchestrator.transport.connection import Completed, Stream, collecting
from orchestrator.transport.keys import host_name
from orchestrator.transport.ssh_connect import SshTarget, UnreachableError, close, connect, reason
from orchestrator.transport.ssh_folders import private_folder, removal_of_renamed, renaming
from orchestrator.transport.ssh_stream import SshStream

COMMAND_TIMEOUT_S = 30.0
TRANSFER_TIMEOUT_S = 30.0  # without an answer
REMOVAL_TIMEOUT_S = 600.0  # of what a run left: it may be many files
HASHED_BYTES_PER_S = 4 << 20  # at least
CHUNK_BYTES = 1 << 15  # of which paramiko makes one request
AHEAD_BYTES = 64 * CHUNK_BYTES  # that are requested; paramiko holds what comes before its turn
PIDS = ".pids"
# What paramiko raises for answers that are not of SFTP.
NO_SFTP = (
    paramiko.SFTPError,
    struct.error,
    ArithmeticError,
    AssertionError,
    LookupError,
    TypeError,
    ValueError,
)


class SshConnection:
    """One guest's end. `prefix` is put before every command (`taskset -c 0,1`), `join` is the file of a
    cgroup that commands enter, `temporary` the programs' TMPDIR where it is not in the guest's folder."""

    shares_files = False

    def __init__(
        self,
        target: SshTarget,
        folder: str,
        python: str,
        *,
        prefix: Sequence[str] = (),
        join: str = "",
        mark: Mapping[str, str] | None = None,
        temporary: str = "",
    ) -> None:
        self.python = python
        self.target = target
        self._folder = PurePosixPath(folder)
        self._prefix = tuple(prefix)
        self._join = join
        self._mark = dict(mark or {})
        self._temporary = temporary
        self._fabric: Any = None
        self._sftp: Any = None
        self._streams: list[SshStream] = []
        self._lock = threading.RLock()
        self._closed = False

    # ---- commands ----------------------------------------------------------------------------

    def run(self, argv: Sequence[str], env: Mapping[str, str], timeout_s: float) -> Completed:
        stream = self._start(argv, env)
        try:
            return stream.complete(argv[0], timeout_s)
        finally:
            stream.kill()

    def open(self, argv: Sequence[str], env: Mapping[str, str]) -> Stream:
        stream = self._start(argv, env)
        self._streams.append(stream)
        return stream

    def _start(self, argv: Sequence[str], env: Mapping[str, str]) -> SshStream:
        token = uuid.uuid4().hex
        script = self._script(argv, env, token)
        with self._failures("a command could not be started"):
            channel = self._session(COMMAND_TIMEOUT_S)
            _execute(channel, script)
        return SshStream(channel, str(self.target), lambda: self._kill(token))

    def _script(self, argv: Sequence[str], env: Mapping[str, str], token: str) -> str:
        """sshd makes the shell the leader of a process group of its own; a link keeps its number so
        that the whole group can be ended later. The shell stays, to report a signal as 128 + n."""
        folder = self._folder
        settings = {
            **self._mark,
            "HOME": str(folder),
            "TMPDIR": self._temporary or str(folder / "tmp"),
            "KERAS_HOME": str(folder / ".keras"),
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONNOUSERSITE": "1",
            **env,
        }
        command = shlex.join([*self._prefix, "env", "-i"])
        command += ' "PATH=$PATH" "LANG=${LANG:-C.UTF-8}" '
        command += shlex.join([*(f"{k}={v}" for k, v in settings.items()), *argv])
        where, pid = shlex.quote(str(folder)), f"{PIDS}/{token}"
        folders = shlex.join([str(folder / PIDS), *([] if self._temporary else [settings["TMPDIR"]])])
        private = f"{private_folder(self._temporary)} && " if self._temporary else ""
        join = f"echo $$ > {shlex.quote(self._join)} && " if self._join else ""
        return (
            f"mkdir -p {folders} && {private}cd {where} && {join}ln -s $$ {pid} || "
            f"{{ rm -f {pid}; exit 125; }}; {command}; s=$?; rm -f {pid}; exit $s"
        )

    def _kill(self, token: str) -> None:
        """Ends a command's process group; a command that has not begun finds its link taken, and ends.
        Where the connection is gone, sshd closes the command's stdin, which is what ends the agent."""
        transport = self._live_transport()
        if transport is None:
            return
        pid = f"{PIDS}/{token}"
        script = (
            f"{shlex.join(['mkdir', '-p', str(self._folder / PIDS)])} && "
            f"cd {shlex.quote(str(self._folder))} && {{ ln -s killed {pid} || "
            f"{{ p=$(readlink {pid}) && rm -f {pid} && "
            "{ kill -s KILL -- -$p || kill -s KILL $p; }; }; } 2>/dev/null; :"
        )
        try:
            channel = transport.open_session(timeout=COMMAND_TIMEOUT_S)
            channel.settimeout(COMMAND_TIMEOUT_S)
            _execute(channel, script)
            channel.recv(1)  # its end
            channel.close()
        except (paramiko.SSHException, OSError, EOFError):
            self.drop()  # a connection on which this does not work is of no more use

    # ---- files -------------------------------------------------------------------------------

    def put(self, local: Path, remote: str) -> None:
        """Written to a temporary name, checked by SHA-256, then renamed. Does nothing when the same
        file is there already."""
        target = str(self._path(remote))
        expected = sha256_of(local)
        size_bytes = local.stat().st_size
        if self._sha256(target, size_bytes) == expected:
            return
        part = f"{target}.part"
        self.shell(f"mkdir -p {shlex.quote(str(PurePosixPath(target).parent))}")
        with (
            self._failures(f"{remote}: the upload failed"),
            local.open("rb") as source,
            self._transfer() as (files, moved),
        ):
            with _judged_by_size(), files.open(part, "wb") as file:
                file.set_pipelined(True)  # point: ssh file opened
                while chunk := source.read(CHUNK_BYTES):
                    file.write(chunk)
                    moved(len(chunk))
            there_bytes = files.size(part)
        if there_bytes < size_bytes:
            self.drop()  # the server may have the file open
            raise GuestError(
                f"{self.target}: {remote}: only {there_bytes} of {size_bytes} bytes arrived; is the disk of "
                f"{self._folder} there full?"
            )
        arrived = self._sha256(part, size_bytes)
        if arrived != expected:
            raise GuestError(f"{self.target}: {remote}: SHA-256 {arrived} arrived, {expected} was sent")
        self.shell(f"mv -f {shlex.quote(part)} {shlex.quote(target)}")

    def get(self, remote: str, local: Path, max_bytes: int) -> None:
        """Fetches one plain file, never more than `max_bytes` of it. The store compares it with the
        SHA-256 of the manifest before it believes it."""
        path = str(self._path(remote))
        failed = f"{remote}: the download failed"
        with self._failures(failed), self._transfer() as (files, moved):
            try:
                found = files.lstat(path)
            except FileNotFoundError:
                found = None
            if found is None or not stat.S_ISREG(found.st_mode):
                raise GuestError(f"{remote}: is not a plain file in the guest")
            if found.st_size > max_bytes:
                raise GuestError(f"{remote}: is larger than the {max_bytes} bytes that were announced")
            with files.open(path, "rb") as source, collecting(local) as target:
                got = requested = 0
                while True:
                    with self._failures(failed):  # inside `collecting`, which would blame this disk
                        ahead = min(got + AHEAD_BYTES, found.st_size)
                        if requested < ahead:
                            _request(source, requested, ahead)  # point: ssh file requested
                            requested = ahead
                        chunk = source.read(min(CHUNK_BYTES, max_bytes + 1 - got))
                    if not chunk:
                        break
                    got += len(chunk)
                    moved(len(chunk))
                    if got > max_bytes:  # it grew while it was read
                        raise GuestError(
                            f"{remote}: is larger than the {max_bytes} bytes that were announced"
                        )
                    target.write(chunk)  # point: ssh chunk written

    def remove(self, remote: str) -> None:
        folder = str(self._path(remote))
        self.shell(renaming(folder))  # which a guest that is gone does not do in time
        self.shell(removal_of_renamed(folder), REMOVAL_TIMEOUT_S)

    def _path(self, remote: str) -> PurePosixPath:
        """A path in the guest's folder, and nowhere else."""
        path = PurePosixPath(remote)
        if path.is_absolute() or ".." in path.parts or "\0" in remote:
            raise GuestError(f"{remote!r}: leads out of the guest's folder")
        return self._folder / path

    def _sha256(self, path: str, size_bytes: int) -> str:
        """Of a file of such a size; "" where there is none."""
        quoted = shlex.quote(path)
        script = f"if [ -f {quoted} ]; then sha256sum < {quoted}; fi"
        timeout_s = TRANSFER_TIMEOUT_S + size_bytes / HASHED_BYTES_PER_S
        return self.shell(script, timeout_s, f"sha256sum of {path}").partition(" ")[0].strip()

    def shell(self, script: str, timeout_s: float = COMMAND_TIMEOUT_S, what: str = "") -> str:
        """A housekeeping command in the user's home, outside the guest's CPU limit and environment. Errors
        name `what` it does."""
        what = what or f"`{script[:60]}`"
        done = self._housekeeping(script).complete(what, timeout_s)
        if done.status != 0:
            words = last_line(done.stderr)
            why = f"status {done.status}{words and ': '}{words:.200}"
            raise GuestError(f"{self.target}: {what} failed with {why}", evidence=done.stderr)
        return done.stdout

    def converse(self, script: str) -> SshStream:
        """The same, and it is talked to. It ends with the connection."""
        stream = self._housekeeping(script)
        self._streams.append(stream)
        return stream

    def _housekeeping(self, script: str) -> SshStream:
        with self._failures(f"`{script[:60]}` could not be run"):
            channel = self._session(COMMAND_TIMEOUT_S)
            _execute(channel, script)
        return SshStream(channel, str(self.target), channel.close)

    # ---- the connection ----------------------------------------------------------------------

    def connect(self) -> None:
        """Connects now, rather than at the first use. Raises GuestError."""
        self._transport()

    def close(self) -> None:
        with self._lock:
            self._closed = True
        for stream in self._streams:
            stream.kill()
        self.drop()

    def terminal(self, command: Sequence[str]) -> tuple[list[str], Path | None]:
        target = self.target
        options = {
            "IdentityFile": _quoted(target.key),  # after -i a percent sign can not be escaped
            "IdentitiesOnly": "yes",
            "IdentityAgent": "none",
            "UserKnownHostsFile": _quoted(target.known_hosts),
            "GlobalKnownHostsFile": "/dev/null",
            "StrictHostKeyChecking": "yes",
            "PasswordAuthentication": "no",
            "ForwardAgent": "no",
            "LogLevel": "ERROR",
        }
        argv = ["ssh", "-t" if not command else "-T", "-p", str(target.port)]
        if target.use_ssh_config:
            options["HostKeyAlias"] = host_name(target.address, target.port)
        else:
            argv += ["-F", "none"]
        for name, value in options.items():
            argv += ["-o", f"{name}={value}"]
        settings = shlex.join(f"{name}={value}" for name, value in self._mark.items())
        limit = shlex.join([*self._prefix, "env"])
        program = shlex.join(command) if command else '"${SHELL:-/bin/sh}" -i'
        script = f"cd {shlex.quote(str(self._folder))} 2>/dev/null; exec {limit} {settings} {program}"
        return [*argv, f"{target.user}@{target.host}", _in_sh(script)], None

    def _live_transport(self) -> Any:
        with self._lock:
            transport = self._fabric.transport if self._fabric is not None else None
        return transport if transport is not None and transport.is_active() else None

    def _transport(self) -> Any:
        """The live transport; a broken one is replaced, with longer and longer waits."""
        with self._lock:
            if self._closed:
                raise GuestError(f"{self.target}: the connection was closed")
            transport = self._live_transport()
            if transport is not None:
                return transport
            self.drop()
            deadline, wait_s = time.monotonic() + self.target.patience_s, 0.1
            while True:
                try:
                    self._fabric = connect(self.target)
                except UnreachableError as error:
                    left_s = deadline - time.monotonic()
                    if self._closed or left_s <= 0:
                        raise GuestError(f"{self.target}: cannot be reached: {error}") from None
                    time.sleep(min(wait_s, left_s))
                    wait_s = min(wait_s * 2, 5.0)
                else:
                    return self._fabric.transport

    def _session(self, timeout_s: float) -> Any:
        """An open channel. A connection often turns out to be broken only now; opening a channel has
        done nothing yet, so it may be tried again on a new one."""
        try:
            channel = self._transport().open_session(timeout=timeout_s)
        except (paramiko.SSHException, EOFError, OSError):
            self.drop()
            channel = self._transport().open_session(timeout=timeout_s)
        channel.settimeout(timeout_s)
        return channel

    def _files(self) -> Any:
        with self._lock:
            self._transport()
            if self._sftp is None or self._sftp.get_channel().closed:
                channel = self._session(TRANSFER_TIMEOUT_S)
                with paced(channel.get_transport().close, TRANSFER_TIMEOUT_S):
                    _request_sftp(channel, str(self.target))
                    self._sftp = _Files(channel)
            return self._sftp

    @contextlib.contextmanager
    def _transfer(self) -> Iterator[tuple[_Files, Moved]]:
        """Of one file; ends the connection when it takes too long."""
        files = self._files()
        with paced(files.get_channel().get_transport().close, TRANSFER_TIMEOUT_S) as moved:
            files.moved = moved
            yield files, moved

    def drop(self) -> None:
        """Lets go of the transport; the next use makes a new one."""
        with self._lock:
            dropped, self._fabric, self._sftp = self._fabric, None, None
        if dropped is not None:
            close(dropped)

    @contextlib.contextmanager
    def _failures(self, what: str) -> Iterator[None]:
        """A connection on which something failed is not used again."""
        try:
            yield
        except (paramiko.SSHException, EOFError, OSError, *NO_SFTP) as error:
            self.drop()
            raise GuestError(f"{self.target}: {what}: {reason(error)}") from None


class _Files(paramiko.SFTPClient):  # type: ignore[misc]
    moved: Moved | None = None  # called for each answer of a transfer, as `guest.records.pace` asks for

    def size(self, path: str) -> int:
        """Of a file; 0 where there is none."""
        try:
            return int(self.stat(path).st_size or 0)
        except FileNotFoundError:
            return 0

    def _read_packet(self) -> tuple[int, bytes]:
        kind, data = super()._read_packet()
        if self.moved is not None:
            self.moved(0)
        # No sshd sends further attributes; paramiko would read as many as the answer says there are.
        if kind == CMD_ATTRS and data[4:5] >= b"\x80":
            raise paramiko.SFTPError("attributes that SFTP 3 has not")
        if kind == CMD_DATA and int.from_bytes(data[4:8], "big") > CHUNK_BYTES:  # paramiko would keep it all
            raise paramiko.SFTPError("more data than was asked for")
        return kind, data


def _request(source: Any, start: int, end: int) -> None:
    """What paramiko's `prefetch` does in a thread, here in this one. With a thread, paramiko takes it for the
    end when all that was requested so far has come; it then fetches the rest twice, and holds it."""
    chunks = [(offset, min(CHUNK_BYTES, end - offset)) for offset in range(start, end, CHUNK_BYTES)]
    source._prefetching, source._prefetch_done = True, False
    source._prefetch_thread(chunks, None)


@contextlib.contextmanager
def _judged_by_size() -> Iterator[None]:
    """SFTP has numbers for few errors; a full disk is a `Failure`, too. What arrived shows it."""
    try:
        yield
    except OSError as error:
        if error.errno is not None or isinstance(error, TimeoutError):
            raise


def _quoted(path: Path) -> str:
    """As ssh reads paths in its options."""
    return f'"{path.resolve()}"'.replace("%", "%%")


def _request_sftp(channel: Any, target: str) -> None:
    try:
        channel.invoke_subsystem("sftp")
    except paramiko.SSHException:
        if not channel.get_transport().is_active():
            raise
        raise GuestError(f"{target}: has no SFTP; its sshd_config needs a line `Subsystem sftp`") from None


def _execute(channel: Any, script: str) -> None:
    with paced(channel.get_transport().close, COMMAND_TIMEOUT_S):  # paramiko has no limit for an answer
        channel.exec_command(_in_sh(script))


def _in_sh(script: str) -> str:
    """A command for any login shell: csh and fish read line ends, `!`, quotes and backslashes otherwise."""
    plain = re.sub(rb"[^ -~]|[\\'!]", lambda found: b"\\0%03o" % ord(found[0]), os.fsencode(script))
    return f"""exec /bin/sh -c 'eval "$(printf %b "$0")"' '{plain.decode()}'"""
