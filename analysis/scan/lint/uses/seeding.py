"""What seeds a generator: rules VB102 and VB104."""

from __future__ import annotations

import ast
import re

from analysis.scan.lint.facts import spot
from analysis.scan.lint.names import CUSTOMARY
from analysis.scan.lint.syntax.arguments import (
    argument,
    attribute_of,
    constant,
    given_to,
    is_open,
    last,
    parameters,
)
from analysis.scan.lint.syntax.tree import nodes_of
from analysis.scan.lint.syntax.walk import Walk
from analysis.scan.lint.vocabulary import (
    BY_OPTION,
    BY_WORKERS,
    CHANGING,
    DRAWN,
    HELPER,
    IF_GIVEN,
    NO_DEFAULT,
    OWN_MODEL,
    OWN_SOURCE,
    PERHAPS,
    SEEDING_TRAINERS,
    TENSORFLOW_1,
    WITHOUT_GPU,
    by_word,
    generator_of,
    seeded_by,
)

OWN_GENERATORS = by_word("seeds_of_generators")
"""Generators of rule VB102, with the names of the arguments that seed them."""
TAKING_NONE = frozenset(("random.seed", "numpy.random.seed"))
"""They take None, and then a seed from the operating system."""

OF_WORKERS = re.compile(r"worker_?init|seed_?worker|worker_?seed", re.IGNORECASE)
"""Functions that the workers of a loader call; the process that makes the weights is another one."""


def own_generator(to: Walk, node: ast.Call, name: str) -> None:
    if to.without_seed:
        return  # the caller may give one
    seed = argument(node, OWN_GENERATORS[name], 0)
    if constant(seed) is None or (seed is None and is_open(node, OWN_GENERATORS[name]) is True):
        to.unseeded.append((to.target, node, f"{name}() takes its seed from the operating system"))
    elif seed is not None:
        changing(to, node, seed, name)
        if isinstance(seed, ast.Name) and to.scope:  # no seed, where no call gives a value to the parameter
            why = f"{name}({seed.id}) takes its seed from the operating system: no call gives {seed.id}"
            to.event(PERHAPS, OWN_SOURCE, node, why)
            to.facts.seeds[spot(node)], to.facts.targets[spot(node)] = seed.id, to.target


def seed(to: Walk, node: ast.Call, name: str) -> None:
    named = (k.value for k in node.keywords if k.arg in ("seed", "a", "x"))
    value = node.args[0] if node.args else next(named, None)
    if SEEDING_TRAINERS.match(name):
        seeded(to, node, seeded_by(name))
        return
    if name.endswith(".default_setup"):  # of detectron2: cfg.SEED is -1 by default
        to.facts.flags |= {"seed_by_choice", f"{NO_DEFAULT}SEED"}
        seeded(to, node, seeded_by(name), f"{BY_OPTION}SEED")
        return
    if name == "tensorflow.set_random_seed":
        to.facts.flags.add(TENSORFLOW_1)
    if name == "torch.seed":
        to.report("VB104", node, "torch.seed() draws a seed from the operating system")
    elif value is None or (isinstance(value, ast.Constant) and value.value is None):
        if name in TAKING_NONE:
            to.report("VB104", node, f"{name}() without a seed takes one from the operating system")
            return
    else:
        changing(to, node, value, name)
        source = to.names.resolve(value) or ""
        if f"redrawn {attribute_of(value)}" in to.facts.flags:  # only where none was given
            seeded(to, node, seeded_by(name), IF_GIVEN)
            return
        if source.endswith("()") and (generator := generator_of(source[:-2])):
            seeded(to, node, seeded_by(name), f"{DRAWN} {generator}")
            return
    if to.with_seed:
        seeded(to, node, seeded_by(name), IF_GIVEN)
    elif name in TAKING_NONE and isinstance(value, ast.Attribute):
        seeded(to, node, seeded_by(name), f"{BY_OPTION}{value.attr}")
    else:
        seeded(to, node, seeded_by(name), OWN_MODEL if name.endswith("LightningCLI") else "")


def of_helper(to: Walk, node: ast.Call) -> str:
    """What is said of a call of a function that seeds by its name: `set_seed(random.randint(0, 99))`."""
    given = given_to(node)
    for value in given:
        changing(to, node, value, last(node.func))
    names = [to.names.resolve(value) or "" for value in given]
    drawn = (found for each in names if each.endswith("()") and (found := generator_of(each[:-2])))
    return f"{IF_GIVEN} {HELPER}" if to.with_seed else f"{HELPER}{next(drawn, '')}"


def changing(to: Walk, node: ast.AST, value: ast.expr | None, name: str) -> None:
    if value is not None and (what := _changes(to, value)):
        to.report("VB104", node, f"{name} gets its seed from {what}()")


def assigned(to: Walk, target: ast.expr, value: ast.expr) -> None:
    """`options.seed = time.time()`, `seed = ...` in a class; other names are followed to where they seed."""
    is_kept = isinstance(target, ast.Attribute) or (isinstance(target, ast.Name) and to.class_name)
    if is_kept and "seed" in last(target).lower() and not to.without_seed:
        changing(to, target, value, to.target)


def of_function(to: Walk, arguments: ast.arguments) -> None:
    """`def main(seed=int(time.time()))`."""
    for each, value in parameters(arguments):
        if value is not None and "seed" in each.arg.lower():
            changing(to, value, value, each.arg)


def followed(to: Walk, target: ast.Name, value: ast.expr) -> str | None:
    """What a name stands for: of `seed = int.from_bytes(os.urandom(4))` that call which gives another value
    in each run; of `torch = require_torch()` the library."""
    if isinstance(value, ast.Call) and target.id in ("np", "tf", "torch"):
        return CUSTOMARY[target.id]
    what = _changes(to, value) if "seed" in target.id.lower() else ""
    return f"{what}()" if what else to.names.resolve(value)


def _changes(to: Walk, value: ast.expr) -> str:
    """A call in an expression whose value is another one in each run."""
    for inner in nodes_of(value):
        if isinstance(inner, ast.Call):
            what = to.names.resolve(inner.func)
        elif isinstance(inner, ast.Name):
            what = to.names.resolve(inner)
        else:
            continue
        what = (what or "").partition("()")[0]  # of `datetime.now().microsecond` too
        if what in CHANGING:
            return what
    return ""


def seeded(to: Walk, node: ast.AST, generators: tuple[str, ...], text: str = "") -> None:
    spared = WITHOUT_GPU if to.without_gpu > 0 else BY_WORKERS if OF_WORKERS.search(to.scope) else ""
    for generator in generators:
        to.event("seed", generator, node, spared if spared and generator == "torch" else text)
