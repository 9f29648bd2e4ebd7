"""Queries of databases without ORDER BY, whose rows may come in any order (VB305)."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable

from analysis.scan.lint.order.kept import named
from analysis.scan.lint.syntax.arguments import argument, last
from analysis.scan.lint.syntax.walk import Walk

READERS = frozenset(("pandas.read_sql", "pandas.read_sql_query", "pandas.read_gbq", "pandas_gbq.read_gbq"))
ASKING = frozenset(("execute", "query", "fetch", "fetch_all", "read_sql", "read_sql_query"))
"""Methods of connections, by which they are asked; of cursors, which have the rows then."""
GIVING = frozenset(("fetchall", "fetchmany", "all", "result", "to_dataframe", "to_pandas", "mappings"))
"""Methods of what has the rows, which give all of them."""
SORTING_METHODS = frozenset(("sort", "sort_values", "sort_index"))
BEGINS = re.compile(r"\s*(?:SELECT|WITH)\b", re.IGNORECASE)
LONG = 20_000
"""Characters: a longer text is no query that somebody wrote."""
SELECTS = re.compile(BEGINS.pattern + r"(?P<what>.*?)\bFROM\b(?P<rest>.*)", re.IGNORECASE | re.DOTALL)
ORDERED = re.compile(
    r"\bORDER\s+BY\b|\bLIMIT\s+1\b|\bINFORMATION_SCHEMA\b|\bpg_catalog\b|\bWHERE\s+(?:\w+\.)?id\s*=",
    re.IGNORECASE,
)
"""Rows in an order, only one, or none of data."""
ONE_ROW = re.compile(r"\s*(?:COUNT|SUM|AVG|MIN|MAX|EXISTS)\s*\(", re.IGNORECASE)
GROUPED = re.compile(r"\bGROUP\s+BY\b", re.IGNORECASE)
IN_ORDER = frozenset(("sqlite3", "duckdb", "influxdb"))
"""They read a file from its beginning, where rows keep their places, or by time."""
OF_SQLITE = "an engine of SQLite"
"""A flag of a file."""


class Queries:
    """The queries of a module, by the names of their texts and of the cursors that were asked."""

    def __init__(self, walk: Walk) -> None:
        self._walk = walk
        self.read: Callable[[], set[str]] = set  # the names that the module reads
        self._texts: dict[str, str] = {}
        self._asked: set[str] = set()  # cursors that have rows in no order

    def assigned(self, target: str, value: ast.expr) -> None:
        text = self._text(value)
        if target and BEGINS.match(text) and len(text) < LONG:
            self._texts[target] = text
        else:
            self._texts.pop(target, None)

    def called(self, node: ast.Call) -> None:
        """`cursor.execute(query)`."""
        function = node.func
        if last(function) == "create_engine" and self._text(argument(node, "url", 0)).startswith("sqlite"):
            self._walk.facts.flags.add(OF_SQLITE)
        if (
            isinstance(function, ast.Attribute)
            and function.attr in ASKING
            and (cursor := named(function.value))
        ):
            (self._asked.add if self._asks(node) else self._asked.discard)(cursor)

    def source(self, node: ast.expr) -> str:
        """What gives rows in no order, as text; "" for others. Also a cursor: `for row in cursor`."""
        if self._is_in_order():
            return ""
        if not isinstance(node, ast.Call):
            return name if (name := named(node)) in self._asked else ""
        function = node.func
        if last(function).startswith("read_"):
            name = self._walk.names.resolve(function) or ""
            if name == "pandas.read_sql_table" or (name in READERS and self._asks(node)):
                return f"{last(function)}()"
        if not isinstance(function, ast.Attribute):
            return ""
        inner = function.value
        if function.attr in GIVING:
            if named(inner) in self._asked:
                return f"{function.attr}()"
            if isinstance(inner, ast.Call) and isinstance(inner.func, ast.Attribute):
                return self.source(inner)
        if function.attr not in ASKING or id(node) in self._walk.discarded or not self._asks(node):
            return ""
        return f"{function.attr}()"

    def _is_in_order(self) -> bool:
        """Whether the module uses a database of which rows have an order, and does not only import it."""
        facts = self._walk.facts
        if not facts.flags & IN_ORDER:
            return OF_SQLITE in facts.flags
        names = {name for name, stands in facts.imported.items() if stands.partition(".")[0] in IN_ORDER}
        return not names or OF_SQLITE in facts.flags or not names.isdisjoint(self.read())

    def _asks(self, node: ast.Call) -> bool:
        query = argument(node, "sql", 0) or argument(node, "query", 0)
        found = SELECTS.match(self._text(query))
        if found is None or ORDERED.search(found["rest"]):
            return False
        return bool(GROUPED.search(found["rest"])) or not ONE_ROW.match(found["what"])

    def _text(self, value: ast.expr | None) -> str:
        """As much of a text as is written out."""
        end = ""
        while isinstance(value, ast.BinOp) and isinstance(value.op, ast.Add | ast.Mod):
            end = (self._text(value.right) or "?") + end
            value = value.left
        return self._part(value) + end

    def _part(self, value: ast.expr | None) -> str:
        match value:
            case ast.Constant(value=str(text)):
                return text
            case ast.Name() | ast.Attribute():
                return self._texts.get(named(value), "")
            case ast.JoinedStr(values=parts):
                return "".join(self._text(part) or "?" for part in parts)
            case ast.Call(func=ast.Attribute(value=inner, attr="format" | "strip" | "replace")):
                return self._text(inner)
            case ast.Call(func=function, args=[inner, *_]) if last(function) in ("text", "dedent", "SQL"):
                return self._text(inner)
        return ""
