"""Keys of a study: the pair that opens its guests, the host key its own guests show, and the host
keys it has pinned. Nothing is ever learned from the network: a key is generated here or given by
the user."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from pathlib import Path

from orchestrator.errors import GuestError, UsageError
from orchestrator.files import restrict, write_durably, write_private
from orchestrator.store.store import Store

COMMENT = "vbstudy"
_writing = threading.Lock()  # guests are started from several threads


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A private key file, readable by its owner only, and the public half as OpenSSH writes it."""

    private: Path
    public: str


@dataclass(frozen=True, slots=True)
class StudyKeys:
    """`<study>/keys` and `<study>/known_hosts`."""

    folder: Path
    known_hosts: Path

    @classmethod
    def of(cls, store: Store) -> StudyKeys:
        return cls(store.keys, store.known_hosts)

    def client(self) -> KeyPair:
        """The pair that opens guests; made when it is not there."""
        return key_pair(self.folder / "id_ed25519")

    def host(self) -> KeyPair:
        """What guests of our own making identify themselves with; made when it is not there."""
        return key_pair(self.folder / "host_ed25519")

    def pin(self, host: str, port: int, key: str) -> None:
        """Makes `key` the one key that `host` may show."""
        name, line = host_name(host, port), parse_public(key)
        with _writing:
            before = self.known_hosts.read_text(encoding="utf-8") if self.known_hosts.exists() else ""
            kept = [each for each in before.splitlines() if each.split(" ", 1)[0] != name]
            text = "".join(f"{each}\n" for each in [*kept, f"{name} {line}"])
            if text != before:
                write_durably(self.known_hosts, text)


def host_name(host: str, port: int) -> str:
    """A host as known_hosts files name it."""
    return host if port == 22 else f"[{host}]:{port}"


def key_pair(path: Path) -> KeyPair:
    """Reads an Ed25519 pair, or makes it. Raises GuestError when a file there is no such key."""
    with _writing:
        if not path.exists():
            _write_key(path)
    pair = KeyPair(path, public_half(path))
    restrict(path)
    return pair


def public_half(path: Path) -> str:
    """Of a private key without a passphrase. Raises GuestError when the file is none."""
    from cryptography.hazmat.primitives import serialization

    try:
        key = serialization.load_ssh_private_key(path.read_bytes(), password=None)
    except (OSError, TypeError, ValueError) as error:  # TypeError: it has a passphrase
        raise GuestError(f"{path}: is not a usable private key ({error}); delete it for a new one") from None
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    return f"{public.decode()} {COMMENT}"


def _write_key(path: Path) -> None:
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    data = Ed25519PrivateKey.generate().private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.OpenSSH,
        serialization.NoEncryption(),
    )
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    write_private(path, data)


def parse_public(text: str) -> str:
    """`ssh-ed25519 AAAA...` without its comment. Raises UsageError when it is not a whole public key."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives import serialization

    kind, _, rest = text.strip().partition(" ")
    key = f"{kind} {rest.split(' ', 1)[0]}"
    try:
        serialization.load_ssh_public_key(key.encode())
    except (ValueError, UnsupportedAlgorithm):
        raise UsageError(
            f"{text[:60]!r} is not a public key, or not all of it; it looks like 'ssh-ed25519 AAAA...'"
        ) from None
    return key
