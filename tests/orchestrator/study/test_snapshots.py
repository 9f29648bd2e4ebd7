import os
import shutil
import subprocess
import tarfile

import pytest

from guest.projects.prepare import unpack
from orchestrator.agent import data
from orchestrator.errors import StoreError, UsageError
from orchestrator.store.store import Store
from orchestrator.study import schema, snapshots

STUDY = """\
[[workload]]
name = "mine"
project = "%s"
command = ["python", "train.py"]
[workload.metrics]
accuracy = { report = true }
"""


@pytest.fixture
def project(tmp_path):
    folder = tmp_path / "mine"
    (folder / "src" / "__pycache__").mkdir(parents=True)
    (folder / "train.py").write_text("print('hello')\n")
    (folder / "src" / "net.py").write_text("x = 1\n")
    (folder / "src" / "__pycache__" / "net.pyc").write_bytes(b"cache")
    return folder


@pytest.fixture
def store(tmp_path):
    (tmp_path / "study").mkdir()
    return Store(tmp_path / "study")


def prepare(store, source="../mine"):
    return snapshots.prepare(schema.parse(STUDY % source), store)["mine"]


class Elsewhere:
    """A guest that does not see this machine's files, and keeps what is put into it."""

    shares_files = False

    def __init__(self):
        self.files = {}

    def put(self, local, remote):
        self.files[remote] = local.read_bytes()


def test_a_project_and_its_wheels_travel_into_a_guest_that_does_not_see_them(project, store):
    (store.directory / "wheels").mkdir()
    (store.directory / "wheels" / "net-1-py3-none-any.whl").write_bytes(b"wheel")
    parsed = schema.parse((STUDY % "../mine").replace("command", 'wheels = "wheels"\ncommand'))
    kept = snapshots.prepare(parsed, store)["mine"]
    guest = Elsewhere()
    files = data.bring_projects(parsed, store, guest)["mine"]
    assert guest.files[files.archive] == (store.projects / "mine.tar").read_bytes()
    assert guest.files[f"{files.wheels}/net-1-py3-none-any.whl"] == b"wheel"
    assert (files.tree_sha256, files.archive_sha256) == (kept.tree_sha256, kept.archive_sha256)


def test_a_tilde_is_the_home_of_the_user(project, store, monkeypatch):
    monkeypatch.setenv("HOME", str(project.parent))
    (project.parent / "wheels").mkdir()
    parsed = schema.parse((STUDY % "~/mine").replace("command", 'wheels = "~/wheels"\ncommand'))
    assert snapshots.prepare(parsed, store)["mine"].files == 2
    assert snapshots.wheels_folder(parsed.projects[0], store) == project.parent / "wheels"
    (project / "train.py").write_text("print('other')\n")
    with pytest.raises(UsageError, match="changed since the study took it"):
        snapshots.prepare(parsed, store)


def test_a_snapshot_is_found_by_the_name_that_a_published_study_file_has(project, store):
    taken = prepare(store, str(project))
    project.rename(project.with_name("moved"))
    assert prepare(store, "mine") == taken
    with pytest.raises(UsageError, match="its runs are of "):
        prepare(store, "../moved")


def test_requirements_that_a_project_lacks_are_an_error_before_its_snapshot(project, store):
    parsed = schema.parse((STUDY % "../mine").replace("command", 'requirements = "r.txt"\ncommand'))
    with pytest.raises(UsageError, match=r"requirements = 'r\.txt': the project has no such file; name one"):
        snapshots.prepare(parsed, store)
    assert not list(store.projects.iterdir())
    prepare(store)
    with pytest.raises(UsageError, match="has no such file"):
        snapshots.prepare(parsed, store)


def test_wheels_that_are_not_there_are_told(project, store):
    parsed = schema.parse((STUDY % "../mine").replace("command", 'wheels = "wheels"\ncommand'))
    with pytest.raises(UsageError, match=r"wheels = 'wheels': no such folder"):
        snapshots.prepare(parsed, store)


def test_sandboxes_run_no_project_of_a_study_that_pythonpath_cannot_name(project, tmp_path):
    (tmp_path / "a:b").mkdir()
    with pytest.raises(UsageError, match="a:b: a path with a colon .* move the study"):
        prepare(Store(tmp_path / "a:b"))


def test_sandboxes_run_no_project_of_a_study_whose_path_is_not_utf8(project, tmp_path):
    folder = tmp_path / os.fsdecode(b"caf\xe9")
    folder.mkdir()
    with pytest.raises(UsageError, match="a path that is not UTF-8 cannot stand in messages, .* move the"):
        prepare(Store(folder))


def names(store):
    with tarfile.open(store.projects / "mine.tar") as archive:
        return archive.getnames()


def test_a_folder_is_taken_once_without_caches_and_named_by_its_content(project, store):
    first = prepare(store)
    assert names(store) == ["train.py", "src/net.py"]
    assert (first.files, first.commit) == (2, "")
    shutil.copytree(project, project.parent / "again")
    other = Store(store.directory.parent / "second")
    other.directory.mkdir()
    assert prepare(other, "../again").tree_sha256 == first.tree_sha256
    assert prepare(other, "../again").archive_sha256 == first.archive_sha256
    assert prepare(store) == first


