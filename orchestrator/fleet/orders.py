"""Messages between the engine of many hosts and its hosts: an order for one run, and the receipt of it.
Both travel as plain values (text, numbers, bytes, lists, dicts)."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from guest.records.run import RunSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """One run for one host. `study` is the study as JSON, without what it leaves at its default; `key` names
    it on the hosts. Where the host finds `token` of its own account in the folder `directory`, it sees the
    store itself and leaves the files there; "" asks for their bytes. `delivered` are runs that it need not
    keep any longer. `projects` are the snapshots of the study's own projects
    (`orchestrator.study.snapshots.parcel`)."""

    study: str
    key: str
    spec: RunSpec
    agent_sha256: str
    directory: str = ""
    token: str = ""
    delivered: tuple[str, ...] = ()
    projects: dict[str, bytes] = dataclasses.field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedAttempt:
    """`error` is what the store keeps as error.json; `log` what the run had written."""

    attempt: int
    error: dict[str, Any]
    log: bytes
    again: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """What became of an order. `record` is the text of run.json, "" when there is no finished run. Its files
    are in the folder `incoming` of the store, or in `files`. `trouble` is the kind of error that kept the
    host from executing it, with message and evidence; `failures` are the attempts before."""

    host: str
    record: str = ""
    incoming: str = ""
    files: dict[str, bytes] = dataclasses.field(default_factory=dict)
    failures: tuple[FailedAttempt, ...] = ()
    trouble: tuple[str, str, str] | None = None
    stopped: bool = False


def decode_receipt(data: dict[str, Any]) -> Receipt:
    failures = tuple(FailedAttempt(**failure) for failure in data["failures"])
    return Receipt(**data | {"failures": failures})
