"""Where the cache of a user is."""

import os
import pwd
from pathlib import Path

import pytest

from vbstudy import caches


@pytest.fixture
def no_home(monkeypatch, tmp_path):
    """As in a container of a user without a name."""

    def unknown(uid):
        raise KeyError(uid)

    for name in ("HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(pwd, "getpwuid", unknown)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path / f"vbstudy-home-{os.getuid()}"


def test_the_cache_is_in_the_home_folder_or_where_the_environment_says(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", "/home/me")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert caches.folder() == Path("/home/me/.cache/vbstudy")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert caches.folder() == tmp_path / "vbstudy"


def test_without_a_home_folder_a_private_temporary_one_takes_its_place(no_home):
    assert caches.folder() == caches.folder() == no_home / ".cache/vbstudy"
    assert no_home.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("taken", ["open to others", "a link"])
def test_a_folder_that_is_not_the_users_alone_is_refused(no_home, tmp_path, taken):
    if taken == "a link":
        no_home.symlink_to(tmp_path)
    else:
        no_home.mkdir()
        no_home.chmod(0o777)
    with pytest.raises(caches.CacheError, match="set HOME"):
        caches.folder()
