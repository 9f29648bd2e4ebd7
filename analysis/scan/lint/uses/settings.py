"""What a program sets: variables of the environment, deterministic modes, sessions, attributes."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from typing import Any

from analysis.scan.lint.facts import spot
from analysis.scan.lint.syntax.arguments import argument, constant, dotted, is_given, last
from analysis.scan.lint.syntax.tree import names_in
from analysis.scan.lint.syntax.walk import Walk
from analysis.scan.lint.uses import devices
from analysis.scan.lint.vocabulary import IF_GIVEN, KERAS_ON_JAX, KERAS_ON_TORCH, MODES, SETTINGS, WORDS

NO_GRADIENT = frozenset(
    ("torch.no_grad", "torch.no_grad()", "torch.inference_mode", "torch.inference_mode()")
)
SEED_NAME = re.compile(r"seed|rng|random_?(?:state|generator)?$|generator", re.IGNORECASE)
QUEUES = {
    "tensorflow.train.batch": 2,
    "tensorflow.train.maybe_batch": 3,
    "tensorflow.train.shuffle_batch": 4,
    "tensorflow.train.maybe_shuffle_batch": 5,
}
"""Queues of TensorFlow 1, and where their number of threads stands."""
JOINED = frozenset(f"tensorflow.train.{name}_join" for name in ("batch", "shuffle_batch", "maybe_batch"))
LOADERS = WORDS["loaders"]
MEASURES = "with benchmark = True the fastest algorithm wins, which differs between runs"
NUMERIC = frozenset(f"builtins.{name}" for name in ("int", "float", "len", "ord", "round", "sum", "bool"))
GATHERING = frozenset(f"builtins.{name}" for name in ("tuple", "frozenset", "abs"))
COUNTER = re.compile(r"seed|epoch|rank|index|step")
SESSIONS = frozenset(("tensorflow.Session", "tensorflow.InteractiveSession"))


def mode(to: Walk, node: ast.Call, name: str) -> bool:
    """Records a call that sets something; True if it was one."""
    if name in ("os.putenv", "os.environ.setdefault") and node.args:
        environment_setting(to, node, node.args[0], argument(node, "value", 1))
    elif name == "os.environ.update":
        for keyword in node.keywords:
            environment_setting(to, node, ast.Constant(keyword.arg), keyword.value)
        if node.args and isinstance(node.args[0], ast.Dict):
            for key, value in zip(node.args[0].keys, node.args[0].values, strict=True):
                environment_setting(to, node, key, value)
    elif name == "torch.use_deterministic_algorithms":
        if constant(argument(node, "mode", 0)) is not False:
            only_warns = constant(argument(node, "warn_only")) is not False and is_given(node, "warn_only")
            _mode_on(to, node, "warn" if only_warns else "torch")
    elif name == "torch.set_deterministic_debug_mode":
        mode = constant(argument(node, "debug_mode", 0))
        if mode not in (0, "default"):
            _mode_on(to, node, "warn" if mode in (1, "warn") else "torch")
    elif name == "torch.backends.cudnn.flags":
        enabled = argument(node, "enabled", 0)
        is_on = constant(argument(node, "deterministic", 2)) is True
        if enabled is None or constant(enabled) is False or is_on:
            _mode_on(to, node, "cudnn")
    elif name == "tensorflow.config.experimental.enable_op_determinism":
        _mode_on(to, node, "tensorflow")
    elif name in SESSIONS or name == "tensorflow.ConfigProto":
        _session(to, node, name)
    else:
        return False
    return True


def _mode_on(to: Walk, node: Any, mode: str, value: ast.expr | None = None) -> None:
    """By an option too: it is the user's choice, unless that is off by default."""
    to.facts.modes.add(mode)
    option = value.attr if isinstance(value, ast.Attribute) else ""
    to.event("mode", mode, node, IF_GIVEN if to.with_seed else option)


def of_trainer(to: Walk, node: ast.Call) -> None:
    """`Trainer(deterministic=True)` of Lightning."""
    given = argument(node, "deterministic")
    if given is not None and constant(given) not in (False, None):
        to.facts.flags.add("cublas")  # Lightning sets the variable itself
        _mode_on(to, node, "warn" if constant(given) == "warn" else "torch", given)
        to.event("measures", "off", node)


def of_library(to: Walk, node: ast.Call, name: str) -> None:
    """`set_determinism(seed=0)`, `set_seed(1, deterministic=True)`: by their second argument, too. An
    argument may tell of an old version."""
    if name.startswith("transformers.") and is_given(node, "evaluation_strategy"):
        to.facts.flags.add("transformers 4.45")  # the last that has it
    mode, asks = MODES.get((name.partition(".")[0], name.rpartition(".")[2]), ("", ""))
    if not mode or (asks and constant(argument(node, asks, 1)) is not True):
        return
    if not asks and constant(argument(node, "seed", 0)) is None:
        return  # that turns it off
    if mode == "torch" and asks != "deterministic":
        to.facts.flags.add("cublas")
    _mode_on(to, node, mode)
    to.event("measures", "off", node)


