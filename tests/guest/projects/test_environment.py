from __future__ import annotations

import pytest

from guest.projects import environment

SOURCE = "pkg @ git+https://example.org/pkg@v1"


def key(text: str) -> str:
    return environment._key(text, "", "", [])


@pytest.mark.parametrize("other", [f"{SOURCE}#subdirectory=b", f"{SOURCE}#egg=pkg", SOURCE])
def test_what_follows_a_number_sign_in_an_address_makes_another_environment(other):
    assert key(f"{SOURCE}#subdirectory=a") != key(other)


@pytest.mark.parametrize("other", ["# first\nnumpy==2.0\n", "numpy==2.0  # pinned\n", "numpy==2.0\t#\n \n"])
def test_comments_make_no_other_environment(other):
    assert key("numpy==2.0\n") == key(other)
