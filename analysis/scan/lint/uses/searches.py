"""Searches for hyperparameters: what draws the values that are tried, and what is tried."""

from __future__ import annotations

import ast

from analysis.scan.lint.syntax.arguments import constant, is_given
from analysis.scan.lint.syntax.walk import Walk

SEEDS = {  # name of the argument that seeds
    "optuna.create_study": "sampler",
    "optuna.study.create_study": "sampler",
    "hyperopt.fmin": "rstate",
    "bayes_opt.BayesianOptimization": "random_state",
    "ax.optimize": "random_seed",
    "ax.service.managed_loop.optimize": "random_seed",
    **dict.fromkeys(
        (
            "optuna.integration.OptunaSearchCV",
            "optuna.integration.sklearn.OptunaSearchCV",
            "optuna_integration.OptunaSearchCV",
            "optuna_integration.sklearn.OptunaSearchCV",
        ),
        "random_state",
    ),
    **{
        f"optuna.{module}.{name}Sampler": "seed"
        for module, names in (
            ("samplers", ("TPE", "Random", "CmaEs", "Grid", "QMC", "NSGAII", "NSGAIII", "GP", "BruteForce")),
            ("integration", ("BoTorch", "PyCma", "CmaEs")),
        )
        for name in names
    },
}
LOGISTIC = "sklearn.linear_model.LogisticRegression"
DRAWING = frozenset(("sag", "saga", "liblinear"))
"""Solvers that shuffle."""
TRIED, WITHOUT_SEED = "tries solvers that draw", "has a logistic regression without a seed"
"""Flags of a file."""


def unseeded(to: Walk, node: ast.Call, name: str) -> None:
    if name in SEEDS and not is_given(node, SEEDS[name]):
        why = f"{name}() without {SEEDS[name]} draws what it tries from a new generator"
        to.report("VB102", node, why)
    if name == LOGISTIC and not is_given(node, "solver") and not is_given(node, "random_state"):
        to.facts.flags.add(WITHOUT_SEED)
        if TRIED in to.facts.flags:
            to.event("draw", "numpy", node, LOGISTIC)


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
