"""Keys as they are written in study files."""

import base64

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key

from orchestrator.errors import GuestError, UsageError
from orchestrator.transport.keys import key_pair, parse_public, public_half


def test_a_whole_public_key_is_read_without_its_comment(tmp_path):
    public = key_pair(tmp_path / "key").public
    assert f"{parse_public(f' {public} of a host')} vbstudy" == public


@pytest.mark.parametrize("part", [*range(0, 51, 3), "and more"])
def test_a_key_that_is_cut_off_or_goes_on_is_refused(tmp_path, part):
    kind, blob, _ = key_pair(tmp_path / "key").public.split(" ")
    data = base64.b64decode(blob)
    changed = data + b"more" if part == "and more" else data[:part]
    with pytest.raises(UsageError, match="is not a public key, or not all of it"):
        parse_public(f"{kind} {base64.b64encode(changed).decode()}")


@pytest.mark.parametrize("text", ["", "ssh-ed25519", "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5", "rsa x", "ä ö"])
def test_what_is_no_key_is_refused(text):
    with pytest.raises(UsageError, match="is not a public key"):
        parse_public(text)


def test_a_private_key_that_others_may_read_is_restricted_again(tmp_path):
    pair = key_pair(tmp_path / "key")
    pair.private.chmod(0o644)
    assert key_pair(pair.private) == pair
    assert pair.private.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("form", ["OpenSSH", "TraditionalOpenSSL"])
def test_a_private_key_with_a_passphrase_is_not_usable(tmp_path, form):
    secret = serialization.BestAvailableEncryption(b"secret")
    data = generate_private_key(65537, 2048).private_bytes(
        serialization.Encoding.PEM, getattr(serialization.PrivateFormat, form), secret
    )
    (tmp_path / "key").write_bytes(data)
    with pytest.raises(GuestError, match="is not a usable private key"):
        public_half(tmp_path / "key")
