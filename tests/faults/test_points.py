"""The lists of crash points and of faults are true to the program, and docs/reliability.md to the lists."""

import re
from collections import Counter
from pathlib import Path

import pytest

from tests.faults import arming, soaking
from tests.faults.arming import Mishap, NoSuchPointError, Place
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
from tests.faults.scenes import FAILS
from tests.faults.test_many_hosts import SLOW_STEP

MISHAPS = [point.crash for point in POINTS] + [fault.mishap for fault in FAULTS]


@pytest.mark.parametrize("mishap", [pytest.param(mishap, id=mishap.name) for mishap in MISHAPS])
def test_each_place_is_in_the_product_and_its_statements_compile(mishap):
    arming.exists(mishap.place)


def test_no_two_have_one_name():
    assert len({mishap.name for mishap in MISHAPS}) == len(MISHAPS)


def test_readme_counts_what_is_tested():
    text = " ".join((Path(__file__).parents[2] / "docs" / "reliability.md").read_text().split())
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


def test_each_point_of_the_product_is_used_and_there_once():
    sources = [source for module, source in arming.marked().items() if not module.startswith("tests.")]
    marked = [point for source in sources for point in arming.points(source)]
    places = [mishap.place for mishap in (*MISHAPS, FAILS, SLOW_STEP)] + list(soaking.BEGIN.values())
    assert sorted(marked) == sorted({place.point for place in places})


def test_the_points_that_a_soak_leaves_out_exist():
    for point in (*soaking.ONCE_A_GUEST, *soaking.NOT_IN_A_RUN):
        arming.exists(Place(point=point))


def example(numbers):
    total = 0  # point: example begun
    # point: example loop
    for number in numbers:
        total += number  # point: example added
    return total  # point: example over


@pytest.mark.parametrize(
    ("place", "times"),
    [
        (Place(point="example begun"), 1),
        (Place(point="example added", where="after"), 3),
        (Place(point="example added", when="number == 2"), 1),
        (Place(point="example loop", where="inside"), 3),
        (Place(point="example loop", where="after"), 1),
        (Place(point="example over", doing="total = -1"), 1),
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
        "first": Place(point="example begun", doing="total = 0; total += 0"),
        "second": Place(point="example over"),
    }
    try:
        arming.insert(places, lambda name: True, reached.append)
        assert example([]) == 0
    finally:
        example.__code__ = kept
    assert reached == ["first", "second"]


def twice():
    yield 1  # point: example twice
    yield 2  # point: example twice


OUTSIDE = 1  # point: example outside


@pytest.mark.parametrize(
    ("point", "message"),
    [
        ("no such", "# point: no such is there 0 times"),
        ("example twice", "# point: example twice is there 2 times"),
        ("example outside", "is not in a function"),
    ],
)
def test_a_point_that_is_missing_ambiguous_or_outside_of_a_function_is_refused(point, message):
    with pytest.raises(NoSuchPointError, match=message):
        arming.exists(Place(point=point))


def test_a_mishap_travels_as_plain_data():
    place = Place(point="x", where="after")
    mishap = Mishap(name="a", place=place, nth=2, victim="group")
    assert arming.decode(arming.encode(mishap)) == mishap
