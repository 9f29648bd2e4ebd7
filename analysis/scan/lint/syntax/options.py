"""Options of a project whose value its configuration files agree on: `if config["augment"]`, where all of
them say `augment: false`."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence

from analysis.scan.lint.syntax.arguments import constant
from analysis.scan.lint.syntax.tree import nodes_in

Options = Mapping[str, bool]
"""Options by their names."""
CONFIGS = re.compile(r"^_*(?:cfg|conf|config|configuration|settings|hparams|hp|params)$", re.IGNORECASE)
"""What has options."""


def apply_options(body: Sequence[ast.stmt], options: Options) -> None:
    """Writes the values of options where they are read."""
    for node in nodes_in(body):
        for field, value in ast.iter_fields(node):
            if field == "func":
                continue  # `params.freeze()` is none
            if isinstance(value, list):
                value[:] = [_settled(each, options) for each in value]
            elif isinstance(value, ast.expr):
                setattr(node, field, _settled(value, options))


def _settled(node: ast.AST, options: Options) -> ast.AST:
    said = options.get(_name(node, options))
    return node if said is None else ast.copy_location(ast.Constant(said), node)


def _name(node: ast.AST, options: Options) -> str:
    """`augment` of `config["data"]["augment"]`, `config.get("augment", False)` and `cfg.DATA.augment`."""
    match node:
        case ast.Subscript(value=of, slice=ast.Constant(value=str(name)), ctx=ast.Load()):
            pass
        case ast.Call(
            func=ast.Attribute(value=of, attr="get"), args=[ast.Constant(value=str(name)), *others]
        ):
            if any(constant(each) != options.get(name) for each in others):
                return ""
        case ast.Call(func=ast.Name(id="bool"), args=[inner]):
            return _name(inner, options)
        case ast.Attribute(value=of, attr=name, ctx=ast.Load()):
            pass
        case _:
            return ""
    while isinstance(of, ast.Attribute | ast.Subscript):
        if isinstance(of, ast.Attribute) and CONFIGS.match(of.attr):
            return name
        of = of.value
    return name if isinstance(of, ast.Name) and CONFIGS.match(of.id) else ""
