from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.scan.requirements import listed


def told(stated) -> list[tuple[str, str, bool, int]]:
    return [tuple(each) for each in stated]


def test_requirements_with_their_lines_and_whether_they_are_pinned():
    text = """\
# a comment
torch==1.13.1
numpy >= 1.20  # why
Scikit_Learn
pandas[excel]==1.*; python_version > "3.6"
-r other.txt
--extra-index-url https://example.org/simple
-e .
-e git+https://github.com/a/b.git@0123abc#egg=b
tensorflow==2.4.0 \\
    --hash=sha256:aa
git+https://github.com/openai/CLIP.git
foo @ https://example.org/foo-1.0.zip
"""
    assert told(listed.requirements_txt(text)) == [
        ("torch", "==1.13.1", True, 2),
        ("numpy", ">=1.20", False, 3),
        ("scikit-learn", "", False, 4),
        ("pandas", "==1.*", False, 5),
        ("b", "git+https://github.com/a/b.git@0123abc#egg=b", True, 9),
        ("tensorflow", "==2.4.0", True, 10),
        ("clip", "git+https://github.com/openai/CLIP.git", False, 12),
        ("foo", "https://example.org/foo-1.0.zip", False, 13),
    ]


def test_what_is_nearly_a_requirement_is_taken():
    assert told(listed.requirements_txt("torch = 1.4\nkeras==2.2.4 (for the old model)\n??? what\n")) == [
        ("torch", "=1.4", False, 1),
        ("keras", "==2.2.4", True, 2),
    ]


def test_options_may_follow_a_requirement_and_the_last_line_may_end_with_a_backslash():
    text = "torch==1.9.0+cu111 -f https://example.org/whl\nPillow - the images\ngym==0.1 \\\n"
    for written in (text, text.removesuffix("\n"), text + "\n"):
        assert told(listed.requirements_txt(written)) == [
            ("torch", "==1.9.0+cu111", True, 1),
            ("gym", "==0.1", True, 3),
        ]


def test_conda_environments():
    text = """\
name: x
channels:
  - defaults
dependencies:
  - python=3.6
  - numpy=1.16.4
  - pytorch=1.1.0=py3.6_cuda9
  - pytorch::torchvision
  - scipy >=1.2
  - pip:
    - keras==2.2.4
    - gym
prefix: /home/me
"""
    assert told(listed.environment_yml(text)) == [
        ("python", "=3.6", False, 5),
        ("numpy", "=1.16.4", True, 6),
        ("pytorch", "=1.1.0=py3.6_cuda9", True, 7),
        ("torchvision", "", False, 8),
        ("scipy", ">=1.2", False, 9),
        ("keras", "==2.2.4", True, 11),
        ("gym", "", False, 12),
    ]


def test_sentences_in_a_list_are_no_packages():
    assert told(listed.requirements_txt("Required packages:\nnumpy 1.16\n")) == [("numpy", "", False, 2)]


def test_lists_that_conda_exported():
    assert told(listed.requirements_txt("numpy=1.16.4=py36_0\n")) == [("numpy", "=1.16.4=py36_0", True, 1)]


def test_conda_environments_without_indentation_or_on_one_line():
    text = "dependencies:\n- numpy[version='>=1.16']\n- pip:\n  - keras==2.2.4\n- scipy\n"
    assert told(listed.environment_yml(text)) == [
        ("numpy", ">=1.16", False, 2),
        ("keras", "==2.2.4", True, 4),
        ("scipy", "", False, 5),
    ]
    assert told(listed.environment_yml("dependencies: [python=3.8, pip]\n")) == [
        ("python", "=3.8", False, 1),
        ("pip", "", False, 1),
    ]


def test_a_line_of_megabytes_is_passed_over_at_once():
    text = "https://x/" + "a-1" * 1_000_000 + "\nnumpy==1.0\n"
    for parser in (listed.requirements_txt, listed.environment_yml, listed.conda_lock, listed.dockerfile):
        assert {each.name for each in parser(text)} <= {"numpy"}


