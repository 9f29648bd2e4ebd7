from __future__ import annotations

import os
import subprocess
import sys

import pytest

from analysis.scan.run import projects_of, scan

README = "# X\n\nPython 3.6 is needed, and a GTX 1080 Ti.\n"


@pytest.fixture
def folder(tmp_path):
    """Twelve projects, every third with a README."""
    for number in range(12):
        project = tmp_path / f"p{number:02d}"
        project.mkdir()
        for name in range(15):
            (project / f"m{name}.py").write_text("import torch\ntorch.backends.cudnn.benchmark = True\n")
        if number % 3 == 0:
            (project / "README.md").write_text(README)
    return tmp_path


def test_many_processes_find_what_one_finds_in_the_same_order(folder):
    paths, _ = projects_of([folder])
    calls = []
    many = scan(paths, jobs=2, progress=lambda *what: calls.append(what))
    assert many == scan(paths, jobs=1)
    assert [project.path for project in many.projects] == [str(path) for path in paths]
    assert [done for done, _, _ in calls] == list(range(1, 13))
    assert sum(len(project.findings) for project in many.projects) == 12 * 15
    assert [bool(project.hardware) for project in many.projects] == [True, False, False] * 4


INTERRUPTED = """
import os, signal, sys
from pathlib import Path
from analysis.scan.run import scan

def interrupt(done, total, what):
    if done == total:  # the processes wait for work
        os.killpg(0, signal.SIGINT)

if __name__ == "__main__":
    try:
        scan(sorted(Path(sys.argv[1]).iterdir()), jobs=2, progress=interrupt)
    except KeyboardInterrupt:
        print("interrupted")
"""


def test_an_interruption_is_reported_by_no_process_of_the_scan(folder, tmp_path_factory):
    script = tmp_path_factory.mktemp("script") / "script.py"
    script.write_text(INTERRUPTED)
    done = subprocess.run(
        [sys.executable, str(script), str(folder)],
        env={**os.environ, "PYTHONPATH": os.getcwd()},
        capture_output=True,
        text=True,
        start_new_session=True,
    )
    assert (done.stdout, done.stderr) == ("interrupted\n", "")


def test_the_files_of_one_large_project_are_spread(folder):
    assert scan([folder], jobs=2) == scan([folder], jobs=1)


def test_without_rules_nothing_is_linted(folder):
    found = scan([folder / "p00"], rules=frozenset())
    assert found.projects[0].findings == ()
    assert found.projects[0].software[0].name == "python"


def test_folders_in_a_folder_are_its_projects(folder):
    (folder / ".hidden").mkdir()
    (folder / "file.txt").touch()
    (folder / "link").symlink_to(folder / "p00")
    paths, notes = projects_of([folder])
    assert len(paths) == 12
    assert [note.text for note in notes] == ["is a link; not followed"]
