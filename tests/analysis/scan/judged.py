"""Findings in strange code, judged one by one: `judged.csv`.

They are random samples (fixed seeds) of what `vbstudy scan` found in 33 distributions on PyPI, up to ten a
rule and round, from several projects where several had findings; each was judged by reading the code. `right`
says whether the code has what the finding says. After each round rules were mended, so only findings of a
later round tell about a mended rule. With the distributions unpacked in FOLDER,

    python -m tests.analysis.scan.judged FOLDER

tells which of the judged findings are found still.

`read.csv` is about recall: 25 training scripts of the same distributions, drawn at random, were read without
the tool; it has their problems, and whether they are found."""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from statsmodels.stats.proportion import proportion_confint

from analysis.scan.run import scan

FILE = Path(__file__).parent / "judged.csv"
READ = Path(__file__).parent / "read.csv"


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    round: int
    rule: str
    project: str  # with its version
    file: str
    cell: int
    line: int
    right: bool
    reason: str

    @property
    def place(self) -> tuple[str, str, str, int, int]:
        return self.rule, self.project, self.file, self.cell, self.line


def judged() -> list[Judged]:
    with FILE.open(newline="", encoding="utf-8") as file:
        return [
            Judged(
                round=int(row["round"]),
                rule=row["rule"],
                project=row["project"],
                file=row["file"],
                cell=int(row["cell"]),
                line=int(row["line"]),
                right={"yes": True, "no": False}[row["right"]],
                reason=row["reason"],
            )
            for row in csv.DictReader(file)
        ]


def recall() -> tuple[int, int, float, float]:
    """How many problems of the scripts that were read are found, of how many, and Wilson's 95 % interval."""
    with READ.open(newline="", encoding="utf-8") as file:
        found = [{"yes": True, "no": False}[row["found"]] for row in csv.DictReader(file)]
    low, high = proportion_confint(sum(found), len(found), method="wilson")
    return sum(found), len(found), float(low), float(high)


def precision(findings: Iterable[Judged]) -> tuple[int, int, float, float]:
    """How many are right, of how many, and Wilson's 95 % interval of the share."""
    every = list(findings)
    right = sum(each.right for each in every)
    low, high = proportion_confint(right, len(every), method="wilson")
    return right, len(every), float(low), float(high)


def found_still(folder: Path) -> set[tuple[str, str, str, int, int]]:
    """The places of findings in the projects that are there."""
    paths = [folder / name for name in sorted({each.project for each in judged()})]
    return {
        (f.rule, Path(project.path).name, f.place.path, f.place.cell, f.place.line)
        for project in scan([path for path in paths if path.is_dir()]).projects
        for f in project.findings
    }


def table(arguments: list[str]) -> str:
    every = judged()
    lines = []
    if arguments:
        folder = Path(arguments[0])
        every = [each for each in every if (folder / each.project).is_dir()]
        found = found_still(folder)
        for right, name in ((True, "right"), (False, "wrong")):
            some = [each for each in every if each.right is right]
            lines.append(f"{sum(each.place in found for each in some)} of {len(some)} {name} are found still")
        every = [each for each in every if each.place in found]
    for rule in ("", *sorted({each.rule for each in every})):
        right_n, n, low, high = precision(each for each in every if each.rule.startswith(rule))
        lines.append(f"{rule or 'all':5} {right_n:3} of {n:3}  {low:.2f} to {high:.2f}")
    lines.append("recall {:3} of {:3}  {:.2f} to {:.2f}".format(*recall()))
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.stdout.write(table(sys.argv[1:]))
