"""How the lint did on projects that its rules had not seen, twenty-three times: `heldout/`, whose README has
how they were drawn. Of the last eight, which docs/scanning.md has too, `findings.csv` has all findings, each
judged by reading the code, and `places.csv` what makes runs differ, listed before the lint was run."""

from __future__ import annotations

import csv
import math
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
        "nineteenth",
        "twentieth",
        "twenty-first",
        "twenty-second",
        "twenty-third",
    ),
)
LAST = ROUNDS[-8:]
RECORD = FOLDER / "README.md"
DOCS = FOLDER.parents[4] / "docs" / "scanning.md"
YES = {"yes": True, "no": False, "stops": False}  # that is, its program stops before it has a result

Row = dict[str, str]


def rows(each: str, name: str) -> list[Row]:
    with (FOLDER / each / name).open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("each", LAST)
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


@pytest.mark.parametrize("each", LAST)
def test_every_finding_has_a_rule_and_each_wrong_one_a_reason(each: str):
    for row in rows(each, "findings.csv"):
        assert row["rule"] in RULES
        assert YES[row["right"]] == (not row["reason"])


@pytest.mark.parametrize("each", LAST)
def test_the_record_has_the_shares_of_the_last_versions(each: str):
    cells = shares(rows(each, "findings.csv"), "right"), shares(rows(each, "places.csv"), "found")
    line = f"| {each} | {cells[0]} | {cells[1]} |"
    assert line in RECORD.read_text(encoding="utf-8"), line


@pytest.mark.parametrize("each", LAST)
def test_the_docs_have_the_shares_of_the_last_versions(each: str):
    findings, places = rows(each, "findings.csv"), rows(each, "places.csv")
    cells = shares(that_run(findings), "right"), shares(findings, "right"), shares(places, "found")
    line = f"| {each} | {' | '.join(cells)} |"
    assert line in DOCS.read_text(encoding="utf-8"), line


def test_the_docs_have_the_last_versions_together_and_by_rule():
    findings = that_run([row for each in LAST for row in rows(each, "findings.csv")])
    places = [row for each in LAST for row in rows(each, "places.csv")]
    counted: dict[str, list[bool]] = {}
    for row in findings:
        counted.setdefault(row["rule"], []).append(YES[row["right"]])
    right, found = sum(map(sum, counted.values())), sum(YES[row["found"]] for row in places)
    of_findings, of_places = over_projects(findings, "right"), over_projects(places, "found")
    docs = " ".join(DOCS.read_text(encoding="utf-8").split())
    for sentence in (
        f"{100 * right / len(findings):.0f} % of the findings in programs that run were right",
        f"{100 * found / len(places):.0f} % of the places were found",
        f"({sum(len(rows(each, 'projects.csv')) for each in LAST)} projects)",
        f"{right} of {len(findings)} findings in programs that run were right: {of_findings};",
        f"of {len(places):,} places that keep runs from repeating, {found} were found: {of_places}.",
        ", ".join(f"{rule} {sum(each)} of {len(each)}" for rule, each in sorted(counted.items())),
    ):
        assert sentence in docs, sentence


def that_run(findings: list[Row]) -> list[Row]:
    return [row for row in findings if row["right"] != "stops"]


def shares(some: list[Row], column: str) -> str:
    right = sum(YES[row[column]] for row in some)
    return f"{right} of {len(some)}: {interval(right, len(some))}"


def over_projects(some: list[Row], column: str) -> str:
    """The share, with the interval of a ratio whose units are the projects: what one has is alike."""
    projects: dict[str, list[bool]] = {}
    for row in some:
        projects.setdefault(row["project"], []).append(YES[row[column]])
    value = sum(YES[row[column]] for row in some) / len(some)
    spread = sum((sum(each) - value * len(each)) ** 2 for each in projects.values())
    half = 1.96 * math.sqrt(spread * len(projects) / (len(projects) - 1)) / len(some)
    return f"{value:.2f} ({value - half:.2f} to {value + half:.2f})"


def interval(right: int, of: int) -> str:
    found = share(right, of)
    return f"{found.value:.2f} ({found.low:.2f} to {found.high:.2f})"
