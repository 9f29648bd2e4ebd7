from __future__ import annotations

import pytest

from analysis.results.model import Verdict
from analysis.scan.requirements.shares import requirements_finding, requirements_table, share
from analysis.scan.results import HardwareStatement, Part, Place, Project, Requirement, Scan

PLACE = Place(path="README.md", line=1)


def made(software: int, hardware: int, total: int) -> Scan:
    """A scan in which the first projects state software, the first of them hardware."""
    requirement = Requirement(name="torch", specifier="", pinned=False, source="README", place=PLACE)
    gpu = HardwareStatement(part=Part.GPU, words="V100", quote="A V100.", place=PLACE)
    return Scan(
        schema_version=1,
        projects=tuple(
            Project(
                path=f"p{i}",
                files=1,
                lines=1,
                software=(requirement,) * (i < software),
                hardware=(gpu,) * (i < hardware),
                findings=(),
                notes=(),
            )
            for i in range(total)
        ),
    )


def test_wilsons_interval_of_a_known_answer():
    found = share(8, 10)
    assert (found.value, found.low, found.high) == pytest.approx((0.8, 0.4901625, 0.9433178), abs=1e-6)
    assert str(found) == "80.0% [49.0%, 94.3%] (8 of 10)"


def test_of_nothing_there_is_no_share():
    assert str(share(0, 0)) == "0 of 0"


def test_none_and_all_have_intervals_too():
    assert share(0, 20).low == pytest.approx(0.0, abs=1e-12)
    assert share(0, 20).high == pytest.approx(0.1611, abs=1e-4)
    assert share(20, 20).high == pytest.approx(1.0)


def test_the_published_shares_stand_beside_ours():
    frame = requirements_table(made(222, 54, 245)).frame.set_index("what")
    software = frame.loc["state software requirements"]
    assert (software.k, software.n, software.published, software.published_position) == (
        222,
        245,
        0.906,
        "inside",
    )
    assert frame.loc["state hardware requirements"].published == 0.22
    assert frame.loc["of these: a GPU"].share == 1.0
    assert frame.loc["of these: pin all"].published_text == "not published"


@pytest.mark.parametrize(
    ("software", "hardware", "total", "verdict"),
    [
        (222, 54, 245, Verdict.SUPPORTED),
        (54, 54, 245, Verdict.NOT_SUPPORTED),
        (222, 222, 245, Verdict.NOT_SUPPORTED),
        (3, 0, 3, Verdict.INCONCLUSIVE),
        (0, 0, 0, Verdict.INCONCLUSIVE),
    ],
)
def test_f6_is_decided_by_intervals(software, hardware, total, verdict):
    found = requirements_finding(made(software, hardware, total))
    assert (found.id, found.workload, found.verdict) == ("F6", "", verdict)


def test_f6_without_a_scan_says_how_to_make_one():
    found = requirements_finding(None)
    assert found.verdict is Verdict.INCONCLUSIVE
    assert "vbstudy scan --each --keep" in found.why
