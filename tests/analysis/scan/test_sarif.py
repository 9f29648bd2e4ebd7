"""The structure that SARIF 2.1.0 (OASIS standard of 27 March 2020) asks for, of what we write."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from analysis.scan.lint.rules import RULES
from analysis.scan.results import Project, Scan
from analysis.scan.run import scan
from analysis.scan.sarif import to_sarif

LEVELS = {"none", "note", "warning", "error"}


@pytest.fixture
def written(tmp_path) -> dict[str, Any]:
    project = tmp_path / "a project"
    project.mkdir()
    (project / "é.py").write_text("import torch\ntorch.backends.cudnn.benchmark = True\n")
    (project / "bad.py").write_text("def f(:\n")
    cell = {"cell_type": "code", "source": "import torch\ntorch.seed()"}
    (project / "n.ipynb").write_text(json.dumps({"cells": [cell]}))
    return json.loads(to_sarif(scan([project]), "1.2.3"))


def test_the_log_has_what_the_standard_requires(written):
    assert written["version"] == "2.1.0", "section 3.13.2"
    (run,) = written["runs"]
    driver = run["tool"]["driver"]
    assert (driver["name"], driver["version"]) == ("vbstudy", "1.2.3"), "3.19.8"
    assert [rule["id"] for rule in driver["rules"]] == list(RULES)
    assert len(set(RULES)) == len(driver["rules"]), "3.19.23: unique"
    assert {rule["defaultConfiguration"]["level"] for rule in driver["rules"]} <= LEVELS
    assert all(rule["shortDescription"]["text"] and rule["help"]["text"] for rule in driver["rules"])
    assert run["columnKind"] in ("utf16CodeUnits", "unicodeCodePoints"), "3.14.17"
    assert isinstance(run["invocations"][0]["executionSuccessful"], bool), "3.20.14: required"


def test_results_point_to_rules_and_places(written):
    (run,) = written["runs"]
    assert len(run["results"]) == 2
    for result in run["results"]:
        assert result["level"] in LEVELS
        assert result["message"]["text"], "3.27.11: required"
        assert run["tool"]["driver"]["rules"][result["ruleIndex"]]["id"] == result["ruleId"], "3.27.6"
        physical = result["locations"][0]["physicalLocation"]
        uri = physical["artifactLocation"]["uri"]
        assert " " not in uri, "3.4.3: a URI reference"
        assert "é" not in uri
        region = physical.get("region", {"startLine": 1, "startColumn": 1})
        assert region["startLine"] >= 1, "3.30.5"
        assert region["startColumn"] >= 1, "3.30.6"


@pytest.mark.parametrize("git", [".git", "project/.git", None])
@pytest.mark.parametrize("named", [".", "src", "{}", "{}/src", "../project", "src/a:b.py"])
def test_files_are_relative_to_the_repository_or_to_where_the_scan_was_started(
    tmp_path, monkeypatch, named, git
):
    here = tmp_path / "project"
    (here / "src").mkdir(parents=True)
    (here / "src" / "a:b.py").write_text("import torch\ntorch.seed()\n")
    if git:
        (tmp_path / git).touch()  # a file, in a work tree
    monkeypatch.chdir(here)
    run = json.loads(to_sarif(scan([Path(named.format(here))]), "1"))["runs"][0]
    location = run["results"][0]["locations"][0]["physicalLocation"]["artifactLocation"]
    assert location["uri"] == ("project/src/a%3Ab.py" if git == ".git" else "src/a%3Ab.py")
    base = run["originalUriBaseIds"][location["uriBaseId"]]["uri"]
    assert base == (tmp_path if git == ".git" else here).as_uri() + "/", "3.14.14: absolute, ends with /"


def test_a_repository_elsewhere_is_the_root_of_its_files(tmp_path, monkeypatch):
    for name in ("one", "two"):
        (tmp_path / "a b" / name).mkdir(parents=True)
        (tmp_path / "a b" / name / "x.py").write_text("import torch\ntorch.seed()\n")
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    run = json.loads(to_sarif(scan([Path("../a b/one"), tmp_path / "a b" / "two"]), "1"))["runs"][0]
    assert run["originalUriBaseIds"]["%SRCROOT%"]["uri"] == f"file://{tmp_path}/a%20b/"
    places = [result["locations"][0]["physicalLocation"] for result in run["results"]]
    assert [place["artifactLocation"]["uri"] for place in places] == ["one/x.py", "two/x.py"]


def test_the_help_of_a_rule_is_markdown_too(written):
    rules = {rule["id"]: rule["help"] for rule in written["runs"][0]["tool"]["driver"]["rules"]}
    assert all(each["markdown"].count("```python\n") == 2 for each in rules.values())
    text = rules["VB602"]["markdown"]
    assert text.startswith("VB602 (warning): test data are shuffled\n\nTo do: pass shuffle=False.\n\n")
    assert "Reported in\n\n```python\nfrom torch" in text
    assert r"tf.random.stateless\_\*" in rules["VB203"]["markdown"]


def test_a_cell_is_named_and_no_line_of_the_file_claimed(written):
    result = next(r for r in written["runs"][0]["results"] if r["ruleId"] == "VB104")
    assert "region" not in result["locations"][0]["physicalLocation"]
    assert result["message"]["text"].startswith("Cell 1, line 2: ")


@pytest.mark.parametrize(
    "before",
    [
        "x = 'äö€𝒳'; ",
        "x = f'{d['ä']}'; ",  # of Python 3.12
        "y = 1\rx = 'ä'; ",
        "if x:\n\tx = 'ä';\t",
        "if x:\n        print 'a'\n\ty =\t'ä'; ",  # of Python 2: both lines are of one block
    ],
)
@pytest.mark.parametrize("is_notebook", [False, True])
def test_columns_are_characters(tmp_path, before, is_notebook):
    if is_notebook and "\r" in before:
        return
    text = f"import torch\n{before}torch.seed()\n"
    cells = [{"cell_type": "code", "source": each} for each in ("z = 'ä'\ny = 1", text)]
    name, data = ("n.ipynb", json.dumps({"cells": cells})) if is_notebook else ("a.py", text)
    (tmp_path / name).write_text(data, encoding="utf-8", newline="")
    found = scan([tmp_path])
    (place,) = (each.place for each in found.projects[0].findings if each.rule == "VB104")
    line = before.replace("\r", "\n").rpartition("\n")[2]
    assert place.column == len(line) + 1
    region = json.loads(to_sarif(found, "1"))["runs"][0]["results"][0]["locations"][0]["physicalLocation"]
    assert is_notebook or region["region"]["startColumn"] == place.column


def test_what_could_not_be_linted_is_a_notification(written):
    (notification,) = written["runs"][0]["invocations"][0]["toolExecutionNotifications"]
    assert notification["level"] in LEVELS
    assert "invalid syntax" in notification["message"]["text"], "3.58.5: required"


def test_nothing_found_is_a_valid_log_too():
    project = Project(path="x", files=0, lines=0, software=(), hardware=(), findings=(), notes=())
    data = json.loads(to_sarif(Scan(schema_version=1, projects=(project,)), "1"))
    assert data["runs"][0]["results"] == [], "3.14.23: empty, where there were none"
