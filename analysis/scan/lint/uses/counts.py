"""Counts that the machine decides: threads, workers, batches of several GPUs (VB405); loaders of data."""

from __future__ import annotations

import ast
import re

from analysis.scan.lint.syntax.arguments import argument, constant, is_given, last
from analysis.scan.lint.syntax.tree import nodes_of
from analysis.scan.lint.syntax.walk import Walk
from analysis.scan.lint.validation import evaluation
from analysis.scan.lint.vocabulary import WORDS, is_own

COUNTS_OF_THE_MACHINE = WORDS["counts_of_the_machine"]
COUNTS_OF_GPUS = WORDS["counts_of_gpus"]
SCALED = re.compile(r"batch|(?:^|_)bs$|^lr$|(?:^|_)lr(?:_|$)|learning_rate", re.IGNORECASE)
"""Names of what training depends on."""


def threads(to: Walk, node: ast.Call) -> None:
    if _of_machine(to, node):
        to.report(
            "VB405", node, "the thread count is that of the machine, and the trained model depends on it"
        )


def multiplied(to: Walk, node: ast.BinOp) -> None:
    """`batch_size * torch.cuda.device_count()`."""
    if not isinstance(node.op, ast.Mult):
        return
    for one, other in ((node.left, node.right), (node.right, node.left)):
        name = next(filter(SCALED.search, (last(one), ast.unparse(one), to.target)), "")
        if name and _of_gpus(to, other):
            to.report("VB405", node, f"{name} depends on how many GPUs the machine has")


def remembered(to: Walk, target: str, value: ast.expr | None) -> None:
    """A name, an attribute or an option that is a count of the machine."""
    if value is not None and _of_machine(to, value):
        to.facts.counted.add(target.rpartition(".")[2])


def loader(to: Walk, node: ast.Call, name: str) -> None:
    shuffle = argument(node, "shuffle", 2 if name == evaluation.LOADER else -1)
    if shuffle is not None and constant(shuffle) not in (False, None, 0) and not is_given(node, "generator"):
        to.event("draw", "torch", node, "DataLoader(shuffle=True)")
    workers = argument(node, "num_workers", 5)
    if not any(map(evaluation.is_held_out, (to.target, evaluation.data_of(node)))):
        to.event("loader", _number(to, workers), node)
        in_workers(to, argument(node, "collate_fn", 6))
    if workers is None or constant(workers) == 0:
        return
    if (
        evaluation.is_for_training(to, node)
        and not is_given(node, "generator")
        and not is_given(node, "worker_init_fn")
    ):
        why = (
            "the workers' seeds come from the global generator, so they depend on all that was drawn before; "
            "before PyTorch 1.9, NumPy's generator was the same in each worker"
        )
        to.report("VB201", node, why)
    if _of_machine(to, workers) and evaluation.is_for_training(to, node):
        to.report(
            "VB405", node, "which worker's generator augments a sample depends on the number of workers"
        )


def composed(to: Walk, node: ast.Call) -> None:
    """`Compose([Resize(9), RandomFlip()])`: what a data set does with a sample, in that order."""
    match node.args:
        case [ast.List(elts=parts), *_] if last(node.func) == "Compose":
            for part in parts:
                in_workers(to, part.func if isinstance(part, ast.Call) else part)


def in_workers(to: Walk, function: ast.expr | None) -> None:
    """A function, or a class whose objects are called."""
    name = to.names.resolve(function) if function is not None else None
    if name and is_own(name):
        to.event("worker", name, function)


def _number(to: Walk, value: ast.expr | None) -> str:
    """A number or a name; one of the machine is more than 0, and of others nothing is known."""
    if value is None or isinstance(constant(value), int):
        return str(int(constant(value))) if value is not None else "0"
    return "1" if _of_machine(to, value) else last(value)


def _of_machine(to: Walk, node: ast.AST) -> bool:
    return any(
        last(inner) in to.facts.counted
        or (to.names.resolve(inner) or "").removesuffix("()") in COUNTS_OF_THE_MACHINE
        for inner in nodes_of(node)
        if isinstance(inner, ast.Name | ast.Attribute)
    )


def _of_gpus(to: Walk, node: ast.expr) -> bool:
    return any(
        (isinstance(inner, ast.Attribute) and inner.attr == "num_replicas_in_sync")
        or (
            isinstance(inner, ast.Call | ast.Name)
            and (to.names.resolve(inner) or "").removesuffix("()") in COUNTS_OF_GPUS
        )
        for inner in nodes_of(node)
    )
