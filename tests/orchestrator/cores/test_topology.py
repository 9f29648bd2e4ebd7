import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.cores import topology
from orchestrator.cores.topology import Domains, choose, describe, shared


def machine(nodes: int, caches: int, physical: int, threads: int) -> topology.Topology:
    """Numbered as Linux usually does: first all first threads, then all second ones."""
    total = nodes * caches * physical
    found = {}
    for core in range(total * threads):
        first = core % total
        node, cache = first // (caches * physical), first // physical

        def those(size: int, which: int) -> frozenset[int]:
            return frozenset(c for c in range(total * threads) if (c % total) // size == which)

        found[core] = Domains(
            core=those(1, first), cache=those(physical, cache), node=those(caches * physical, node)
        )
    return found


SERVER = machine(nodes=2, caches=2, physical=2, threads=2)  # 16 cores


def test_a_guest_gets_both_threads_of_a_physical_core():
    assert choose(SERVER, SERVER, 2).cores == (0, 8)
    assert choose(SERVER, SERVER, 2).held == {0, 8}


def test_a_guest_with_one_cpu_keeps_the_other_thread_from_others():
    chosen = choose(SERVER, SERVER, 1)
    assert (chosen.cores, chosen.held) == ((0,), {0, 8})
    assert choose(SERVER.keys() - {0}, SERVER, 1).cores == (1,), "8 belongs to a core that is in use"


def test_without_hyper_threads_each_virtual_cpu_has_a_physical_core():
    chosen = choose(SERVER, SERVER, 2, hyper_threads=False)
    assert (chosen.cores, chosen.held) == ((0, 1), {0, 1, 8, 9})
    assert len(choose(SERVER, SERVER, 16, hyper_threads=False).cores) == 16, "there are no 16 physical ones"


def test_a_guest_stays_in_one_memory_node_and_waits_for_it():
    free = SERVER.keys() - {0, 8, 4, 12}  # three physical cores of each node
    assert choose(free, SERVER, 8) is None
    assert {c % 8 // 4 for c in choose(free, SERVER, 6).cores} == {0}
    assert {c % 8 // 4 for c in choose(SERVER, SERVER, 10).cores} == {0, 1}, "no node has ten"


def test_the_fullest_cache_with_room_is_filled_first():
    free = SERVER.keys() - {4, 12}
    assert choose(free, SERVER, 2).cores == (5, 13)


def test_more_than_there_are_is_all_of_them_when_nobody_else_has_any():
    assert choose(SERVER, SERVER, 99).held == set(SERVER)
    assert choose(SERVER.keys() - {3}, SERVER, 99) is None


@given(st.integers(1, 2), st.integers(1, 2), st.integers(1, 3), st.integers(1, 2), st.booleans(), st.data())
def test_guests_never_share_a_physical_core_and_get_what_they_asked_for(n, c, p, t, hyper_threads, data):
    where = machine(n, c, p, t)
    free = set(where)
    for _ in range(4):
        count = data.draw(st.integers(1, len(where)))
        chosen = choose(free, where, count, hyper_threads=hyper_threads)
        if chosen is None:
            continue
        assert len(chosen.cores) == len(set(chosen.cores)) == count
        assert set(chosen.cores) <= chosen.held <= free
        assert all(where[core].core <= chosen.held for core in chosen.held)
        free -= chosen.held


def test_what_two_guests_share_is_told_by_the_closest():
    assert shared(SERVER, [0], [8]) == "core"
    assert shared(SERVER, [0], [1]) == "cache"
    assert shared(SERVER, [0], [3]) == "node"
    assert shared(SERVER, [0], [4]) == ""


def test_a_machine_is_described():
    assert describe(SERVER) == "16 cores: 8 physical x 2 threads, 4 last-level caches, 2 memory nodes"
    assert describe(machine(1, 1, 1, 1)) == "1 core: 1 physical, 1 last-level cache, 1 memory node"


@given(
    st.dictionaries(
        st.sampled_from(["node/node0/cpulist", "cpu/cpu0/topology/thread_siblings_list"])
        | st.text(max_size=9).map(lambda text: f"cpu/cpu1/cache/index{text}/shared_cpu_list"),
        st.text(max_size=20) | st.sampled_from(["0-99999999999", "1-0", "-1", "0,,1", "²", "9" * 5000]),
    )
)
def test_whatever_another_machine_says_of_its_cores_each_has_its_domains(files):
    found = topology.from_files((0, 1), files)
    for core in (0, 1):
        assert {core} <= found[core].core & found[core].cache
        assert core in found[core].node


@pytest.mark.parametrize("told", [True, False])
def test_the_kernels_files_are_read_as_far_as_they_are_there(tmp_path, told):
    if told:
        for core in range(4):
            cpu = tmp_path / "cpu" / f"cpu{core}"
            for folder in ("topology", "cache/index1", "cache/index3"):
                (cpu / folder).mkdir(parents=True)
            (cpu / "topology" / "thread_siblings_list").write_text(f"{core % 2},{core % 2 + 2}\n")
            (cpu / "cache" / "index1" / "shared_cpu_list").write_text(f"{core}\n")
            (cpu / "cache" / "index3" / "shared_cpu_list").write_text("0-3\n")
        (tmp_path / "node" / "node0").mkdir(parents=True)
        (tmp_path / "node" / "node0" / "cpulist").write_text("0-3\n")
    found = topology.read(range(4), tmp_path)
    assert found[2].core == ({0, 2} if told else {2})
    assert found[2].cache == found[2].node == {0, 1, 2, 3}
