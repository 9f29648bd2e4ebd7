"""Which run starts next, and where: by hand, and against schedules whose length is known."""

import random
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.engine.packing import Packing, Room
from orchestrator.forecast.fleet import ExpectedRun, simulate


def packing(hosts=(2,), runs=()):
    made = Packing()
    for number, cpus in enumerate(hosts):
        made.add_host(f"h{number}", Room(cpus=cpus, memory_mib=1000))
    for group, name, cpus, expected_s in runs:
        made.add(group, name, Room(cpus=cpus), expected_s)
    return made


def test_the_longest_run_starts_first_on_the_emptiest_host():
    made = packing((2, 4), [("a", "a1", 1, 10), ("b", "b1", 1, 30), ("b", "b2", 1, 30), ("c", "c1", 2, 1)])
    assert list(made.start()) == [("b1", "h1"), ("b2", "h1"), ("a1", "h1"), ("c1", "h0")]
    assert not made.waiting()


def test_a_shorter_run_takes_the_room_that_a_longer_one_does_not_fit_into():
    made = packing((4,), [("a", "a1", 3, 9), ("b", "b1", 2, 8), ("c", "c1", 1, 1)])
    assert list(made.start()) == [("a1", "h0"), ("c1", "h0")]
    made.ended("h0", "c1")
    assert list(made.start()) == []
    made.ended("h0", "a1")
    assert list(made.start()) == [("b1", "h0")]


def test_what_is_unknown_counts_as_longest_until_a_run_of_it_is_done():
    made = packing((1,), [("a", "a1", 1, 5.0), ("b", "b1", 1, None), ("b", "b2", 1, None)])
    assert list(made.start()) == [("b1", "h0")]
    made.ended("h0", "b1")
    made.learn("b", 1.0)
    assert list(made.start()) == [("a1", "h0")]


def test_a_guest_wider_than_any_host_gets_all_of_the_widest():
    made = packing((2, 4), [("a", "a1", 8, 5), ("a", "a2", 8, 5), ("b", "b1", 1, 1)])
    assert list(made.start()) == [("a1", "h1"), ("b1", "h0")]
    assert made.takes("h1", "a1").cpus == 4


def test_a_run_that_wants_a_host_for_itself_gets_one():
    made = packing((2, 4))
    for name in ("a1", "a2", "a3"):
        made.add("a", name, Room(cpus=1, whole=True), 5)
    assert list(made.start()) == [("a1", "h1"), ("a2", "h0")]


def test_memory_is_as_hard_a_limit_as_cores():
    made = packing((8,))
    for name in ("a1", "a2", "a3"):
        made.add("a", name, Room(cpus=1, memory_mib=400), 5)
    assert [run for run, _ in made.start()] == ["a1", "a2"]


def test_the_runs_of_a_lost_host_wait_again_and_go_to_another():
    made = packing((2, 2), [("a", f"a{i}", 1, 5) for i in range(4)])
    where = dict(made.start())
    lost = [run for run, host in where.items() if host == "h0"]
    made.drop_host("h0")
    assert made.waiting() == 2
    assert list(made.start()) == []
    for run, host in where.items():
        if host == "h1":
            made.ended("h1", run)
    assert sorted(made.start()) == sorted((run, "h1") for run in lost)


def test_a_closed_host_gets_no_more_runs_and_one_that_is_withdrawn_is_not_started():
    made = packing((1, 1), [("a", "a1", 1, 5), ("a", "a2", 1, 5), ("b", "b1", 1, 1)])
    made.close_host("h1")
    assert list(made.start()) == [("a1", "h0")]
    made.withdraw("a2")
    made.ended("h0", "a1")
    assert list(made.start()) == [("b1", "h0")]
    assert made.open_hosts() == ["h0"]


def test_a_run_at_hand_is_assigned_once_whether_there_is_room_or_not():
    made = packing((1,), [("a", "a1", 1, 5), ("a", "a2", 2, 5)])
    assert made.assign("h0", "a1")
    assert made.assign("h0", "a2")
    assert not made.assign("h0", "a2")
    made.ended("h0", "a1")
    made.ended("h0", "a2")
    made.put_back("a2")
    assert list(made.start()) == [("a2", "h0")]


def test_a_run_at_hand_takes_no_more_than_its_host_has():
    made = packing((2,))
    for run, cpus, memory_mib in (("a1", 1, 2000), ("b1", 4, 10)):
        made.add(run, run, Room(cpus=cpus, memory_mib=memory_mib))
        assert made.assign("h0", run)
        took = made.takes("h0", run)
        assert took.cpus <= 2
        assert took.memory_mib <= 1000


def test_a_later_block_waits_until_the_earlier_one_has_started():
    made = packing((4,))
    for block in (1, 2):
        made.add("narrow", f"n{block}", Room(cpus=1), 9, block=block)
        made.add("wide", f"w{block}", Room(cpus=4), 1, block=block)
    started = []
    while running := list(made.start()):
        started.append([run for run, _ in running])
        for run, host in running:
            made.ended(host, run)
    assert started == [["n1"], ["w1"], ["n2"], ["w2"]]


