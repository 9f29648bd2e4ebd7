"""How the lint did on projects that its rules had not seen, eighteen times: `heldout/`. How they were drawn
is in docs/scanning.md. `findings.csv` has all findings in them, each judged by reading the code; `places.csv`
has what makes runs differ in those that were read completely before the lint was run."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path

import pytest

from analysis.scan.lint.rules import RULES
from analysis.scan.requirements.shares import share

FOLDER = Path(__file__).parent / "heldout"
ROUNDS = (
    *("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth"),
    *(
        "eleventh",
        "twelfth",
        "thirteenth",
        "fourteenth",
        "fifteenth",
        "sixteenth",
        "seventeenth",
        "eighteenth",
    ),
)
DOCS = FOLDER.parents[4] / "docs" / "scanning.md"
YES = {"yes": True, "no": False, "stops": False}  # that is, its program stops before it has a result

Row = dict[str, str]


def rows(each: str, name: str) -> list[Row]:
    with (FOLDER / each / name).open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("each", ROUNDS)
def test_the_findings_are_of_projects_that_were_held_out(each: str):
    projects = rows(each, "projects.csv")
    assert len({row["project"] for row in projects}) == len(projects)
    assert all(len(row["commit"]) == 12 for row in projects)
    held_out = {row["project"] for row in projects if row["half"] == "held out"}
    assert {row["project"] for row in rows(each, "findings.csv")} <= held_out
    read = {row["project"] for row in projects if YES[row["read"]]}
    assert {row["project"] for row in rows(each, "places.csv")} <= read <= held_out


def test_no_project_was_held_out_twice():
    names = [row["project"] for each in ROUNDS for row in rows(each, "projects.csv")]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("each", ROUNDS)
def test_every_finding_has_a_rule_and_each_wrong_one_a_reason(each: str):
    for row in rows(each, "findings.csv"):
        assert row["rule"] in RULES
        assert YES[row["right"]] == (not row["reason"])


@pytest.mark.parametrize("each", ROUNDS)
def test_the_docs_have_the_shares_of_every_version(each: str):
    cells = shares(rows(each, "findings.csv"), "right"), shares(rows(each, "places.csv"), "found")
    line = f"| {each} | {cells[0]} | {cells[1]} |"
    assert line in DOCS.read_text(encoding="utf-8"), line


@pytest.mark.parametrize(
    ("what", "name", "column", "counts"),
    [
        ("precision: in programs that run", "findings.csv", "right", lambda row: row["right"] != "stops"),
        ("precision: errors and warnings", "findings.csv", "right", lambda row: row["level"] != "note"),
        ("precision: notes", "findings.csv", "right", lambda row: row["level"] == "note"),
        (
            "recall: places other than thread counts",
            "places.csv",
            "found",
            lambda row: row["rule"] not in ("VB401", "VB404"),
        ),
        ("recall: unseeded generators", "places.csv", "found", lambda row: row["rule"] == "VB101"),
    ],
)
def test_the_docs_have_the_details_of_the_last_version(
    what: str, name: str, column: str, counts: Callable[[Row], bool]
):
    line = f"| {what} | {shares([row for row in rows(ROUNDS[-1], name) if counts(row)], column)} |"
    assert line in DOCS.read_text(encoding="utf-8"), line


def test_the_docs_have_the_last_version_by_rule():
    counted: dict[str, list[bool]] = {}
    for row in rows(ROUNDS[-1], "findings.csv"):
        counted.setdefault(row["rule"], []).append(YES[row["right"]])
    sentence = ", ".join(f"{rule} {sum(each)} of {len(each)}" for rule, each in sorted(counted.items()))
    assert sentence in " ".join(DOCS.read_text(encoding="utf-8").split()), sentence


def shares(some: list[Row], column: str) -> str:
    right = sum(YES[row[column]] for row in some)
    found = share(right, len(some))
    return f"{right} of {len(some)}: {found.value:.2f} ({found.low:.2f} to {found.high:.2f})"
