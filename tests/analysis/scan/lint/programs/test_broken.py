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
    ("line", "trains"),
    [
        ("from model.callback import Log", False),
        ("from model.net import Net", True),
        ("import lightning", True),
        ("try:\n        from model.callback import Log\n    except ImportError:\n        pass", True),
    ],
)
def test_a_function_that_imports_what_the_project_lacks_trains_nothing(line: str, trains: bool):
    fit = f"def fit(x, y):\n    {line}\n    SGDClassifier().fit(x, y)\n"
    files = {
        "model/net.py": "class Net:\n    pass\n",
        "model/task.py": f"from sklearn.linear_model import SGDClassifier\n{fit}",
        "main.py": "from model.task import fit\nif __name__ == '__main__':\n    fit(*read())\n",
    }
    every = programs([lint_file(path, text.encode()) for path, text in files.items()])
    assert [bool(each.trainings) for each in every] == [trains]


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


@pytest.mark.parametrize(
    "line", ["Net(SIZE)", "with open('a') as file:\n    np.loads(file)", "rows = SIZE or 3"]
)
def test_a_program_with_a_name_that_nothing_defines_is_none(line: str):
    text = TRAINS.replace(" as np", "").replace("np.", "numpy.")
    assert not paths({"train.py": text.replace("\n\n", f"\n\nclass Net: pass\n{line}\n")})
    assert paths({"train.py": f"{text}{line}\n"}) == {"train.py"}, "it has trained before"


@pytest.mark.parametrize(
    "line",
    ["print(rows or SIZE)", "f = lambda: SIZE", "if rows.any():\n    print(SIZE)", "def f(): return SIZE"],
)
def test_a_name_that_may_never_be_read_breaks_no_program(line: str):
    first, last = TRAINS.rsplit("\n", 2)[:2]
    assert paths({"train.py": f"{first}\n{line}\n{last}\n"}) == {"train.py"}


@pytest.mark.parametrize("kind", ["class Net: pass", "def Net(): pass"])
@pytest.mark.parametrize("head", ["if sys:\n", "try:\n    pass\nfinally:\n", "for _ in a:\n  if _:\n"])
def test_what_is_defined_inside_a_statement_is_defined(head: str, kind: str):
    first, last = TRAINS.rsplit("\n", 2)[:2]
    assert paths({"train.py": f"{first}\n{head}    {kind}\nNet()\n{last}\n"}) == {"train.py"}


def test_names_that_only_a_program_reads_do_not_break_who_imports_it():
    part = "def f(): pass\nif __name__ == '__main__':\n    print(SIZE)\n"
    assert "train.py" in paths({"part.py": part, "train.py": f"import part\n{TRAINS}"})
    assert "train.py" not in paths({"part.py": "print(SIZE)\n", "train.py": f"import part\n{TRAINS}"})


@pytest.mark.parametrize("first", ["%run setup.ipynb", "from setup import *", "exec(text)", "a ="])
def test_names_that_a_notebook_may_have_from_elsewhere_do_not_break_it(first: str):
    cells = [{"cell_type": "code", "source": each} for each in (first, f"print(SIZE)\n{TRAINS}")]
    assert paths({"a.ipynb": json.dumps({"cells": cells})}) == {"a.ipynb"}
    assert not paths({"a.ipynb": json.dumps({"cells": cells[1:]})})


def test_a_file_that_stops_has_a_note_with_the_place_and_the_reason():
    lines = {
        "import part": "part.py, line 1: imports helpers, which was not found",
        "from other import no": "line 1: imports no of other, which does not have it",
        "Net()": "line 1: reads a name that nothing defines",
    }
    for line, why in lines.items():
        texts = {"part.py": "import helpers\n", "other.py": "x = 1\n", "train.py": f"{line}\n{TRAINS}"}
        files = [lint_file(path, text.encode()) for path, text in texts.items()]
        programs(files)
        assert [note.text for note in files[-1].notes] == [f"{why}; a program that cannot run is not judged"]
    assert paths({"other.py": "x = 1\n", "train.py": f"from other import no\n{TRAINS}"}, frozenset(("no",)))
