"""Connects to an sshd: accepts the pinned host key only, offers the given key only."""

from __future__ import annotations

import contextlib
import logging
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fabric
import paramiko

from orchestrator.errors import GuestError, UsageError
from orchestrator.transport.keys import public_half

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

    connection = fabric.Connection(
        target.host,
        user=target.user,
        port=target.port,
        config=_config(use_ssh_config=target.use_ssh_config),
        forward_agent=False,
        connect_timeout=target.connect_timeout_s,
        connect_kwargs={
            "key_filename": str(target.key),
            "allow_agent": False,
            "look_for_keys": False,
            "banner_timeout": target.connect_timeout_s,
            "auth_timeout": target.connect_timeout_s,
            "channel_timeout": target.connect_timeout_s,
            "transport_factory": transport,
        },
    )
    connection.client.set_missing_host_key_policy(_RefuseUnknown())  # fabric would learn any key
    try:
        if target.known_hosts.exists():
            connection.client.load_host_keys(str(target.known_hosts))
        connection.open()
    except paramiko.BadHostKeyException as error:
        raise GuestError(
            f"{target}: shows the host key {error.key.fingerprint}, "
            f"{error.expected_key.fingerprint} is pinned in {target.known_hosts}; "
            "this may be another machine: nothing was sent to it"
        ) from None
    except paramiko.AuthenticationException as error:
        raise GuestError(f"{target}: refuses the key {target.key}: {error}{_how(target.key)}") from None
    except paramiko.PasswordRequiredException:
        raise GuestError(f"{target.key}: is locked by a passphrase; give a key without one") from None
    except FileNotFoundError:
        raise GuestError(f"{target.key}: there is no such key file") from None
    except (paramiko.SSHException, OSError, EOFError) as error:
        connection.client.close()
        raise UnreachableError(reason(error)) from None
    connection.transport.set_keepalive(KEEPALIVE_S)
    with contextlib.suppress(AttributeError):  # a proxy command is no socket
        connection.transport.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def _how(key: Path) -> str:
    """What lets a key in."""
    try:
        return f"; it is let in where ~/.ssh/authorized_keys has the line '{public_half(key)}'"
    except GuestError:
        return ""


class _RefuseUnknown(paramiko.MissingHostKeyPolicy):  # type: ignore[misc]
    """No host is trusted because it answered."""

    def missing_host_key(self, client: Any, hostname: str, key: Any) -> None:  # noqa: ARG002
        raise GuestError(
            f"{hostname}: its host key is not known; it shows {key.get_name()} {key.fingerprint}. "
            f"When that is right, write it down as host_key = '{key.get_name()} {key.get_base64()}'"
        )


def reason(error: BaseException) -> str:
    text = str(error)
    if isinstance(error, OSError) and error.strerror:
        text = error.strerror
    return text or type(error).__name__
