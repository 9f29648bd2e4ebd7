from __future__ import annotations

import json
import os

import pytest

from analysis.scan.kept import NAME, KeptScanError, encode, read_scan, without
from analysis.scan.run import scan
from tests.analysis.scan.requirements.test_shares import made


def test_a_kept_scan_is_read_back(tmp_path):
    scan = made(2, 1, 3)
    (tmp_path / NAME).write_text(encode(scan))
    assert read_scan(tmp_path / NAME) == scan
    assert read_scan(tmp_path / "elsewhere") is None


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"schema_version": 1, "projects": [3]}', '{"schema_version": 99}']
)
def test_a_damaged_or_newer_scan_is_refused(tmp_path, text):
    (tmp_path / NAME).write_text(text)
    with pytest.raises(KeptScanError):
        read_scan(tmp_path / NAME)


def test_every_part_of_a_scan_survives_json():
    assert json.loads(encode(made(1, 1, 1)))["projects"][0]["hardware"][0]["part"] == "gpu"


def test_moved_findings_are_known_and_one_more_of_them_is_new(tmp_path):
    benchmark = "import torch\ntorch.backends.cudnn.benchmark = True\n"
    (tmp_path / "a.py").write_text(benchmark)
    former = scan([tmp_path])
    (tmp_path / "a.py").write_text(f"# a line more\n{benchmark}torch.backends.cudnn.benchmark = True\n")
    (project,) = without(scan([tmp_path]), former).projects
    assert [found.place.line for found in project.findings] == [4]


def test_a_finding_that_moves_to_another_project_is_new(tmp_path):
    first, second = tmp_path / "a", tmp_path / "b"
    for project in (first, second):
        project.mkdir()
        (project / "train.py").write_text("")
    (first / "train.py").write_text("import torch\ntorch.backends.cudnn.benchmark = True\n")
    former = scan([first, second])
    (first / "train.py").rename(second / "train.py")
    new = without(scan([first, second]), former).projects
    assert [len(project.findings) for project in new] == [0, 1]
    assert not any(project.findings for project in without(former, former).projects)


def test_a_project_alone_is_known_wherever_it_lies(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "train.py").write_text("import torch\ntorch.backends.cudnn.benchmark = True\n")
    former = scan([tmp_path / "a"])
    (tmp_path / "a").rename(tmp_path / "b")
    (project,) = without(scan([tmp_path / "b"]), former).projects
    assert former.projects[0].findings
    assert project.findings == ()


def test_findings_in_files_whose_names_are_no_text_are_known(tmp_path):
    projects = [tmp_path / os.fsdecode(name) for name in (b"a\xff", b"b\xff")]
    for project in projects:
        project.mkdir()
        (project / os.fsdecode(b"tr\xff.py")).write_text(
            "import torch\ntorch.backends.cudnn.benchmark = True\n"
        )
    for scanned in (projects, projects[:1]):
        found = scan(scanned)
        (tmp_path / NAME).write_text(encode(found))
        new = without(found, read_scan(tmp_path / NAME)).projects
        assert all(project.findings for project in found.projects)
        assert not any(project.findings for project in new)


def test_findings_of_moved_cells_are_known(tmp_path):
    cells = ["import random\nrandom.shuffle(x)\nloss.backward()\nopt.step()", "random.seed(0)"]

    def write(*sources: str) -> None:
        found = [{"cell_type": "code", "source": source} for source in sources]
        (tmp_path / "a.ipynb").write_text(json.dumps({"cells": found}))

    write(*cells)
    former = scan([tmp_path])
    assert "cell 1, line 2" in " ".join(found.why for found in former.projects[0].findings)
    write("'a cell more'", *cells)
    assert [project.findings for project in without(scan([tmp_path]), former).projects] == [()]