def _session(to: Walk, node: ast.Call, name: str) -> None:
    to.facts.flags.add("session")
    if name == "tensorflow.ConfigProto":
        if is_given(node, "intra_op_parallelism_threads"):
            to.facts.flags.add("threads")
        elif not any(k.arg is None for k in node.keywords):
            to.facts.sessions.append(spot(node))
    elif not is_given(node, "config") and len(node.args) < 3:
        to.facts.sessions.append(spot(node))


def stored(to: Walk, target: ast.Subscript | ast.Attribute, value: ast.expr | None) -> None:
    """`os.environ["X"] = ...`, `torch.backends.cudnn.benchmark = True`, `options.deterministic = False`."""
    if isinstance(target, ast.Subscript):
        if to.names.resolve(target.value) == "os.environ":
            devices.visible(to, target.slice, value)
            environment_setting(to, target, target.slice, value)
        return
    name = to.names.resolve(target) or ""
    said = constant(value)
    seeds(to, target, target.attr)
    if name == "torch.backends.cudnn.benchmark":
        _measuring(to, target, value)
    elif name == "torch.backends.cudnn.deterministic" and said is not False:
        _mode_on(to, target, "cudnn", value)
    elif name == "torch.backends.cudnn.enabled" and said is False:
        _mode_on(to, target, "cudnn")
    elif name.startswith("langdetect.") and name.endswith("DetectorFactory.seed") and said is not None:
        to.event("seed", "langdetect", target)
    elif target.attr == "random_state" and said is not None:
        to.reseeded.add(dotted(target))
    elif target.attr in ("intra_op_parallelism_threads", "inter_op_parallelism_threads"):
        to.facts.flags.add("threads")
    elif (
        target.attr in ("deterministic", "experimental_deterministic")
        and said is False
        and _is_data_option(to, name)
    ):
        to.report("VB203", target, f"{target.attr} = False lets elements overtake each other")


def seeds(to: Walk, node: ast.AST, name: object) -> None:
    """`ClassificationArgs(manual_seed=1)`, `{"manual_seed": 1}`: then a model of simpletransformers seeds."""
    if name == "manual_seed" and any(
        each.startswith("simpletransformers") for each in to.facts.imported.values()
    ):
        for generator in ("python", "numpy", "torch"):
            to.event("seed", generator, node)


def _measuring(to: Walk, target: ast.Attribute, value: ast.expr | None) -> None:
    """By a name too, such as an option that is on unless the user turns it off."""
    is_not = isinstance(value, ast.UnaryOp) and isinstance(value.op, ast.Not)
    inner = value.operand if isinstance(value, ast.UnaryOp) and is_not else value
    if constant(value) is True:
        to.report("VB504", target, MEASURES)
        to.event("measures", "on", target)
    elif constant(value) is False and not to.branches:
        to.event("measures", "off", target)
    elif name := last(inner):
        to.facts.measuring.append((spot(target), name, not is_not))


def ordered(to: Walk, node: ast.Call, attribute: str) -> None:
    """`data.map(f, deterministic=False)`, `parallel_interleave(f, sloppy=True)`."""
    for name, said in (("deterministic", False), ("sloppy", True)):
        if constant(argument(node, name)) is said and "tensorflow" in to.facts.flags:
            to.report("VB203", node, f"{attribute}({name}={said}) lets elements overtake each other")


def shuffled(to: Walk, node: ast.Call, attribute: str, name: str | None) -> None:
    """`tfds.load("mnist", shuffle_files=True)`: without a seed its files are read at once, in any order."""
    if name != "tensorflow_datasets.load" and attribute != "as_dataset":
        return
    shuffles, read = argument(node, "shuffle_files"), argument(node, "read_config")
    if shuffles is not None and constant(shuffles) is not False and read is None:
        without = "shuffle_files without ReadConfig(shuffle_seed=...)"
        why = f"{without} lets files, and what is mapped in parallel, overtake each other"
        to.report("VB203", node, why)


def queued(to: Walk, node: ast.Call, name: str) -> None:
    """`tf.train.batch_join(readers, 32)`, `DataLoader(data, num_workers=4, in_order=False)`."""
    threads = argument(node, "num_threads", QUEUES.get(name, -1))
    several = constant(threads) not in (1, ...) or isinstance(threads, ast.Name | ast.Attribute)
    if name in JOINED or (name in QUEUES and several):
        to.report("VB203", node, f"the threads of {name.rpartition('.')[2]} fill one queue, in any order")
    elif name in LOADERS and constant(argument(node, "in_order")) is False:
        to.report("VB203", node, "with in_order=False batches come as the workers finish them")


def mapped(to: Walk, node: ast.Call) -> None:
    """`data.map(augment, num_parallel_calls=4)`: what is called for several elements at once."""
    count = argument(node, "num_parallel_calls", 1)
    if not node.args or count is None or constant(count) in (None, 1) or "tensorflow" not in to.facts.flags:
        return
    function = node.args[0]
    if isinstance(function, ast.Call) and function.args:  # partial(augment, ...)
        function = function.args[0]
    if isinstance(function, ast.Lambda):
        to.event("parallel", f"@{to.scope}.<lambda>", node, f"{function.lineno}-{function.end_lineno}")
    elif name := to.names.resolve(function):
        to.event("parallel", name, node)


