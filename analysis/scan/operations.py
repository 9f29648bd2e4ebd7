"""Operations of the registry, as they are used in a file."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from analysis.scan.arguments import argument
from analysis.scan.facts import Use, spot
from analysis.scan.registry import Operation, registry

if TYPE_CHECKING:
    from analysis.scan.collect import Collector


def used(to: Collector, node: ast.Call, name: str) -> None:
    known = registry()
    for index in known.by_name.get(name, ()):
        if _differs(node, known.operations[index]):
            to.facts.operations.append(Use(index, name, spot(node)))
    if name in known.threads_by_name:
        to.facts.threaded.append(Use(known.threads_by_name[name], name, spot(node)))
    if name.startswith("torch.Tensor.") or (name.startswith("torch.") and "()." in name):
        method(to, node, name.rpartition(".")[2])


def method(to: Collector, node: ast.Call, attribute: str) -> None:
    """A method of something unknown: only those that nothing but tensors has, in files that import torch."""
    known = registry()
    if attribute in known.by_method and "torch" in to.facts.flags:
        for index in known.by_method[attribute]:
            if _differs(node, known.operations[index], shift=1):
                to.facts.operations.append(Use(index, f"Tensor.{attribute}", spot(node)))


def _differs(node: ast.Call, operation: Operation, shift: int = 0) -> bool:
    """Whether the arguments are those with which the operation can differ."""
    for name, values in operation.only:
        given = argument(node, name, operation.position - shift)
        if given is None:
            return False
        if values and isinstance(given, ast.Constant) and given.value not in values:
            return False
        if values and isinstance(given, ast.Attribute) and given.attr.lower() not in values:
            return False  # ResizeMethod.BILINEAR
        if values and not isinstance(given, ast.Constant | ast.Attribute):
            return False  # unknown: silence rather than noise
    return True
