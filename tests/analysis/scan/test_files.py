from __future__ import annotations

import os

from analysis.scan import files
from analysis.scan.files import read, walk
from analysis.scan.results import Note


def test_files_come_in_the_order_of_their_names_and_working_folders_are_left_out(tmp_path):
    for path in (
        "b.py",
        "a/c.ipynb",
        "a/d.txt",
        ".git/x.py",
        "__pycache__/y.py",
        "env/pyvenv.cfg",
        "env/lib/z.py",
        "src/pyvenv.cfg",
        "src/e.py",
    ):
        (tmp_path / path).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / path).touch()
    tree = walk(tmp_path)
    assert (tree.python, tree.others, tree.notes) == (
        ["b.py", "a/c.ipynb", "src/e.py"],
        ["a/d.txt", "src/pyvenv.cfg"],
        [],
    )


def test_links_in_circles_are_noted_and_not_followed(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "round").symlink_to(tmp_path)
    (tmp_path / "self.py").symlink_to(tmp_path / "self.py")
    (tmp_path / "gone.py").symlink_to(tmp_path / "nothing")
    tree = walk(tmp_path)
    assert [str(note) for note in tree.notes] == [
        "self.py: cannot be read: Too many levels of symbolic links",
        "a/round: is a link to a folder; not followed",
    ]
    assert read(tmp_path, "gone.py") == Note(path="gone.py", text="cannot be read: No such file or directory")


def test_of_what_is_excluded_nothing_is_noted(tmp_path):
    (tmp_path / "data").symlink_to(tmp_path)
    (tmp_path / "self.py").symlink_to(tmp_path / "self.py")
    assert walk(tmp_path, ["data", "*.py"]).notes == []


def test_what_would_block_is_not_opened_for_reading(tmp_path):
    os.mkfifo(tmp_path / "pipe.py")
    note = read(tmp_path, "pipe.py")
    assert isinstance(note, Note)
    assert note.text == "is not a regular file; left out"


def test_a_folder_with_the_name_of_a_file_is_noted(tmp_path):
    (tmp_path / "pyproject.toml").mkdir()
    note = read(tmp_path, "pyproject.toml")
    assert note == Note(path="pyproject.toml", text="cannot be read: Is a directory")


def test_enormous_files_are_left_out(tmp_path):
    with (tmp_path / "big.py").open("wb") as file:
        file.truncate(files.LARGEST_BYTES + 1)
    note = read(tmp_path, "big.py")
    assert isinstance(note, Note)
    assert "more than 5; left out" in note.text


def test_a_folder_that_cannot_be_listed_is_noted(tmp_path, monkeypatch):
    def refuse(path):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(files.os, "scandir", refuse)
    assert [note.text for note in walk(tmp_path).notes] == ["cannot be listed: Permission denied"]


def test_folders_that_never_end_do(tmp_path):
    here = tmp_path
    for _ in range(files.DEEPEST + 3):
        here = here / "d"
        here.mkdir()
        (here / "x.py").touch()
    tree = walk(tmp_path)
    assert len(tree.python) == files.DEEPEST
    assert "more than 60 folders deep" in tree.notes[0].text


def test_a_single_file_is_a_project(tmp_path):
    (tmp_path / "a.py").touch()
    (tmp_path / "b.py").touch()
    assert walk(tmp_path / "a.py").python == ["a.py"]
