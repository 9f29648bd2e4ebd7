"""Branches that no call of the project takes."""

from __future__ import annotations

import pytest

from analysis.scan.lint.lint import lint_file
from analysis.scan.lint.programs.followed import without_unreached

RANDOM = (
    "import numpy as np\n\ndef add(rows, method='copy', share=0):\n    if {}:\n        np.random.rand(3)\n"
)

WITHIN = "def work(method):\n    def one():\n        add(data, method)\n    one()\n"


def drawn(model: str, **others: str) -> bool:
    files = [lint_file(f"{name}.py", text.encode()) for name, text in {"model": model, **others}.items()]
    return any(
        event.kind == "draw" for events in without_unreached(files)[0].scopes.values() for event in events
    )


@pytest.mark.parametrize(
    ("test", "given", "runs"),
    [
        ("method == 'noise'", "", False),
        ("method == 'noise'", ", 'noise'", True),
        ("method == 'noise'", ", method='copy'", False),
        ("method != 'copy'", ", method='copy'", False),
        ("method.lower() == 'noise'", ", 'Noise'", True),
        ("method in ('noise', 'mix')", ", 'copy'", False),
        ("method in ('noise', 'mix')", ", 'mix'", True),
        ("rows and method == 'noise'", ", 'copy'", False),
        ("rows or method == 'noise'", ", 'copy'", True),
        ("share > 0", "", False),
        ("share > 0", ", share=0.5", True),
        ("method", ", None", False),
        ("method == 'noise'", ", options.method", True),
        ("method == 'noise'", ", **options", True),
        ("method == 'noise'", ", *options", True),
    ],
)
def test_a_branch_runs_only_with_a_value_that_some_call_gives(test: str, given: str, runs: bool):
    assert drawn(RANDOM.format(test), main=f"from model import add\nadd(data{given})\n") is runs


def test_every_call_of_the_project_counts_but_those_of_its_tests():
    model = RANDOM.format("method == 'noise'")
    copies, adds = "from model import add\nadd(data)\n", "from model import add\nadd(data, 'noise')\n"
    assert drawn(model, main=copies, other=adds)
    assert not drawn(model, main=copies, test_model=f"import pytest\n{adds}")
    assert drawn(model)  # what is never called may be called by others


@pytest.mark.parametrize(
    ("value", "runs"),
    [
        ("method = 'copy'\nadd(data, method)\n", False),
        ("for method in ('copy', 'noise'):\n    add(data, method)\n", True),
        ("methods = ['copy', 'mix']\nfor method in methods:\n    add(data, method)\n", False),
        ("for method in 'ab':\n    add(data, method)\n", True),
        ("method = 'copy'\nmethod = read()\nadd(data, method)\n", True),
        ("def work(method):\n    add(data, method)\nwork('copy')\n", False),
        ("def work(method):\n    add(data, method)\nwork('noise')\n", True),
        ("def work(method):\n    method = read()\n    add(data, method)\nwork('copy')\n", True),
        ("add(data)\nmap(add, others)\n", True),
        (f"{WITHIN}method = 'copy'\nwork(read())\n", True),
    ],
)
def test_a_value_is_followed_to_where_it_is_written(value: str, runs: bool):
    assert drawn(RANDOM.format("method == 'noise'"), main=f"from model import add\n{value}") is runs


@pytest.mark.parametrize(
    ("use", "runs"),
    [
        ("Rows(data)\n", False),
        ("Rows(data, augment=True)\n", True),
        ("Rows(data).augment = True\n", True),
        ("class Others(Rows):\n    pass\nOthers(data, True)\nRows(data)\n", True),
    ],
)
def test_what_an_object_keeps_decides_as_what_it_was_given(use: str, runs: bool):
    model = "import random\n\nclass Rows:\n    def __init__(self, rows, augment=False):\n"
    model += "        self.augment = augment\n\n    def __getitem__(self, i):\n"
    model += "        if self.augment:\n            return random.random()\n"
    assert drawn(model, main=f"from model import Rows\n{use}") is runs


def test_the_other_branch_runs():
    text = RANDOM.format("method == 'copy'").replace("        np", "        pass\n    else:\n        np")
    assert not drawn(text, main="from model import add\nadd(data)\n")
    assert drawn(text, main="from model import add\nadd(data, 'noise')\n")


def test_what_only_such_a_branch_calls_does_not_run():
    model = RANDOM.format("method == 'noise'")
    main = "from model import add\n\ndef work(again=False):\n    add(data)\n"
    main += "    if again:\n        add(data, 'noise')\n"
    assert not drawn(model, main=main + "\nwork()\n")
    assert drawn(model, main=main + "\nwork(True)\n")


def test_a_project_that_gets_functions_by_their_names_keeps_all():
    main = "from model import add\nimport importlib\nadd(data)\nimportlib.import_module(name)\n"
    assert drawn(RANDOM.format("method == 'noise'"), main=main)


def test_the_object_of_a_method_has_no_value_that_calls_give():
    method = "class Net:\n    def run(this):\n        if this:\n            np.random.rand(3)\n"
    assert drawn(f"import numpy as np\n\n{method}\nNet().run()\n")


@pytest.mark.parametrize(
    ("calls", "draws"),
    [
        ("split(data)", True),
        ("split(data, None)", True),
        ("split(data, seed=7)", False),
        ("split(data, 7)", False),
        ("split(data, options.seed)", False),
        ("split(data)\nsplit(data, 7)", False),
        ("", False),
    ],
)
def test_a_split_draws_where_no_call_gives_it_a_seed(calls: str, draws: bool):
    model = (
        "from sklearn.model_selection import train_test_split\n"
        "def split(rows, seed=None):\n    return train_test_split(rows, random_state=seed)\n"
    )
    assert drawn(model, main=f"from model import split\n{calls}\n") is draws
