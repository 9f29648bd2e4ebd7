"""Somebody's own project on a machine behind a real sshd (which is this one)."""

import pytest

from tests import projects_in_guests, sshd
from tests.orchestrator.providers.test_ssh_sweep import belonging, provider, vbstudy
from tests.orchestrator.sweep.test_pipeline import records

pytestmark = pytest.mark.needs("sshd")

STUDY = 'cpus = [1, 2]\nrepetitions = 2\nvariants = ["fixed-seed"]\n'


def test_a_project_goes_to_a_machine_with_all_that_it_needs_and_everything_comes_back(tmp_path):
    directory, there = tmp_path / "study", tmp_path / "there"
    projects_in_guests.make(directory)
    with sshd.running(tmp_path / "sshd") as server:
        text = STUDY + provider(server, tmp_path, cpus=2) + projects_in_guests.WORKLOAD
        (directory / "study.toml").write_text(text)
        assert vbstudy(directory, "-q", "provision") == 0
        assert vbstudy(directory, "-q", "sweep", "--runs", "1") == 0
        built = {path: path.stat().st_mtime_ns for path in there.glob("**/environments/*/.complete")}
        assert len(built) == 2  # one a guest
        assert vbstudy(directory, "-q", "sweep") == 0
        assert {path: path.stat().st_mtime_ns for path in there.glob("**/environments/*/.complete")} == built
        found = records(directory)
        assert len(found) == 4
        projects_in_guests.check(directory, found)
        assert {record.guest["provider"] for record in found.values()} == {"ssh"}
        assert len({r.result.hashes.weights for r in found.values() if r.spec.threads.cpus == 1}) == 1
        assert not (directory / "failed").exists()
        assert vbstudy(directory, "-q", "verify", "--rerun", "1") == 0
        assert vbstudy(directory, "-q", "destroy") == 0
        assert not there.exists()
        assert belonging(there) == []
