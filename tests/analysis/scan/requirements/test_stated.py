"""Whether projects state software and hardware, by reading and by the scan: `stated.csv`. How they were drawn
is in docs/scanning.md; the half `development` was looked at while the patterns were written, the others were
judged before the scan was run on them, `held out later` after the last correction. `commit` is the version
that was read."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from analysis.scan.requirements.shares import share

FOLDER = Path(__file__).parent
DOCS = FOLDER.parents[3] / "docs" / "scanning.md"
YES = {"yes": True, "no": False}


def rows(half: str) -> list[dict[str, str]]:
    with (FOLDER / "stated.csv").open(newline="", encoding="utf-8") as file:
        return [row for row in csv.DictReader(file) if row["half"] == half]


def test_no_project_is_in_both_halves_and_each_was_read_at_a_commit():
    every = [row for half in ("development", "held out", "held out later") for row in rows(half)]
    assert len({row["project"] for row in every}) == len(every) >= 60
    assert all(len(row["commit"]) == 12 for row in every)


@pytest.mark.parametrize("half", ["held out", "held out later"])
@pytest.mark.parametrize("what", ["software", "hardware"])
def test_the_docs_have_the_figures_of_the_projects_held_out(what, half):
    judged = [(YES[row[what]], YES[row[f"found_{what}"]]) for row in rows(half)]
    both = sum(stated and found for stated, found in judged)
    text = DOCS.read_text(encoding="utf-8")
    assert f"{len(judged)} projects {half}" in text
    for name, of in (
        ("recall", sum(stated for stated, _ in judged)),
        ("precision", sum(found for _, found in judged)),
    ):
        found = share(both, of)
        line = (
            f"| {what}, {name} | {both} of {of} | {found.value:.2f} | {found.low:.2f} to {found.high:.2f} |"
        )
        assert line in text