def test_a_conda_entry_of_many_commas_is_read_at_once():
    assert listed.conda(f"a>1{',1' * 900} x", 1) is None
    assert listed.conda("a>=1,2,=b", 1) == ("a", ">=1,2,=b", True, 1)


def test_conda_locks_of_both_kinds():
    explicit = "@EXPLICIT\nhttps://repo.anaconda.com/pkgs/main/linux-64/numpy-1.16.4-py37h7e9f1db_0.tar.bz2\n"
    assert told(listed.conda_lock(explicit)) == [("numpy", "==1.16.4", True, 2)]
    assert told(listed.conda_lock("package:\n- name: pip\n  version: 23.0\n  manager: conda\n")) == [
        ("pip", "==23.0", True, 2)
    ]


def test_dockerfiles():
    text = """\
FROM pytorch/pytorch:1.9.0-cuda11.1-cudnn8-runtime
RUN apt-get update && pip install --no-cache-dir numpy==1.19 \\
    scipy && echo done
RUN conda install -y -c conda-forge faiss=1.7.1
RUN pip install -r requirements.txt
FROM ${BASE}
"""
    assert told(listed.dockerfile(text)) == [
        ("pytorch/pytorch", "1.9.0-cuda11.1-cudnn8-runtime", True, 1),
        ("numpy", "==1.19", True, 2),
        ("scipy", "", False, 3),
        ("faiss", "=1.7.1", True, 4),
    ]


def test_dockerfiles_with_arguments_stages_and_lists_of_words():
    text = """\
ARG BASE=python:3.8
FROM ${BASE} AS build
FROM build
RUN ["pip", "install", "numpy==1.19"]
RUN pip install gym; pip install b
"""
    assert told(listed.dockerfile(text)) == [
        ("python", "3.8", True, 2),
        ("numpy", "==1.19", True, 4),
        ("gym", "", False, 5),
        ("b", "", False, 5),
    ]


def test_each_package_of_a_command_of_several_lines_has_its_own_line():
    text = """\
FROM scratch
RUN apt-get install -y git \\
    # for OpenCV
    libgl1=1.0-2 \\

    libfoo=1.* && \\
    pip install \\
    scipy==1.2 gym ; \\
    conda install faiss==1.7 && \\
    echo done
"""
    assert told(listed.dockerfile(text)) == [
        ("git", "", False, 2),
        ("libgl1", "=1.0-2", True, 4),
        ("libfoo", "=1.*", False, 6),
        ("scipy", "==1.2", True, 8),
        ("gym", "", False, 8),
        ("faiss", "==1.7", True, 9),
    ]


@pytest.mark.parametrize(
    ("text", "pinned"),
    [
        ("foo @ https://x.y/z/foo-1.0-py3-none-any.whl", True),
        ("foo @ https://x.y/z/foo-1.0-py3-none-any.whl#sha256=abc", True),
        ("foo @ https://x.y/z/master.zip", False),
        ("git+https://x.y/z/foo@0123456789abcdef#egg=foo", True),
        ("git+https://x.y/z/foo@main#egg=foo", False),
    ],
)
def test_an_address_pins_where_it_names_a_wheel_or_a_commit(text, pinned):
    found = listed.requirement(text, 1)
    assert (found.name, found.pinned) == ("foo", pinned)


def test_the_address_of_a_wheel_names_a_package_and_pins_it():
    found = listed.requirement("https://x.y/z/foo_bar-1.0-py3-none-any.whl", 1)
    assert (found.name, found.pinned) == ("foo-bar", True)


@pytest.mark.parametrize(
    "parser",
    [listed.requirements_txt, listed.environment_yml, listed.conda_lock, listed.dockerfile],
)
@given(text=st.text(alphabet=st.sampled_from("ab1.=<>~!-#@:[](){}\"'\\/ \n,;+*FROMRUNpipinstallconda")))
def test_arbitrary_text_gives_requirements_in_lines_that_exist(parser, text):
    for each in parser(text):
        assert each.name
        assert 1 <= each.line <= len(text.splitlines())
