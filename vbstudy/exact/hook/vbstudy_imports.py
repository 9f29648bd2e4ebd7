"""What the start-up hooks share. Standard library only, and light: it is run at each start of a Python."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
from collections.abc import Callable, Container
from types import ModuleType
from typing import Any


class AfterImport(importlib.abc.MetaPathFinder):
    """Finds modules as the other finders do, and calls `then` with the name and the module after the import
    of each of `names`."""

    def __init__(self, names: Container[str], then: Callable[[str, ModuleType], None]) -> None:
        self._names, self._then = names, then
        self._looking: set[str] = set()

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:  # noqa: ARG002
        if name not in self._names or name in self._looking:
            return None
        self._looking.add(name)
        try:
            spec: Any = importlib.util.find_spec(name)
        finally:
            self._looking.discard(name)
        if spec is None or spec.loader is None:
            return spec
        loader, execute = spec.loader, spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            loader.exec_module = execute
            execute(module)
            self._then(name, module)

        loader.exec_module = exec_module
        return spec


class Library(importlib.abc.MetaPathFinder):
    """Finds the package vbstudy in `folder`, and nothing else that lies there: the program's Python may lack
    it, and may have other packages of those names. `last`: where its path has none."""

    def __init__(self, folder: str, *, last: bool = False) -> None:
        self._folder, self._last = folder, last

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:  # noqa: ARG002
        before = sys.path if self._last else []
        found = importlib.machinery.PathFinder.find_spec
        return found(name, [*before, self._folder]) if name == "vbstudy" else None


def run_next(file: str) -> None:
    """Runs the sitecustomize that would have been imported without `file`. Only behind its folder: a hook
    before it, as of `vbstudy exact`, has run and would run this one again."""
    here = os.path.dirname(os.path.realpath(file))  # noqa: PTH120  (pathlib is slow to import)
    places = [os.path.realpath(place or ".") for place in sys.path]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", sys.path[places.index(here) + 1 :])
    if spec is not None and spec.loader is not None:
        module = importlib.util.module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)
