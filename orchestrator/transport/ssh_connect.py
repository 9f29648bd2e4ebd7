"""Connects to an sshd: accepts the pinned host key only, offers the given key only. Gateways (ProxyJump) are
those of `~/.ssh/config`: they show a host key of `~/.ssh/known_hosts`, and get the keys that ssh offers."""

from __future__ import annotations

import contextlib
import logging
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fabric
import paramiko
from cryptography.exceptions import UnsupportedAlgorithm
from paramiko.hostkeys import HostKeyEntry, InvalidHostKey
from paramiko.pkey import UnknownKeyType

from orchestrator.errors import GuestError, UsageError
from orchestrator.files import expand
from orchestrator.transport.keys import COMMENT

# What goes wrong is raised; paramiko's own account of it would go to the user's terminal.
logging.getLogger("paramiko").addHandler(logging.NullHandler())

KEEPALIVE_S = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class SshTarget:
    """Where a guest answers, and what it must show. `patience_s` is how long an unreachable host is
    tried again before it counts as gone."""

    host: str
    port: int
    user: str
    key: Path
    known_hosts: Path
    connect_timeout_s: float = 20.0
    patience_s: float = 30.0
    use_ssh_config: bool = False

    def __str__(self) -> str:
        return f"{self.user}@{self.host}:{self.port}"

    @property
    def address(self) -> str:
        """What is connected to; known_hosts files name it."""
        return str(look_up(self.host).host) if self.use_ssh_config else self.host


class UnreachableError(Exception):
    """Worth another try."""


def look_up(host: str) -> Any:
    """A fabric connection that is not open: `host`, `port` and `user` are those of `~/.ssh/config`. Raises
    UsageError."""
    try:
        return fabric.Connection(host, config=_config(use_ssh_config=True), forward_agent=False)
    except (paramiko.SSHException, OSError, ValueError) as error:
        raise UsageError(f"host {host!r} cannot be looked up in ~/.ssh/config: {reason(error)}") from None


def _config(*, use_ssh_config: bool) -> Any:
    config = fabric.Config(overrides={"load_ssh_configs": use_ssh_config}, lazy=True)
    if use_ssh_config:
        config.load_ssh_config()
    return config


def connect(target: SshTarget) -> Any:
    """A fabric connection that trusts the pinned keys only. Raises UnreachableError where another try
    may help, GuestError for the rest."""

    def transport(*arguments: Any, **options: Any) -> Any:
        made = paramiko.Transport(*arguments, **options)
        made.handshake_timeout = target.connect_timeout_s  # else 15 s, which an emulated guest may exceed
        return made

    key = _private_key(target.key)
    connection = fabric.Connection(
        target.host,
        user=target.user,
        port=target.port,
        config=_config(use_ssh_config=target.use_ssh_config),
        forward_agent=False,
        connect_timeout=target.connect_timeout_s,
        connect_kwargs={
            "pkey": key,
            "allow_agent": False,
            "look_for_keys": False,
            "banner_timeout": target.connect_timeout_s,
            "auth_timeout": target.connect_timeout_s,
            "channel_timeout": target.connect_timeout_s,
            "transport_factory": transport,
        },
    )
    connection.connect_kwargs.pop("key_filename", None)  # fabric adds those of ~/.ssh/config
    public = f"{key.get_name()} {key.get_base64()} {COMMENT}"
    refused = (
        f"refuses the key {target.key}; it is let in where ~/.ssh/authorized_keys has the line '{public}'"
    )
    try:
        _open(connection, target.known_hosts, "as host_key = '{key}'", refused)
        connection.transport.set_keepalive(KEEPALIVE_S)
    except BaseException:
        close(connection)
        raise
    with contextlib.suppress(AttributeError):  # a proxy command is no socket
        connection.transport.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def close(connection: Any) -> None:
    """With its gateways, which fabric leaves open."""
    while isinstance(connection, fabric.Connection):
        with contextlib.suppress(ProcessLookupError):  # a proxy command that has ended
            connection.client.close()
        connection = connection.gateway


