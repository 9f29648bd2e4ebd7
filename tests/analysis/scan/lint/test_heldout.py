"""How the lint did on projects that its rules had not seen: `heldout/`. How they were drawn is in
docs/scanning.md. `findings.csv` has all findings in them, each judged by reading the code; `places.csv` has
what makes runs differ in those that were read completely before the lint was run."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from analysis.scan.lint.rules import RULES
from analysis.scan.requirements.shares import share

FOLDER = Path(__file__).parent / "heldout"
DOCS = FOLDER.parents[4] / "docs" / "scanning.md"
YES = {"yes": True, "no": False}


def rows(name: str) -> list[dict[str, str]]:
    with (FOLDER / name).open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_the_findings_are_of_projects_that_were_held_out():
    projects = rows("projects.csv")
    assert len({row["project"] for row in projects}) == len(projects)
    assert all(len(row["commit"]) == 12 for row in projects)
    held_out = {row["project"] for row in projects if row["half"] == "held out"}
    assert {row["project"] for row in rows("findings.csv")} <= held_out
    assert {row["project"] for row in rows("places.csv")} == {
        row["project"] for row in projects if YES[row["read"]]
    }
    assert {row["project"] for row in projects if YES[row["read"]]} <= held_out


def test_every_finding_has_a_rule_and_each_wrong_one_a_reason():
    for row in rows("findings.csv"):
        assert row["rule"] in RULES
        assert YES[row["right"]] == (not row["reason"])


@pytest.mark.parametrize(
    ("what", "name", "column", "levels"),
    [
        ("precision: all findings", "findings.csv", "right", ("error", "warning", "note")),
        ("precision: errors and warnings", "findings.csv", "right", ("error", "warning")),
        ("precision: notes", "findings.csv", "right", ("note",)),
        ("recall: all places", "places.csv", "found", ()),
        ("recall: places other than thread counts", "places.csv", "found", ()),
        ("recall: unseeded generators", "places.csv", "found", ()),
    ],
)
def test_the_docs_have_the_figures(what: str, name: str, column: str, levels: tuple[str, ...]):
    some = rows(name)
    if levels:
        some = [row for row in some if row["level"] in levels]
    elif "other" in what:
        some = [row for row in some if row["rule"] != "VB401"]
    elif "generators" in what:
        some = [row for row in some if row["rule"] == "VB101"]
    found = share(sum(YES[row[column]] for row in some), len(some))
    right = sum(YES[row[column]] for row in some)
    line = f"| {what} | {right} of {len(some)} | {found.value:.2f} | {found.low:.2f} to {found.high:.2f} |"
    assert line in DOCS.read_text(encoding="utf-8"), line
