"""Programs that cannot run as they are."""

from __future__ import annotations

import json

import pytest

from analysis.scan.lint.lint import lint_file
from analysis.scan.lint.programs.program import programs

TRAINS = (
    "import numpy as np\nfrom sklearn.linear_model import SGDClassifier\n\n"
    "rows = np.load('rows.npy')\nSGDClassifier().fit(rows[:, 1:], rows[:, 0])\n"
)
IN_A_TRY = "try:\n    import utils\nexcept ImportError:\n    pass"


def paths(files: dict[str, str], elsewhere: frozenset[str] = frozenset()) -> set[str]:
    return {
        each.file.path
        for each in programs([lint_file(path, text.encode()) for path, text in files.items()], elsewhere)
    }


@pytest.mark.parametrize("line", ["from utils import load", "import model_dir.net", "from src.no import f"])
def test_a_program_without_a_module_of_its_project_is_none(line: str):
    files = {"src/there.py": "x = 1\n", "train.py": f"from src.there import x\n{line}\n{TRAINS}"}
    assert "train.py" not in paths(files)


def test_a_program_whose_module_lacks_a_module_is_none():
    assert "train.py" not in paths({"part.py": "import helpers\n", "train.py": f"import part\n{TRAINS}"})


@pytest.mark.parametrize(
    "line",
    [
        "import lightning",
        "from src.data.set import f",
        "try:\n    import utils\nexcept ImportError:\n    pass",
    ],
)
def test_a_module_that_may_be_elsewhere_breaks_no_program(line: str):
    files = {"src/there.py": "x = 1\n", "train.py": f"from src.there import x\n{line}\n{TRAINS}"}
    assert "train.py" in paths(files)


def test_stated_modules_break_no_program():
    assert paths({"train.py": f"import utils\n{TRAINS}"}, frozenset(("utils",))) == {"train.py"}
    outside = f"import sys\nsys.path.append('/opt/code')\nimport utils\n{TRAINS}"
    assert paths({"train.py": outside}) == {"train.py"}


def test_a_notebook_that_trains_before_it_stops_is_a_program():
    cells = [{"cell_type": "code", "source": each} for each in (TRAINS, "import utils\n")]
    assert paths({"a.ipynb": json.dumps({"cells": cells})}) == {"a.ipynb"}
    assert not paths({"a.ipynb": json.dumps({"cells": cells[::-1]})})