def stops_gradients(to: Walk, node: ast.expr) -> bool:
    """Whether a context or decorator is one under which no gradient is computed."""
    return to.names.resolve(node) in NO_GRADIENT


def field(to: Walk, node: ast.AnnAssign) -> None:
    """`seed: int | None = None` of a configuration: there is one only where it is given."""
    is_seed = isinstance(node.target, ast.Name) and re.search(r"(?:^|_)seed$", node.target.id)
    if is_seed and constant(node.value) is None:
        to.facts.flags.add("seed_by_choice")


def is_minus(value: ast.expr | None) -> bool:
    """Whether a value is 0 or -1, which says that no seed was given."""
    if isinstance(value, ast.UnaryOp) and isinstance(value.op, ast.USub):
        return bool(constant(value.operand) == 1)
    return constant(value) is not False and bool(constant(value) == 0)


def without_seed(test: ast.expr) -> bool | None:
    """True where a condition holds when no seed (or generator) was given, False where it holds when one was,
    None where it is about something else."""
    match test:
        case ast.Compare(left=name, ops=[ast.Is() | ast.IsNot() as kind], comparators=[ast.Constant(None)]):
            said = isinstance(kind, ast.Is)
        case ast.Compare(
            left=name,
            ops=[ast.Lt() | ast.Eq() | ast.Gt() | ast.GtE() | ast.NotEq() as kind],
            comparators=[limit],
        ) if is_minus(limit):
            said = isinstance(kind, ast.Lt | ast.Eq)
        case ast.UnaryOp(op=ast.Not(), operand=name):
            said = True
        case ast.Name() | ast.Attribute() as name:
            said = False
        case _:
            return None
    return said if SEED_NAME.search(last(name)) else None


def _is_data_option(to: Walk, name: str) -> bool:
    return name.startswith("tensorflow.data") or (not name and "tensorflow" in to.facts.flags)


def environment_setting(to: Walk, node: Any, key: ast.expr | None, value: ast.expr | None) -> None:
    name = constant(key)
    if not isinstance(name, str):
        return
    if name == "PYTHONHASHSEED":
        to.report(
            "VB105",
            node,
            "this process has drawn its hash seed already; only processes it starts see the value",
        )
    elif name == "CUBLAS_WORKSPACE_CONFIG":
        to.facts.flags.add("cublas")
    elif name == "KERAS_BACKEND" and constant(value) in ("torch", "jax"):
        to.facts.flags.add(KERAS_ON_JAX if constant(value) == "jax" else KERAS_ON_TORCH)
    elif name == "TF_DETERMINISTIC_OPS":
        _mode_on(to, node, "tensorflow")
    if name in SETTINGS:
        to.event("setting", name, node)


def hashed(to: Walk, node: ast.BinOp) -> None:
    """`hash(x) % n`: a split or a bucket by a number that changes."""
    if not isinstance(node.op, ast.Mod) or not isinstance(node.left, ast.Call):
        return
    found = node.left
    if to.names.resolve(found.func) == "builtins.abs" and found.args and isinstance(found.args[0], ast.Call):
        found = found.args[0]
    if to.names.resolve(found.func) != "builtins.hash" or to.scope.endswith("__hash__"):
        return
    if found.args and "cache" not in to.target and not _is_numbers(to, found.args[0]):
        to.report(
            "VB303", found, "hash() of a string changes with PYTHONHASHSEED, which is drawn for each process"
        )


def _is_numbers(to: Walk, value: ast.expr) -> bool:
    """Whether what is hashed has no text in it, as far as that shows: hashes of numbers, and of tuples and
    sets of them, do not change."""
    match value:
        case ast.Constant(value=said):
            return isinstance(said, int | float)
        case ast.Tuple(elts=parts):
            texts = any(isinstance(e, ast.JoinedStr) or isinstance(constant(e), str) for e in parts)
            counts = any(map(COUNTER.search, names_in(value)))
            return (counts and not texts) or _are_numbers(to, parts)
        case ast.List(elts=parts) | ast.Set(elts=parts):
            return _are_numbers(to, parts)
        case ast.BinOp(left=left, right=right):
            return _are_numbers(to, (left, right))
        case ast.UnaryOp(operand=inner):
            return _is_numbers(to, inner)
        case ast.Call(func=function, args=[inner]) if to.names.resolve(function) in GATHERING:
            return _is_numbers(to, inner)
        case ast.Call(func=function):
            of_array = isinstance(function, ast.Attribute) and function.attr in ("item", "tolist")
            return of_array or to.names.resolve(function) in NUMERIC
        case ast.Name():
            return (to.names.resolve(value) or "").removesuffix("()") in NUMERIC
    return False


def _are_numbers(to: Walk, parts: Sequence[ast.expr]) -> bool:
    return all(_is_numbers(to, part) for part in parts)
