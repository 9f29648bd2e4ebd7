"""The table of versions in docs/reference.md is that of pyproject.toml, requirements.lock and exact mode."""

import re
import tomllib
from itertools import chain
from pathlib import Path

from packaging.requirements import Requirement
from packaging.version import Version

from guest.records.run import Framework
from orchestrator.agent.frameworks import DISTRIBUTIONS
from vbstudy.exact import state

REPOSITORY = Path(__file__).parents[2]
TEXT = (REPOSITORY / "docs" / "reference.md").read_text(encoding="utf-8")
PACKAGES = {  # rows of the table
    "torch for studies": "torch",
    "TensorFlow (`tensorflow-cpu`)": "tensorflow-cpu",
    "numpy": "numpy",
    "pandas": "pandas",
}
ROOMS = ("analysis", "guest", "orchestrator", "vbstudy")
EXACT = "torch for exact mode"


def table() -> dict[str, list[str]]:
    """Promised, minimums, locked and newest version of each row."""
    lines = [
        line.strip("| ").split(" | ") for line in TEXT.split("### Versions")[1].splitlines() if "|" in line
    ]
    return {name: cells for name, *cells in lines[2:]}


def test_the_versions_promised_are_those_of_the_package_and_of_exact_mode():
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    texts = [*project["dependencies"], *chain(*project["optional-dependencies"].values())]
    needed = {each.name: str(each.specifier) for each in map(Requirement, texts)}
    promised = {name: cells[0] for name, cells in table().items()}
    expected = {row: needed[package].removeprefix(">=") for row, package in PACKAGES.items()}
    expected["Python"] = project["requires-python"].removeprefix(">=")
    assert promised == expected | {EXACT: state.OLDEST_TORCH}


def test_the_oldest_versions_were_tried_and_the_locked_ones_are_those_of_the_lock():
    lock = (REPOSITORY / "requirements.lock").read_text().replace("_", "-")
    locked = dict(re.findall(r"^([\w-]+)==(.*)$", lock, re.M))
    for row, (promised, oldest, pinned, _) in table().items():
        assert Version(oldest) == Version(promised)
        if row != "Python":
            assert pinned == locked[PACKAGES.get(row, "torch")]


def test_no_message_names_an_extra_which_pip_knows_of_a_clone_or_a_release_only():
    sources = (p for room in ROOMS for p in (REPOSITORY / room).rglob("*") if p.suffix in (".py", ".toml"))
    assert not [str(path) for path in sources if "vbstudy[" in path.read_text(encoding="utf-8")]


def test_a_box_has_the_packages_that_provision_asks_for():
    asked = (REPOSITORY / "vagrant" / "requirements.txt").read_text().splitlines()
    locked = (REPOSITORY / "requirements.lock").read_text().splitlines()
    names = sorted(["numpy", "safetensors", *DISTRIBUTIONS[Framework.TORCH]])
    assert asked == [line for line in sorted(locked) if line.partition("==")[0] in names]
