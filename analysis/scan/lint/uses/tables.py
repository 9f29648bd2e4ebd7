"""Tables of pandas, whose `sample` draws rows from NumPy's generator."""

from __future__ import annotations

import ast
import re

from analysis.scan.lint.facts import Event, spot
from analysis.scan.lint.syntax.arguments import dotted, is_given, last, root, text_of
from analysis.scan.lint.syntax.walk import Walk
from analysis.scan.lint.vocabulary import is_own

OF_TABLES = ("n", "replace", "weights", "axis", "ignore_index")
"""Arguments of `sample` that only a table has."""
TABLE = re.compile(r"(?:^|[._])df\d*(?:$|[\[._])|(?:^|_)data_?frame|\.groupby\(", re.IGNORECASE)
"""Tables of pandas, by their names: `df_train[df_train.label == 1]`."""
A_TABLE = "pandas.DataFrame()"
DRAWN = "DataFrame.sample"


def is_of_table(to: Walk, node: ast.Call, name: str | None) -> bool:
    """Whether `rows.sample(...)` draws rows of pandas from NumPy's generator: by where the rows come from, by
    arguments that only a table has, or by its name."""
    if is_given(node, "random_state") or len(node.args) > 1:
        return False
    if name is not None and not is_own(name):
        return name.startswith("pandas.")
    if is_given(node, "frac"):
        return True
    if TABLE.search(dotted(node.func)):
        return True
    has_pandas = any(stands.partition(".")[0] == "pandas" for stands in to.facts.imported.values())
    return has_pandas and any(is_given(node, each) for each in OF_TABLES)


def grouped(to: Walk, node: ast.Call, name: str | None) -> None:
    """`rows.groupby("label").apply(lambda group: group.sample(9))`: such a function is given tables."""
    if last(node.func) == "apply" and _is_pandas(name) and ".groupby(" in (name or text_of(node.func)):
        for each in node.args:
            scope = (to.names.resolve(each) or "").removeprefix("@")
            if isinstance(each, ast.Lambda):
                to.of_groups.add(id(each))
            elif scope in to.sampled:
                to.facts.scopes[scope].append(to.sampled.pop(scope))


def sampled(to: Walk, node: ast.Call) -> None:
    """`group.sample(9)` of a name of a function, which draws if that is applied to groups of a table."""
    function = node.func
    is_local = isinstance(function, ast.Attribute) and to.names.is_innermost(root(function.value))
    if to.scope and is_local and to.names.resolve(function) is None and not is_given(node, "random_state"):
        to.sampled[to.scope] = Event("draw", "numpy", spot(node), DRAWN)


def rows_of(to: Walk, value: ast.expr) -> str | None:
    """What some rows of a table stand for: `df[df.label == 1]`."""
    match value:
        case ast.Subscript(
            value=table,
            slice=ast.Compare() | ast.BinOp(op=ast.BitAnd() | ast.BitOr()) | ast.UnaryOp(op=ast.Invert()),
        ):
            name = to.names.resolve(table)
            if _is_pandas(name) and (TABLE.search(text_of(table)) or (name and not is_own(name))):
                return A_TABLE
    return None


def _is_pandas(name: str | None) -> bool:
    """Whether a name is one of pandas, as far as it is known."""
    return name is None or is_own(name) or name.startswith("pandas.")
