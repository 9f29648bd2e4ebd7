import io
import json

import pycdlib
import pytest

from orchestrator.providers.cloud_init import LABEL, seed_iso

VALUES = {
    "hostname": "cpus-2-on-Haswell,+avx2",
    "user": "root",
    "authorized_key": "ssh-ed25519 AAAA vbstudy",
    "host_private": "-----BEGIN OPENSSH PRIVATE KEY-----\nabc: #'\"\n-----END OPENSSH PRIVATE KEY-----\n",
    "host_public": "ssh-ed25519 BBBB vbstudy",
}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "seed.iso"


def contents(path) -> dict[str, str]:
    iso = pycdlib.PyCdlib()
    iso.open(str(path))
    assert iso.pvd.volume_identifier.decode().strip() == LABEL
    found = {}
    for name in ("user-data", "meta-data"):
        data = io.BytesIO()
        iso.get_file_from_iso_fp(data, joliet_path=f"/{name}")
        found[name] = data.getvalue().decode()
        with io.BytesIO() as same:
            iso.get_file_from_iso_fp(same, rr_path=f"/{name}")
            assert same.getvalue() == data.getvalue()
    iso.close()
    return found


def test_a_seed_says_who_may_enter_and_what_key_the_guest_shows(path):
    seed_iso(path, **VALUES, commands=[["mount", "a b"]])
    found = contents(path)
    first, _, rest = found["user-data"].partition("\n")
    config = json.loads(rest)
    assert first == "#cloud-config"
    assert config["users"] == [{"name": "root", "ssh_authorized_keys": [VALUES["authorized_key"]]}]
    assert config["ssh_keys"]["ed25519_private"] == VALUES["host_private"]
    assert config["bootcmd"] == [["mount", "a b"]]
    assert (config["disable_root"], config["ssh_pwauth"]) == (False, False)
    assert json.loads(found["meta-data"])["local-hostname"] == "cpus-2-on-Haswell-avx2"


def test_another_user_than_root_may_become_root_and_has_no_password(path):
    seed_iso(path, **VALUES | {"user": "vbstudy"})
    config = json.loads(contents(path)["user-data"].partition("\n")[2])
    assert config["users"][0]["lock_passwd"]
    assert "NOPASSWD" in config["users"][0]["sudo"]
    assert config["disable_root"]


def test_a_seed_is_for_its_owner_only_and_written_anew_only_when_it_says_something_new(path):
    seed_iso(path, **VALUES)
    assert path.stat().st_mode & 0o777 == 0o600
    before = path.stat().st_ino, path.read_bytes()
    seed_iso(path, **VALUES)
    assert (path.stat().st_ino, path.read_bytes()) == before
    seed_iso(path, **VALUES | {"authorized_key": "ssh-ed25519 CCCC"})
    assert b"CCCC" in path.read_bytes()
    assert [p.name for p in path.parent.iterdir()] == ["seed.iso"]
