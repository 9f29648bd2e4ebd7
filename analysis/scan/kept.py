"""A scan as a file, `scan.json`: written by `vbstudy scan`, read again by `vbstudy analyze` for finding
F6."""

from __future__ import annotations

import json
from pathlib import Path

from analysis.scan.results import Scan
from analysis.scan.run import SCHEMA_VERSION
from guest.records import bounded, plain_json
from guest.records.bounded import read_bounded
from guest.records.codec import RecordError, from_json, to_json

NAME = "scan.json"


class KeptScanError(ValueError):
    """A scan.json that cannot be used; the text says why."""


def encode(scan: Scan) -> str:
    return json.dumps(to_json(scan), indent=1) + "\n"


def read_kept(directory: Path) -> Scan | None:
    """The scan of a study's folder; None when there is none. Raises KeptScanError."""
    path = directory / NAME
    try:
        data = plain_json.parse(read_bounded(path, bounded.IMPORTED), bounded.IMPORTED)
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise KeptScanError(f"cannot be read: {error}") from None
    version = data.get("schema_version") if isinstance(data, dict) else None
    if isinstance(version, int) and version > SCHEMA_VERSION:
        raise KeptScanError("was written by a newer vbstudy")
    try:
        return from_json(Scan, data, path.name)
    except RecordError as error:
        raise KeptScanError(str(error)) from None
