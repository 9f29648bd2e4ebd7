"""Arguments that a dictionary gives: `options = {"n_jobs": 4}; options["seed"] = 1; Model(**options)`."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from analysis.scan.lint.syntax.walk import Walk


def assigned(to: Walk, targets: Sequence[ast.expr], value: ast.expr) -> None:
    """Remembers a dictionary whose keys are all written out, and what is added to it; forgets another one."""
    for target in targets:
        if isinstance(target, ast.Name):
            to.dictionaries.pop(target.id, None)
            if (items := items_of(to, value)) is not None:
                to.dictionaries[target.id] = items
        elif isinstance(target, ast.Subscript) and isinstance(target.value, ast.Name):
            items = to.dictionaries.get(target.value.id)
            if items is None:
                continue
            if isinstance(target.slice, ast.Constant):
                items[str(target.slice.value)] = value
            else:
                del to.dictionaries[target.value.id]


def written_out(to: Walk, node: ast.Call) -> ast.Call:
    """The call with the arguments of its `**options`, where these are known."""
    if not any(keyword.arg is None for keyword in node.keywords):
        return node
    keywords = []
    for keyword in node.keywords:
        items = items_of(to, keyword.value) if keyword.arg is None else None
        if items is None:
            keywords.append(keyword)
        else:
            keywords += [ast.keyword(arg=name, value=value) for name, value in items.items()]
    return ast.copy_location(ast.Call(func=node.func, args=node.args, keywords=keywords), node)


def items_of(to: Walk, value: ast.expr | None) -> dict[str, ast.expr] | None:
    """The items of a dictionary, or of a name's, where all keys are written out."""
    if isinstance(value, ast.Name):
        return to.dictionaries.get(value.id)
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id == "dict":
        known = not value.args and all(keyword.arg for keyword in value.keywords)
        return {str(keyword.arg): keyword.value for keyword in value.keywords} if known else None
    if not isinstance(value, ast.Dict) or not all(isinstance(key, ast.Constant) for key in value.keys):
        return None
    pairs = zip(value.keys, value.values, strict=True)
    return {str(key.value): each for key, each in pairs if isinstance(key, ast.Constant)}
