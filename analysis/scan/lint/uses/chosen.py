"""What a value looks up: `getattr(nn, kind)`, `models.__dict__[name]`, `globals()[name]`, `eval(name)()`; and
what searches for hyperparameters try."""

from __future__ import annotations

import ast
import re

from analysis.scan.lint.facts import spot
from analysis.scan.lint.syntax import keywords
from analysis.scan.lint.syntax.arguments import argument, constant, given_to, is_given, last, text_of
from analysis.scan.lint.syntax.defaults import default
from analysis.scan.lint.syntax.walk import Walk
from analysis.scan.lint.uses import draws, operations, seeding
from analysis.scan.lint.vocabulary import OWN_SOURCE, PERHAPS, SEEDS_OF_VARIATES, by_word, is_own

LAYERS = frozenset(("torch.nn", "torch.nn.functional", "keras.layers"))
MODELS = {
    "torchvision.models": "torchvision.models.get_model",
    "timm.models": "timm.create_model",
    "keras.applications": "keras.applications.Model",
}
"""Libraries of models, and what stands for any of them."""
ASKS = frozenset(("getattr", "hasattr", "setattr", "vars", "dir", "print", "type", "isinstance"))
"""Builtins of modules that look nothing else up."""
OFFERS = frozenset(("fire.Fire", "jsonargparse.CLI", "jsonargparse.auto_cli", "tyro.cli"))
"""What makes commands of functions and classes."""
RECURRENT = re.compile(r"rnn|recurrent|(?:^|_)(?:seq\w*|cell)_(?:type|name|layer|kind)$", re.IGNORECASE)


def called(to: Walk, node: ast.Call) -> None:
    module: ast.expr | None = None
    match node:
        case ast.Call(func=ast.Call(func=ast.Name(id="eval"), args=[kind, *_])):
            pass  # `eval(options.model)()`
        case ast.Call(func=ast.Name(id="getattr"), args=[module, kind, *_]):
            pass
        case ast.Call(func=ast.Subscript(value=ast.Attribute(value=module, attr="__dict__"), slice=kind)):
            pass
        case ast.Call(func=ast.Subscript(value=ast.Call(func=ast.Name(id=name), args=given), slice=kind)):
            if name not in ("vars", "globals"):
                return
            module = given[0] if given else None
        case _:
            return
    library = to.facts.module if module is None else to.names.resolve(module) or ""
    bare = ast.copy_location(ast.Call(func=node.func, args=[], keywords=[]), node)
    if library in LAYERS:
        said = default(to, kind)
        if not isinstance(said, str):  # a recurrent one by its name
            said = "RNN" if RECURRENT.search(f"{last(kind)} {to.target}") else ""
        operations.used(to, bare, f"{library}.{said}")
    elif library in MODELS:
        draws.drawn(to, bare, MODELS[library])
        operations.used(to, bare, MODELS[library])
    elif library and is_own(library) and (library.endswith("()") or not re.search(r"^@|\(\)", library)):
        said = constant(kind)
        to.event("value", f"{library}.{said if isinstance(said, str) else '*'}", node)


def offered(to: Walk, node: ast.Call, name: str) -> None:
    """`fire.Fire(Run)`, `CLI([Run, Test])`: a command line decides which method is called; `fire.Fire()`: and
    which function of the file."""
    if name not in OFFERS:
        return
    given = [value for value in given_to(node) if constant(value) is ...]
    for value in given:
        for each in value.elts if isinstance(value, ast.List | ast.Tuple) else [value]:
            offers = (to.names.resolve(each) or "").removesuffix("()")
            if offers and is_own(offers):
                to.event("value", f"{offers}().*", each)
    for own in to.names.defined() if not given else ():
        to.event("value", f"@{own}", node)
        to.event("value", f"@{own}().*", node)


def handed_on(to: Walk, node: ast.Call) -> None:
    """`config.make("model", nets)`: what is given a module looks something up in it. Of what is no module of
    the project, nothing is known by that name."""
    if isinstance(node.func, ast.Name) and node.func.id in ASKS:
        return
    for value in given_to(node):
        name = to.names.resolve(value) if isinstance(value, ast.Name) else None
        if name and "()" not in name and not name.startswith("@") and is_own(name):
            to.event("value", f"{name}.*", value)


SEEDS = by_word("seeds_of_searches")
"""Searches, with the names of the arguments that seed them."""
LOGISTIC = "sklearn.linear_model.LogisticRegression"
DRAWING = frozenset(("sag", "saga", "liblinear"))
"""Solvers that shuffle."""
TRIED, WITHOUT_SEED = "tries solvers that draw", "has a logistic regression without a seed"
"""Flags of a file."""


def unseeded(to: Walk, node: ast.Call, name: str) -> None:
    """A search, or an estimator, whose seed is not given or another one each time."""
    state = argument(node, "random_state") or argument(node, "seed")
    if state is not None and not any(each.rule == "VB104" for each in to.facts.findings):
        seeding.changing(to, node, state, name)  # once: one clock seeds all of them
    if name in SEEDS and not is_given(node, SEEDS[name]):
        why = f"{name}() without {SEEDS[name]} draws what it tries from a new generator"
        to.report("VB102", node, why)
    if name.endswith("SearchCV"):
        grid = argument(node, "param_grid", 1) or argument(node, "param_distributions", 1)
        for key, values in (keywords.items_of(to, grid) or {}).items():
            if key.endswith("random_state") and "None" not in text_of(values):
                to.reseeded |= {to.target, last(argument(node, "estimator", 0))} - {""}
    if name == LOGISTIC and not is_given(node, "solver") and not is_given(node, "random_state"):
        to.facts.flags.add(WITHOUT_SEED)
        if TRIED in to.facts.flags:
            to.event("draw", "numpy", node, LOGISTIC)


def by_parameter(to: Walk, node: ast.Call, name: str) -> None:
    """`train_test_split(rows, random_state=seed)` in a function whose calls may give a seed, or none."""
    for each in node.keywords if to.scope else ():
        if each.arg in SEEDS_OF_VARIATES and isinstance(each.value, ast.Name):
            others = [keyword for keyword in node.keywords if keyword is not each]
            generator = draws.drawn_from(ast.Call(func=node.func, args=node.args, keywords=others), name)
            if generator is not None and generator != OWN_SOURCE:
                to.event(PERHAPS, generator, node, name)
                to.facts.seeds[spot(node)] = each.value.id


def tried(to: Walk, node: ast.Dict) -> None:
    """`{"solver": ["lbfgs", "saga"], "C": [1, 10]}`, which a search gives to an estimator."""
    keys = [str(constant(key)) for key in node.keys]
    if any(key.endswith("random_state") for key in keys):
        return
    for key, value in zip(keys, node.values, strict=True):
        given = value.elts if isinstance(value, ast.List | ast.Tuple) else [value]
        if key.endswith("solver") and any(constant(each) in DRAWING for each in given):
            to.facts.flags.add(TRIED)
            if WITHOUT_SEED in to.facts.flags:
                to.event("draw", "numpy", node, LOGISTIC)
