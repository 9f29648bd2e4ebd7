"""Values by the identity of an array, which has no hash, for as long as it lives."""

from __future__ import annotations

import weakref
from typing import Any, Generic, TypeVar

Value = TypeVar("Value")


class ByIdentity(Generic[Value]):
    """An identity is not taken for that of an array that is gone."""

    def __init__(self) -> None:
        self._values: dict[int, tuple[weakref.ref[Any], Value]] = {}

    def get(self, array: Any) -> Value | None:
        found = self._values.get(id(array))
        return None if found is None else found[1]

    def put(self, array: Any, value: Value) -> None:
        key = id(array)
        self._values[key] = (weakref.ref(array, lambda _: self._values.pop(key, None)), value)
