from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.scan.requirements import manifests
from analysis.scan.requirements.manifests import ManifestError


def told(stated) -> list[tuple[str, str, bool, int]]:
    return [tuple(each) for each in stated]


def test_pyproject_of_pep_621_with_groups_and_hatch():
    text = """\
[project]
name = "x"
requires-python = ">=3.9"
dependencies = [
    "torch==2.1.0",
    "numpy>=1.20",
]
[project.optional-dependencies]
dev = ["pytest"]
[dependency-groups]
lint = ["ruff==0.4.1", {include-group = "dev"}]
[tool.hatch.envs.default]
dependencies = ["tqdm"]
[tool.pdm.dev-dependencies]
test = ["mock"]
"""
    assert told(manifests.pyproject(text)) == [
        ("torch", "==2.1.0", True, 5),
        ("numpy", ">=1.20", False, 6),
        ("pytest", "", False, 9),
        ("ruff", "==0.4.1", True, 11),
        ("mock", "", False, 15),
        ("tqdm", "", False, 13),
        ("python", ">=3.9", False, 3),
    ]


def test_pyproject_of_poetry():
    text = """\
[tool.poetry.dependencies]
python = "^3.8"
torch = "1.9.0"
numpy = {version = "^1.20", optional = true}
mylib = {git = "https://example.org/x.git", rev = "abc"}
[tool.poetry.group.dev.dependencies]
black = "*"
"""
    assert told(manifests.pyproject(text)) == [
        ("python", "^3.8", False, 2),
        ("torch", "1.9.0", True, 3),
        ("numpy", "^1.20", False, 4),
        ("mylib", "", True, 5),
        ("black", "", False, 7),
    ]


def test_lock_files_pin_what_they_list_but_not_the_project_itself():
    text = """\
[[package]]
name = "numpy"
version = "1.20.0"
[[package]]
name = "me"
version = "0.1"
source = { editable = "." }
"""
    assert told(manifests.toml_lock(text)) == [("numpy", "==1.20.0", True, 2)]


def test_pipfiles_and_their_locks():
    text = '[packages]\ntorch = "==1.4"\nnumpy = "*"\n[requires]\npython_version = "3.7"\n'
    assert told(manifests.pipfile(text)) == [
        ("torch", "==1.4", True, 2),
        ("numpy", "", False, 3),
        ("python", "==3.7", False, 5),
    ]
    lock = json.dumps(
        {"default": {"torch": {"version": "==1.4"}, "x": {"git": "y"}}, "develop": {}}, indent=1
    )
    assert told(manifests.pipfile_lock(lock)) == [("torch", "==1.4", True, 3)]


def test_setup_cfg():
    text = "[options]\ninstall_requires =\n    torch==1.4\n    numpy  # any\n"
    text += "[options.extras_require]\ndev = pytest\n"
    assert told(manifests.setup_cfg(text)) == [
        ("torch", "==1.4", True, 3),
        ("numpy", "", False, 4),
        ("pytest", "", False, 6),
    ]


def test_setup_py_is_read_and_never_run():
    text = """\
import os
from setuptools import setup
os.abort()
BASE = ["torch>=1.0", "numpy==1.19.5"]
setup(name="x", install_requires=BASE + ["tqdm"], extras_require={"dev": ["pytest"]})
"""
    assert told(manifests.setup_py(text)) == [
        ("torch", ">=1.0", False, 4),
        ("numpy", "==1.19.5", True, 4),
        ("tqdm", "", False, 5),
        ("pytest", "", False, 5),
    ]


@pytest.mark.parametrize(
    ("parser", "text", "message"),
    [
        (manifests.pyproject, "[project\n", "is not TOML: Expected .* line 1"),
        (manifests.toml_lock, "= 3", "is not TOML"),
        (manifests.pipfile_lock, "{", "is not JSON"),
        (manifests.setup_cfg, "no section", "no section headers"),
        (manifests.setup_py, "print 'x'\n", "line 1"),
    ],
)
def test_what_is_wrong_in_a_manifest_is_said(parser, text, message):
    with pytest.raises(ManifestError, match=message):
        list(parser(text))


PARSERS = [
    getattr(manifests, n)
    for n in ("pyproject", "pipfile", "toml_lock", "pipfile_lock", "setup_cfg", "setup_py")
]


@pytest.mark.parametrize("parser", PARSERS)
@given(text=st.text() | st.text(alphabet="[]{}=\"'\n projectdepn.options,:1"))
def test_arbitrary_text_is_parsed_or_refused(parser, text):
    try:
        list(parser(text))
    except ManifestError as error:
        assert str(error)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["default", "develop", "version", "name"]), inner, max_size=3)
    ),
)


@given(JSON)
def test_a_lock_of_any_shape_is_read(data):
    list(manifests.pipfile_lock(json.dumps(data)))
