"""`python -m tests.analysis.simulated [START ...]`: cases in full, all or those whose names start so; writes
their rows into the table of docs/statistics.md. Exit code 1 where a promise is not kept."""

from __future__ import annotations

import sys
from concurrent.futures import ProcessPoolExecutor
from itertools import groupby
from pathlib import Path

from tests.analysis.simulated.cases import CASES
from tests.analysis.simulated.simulation import Result, simulate
from tests.analysis.simulated.sources import SIZES

STUDIES = 2000
ERRORS = 2.0  # of the simulation
PAGE = Path("docs/statistics.md")
BEGIN, END = "<!-- made by `.ci/run simulated` -->\n", "<!-- end -->\n"


def rows(results: list[Result]) -> dict[str, str]:
    """A row for each case and source, a column for each n; by their first three cells."""
    lines = {}
    for (promise, case, source), each in groupby(results, lambda r: (r.promise.value, r.case, r.source)):
        by_n = {result.n: result for result in each}
        cells = [_cell(by_n.get(n)) for n in SIZES]
        if set(by_n) == {1}:
            cells = [_cell(by_n[1])] * len(SIZES)  # of two models: whatever n is
        lines[f"| {promise} | {case} | {source} |"] = f" {' | '.join(cells)} |\n"
    return lines


def table(before: str, results: list[Result]) -> str:
    """The table in the order of CASES: rows of `results`, the others as they were `before`."""
    head = ["promise", "of", "runs", *(f"n = {n}" for n in SIZES)]
    new, old = rows(results), before.splitlines(keepends=True)
    text = f"| {' | '.join(head)} |\n|{' --- |' * len(head)}\n"
    for name, case in CASES.items():
        for source in case.sources:
            key = f"| {case.promise.value} | {name} | {source} |"
            text += key + new[key] if key in new else next((row for row in old if row.startswith(key)), "")
    return text


def _cell(result: Result | None) -> str:
    return "–" if result is None or not result.printed else f"{result.rate:.3f}"


def main(starts: tuple[str, ...]) -> int:
    cases = {name: case for name, case in CASES.items() if name.startswith(starts or "")}
    pieces = [
        (name, source, n) for name, case in cases.items() for source in case.sources for n in case.sizes
    ]
    with ProcessPoolExecutor() as pool:
        results = list(pool.map(_one, pieces))
    text = PAGE.read_text(encoding="utf-8")
    before, rest = text.split(BEGIN)
    old, after = rest.split(END)
    PAGE.write_text(f"{before}{BEGIN}\n{table(old, results)}\n{END}{after}", encoding="utf-8")
    broken = [result for result in results if not result.kept(ERRORS)]
    for each in broken:
        print(f"not kept: {each.case}, {each.source}, n = {each.n}: {each.rate:.3f}")  # noqa: T201
    print(f"{len(results)} simulations, {len(broken)} promises not kept")  # noqa: T201
    return 1 if broken else 0


def _one(piece: tuple[str, str, int]) -> Result:
    return simulate(*piece, STUDIES)


if __name__ == "__main__":
    sys.exit(main(tuple(sys.argv[1:])))