def _open(connection: Any, known_hosts: Path, note: str, refused: str) -> None:
    """Opens its gateways, then itself. `note` states where a host key is written down, `refused` what it
    means when the login fails."""
    name = f"{connection.user}@{connection.original_host}:{connection.port}"
    if isinstance(connection.gateway, fabric.Connection):
        connection.gateway.connect_timeout = connection.connect_timeout
        known = expand("~/.ssh/known_hosts")
        refused_there = (
            "refuses the keys of the agent, of ~/.ssh and of its config; it is a gateway (ProxyJump)"
        )
        _open(connection.gateway, known, f"in {known} as '{{host}} {{key}}'", refused_there)
    try:
        _trust(connection.client, known_hosts, note)
        connection.open()
    except paramiko.BadHostKeyException as error:
        raise GuestError(
            f"{name}: shows the host key {error.key.fingerprint}, "
            f"{error.expected_key.fingerprint} is pinned in {known_hosts}; "
            "this may be another machine: nothing was sent to it"
        ) from None
    except paramiko.AuthenticationException as error:
        raise GuestError(f"{name}: {refused} ({error})") from None
    except (paramiko.SSHException, OSError, EOFError, UnicodeError) as error:
        raise UnreachableError(reason(error)) from None


def _private_key(path: Path) -> Any:
    try:
        return paramiko.PKey.from_path(path)
    except FileNotFoundError:
        raise GuestError(f"{path}: there is no such key file") from None
    except (TypeError, paramiko.PasswordRequiredException):
        raise GuestError(f"{path}: is locked by a passphrase; give a key without one") from None
    except (OSError, ValueError, paramiko.SSHException, UnknownKeyType, UnsupportedAlgorithm) as error:
        raise GuestError(f"{path}: is not a usable private key ({reason(error)})") from None


def _trust(client: Any, known_hosts: Path, note: str) -> None:
    """The keys of a known_hosts file, and no others. Lines that paramiko cannot read are of other hosts, or
    of kinds that it does not know: certificates, security keys."""
    try:
        text = known_hosts.read_text(errors="replace")
    except FileNotFoundError:
        text = ""
    except OSError as error:
        raise GuestError(f"{known_hosts}: cannot be read: {reason(error)}") from None
    entries, revoked = [], set()
    for line in text.splitlines():
        mark, *fields = line.split() or [""]
        with contextlib.suppress(paramiko.SSHException, InvalidHostKey, ValueError):
            if mark == "@revoked" and (entry := HostKeyEntry.from_line(" ".join(fields))):
                revoked.add(entry.key)
            elif mark[:1] not in ("#", "@") and (entry := HostKeyEntry.from_line(" ".join([mark, *fields]))):
                entries.append(entry)
    known = client.get_host_keys()
    for entry in entries:
        for host in entry.hostnames if entry.key not in revoked else ():
            if entry.key.get_name() not in (known.lookup(host) or ()):
                known.add(host, entry.key.get_name(), entry.key)
    client.set_missing_host_key_policy(_RefuseUnknown(known_hosts, revoked, note))


class _RefuseUnknown(paramiko.MissingHostKeyPolicy):  # type: ignore[misc]
    """No host is trusted because it answered; fabric would learn any key."""

    def __init__(self, known_hosts: Path, revoked: set[Any], note: str) -> None:
        self._known_hosts = known_hosts
        self._revoked = revoked
        self._note = note

    def missing_host_key(self, client: Any, hostname: str, key: Any) -> None:  # noqa: ARG002
        shown = f"{key.get_name()} {key.fingerprint}"
        if key in self._revoked:
            raise GuestError(f"{hostname}: shows {shown}, which is revoked in {self._known_hosts}")
        missing = "" if self._known_hosts.exists() else f" ({self._known_hosts} does not exist)"
        note = self._note.format(host=hostname, key=f"{key.get_name()} {key.get_base64()}")
        raise GuestError(
            f"{hostname}: its host key is not known{missing}; it shows {shown}. When that is right, "
            f"write it down {note}"
        )


def reason(error: BaseException) -> str:
    text = str(error)
    if isinstance(error, OSError) and error.strerror:
        text = error.strerror
    return text or type(error).__name__
