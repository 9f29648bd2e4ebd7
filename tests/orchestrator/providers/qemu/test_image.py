"""The shared disks, before anything is built."""

import itertools
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from orchestrator import files
from orchestrator.errors import GuestError, PrerequisiteError
from orchestrator.providers.qemu import image
from tests.processes import wait_until


class BuiltError(Exception):
    pass


def test_the_system_is_copied_out_of_its_folder_where_tmpdir_has_a_space(tmp_path, monkeypatch):
    """The hook's `mke2fs` alone is another one here: it takes the same options, and makes no disk."""
    temporary, system, programs = (tmp_path / name for name in ("my tmp; false", "a system", "programs"))
    for folder in (
        temporary,
        programs,
        *(system / name for name in ("bin", "etc/ssh", "lib/modules", "sbin")),
    ):
        folder.mkdir(parents=True)
    (system / "vmlinuz").write_text("kernel")
    (system / "bin/busybox").write_text("shell")
    (programs / "mke2fs").write_text('#!/bin/sh\ntest -d "$5" && touch "$6"\n')
    (programs / "mke2fs").chmod(0o755)
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    copied = []

    def run(command, what, **changes):
        (hook,) = (each.partition("=")[2] for each in command if each.startswith("--customize-hook="))
        path = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}"}
        subprocess.run(["sh", "-c", hook, "hook", str(system)], env=path, check=True)
        (out,) = temporary.glob("*/work/out")
        copied.extend(sorted(path.name for path in out.iterdir()))
        raise BuiltError

    monkeypatch.setattr(image, "_run", run)
    with pytest.raises(BuiltError):
        image._build_system(tmp_path)
    assert copied == ["busybox", "modules.tar", "root.img", "vmlinuz"]
    assert (system / "etc/inittab").exists()
    assert (system / "sbin/vbstudy-boot").exists()


BUILD = """
import sys
from pathlib import Path
from orchestrator.providers.qemu import image
image._build_system(Path(sys.argv[1]))
"""


def test_the_folder_of_a_build_that_was_killed_is_removed_and_that_of_one_at_work_stays(
    tmp_path, monkeypatch
):
    """The program that it runs is another one here: it waits."""
    work, programs, began = tmp_path / "tmp", tmp_path / "programs", tmp_path / "began"
    for folder in (work, programs):
        folder.mkdir()
    (programs / "mmdebstrap").write_text(f"#!/bin/sh\ntouch {began}; sleep 300\n")
    (programs / "mmdebstrap").chmod(0o755)
    env = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}", "TMPDIR": str(work)}
    monkeypatch.setattr(tempfile, "tempdir", str(work))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    command = [sys.executable, "-c", BUILD, str(tmp_path)]
    with subprocess.Popen(command, env=env, start_new_session=True) as build:
        try:
            wait_until(began.exists, build)
            image._clear_killed()
            assert list(work.glob("vbstudy-image-*/work/out"))
        finally:
            os.killpg(build.pid, signal.SIGKILL)
    image._clear_killed()
    assert list(work.iterdir()) == []


def test_libraries_are_unpacked_in_the_folder_that_the_next_build_clears(tmp_path, monkeypatch):
    """For who is killed meanwhile; nothing is left beside the disk."""
    places = []

    def run(command, what, **changes):
        if "pip" in command:
            tree = Path(command[command.index("--target") + 1])
            tree.mkdir()
            places.extend((tree, Path(changes["TMPDIR"])))
        else:
            (tmp_path / "libraries.img").touch()

    monkeypatch.setattr(image, "_run", run)
    image._build_libraries(tmp_path, "3.11", [])
    assert len(places) == 2
    assert all(place.is_relative_to(tmp_path) for place in places)
    assert [path.name for path in tmp_path.iterdir()] == ["libraries.img"]


def test_an_image_is_on_the_disk_before_it_has_its_name(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    synced = []

    def sync(path):
        synced.append(path.name)
        assert any(image.cache().glob("libraries-*")) == (path == image.cache())

    monkeypatch.setattr(files, "sync", sync)
    built = image._cached("libraries", {}, lambda into: (into / "libraries.img").touch(), lambda text: None)
    assert {"libraries.img", "inputs.json", "images"} < set(synced)
    assert {path.name for path in built.iterdir()} == {"libraries.img", "inputs.json"}
    assert not list(image.cache().glob("*.part"))


def test_what_killed_builds_left_is_removed_and_what_is_being_built_stays(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for name in (".system-old.x1.part", ".libraries-new.x2.part"):
        (image.cache() / name).mkdir(parents=True)
    with files.locked(image.cache() / ".libraries-new.lock"):
        image._cached("libraries", {}, lambda into: (into / "libraries.img").touch(), lambda text: None)
    assert [path.name for path in image.cache().glob("*.part")] == [".libraries-new.x2.part"]
    image._cached("libraries", {}, lambda into: None, lambda text: None)  # which is there
    assert not list(image.cache().glob("*.part"))


def test_a_snapshot_does_not_fit_disks_that_were_built_again(tmp_path, monkeypatch):
    """From the same inputs, to the same size: their file systems have other numbers."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    builds = itertools.count()

    def build(into, *arguments):
        for name in ("root.img", "libraries.img"):
            (into / name).touch()
            os.utime(into / name, ns=(0, next(builds)))

    monkeypatch.setattr(image, "_build_system", build)
    monkeypatch.setattr(image, "_build_libraries", build)

    def identity() -> str:
        return image.prepare([], lambda text: None).identity

    first = identity()
    assert identity() == first
    for kind in ("system", "libraries"):
        before = identity()
        for folder in image.cache().glob(f"{kind}-*"):
            shutil.rmtree(folder)
        assert identity() != before


PIP = """\
ERROR: Ignored the following versions that require a different python version: 2.5.0 Requires-Python >=3.12
ERROR: Could not find a version that satisfies the requirement numpy==2.5.0 (from versions: {versions})
ERROR: No matching distribution found for numpy==2.5.0
"""


@pytest.mark.parametrize(
    ("versions", "error", "told"),
    [
        (
            "2.3.0rc1, 2.3.0, 2.4.3, 2.4.4rc1",
            PrerequisiteError,
            "which is installed here, has no release for the guests' Python 3.11: pip install numpy==2.4.3",
        ),
        ("2.3.0+cpu", PrerequisiteError, ": pip install numpy==2.3.0"),
        (
            "none",
            GuestError,
            "ERROR: No matching distribution found for numpy==2.5.0",
        ),  # also without a network
    ],
)
def test_a_version_that_the_guests_python_has_no_release_of_is_told_with_one_that_has(
    tmp_path, monkeypatch, versions, error, told
):
    pip = tmp_path / "pip"
    pip.write_text(f"#!/bin/sh\ncat >&2 <<'END'\n{PIP.format(versions=versions)}END\nexit 1\n")
    pip.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(pip))
    with pytest.raises(error) as caught:
        image._build_libraries(tmp_path, "3.11", ["numpy==2.5.0"])
    assert caught.value.message.endswith(told)
