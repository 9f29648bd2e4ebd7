"""What seeds a generator: rules VB102 and VB104."""

from __future__ import annotations

import ast

from analysis.scan.lint.syntax.arguments import argument, constant, is_open
from analysis.scan.lint.syntax.walk import Walk
from analysis.scan.lint.vocabulary import (
    CHANGING,
    DRAWN,
    IF_GIVEN,
    OWN_MODEL,
    SEEDING_TRAINERS,
    TENSORFLOW_1,
    WITHOUT_GPU,
    generator_of,
    seeded_by,
)

OWN_GENERATORS = {  # rule VB102: name of the argument that seeds
    "random.Random": "x",
    "numpy.random.RandomState": "seed",
    "numpy.random.default_rng": "seed",
    "numpy.random.SeedSequence": "entropy",
    "numpy.random.PCG64": "seed",
    "numpy.random.MT19937": "seed",
    "numpy.random.Philox": "seed",
    "numpy.random.SFC64": "seed",
    "numpy.random.PCG64DXSM": "seed",
}


def own_generator(to: Walk, node: ast.Call, name: str) -> None:
    if to.without_seed:
        return  # the caller may give one
    seed = argument(node, OWN_GENERATORS[name], 0)
    if constant(seed) is None or (seed is None and is_open(node, OWN_GENERATORS[name]) is True):
        to.unseeded.append((to.target, node, f"{name}() takes its seed from the operating system"))
    elif seed is not None:
        changing(to, node, seed, name)


def seed(to: Walk, node: ast.Call, name: str) -> None:
    value = (
        node.args[0]
        if node.args
        else next((k.value for k in node.keywords if k.arg in ("seed", "a", "x")), None)
    )
    if SEEDING_TRAINERS.match(name):
        seeded(to, node, seeded_by(name))
        return
    if name == "tensorflow.set_random_seed":
        to.facts.flags.add(TENSORFLOW_1)
    if name == "torch.seed":
        to.report("VB104", node, "torch.seed() draws a seed from the operating system")
    elif value is None or (isinstance(value, ast.Constant) and value.value is None):
        if name in ("random.seed", "numpy.random.seed"):
            to.report("VB104", node, f"{name}() without a seed takes one from the operating system")
            return
    else:
        changing(to, node, value, name)
        source = to.names.resolve(value) or ""
        if f"redrawn {_place(value)}" in to.facts.flags:  # only where none was given
            seeded(to, node, seeded_by(name), IF_GIVEN)
            return
        if source.endswith("()") and (generator := generator_of(source[:-2])):
            seeded(to, node, seeded_by(name), f"{DRAWN} {generator}")
            return
    if to.with_seed:
        seeded(to, node, seeded_by(name), IF_GIVEN)
    else:
        seeded(to, node, seeded_by(name), OWN_MODEL if name.endswith("LightningCLI") else "")


def source_of_seed(to: Walk, node: ast.Call) -> str:
    """The generator that the seed of `set_seed(random.randint(0, 99))` is drawn from."""
    names = [to.names.resolve(value) or "" for value in (*node.args, *(k.value for k in node.keywords))]
    return next((found for each in names if each.endswith("()") and (found := generator_of(each[:-2]))), "")


def changing(to: Walk, node: ast.expr, value: ast.expr, name: str) -> None:
    for inner in ast.walk(value):
        if isinstance(inner, ast.Call):
            what = to.names.resolve(inner.func)
        elif isinstance(inner, ast.Name):
            what = to.names.resolve(inner)
        else:
            continue
        what = (what or "").partition("()")[0]  # of `datetime.now().microsecond` too
        if what in CHANGING:
            to.report("VB104", node, f"{name} gets its seed from {what}()")


def seeded(to: Walk, node: ast.AST, generators: tuple[str, ...], text: str = "") -> None:
    for generator in generators:
        is_spared = generator == "torch" and to.without_gpu > 0
        to.event("seed", generator, node, WITHOUT_GPU if is_spared else text)


def _place(value: ast.expr) -> str:
    """`options.seed` of itself."""
    return ast.unparse(value) if isinstance(value, ast.Name | ast.Attribute) else ""
