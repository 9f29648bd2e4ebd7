"""The packages that give an interpreter a framework."""

from __future__ import annotations

from guest.records.printable import pip_install
from guest.records.run import Framework

DISTRIBUTIONS = {Framework.TORCH: ("torch",), Framework.TENSORFLOW: ("tensorflow-cpu", "keras")}


def install(framework: str, python: str) -> str:
    """The line that gives an interpreter a framework, and what guests need beside it."""
    return pip_install(*DISTRIBUTIONS[Framework(framework)], "numpy", "safetensors", python=python)


def lacks(framework: str, python: str) -> str:
    """The sentence, with its cure."""
    return f"{python} has no {framework}: install it with `{install(framework, python)}`"


def lacking(import_error: str, python: str) -> str:
    """This sentence for the error of a failed import; "" for that of another module."""
    missing = (each for each in Framework if import_error == f"No module named '{each}'")
    return next((lacks(each, python) for each in missing), "")
