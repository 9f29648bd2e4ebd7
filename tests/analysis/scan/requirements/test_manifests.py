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


def test_a_requirement_has_its_line_whatever_else_has_its_name():
    text = '[project]\nname = "torch-thing"\ndescription = "numpy tools"\nkeywords = ["torch"]\n'
    text += 'dependencies = [\n  "torch-geometric",\n  "torch",\n  "numpy",\n]\n'
    assert [(each.name, each.line) for each in manifests.pyproject(text)] == [
        ("torch-geometric", 6),
        ("torch", 7),
        ("numpy", 8),
    ]
    text = "[metadata]\nname = numpy\ndescription = torch tools\n"
    text += "[options]\ninstall_requires =\n    torch-geometric\n    torch  # any\n    numpy\n"
    assert [(each.name, each.line) for each in manifests.setup_cfg(text)] == [
        ("torch-geometric", 6),
        ("torch", 7),
        ("numpy", 8),
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


def test_groups_of_uv_pixi_and_flit():
    text = """\
[tool.uv]
dev-dependencies = ["a==1"]
[tool.flit.metadata]
requires = ["b"]
[tool.pixi.dependencies]
c = "==3"
[tool.pixi.feature.gpu.pypi-dependencies]
d = { version = ">=4" }
[tool.poetry.dependencies]
e = [{ version = "5.0", python = ">3" }]
"""
    assert told(manifests.pyproject(text)) == [
        ("a", "==1", True, 2),
        ("b", "", False, 4),
        ("c", "==3", True, 6),
        ("d", ">=4", False, 8),
        ("e", "5.0", True, 10),
    ]


def test_setup_cfg_states_python_and_the_needs_of_tests():
    text = "[options]\npython_requires = >=3.7\ninstall-requires = a\ntests_require =\n  b==1\n"
    assert told(manifests.setup_cfg(text)) == [
        ("a", "", False, 3),
        ("b", "==1", True, 5),
        ("python", ">=3.7", False, 2),
    ]


def test_setup_py_with_a_table_of_arguments():
    text = 'T = {"install_requires": ["a==1"], "python_requires": ">=3.7"}\nsetup(**T)\n'
    assert told(manifests.setup_py(text)) == [("a", "==1", True, 1), ("python", ">=3.7", False, 1)]


def test_lists_of_lists_in_setup_py_are_followed_once():
    lists = "\n".join(f"a{n} = [{', '.join([f'a{n + 1}'] * 50)}]" for n in range(8))
    text = f"{lists}\na8 = ['x']\nsetup(install_requires=a0)\n"
    assert len(list(manifests.setup_py(text))) <= 1


def test_a_lock_of_many_thousand_packages_has_their_lines():
    names = [f"p{n}" for n in range(30_000)]
    data = {"default": {name: {"version": "==1"} for name in names}}
    found = list(manifests.pipfile_lock(json.dumps(data, indent=1)))
    assert [each.line for each in found] == [3 + 3 * n for n in range(30_000)]


@pytest.mark.parametrize(
    ("parser", "text"),
    [
        (manifests.pipfile_lock, "[" * 10_000),
        (manifests.pyproject, "a = " + "[" * 10_000),
        (manifests.setup_py, "(" * 10_000),
        (manifests.setup_py, "-" * 10_000 + "1"),
        (manifests.setup_py, "a\0b"),
        (manifests.toml_lock, "a\0b"),
    ],
)
def test_deep_nesting_and_null_bytes_are_refused_in_words(parser, text):
    with pytest.raises(ManifestError, match=r"\w"):
        list(parser(text))


PARSERS = [
    getattr(manifests, n)
    for n in ("pyproject", "pipfile", "toml_lock", "pipfile_lock", "setup_cfg", "setup_py")
]


@pytest.mark.needs("studies")
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
