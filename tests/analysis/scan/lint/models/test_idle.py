"""Models of which a file takes no gradient."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from analysis.scan.lint.models.idle import remade_lines


def test_values_that_are_made_again_by_the_same_call_before_anything_trains():
    lines = ["net = Net(1)", "show(net)", "net = Net(2)", "fit(net)", "net = Net(3)", "net = Other()"]
    assert remade_lines(ast.parse("\n".join(lines)).body) == {1}


def test_a_name_that_gets_many_values_costs_no_walk_over_the_module_each():
    class Body(list[ast.stmt]):
        walks = 0

        def __iter__(self) -> Iterator[ast.stmt]:
            self.walks += 1
            return super().__iter__()

    body = Body(ast.parse("node = make()\nkeep(node)\n" * 50).body)
    assert len(remade_lines(body)) == 49
    assert body.walks <= 2
