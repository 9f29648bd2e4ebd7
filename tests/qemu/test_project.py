"""Somebody's own project in a real virtual machine, which has no network, no pip and no compiler."""

import pytest

from tests import projects_in_guests
from tests.orchestrator.sweep.test_pipeline import records
from tests.qemu.test_qemu import destroyed, vbstudy

pytestmark = pytest.mark.needs("machines")

STUDY = """\
cpus = [1]
repetitions = 2
variants = ["fixed-seed"]
[provider]
kind = "qemu"
snapshot = false
"""


def test_a_project_runs_in_a_machine_from_wheels_alone_and_everything_comes_back(tmp_path):
    directory = tmp_path / "study"
    projects_in_guests.make(directory)
    (directory / "study.toml").write_text(STUDY + projects_in_guests.WORKLOAD)
    with destroyed(directory):
        assert vbstudy(directory, "-q", "provision") == 0
        assert vbstudy(directory, "sweep") == 0
        found = records(directory)
        assert len(found) == 2
        projects_in_guests.check(directory, found)
        for record in found.values():
            assert record.guest["provider"] == "qemu"
            assert "QEMU" in record.result.environment["hypervisor"]
            assert record.result.project.random.level == "python"
            assert any("no C compiler" in note for note in record.result.project.notes) == (
                record.result.project.random.how == "recorded"
            )
        assert len({record.result.hashes.weights for record in found.values()}) == 1