def test_a_run_finds_the_empty_folders_of_its_project_and_they_are_not_in_its_hash(project, store):
    plain = prepare(store)
    for name in ("outputs/checkpoints", "src/.venv", "logs/__pycache__"):
        (project / name).mkdir(parents=True)
    assert prepare(store) == plain
    other = Store(store.directory.parent / "second")
    other.directory.mkdir()
    taken = prepare(other)
    assert names(other) == ["train.py", "logs", "outputs/checkpoints", "src/net.py"]
    assert (taken.tree_sha256, taken.files) == (plain.tree_sha256, plain.files)
    files = snapshots.files(schema.parse(STUDY % "../mine").projects[0], other)
    work = unpack(files, other.directory / "work")
    assert (work / "logs").is_dir()
    assert not list((work / "outputs" / "checkpoints").iterdir())


@pytest.mark.parametrize("change", ["content", "name", "mode"])
def test_a_project_that_changed_since_is_refused(project, store, change):
    prepare(store)
    if change == "content":
        (project / "train.py").write_text("print('other')\n")
    elif change == "name":
        (project / "train.py").rename(project / "fit.py")
    else:
        (project / "train.py").chmod(0o755)
    with pytest.raises(
        UsageError, match=r"workload 'mine': .* changed since the study took it; give the workload"
    ):
        prepare(store)


def test_a_project_that_is_gone_is_run_from_its_snapshot(project, store):
    first = prepare(store)
    shutil.rmtree(project)
    assert prepare(store) == first


def test_a_study_inside_its_project_is_no_part_of_it(project):
    store = Store(project)
    store.study_file.write_text("")
    prepare(store, ".")
    (store.runs / "x").mkdir(parents=True)
    (store.runs / "x" / "run.json").touch()
    for name in ("known_hosts", "known_hosts.part", ".live.part", "guests.json.part", "study.toml.part"):
        (project / name).write_text("written by a sweep")
    for name in ("keys", "report", "probe.part", ".vbstudy-x1y2", "imported"):
        (project / name).mkdir()
        (project / name / "file").touch()
    prepare(store, ".")
    assert names(store) == ["train.py", "src/net.py"]


def test_a_damaged_snapshot_is_told(project, store):
    prepare(store)
    with (store.projects / "mine.tar").open("r+b") as file:
        file.write(b"x")
    with pytest.raises(StoreError, match=r"mine\.tar: does not match its SHA-256"):
        snapshots.read(store, "mine")
    (store.projects / "mine.json").write_text("{")
    with pytest.raises(StoreError, match=r"mine\.json: cannot be read"):
        snapshots.read(store, "mine")


def test_folders_that_cannot_be_taken_are_told(project, store):
    with pytest.raises(UsageError, match=r"project = '\.\./other': there is no such folder"):
        prepare(store, "../other")
    (project / "data").symlink_to("/etc")
    with pytest.raises(UsageError, match="the link data leads out of the project"):
        prepare(store)
    (project.parent / "empty").mkdir()
    with pytest.raises(UsageError, match="the folder is empty"):
        prepare(store, "../empty")


def git(folder, *arguments):
    identity = ["-c", "user.name=me", "-c", "user.email=me@home"]
    done = subprocess.run(
        ["git", *identity, *arguments], cwd=folder, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_a_repository_is_cloned_at_its_pin(project, store):
    git(project, "init", "--quiet", "--initial-branch=main")
    git(project, "add", "train.py")
    git(project, "commit", "--quiet", "-m", "one")
    pinned = git(project, "rev-parse", "HEAD")
    (project / "train.py").write_text("print('later')\n")
    git(project, "commit", "--quiet", "-am", "two")
    taken = prepare(store, f"file://{project}@{pinned[:10]}")
    assert taken.commit == pinned
    assert names(store) == ["train.py"]
    assert prepare(store, f"file://{project}@{pinned}") == taken
    with pytest.raises(UsageError, match=f"its runs are of file://.* {pinned[:12]}, not of"):
        prepare(store, f"file://{project}@0123456789")


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_a_repository_that_is_not_there_is_told(tmp_path, store):
    with pytest.raises(UsageError, match=r"workload 'mine': project = 'file:.*': git cannot get it: .*not"):
        prepare(store, f"file://{tmp_path}/nowhere.git")
    assert not (store.projects / "mine.json").exists()


def test_what_a_server_of_git_states_may_be_no_text(store, tmp_path, monkeypatch):
    program = tmp_path / "git"
    program.write_bytes(b"#!/bin/sh\necho 'fatal: remote error: caf\xe9' >&2\nexit 128\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    with pytest.raises(UsageError, match="git cannot get it: remote error: caf�"):
        prepare(store, "https://example.org/mine.git")
