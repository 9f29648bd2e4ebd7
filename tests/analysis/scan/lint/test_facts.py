"""What is known of a file."""

from __future__ import annotations

from collections.abc import Iterator

from analysis.scan.lint.lint import lint_file


def test_the_scope_of_a_line_is_the_innermost_one():
    text = "def f():\n    def g():\n        pass\n    return g\n\nclass C:\n    def m(self):\n        pass\n"
    facts = lint_file("a.py", text.encode())
    assert [facts.scope_at(line) for line in range(1, 9)] == ["f", "f.g", "f.g", "f", "", "", "C.m", "C.m"]


def test_scopes_of_many_lines_cost_one_walk_over_all_of_them():
    class Spans(list[tuple[int, int, str]]):
        walks = 0

        def __iter__(self) -> Iterator[tuple[int, int, str]]:
            self.walks += 1
            return super().__iter__()

        def __reversed__(self) -> Iterator[tuple[int, int, str]]:
            self.walks += 1
            return super().__reversed__()

    facts = lint_file("a.py", b"")
    facts.spans = Spans((line, line, f"f{line}") for line in range(1, 99))
    assert [facts.scope_at(line) for line in (1, 50, 98, 99)] == ["f1", "f50", "f98", ""]
    assert facts.spans.walks == 1
