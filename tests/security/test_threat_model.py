import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_threat_model_names_tests_and_modules_that_exist():
    text = (ROOT / "docs/threat-model.md").read_text()
    tests = {path.name for path in (ROOT / "tests").rglob("test_*.py")}
    named = set(re.findall(r"`(?:tests/security/)?(test_\w+\.py)`", text))
    assert len(named) > 15
    assert named <= tests
    for path in re.findall(r"`((?:tests|guest|orchestrator|analysis)/[\w/.]+)`", text):
        assert (ROOT / path).exists(), path


def test_every_attack_is_stopped_by_something_and_shown_by_a_test():
    rows = [
        line for line in (ROOT / "docs/threat-model.md").read_text().splitlines() if line.startswith("| ")
    ]
    for row in rows:
        cells = [cell.strip() for cell in row.strip("|").split("|")]
        assert len(cells) == 3, row
        assert re.search("test|both|floods", cells[2]), row


def test_no_blank_line_ends_a_table_before_its_last_row():
    text = (ROOT / "docs/threat-model.md").read_text()
    assert not re.search(r"\|\n\n\| (?!attack)", text)
