from __future__ import annotations

import stat
import tempfile

import pytest

from guest.machine.folders import remove_folder
from orchestrator.errors import UsageError
from orchestrator.programs import folders, replay


def test_the_copy_of_a_folder_that_is_read_only_can_be_written_to_and_removed(tmp_path):
    source = tmp_path / "source"
    (source / "below").mkdir(parents=True)
    (source / "below" / "a.py").write_text("x = 1\n")
    for folder in (source / "below", source):
        folder.chmod(0o555)
    copy = folders.copy(source, tmp_path / "copy")
    for folder in (source / "below", source):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o555
        folder.chmod(0o755)  # for pytest, which removes it
    assert [stat.S_IMODE(each.stat().st_mode) for each in (copy, copy / "below")] == [0o755, 0o755]
    remove_folder(copy)
    assert not copy.exists()


def test_temporary_folders_that_pythonpath_cannot_name_are_refused_before_the_first_run(
    tmp_path, monkeypatch
):
    (tmp_path / "a:b").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "a:b"))
    for folder in (folders.scratch("vbstudy-try-", ()), replay._folder()):
        with pytest.raises(UsageError, match="a:b: .* cannot stand in PYTHONPATH, .*: set TMPDIR"), folder:
            pass
    assert not list((tmp_path / "a:b").iterdir())


def test_what_a_killed_trial_left_is_removed_by_the_next_and_nothing_else(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    left = tmp_path / f"vbstudy-try-{16 * 'a'}" / "runs" / "work"
    left.mkdir(parents=True)
    others = [tmp_path / "vbstudy-try-features", tmp_path / f"vbstudy-trace-{16 * 'a'}"]
    for other in others:
        other.mkdir()
    with folders.scratch("vbstudy-try-", ["true"]) as one, folders.scratch("vbstudy-try-", ["true"]) as two:
        assert sorted(tmp_path.iterdir()) == sorted([*others, one.parent, two.parent])
        assert stat.S_IMODE(one.parent.stat().st_mode) == 0o700
    assert sorted(tmp_path.iterdir()) == sorted(others)


def test_a_folder_that_has_the_temporary_folders_is_not_copied_into_itself(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    own = ["tmp", "vbstudy-results", "vbstudy-try-features"]
    for name in own:
        (tmp_path / name).mkdir()
    with folders.scratch("vbstudy-try-", ["true"]) as one, folders.scratch("vbstudy-trace-", ["true"]):
        copy = folders.copy(tmp_path, one / "copy")
        assert sorted(path.name for path in copy.rglob("*")) == own


def test_temporary_folders_do_not_count_in_the_size_and_own_ones_of_such_names_do(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    monkeypatch.setattr(folders, "COPY_LIMIT_BYTES", 10)
    (tmp_path / "tmp").mkdir()
    (tmp_path / "vbstudy-try-features").mkdir()
    with folders.scratch("vbstudy-try-", ["true"]) as one:
        (one / "file").write_bytes(bytes(20))
        folders.check_size(tmp_path)
        (tmp_path / "vbstudy-try-features" / "file").write_bytes(bytes(20))
        with pytest.raises(UsageError, match="holds more than"):
            folders.check_size(tmp_path)


def test_relative_links_that_lead_out_of_the_folder_lead_to_the_same_places_from_its_copy(tmp_path):
    folder = tmp_path / "a" / "project"
    for each in (folder / "kept", tmp_path / "a" / "data"):
        each.mkdir(parents=True)
    links = {
        "data": "../data",
        "kept/runs": "../../runs",  # which the program makes
        ".venv": "../venv",
        "inside": "kept",
        "absolute": str(tmp_path / "a" / "project" / "inside"),
    }
    for name, target in links.items():
        (folder / name).symlink_to(target)
    copy = folders.copy(folder, tmp_path / "copy")
    found = {p.relative_to(copy).as_posix(): str(p.readlink()) for p in copy.rglob("*") if p.is_symlink()}
    outside = {"data": str(tmp_path / "a" / "data"), "kept/runs": str(tmp_path / "a" / "runs")}
    assert found == {name: outside.get(name, links[name]) for name in links if name != ".venv"}


def test_environments_of_any_name_are_neither_copied_nor_counted(tmp_path, monkeypatch):
    monkeypatch.setattr(folders, "COPY_LIMIT_BYTES", 10)
    folder = tmp_path / "project"
    for name, marker in (("env", "pyvenv.cfg"), ("below/conda", "conda-meta"), ("app", "pyvenv.cfg")):
        (folder / name / "lib").mkdir(parents=True)
        (folder / name / marker).touch()
    for name in ("env", "below/conda"):
        (folder / name / "lib" / "large").write_bytes(bytes(20))
    (folder / "app" / "train.py").touch()  # an environment was made in the program's folder
    (folder / "linked").symlink_to("env")
    folders.check_size(folder)
    copy = folders.copy(folder, tmp_path / "copy")
    found = sorted(path.relative_to(copy).as_posix() for path in copy.rglob("*"))
    assert found == ["app", "app/lib", "app/pyvenv.cfg", "app/train.py", "below", "linked"]
