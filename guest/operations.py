from __future__ import annotations


def knob(framework: object, op: str) -> str | None:
    return None