def test_one_host_is_kept_for_a_run_that_fits_nowhere_yet_and_others_go_on():
    made = packing((4, 4))
    made.add("narrow", "n1", Room(cpus=1), 9, block=1)
    made.add("other", "o1", Room(cpus=1), 9, block=1)
    made.add("wide", "w1", Room(cpus=4), 1, block=1)
    made.add("narrow", "n2", Room(cpus=1), 9, block=2)
    made.add("narrow", "n3", Room(cpus=1), 9, block=3)
    assert list(made.start()) == [("n1", "h1"), ("o1", "h0"), ("n2", "h0"), ("n3", "h0")]
    made.ended("h1", "n1")
    assert list(made.start()) == [("w1", "h1")]


def test_a_run_that_is_put_back_comes_before_those_of_later_blocks():
    made = packing((1,))
    for block in (1, 2, 3):
        made.add("a", f"a{block}", Room(cpus=1), 9, block=block)
    assert made.assign("h0", "a2")
    made.ended("h0", "a2")
    made.put_back("a2")
    order = []
    while started := list(made.start()):
        order += [run for run, _ in started]
        made.ended("h0", order[-1])
    assert order == ["a1", "a2", "a3"]


@pytest.mark.parametrize(("hosts", "cores"), [(1, 8), (4, 8), (4, 16)])
def test_thread_counts_are_spread_over_the_time_of_a_fleet(hosts, cores):
    times = {1: 100.0, 2: 60.0, 4: 40.0, 8: 30.0}
    runs = [
        ExpectedRun(
            run=f"{cpus}-{variant}-{block}",
            group=f"{cpus}-{variant}",
            needs=Room(cpus=cpus),
            run_s=run_s,
            block=block,
        )
        for block in range(1, 51)
        for cpus, run_s in times.items()
        for variant in range(2)
    ]
    found = simulate(runs, hosts, Room(cpus=cores))
    for cpus in times:
        starts = [start.at_s for start in found.starts if start.run.startswith(f"{cpus}-")]
        assert 0.4 < statistics.fmean(starts) / found.makespan_s < 0.6
    assert found.makespan_s <= 1.4 * found.bound_s


@given(
    st.lists(st.tuples(st.integers(1, 6), st.integers(1, 30)), min_size=1, max_size=40),
    st.integers(1, 4),
    st.integers(1, 4),
)
def test_every_run_starts_once_and_no_host_ever_has_more_than_it_has_room_for(shapes, hosts, cores):
    runs = [
        ExpectedRun(run=str(i), group=f"{cpus}-{run_s}", needs=Room(cpus=cpus), run_s=float(run_s))
        for i, (cpus, run_s) in enumerate(shapes)
    ]
    found = simulate(runs, hosts, Room(cpus=cores))
    assert sorted(start.run for start in found.starts) == sorted(run.run for run in runs)
    by_name = {run.run: run for run in runs}
    for moment in found.starts:
        held = sum(
            min(by_name[other.run].needs.cpus, cores)
            for other in found.starts
            if other.host == moment.host and other.at_s <= moment.at_s < other.at_s + by_name[other.run].run_s
        )
        assert held <= cores
    assert found.makespan_s >= found.bound_s * (1 - 1e-9)
    assert 0 < found.utilisation <= 1 + 1e-9


def perfectly_packed(generator: random.Random, pieces: int) -> tuple[list[ExpectedRun], int, Room, float]:
    """Runs cut out of a schedule without a gap, whose length is thus the shortest there is."""
    hosts, cores, length_s = generator.choice((1, 2, 4, 8)), generator.choice((2, 4, 8, 16)), 1000.0
    runs: list[ExpectedRun] = []
    for _ in range(hosts):
        free = cores
        while free:
            cpus = generator.choice([count for count in (1, 2, 4, 8, 16) if count <= free])
            free -= cpus
            cuts = sorted(generator.uniform(0, length_s) for _ in range(pieces - 1))
            for begin, end in zip([0.0, *cuts], [*cuts, length_s], strict=True):
                name = str(len(runs))
                runs.append(ExpectedRun(run=name, group=name, needs=Room(cpus=cpus), run_s=end - begin))
    generator.shuffle(runs)
    return runs, hosts, Room(cpus=cores), length_s


@pytest.mark.parametrize("seed", range(40))
def test_with_ten_runs_a_core_a_schedule_is_at_most_a_tenth_longer_than_the_shortest(seed):
    generator = random.Random(seed)
    runs, hosts, room, shortest_s = perfectly_packed(generator, generator.randint(10, 30))
    found = simulate(runs, hosts, room)
    assert found.bound_s == pytest.approx(shortest_s)
    assert found.makespan_s <= 1.1 * shortest_s


def test_a_group_that_no_host_has_the_memory_for_is_named():
    runs = [ExpectedRun(run="1", group="a", needs=Room(cpus=1, memory_mib=9), run_s=1.0)]
    found = simulate(runs, 1, Room(cpus=1, memory_mib=8))
    assert (found.impossible, found.starts, found.makespan_s) == (("a",), (), 0.0)


def test_makespan_utilisation_and_core_hours_by_hand():
    runs = [
        ExpectedRun(run="long", group="a", needs=Room(cpus=1), run_s=3600.0),
        ExpectedRun(run="wide", group="b", needs=Room(cpus=2), run_s=1800.0),
    ]
    found = simulate(runs, 1, Room(cpus=2))
    assert [(start.run, start.at_s) for start in found.starts] == [("long", 0.0), ("wide", 3600.0)]
    assert found.makespan_s == 5400.0
    assert found.bound_s == 3600.0
    assert found.core_hours == 3.0
    assert found.utilisation == pytest.approx(2 / 3)
