"""The labelled corpus: snippets and programs whose findings are marked by hand, `# expect: VB101, VB503`.

A snippet begins with `#### name | rules`: the rules (or beginnings of rules) that it is labelled for. Files
of a project of several begin with `# file: name`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from analysis.scan.lint.lint import is_ignored, lint_file
from analysis.scan.lint.programs.differ import differing
from analysis.scan.lint.programs.judge import lint_project
from analysis.scan.lint.programs.program import programs
from analysis.scan.lint.rules import RULES, chosen

FOLDER = Path(__file__).parent / "corpus"
_EXPECT = re.compile(r"# expect: ([\w, ]+)")
_FILE = re.compile(r"^# file: (\S+)$", re.MULTILINE)
Found = frozenset[tuple[str, str, int]]  # rule, path, line


@dataclass(frozen=True)
class Snippet:
    name: str
    rules: frozenset[str]
    files: dict[str, str]

    def expected(self) -> Found:
        return frozenset(
            (rule.strip(), path, number)
            for path, text in self.files.items()
            for number, line in enumerate(text.split("\n"), start=1)
            for match in _EXPECT.finditer(line)
            for rule in match[1].split(",")
        )

    def found(self) -> Found:
        facts = [lint_file(path, text.encode()) for path, text in self.files.items()]
        assert not [note for each in facts for note in each.notes], self.name
        found = {
            (f.rule, f.place.path, f.place.line)
            for f in lint_project(facts, {}, self.rules & frozenset(RULES))
        }
        return frozenset(found) | {
            (use.rule, use.file.path, use.spot.line)  # every one, of which lint_project makes one finding
            for use in differing(facts, programs(facts), {})
            if use.rule in self.rules and not (use.operation.alone or is_ignored(use.file, use.alone()))
        }


def snippets() -> list[Snippet]:
    found = []
    for file in sorted(FOLDER.glob("*.txt")):
        for part in re.split(r"^#### ", file.read_text(), flags=re.MULTILINE)[1:]:
            title, _, text = part.partition("\n")
            name, _, rules = title.rpartition(" | ")
            codes = tuple(code.strip() for code in rules.split(","))
            pieces = _FILE.split(text)
            files = (
                dict(zip(pieces[1::2], pieces[2::2], strict=True)) if len(pieces) > 1 else {"main.py": text}
            )
            found.append(Snippet(f"{file.stem}: {name}", chosen(codes, ()), files))
    return found
