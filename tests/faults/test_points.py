"""The lists of crash points and of faults are true to the program, and README to the lists."""

import re
from collections import Counter
from pathlib import Path

import pytest

from tests.faults import arming
from tests.faults.arming import Mishap, NoSuchPlaceError, Place
from tests.faults.mishaps import (
    CLOCKS,
    FAULTS,
    FLIPPED,
    FULL_DISKS_KIB,
    NFS,
    OTHERS,
    PROTOCOL,
    STORAGE,
    TRANSFER,
    count,
)
from tests.faults.points import POINTS

HERE = "tests.faults.test_points"


MISHAPS = [point.crash for point in POINTS] + [fault.mishap for fault in FAULTS]


@pytest.mark.parametrize("mishap", [pytest.param(mishap, id=mishap.name) for mishap in MISHAPS])
def test_each_place_is_in_the_program_and_there_once(mishap):
    arming.exists(mishap.place)


def test_no_two_have_one_name():
    assert len({mishap.name for mishap in MISHAPS}) == len(MISHAPS)


def test_readme_counts_what_is_tested():
    text = " ".join((Path(__file__).parents[2] / "README.md").read_text().split())
    assert f"# {len(POINTS)} crash points, {count()} faults" in text
    assert f"**{len(POINTS)} crash points**" in text
    assert f"**{count()} faults**" in text
    for side, number in Counter(point.side for point in POINTS).items():
        assert f"| {side} | {number} |" in text
    numbers = [
        len(STORAGE) + len(FULL_DISKS_KIB) + 1, len(NFS), len(CLOCKS), len(TRANSFER), len(PROTOCOL),
        len(FLIPPED), len(OTHERS) - 1,
    ]  # fmt: skip
    assert sum(numbers) == count()
    after = text.index("| faults | what happens |")
    assert [int(number) for number in re.findall(r"\| (\d+) \| ", text[after : after + 2000])] == numbers


def example(numbers):
    total = 0
    for number in numbers:
        total += number
    return total


@pytest.mark.parametrize(
    ("place", "times"),
    [
        (Place(module=HERE, function="example", at="total = 0"), 1),
        (Place(module=HERE, function="example", at="total += number", where="after"), 3),
        (Place(module=HERE, function="example", at="total += number", when="number == 2"), 1),
        (Place(module=HERE, function="example", at="for number in", where="inside"), 3),
        (Place(module=HERE, function="example", at="return total", doing="total = -1"), 1),
    ],
)
def test_what_is_inserted_is_reached_and_changes_nothing_else(place, times):
    kept, reached = example.__code__, []
    try:
        arming.insert({"name": place}, lambda name: True, reached.append)
        assert example([1, 2, 3]) == (-1 if "-1" in place.doing else 6)
    finally:
        example.__code__ = kept
    assert reached == ["name"] * times


def test_several_places_of_one_function_do_not_find_each_other():
    kept, reached = example.__code__, []
    places = {
        "first": Place(module=HERE, function="example", at="total = 0", doing="total = 0; total += 0"),
        "second": Place(module=HERE, function="example", at="return total"),
    }
    try:
        arming.insert(places, lambda name: True, reached.append)
        assert example([]) == 0
    finally:
        example.__code__ = kept
    assert reached == ["first", "second"]


@pytest.mark.parametrize(
    ("function", "at", "said"),
    [
        ("no_such", "x", "has no function no_such"),
        ("example", "no such text", "has 0 statements"),
        ("example", "total", "has 3 statements"),
    ],
)
def test_a_place_that_is_gone_or_not_one_is_told(function, at, said):
    with pytest.raises(NoSuchPlaceError, match=said):
        arming.exists(Place(module=HERE, function=function, at=at))


def test_a_mishap_travels_as_plain_data():
    place = Place(module="m", function="f", at="x", where="after")
    mishap = Mishap(name="a", place=place, nth=2, victim="group")
    assert arming.decode(arming.encode(mishap)) == mishap
