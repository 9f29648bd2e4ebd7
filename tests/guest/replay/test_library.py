import shutil

import pytest

from guest.replay import library
from guest.replay.library import LibraryUnavailableError


@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")
def test_the_library_is_compiled_once_for_its_source(tmp_path):
    first = library.library(tmp_path)
    made = first.stat().st_mtime_ns
    assert library.library(tmp_path) == first
    assert first.stat().st_mtime_ns == made
    assert [path.name for path in tmp_path.iterdir()] == [first.name]


def test_without_a_compiler_it_is_said_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setenv("CC", "no-such-compiler")
    with pytest.raises(LibraryUnavailableError, match="apt install gcc"):
        library.library(tmp_path)


def test_a_cache_that_cannot_be_written_is_named_with_what_to_do(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(
        LibraryUnavailableError, match=r"file/cache: what is .*: Not a directory; let XDG_CACHE_HOME"
    ):
        library.library(tmp_path / "file" / "cache")


def test_a_compiler_that_fails_is_told_from_one_that_is_missing(tmp_path, monkeypatch):
    monkeypatch.setenv("CC", "false")
    with pytest.raises(LibraryUnavailableError, match="false cannot compile preload.c: exit status 1"):
        library.library(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_elsewhere_than_on_linux_there_is_no_library(tmp_path, monkeypatch):
    monkeypatch.setattr("sys.platform", "darwin")
    with pytest.raises(LibraryUnavailableError, match="is for Linux"):
        library.library(tmp_path)


@pytest.mark.parametrize("name", ["my study", "a:b"])
def test_a_path_that_the_linker_would_split_is_refused(tmp_path, name):
    with pytest.raises(LibraryUnavailableError, match="a space or a colon"):
        library.library(tmp_path / name)
