"""The seed by which a cloud image becomes a guest of a study: a small disk from which cloud-init reads
whom to let in and what host key to show (its data source "NoCloud")."""

from __future__ import annotations

import hashlib
import io
import json
import re
from collections.abc import Sequence
from pathlib import Path

from orchestrator.files import write_private
from orchestrator.text import Say
from orchestrator.transport.connection import Connection

LABEL = "cidata"  # cloud-init looks for a disk of this name


def seed_iso(
    path: Path,
    *,
    hostname: str,
    user: str,
    authorized_key: str,
    host_private: str,
    host_public: str,
    commands: Sequence[Sequence[str]] = (),
) -> None:
    """Writes the disk, an ISO image for its owner's eyes only: it holds a private key. `user` may be
    root or one to be made, who may use sudo. `commands` are run early at every boot. Does nothing when
    the same seed is there already, so that what depends on its bytes stays valid."""
    rights = {"sudo": "ALL=(ALL) NOPASSWD:ALL", "shell": "/bin/sh", "lock_passwd": True}
    config: dict[str, object] = {
        "hostname": re.sub(r"[^A-Za-z0-9-]+", "-", hostname).strip("-"),
        "users": [
            {"name": user, "ssh_authorized_keys": [authorized_key], **({} if user == "root" else rights)}
        ],
        "disable_root": user != "root",
        "ssh_pwauth": False,
        "ssh_deletekeys": True,
        "ssh_keys": {"ed25519_private": host_private, "ed25519_public": host_public},
        "locale": "C.UTF-8",  # the one that needs nothing generated
    }
    if commands:
        config["bootcmd"] = [list(command) for command in commands]
    user_data = f"#cloud-config\n{json.dumps(config, indent=1)}\n"  # JSON is YAML, and needs no quoting
    instance = hashlib.sha256(user_data.encode()).hexdigest()
    if path.exists() and instance.encode() in path.read_bytes():
        return
    meta_data = json.dumps({"instance-id": instance, "local-hostname": config["hostname"]})
    file = io.BytesIO()
    _write_iso(file, {"user-data": user_data.encode(), "meta-data": meta_data.encode()})
    write_private(path, file.getvalue())


def settle(guest: str, connection: Connection, timeout_s: float, notify: Say) -> None:
    """Waits until the image has done what it does at its first boot."""
    done = connection.run(["cloud-init", "status", "--wait"], {}, timeout_s)
    if done.status != 0:  # what we need of it is seen when the guest is observed
        notify(f"guest {guest}: cloud-init reports problems: {done.stdout.strip()[-200:]}")


def _write_iso(file: io.BytesIO, contents: dict[str, bytes]) -> None:
    import pycdlib

    iso = pycdlib.PyCdlib()
    iso.new(interchange_level=3, vol_ident=LABEL, joliet=3, rock_ridge="1.09")
    for name, data in contents.items():
        plain = name.replace("-", "").upper()
        iso.add_fp(io.BytesIO(data), len(data), f"/{plain}.;1", rr_name=name, joliet_path=f"/{name}")
    iso.write_fp(file)
    iso.close()
