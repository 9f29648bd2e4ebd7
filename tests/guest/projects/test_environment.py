from __future__ import annotations

import pytest

from guest.projects import environment

SOURCE = "pkg @ git+https://example.org/pkg@v1"


def key(text: str, tree: str = "") -> str:
    return environment._key(text, "", tree, [])


@pytest.mark.parametrize("other", [f"{SOURCE}#subdirectory=b", f"{SOURCE}#egg=pkg", SOURCE])
def test_what_follows_a_number_sign_in_an_address_makes_another_environment(other):
    assert key(f"{SOURCE}#subdirectory=a") != key(other)


@pytest.mark.parametrize("other", ["# first\nnumpy==2.0\n", "numpy==2.0  # pinned\n", "numpy==2.0\t#\n \n"])
def test_comments_make_no_other_environment(other):
    assert key("numpy==2.0\n") == key(other)


@pytest.mark.parametrize(
    ("line", "local"),
    [
        ("-r more.txt", True),
        ("./mylib", True),
        ("/opt/mylib", True),
        ("mylib/", True),
        ("libs/x-1-py3-none-any.whl", True),
        ("x-1.tar.gz", True),
        ("mylib[extra] @ file:libs/mylib", True),
        ("git+file:///srv/mylib", True),
        ("mylib", False),
        ("numpy~=2.0; sys_platform == 'linux'", False),
        (SOURCE, False),
        ("x @ https://example.org/x-1-py3-none-any.whl", False),
    ],
)
def test_an_environment_depends_on_the_project_where_a_requirement_names_files_of_it(line, local):
    assert (key(f"numpy\n{line}\n", "one") != key(f"numpy\n{line}\n", "other")) is local
