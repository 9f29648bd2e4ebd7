"""Results of one kind, a file each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from guest.records import bounded
from guest.records.bounded import read_bounded
from guest.records.codec import NewerSchemaError, RecordError
from orchestrator.errors import StoreError
from orchestrator.files import storage_errors, write_durably
from orchestrator.store.integrity import sealed

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True, kw_only=True)
class Shelf(Generic[Result]):
    """`folder/<name>.json`, written whole or not at all."""

    folder: Path
    decode: Callable[[bytes], Result]

    def read(self, name: str) -> Result | None:
        """None where there is none. Raises StoreError for a damaged file, or that of a newer vbstudy."""
        path = self._path(name)
        try:
            return self.decode(read_bounded(path, bounded.RECORD))
        except FileNotFoundError:
            return None
        except NewerSchemaError as error:
            raise StoreError(f"{path}: {error}") from None
        except (OSError, RecordError, UnicodeDecodeError) as error:
            raise StoreError(f"{path}: {error}; move it away to measure again") from None

    def write(self, name: str, result: Result) -> None:
        """Raises ProtocolError for a result that could not be read back."""
        path, data = self._path(name), sealed(result, self.decode)
        with storage_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            write_durably(path, data)

    def _path(self, name: str) -> Path:
        return self.folder / f"{name}.json"
