import dataclasses

import pytest

from orchestrator.agent.executor import RunFailedError
from orchestrator.cores.topology import Domains
from orchestrator.guests.isolation import contentions, isolation, require_uncontended
from tests.factories import result as result_of

RESULT = result_of({}, load_by_others=0.1)
PAIR = frozenset({0, 1})
WHERE = {core: Domains(core=frozenset({core}), cache=PAIR, node=PAIR) for core in PAIR}


def test_neighbours_are_kept_with_the_closest_thing_they_share():
    seen = isolation(
        RESULT,
        {},
        (0,),
        {"cpus-1": frozenset({1}), "elsewhere": frozenset({7})},
        WHERE,
        oversubscribed=False,
        cpuset="affinity",
        contended_above=0.25,
    )
    assert seen.neighbours == ("cpus-1", "elsewhere")
    assert seen.shares == {"cpus-1": "cache"}
    assert seen.contended == ()
    require_uncontended(seen)


@pytest.mark.parametrize(
    ("load", "conditions", "told"),
    [
        (0.25, {}, "others kept 0.25 of its cores busy"),
        (None, {"steal_s": RESULT.timings.wall_s / 2}, "the hypervisor below took 0.50 of its cores"),
        (
            None,
            {"quota_s": RESULT.timings.wall_s},
            "a CPU quota (of a container or cgroup) held back 1.00 of its cores",
        ),
        (None, {"throttled": 3.0}, "its cores were slowed 3 times because of heat"),
        (None, {"swapped_mib": 20.0}, "20 MiB were swapped"),
        (0.24, {"steal_s": 0.0, "throttled": 0.0, "swapped_mib": 1.0}, None),
    ],
)
def test_what_disturbed_a_run_is_named(load, conditions, told):
    result = dataclasses.replace(RESULT, load_by_others=load, conditions=conditions)
    assert contentions(result, {}, 0.25) == (() if told is None else (told,))


def test_what_disturbed_a_virtual_machine_is_named_though_it_saw_nothing_of_it():
    host = {"wall_s": 4.0, "load_by_others": 0.5, "steal_s": 2.0, "throttled": 1.0}
    seen = isolation(RESULT, host, (0,), {}, WHERE, oversubscribed=False, cpuset="", contended_above=0.25)
    assert seen.host == host
    assert seen.contended == (
        "on the host, others kept 0.50 of its cores busy",
        "on the host, the hypervisor below took 0.50 of its cores",
        "on the host, its cores were slowed 1 times because of heat",
    )
    quiet = host | {"load_by_others": 0.0, "steal_s": 0.0, "throttled": 0.0}
    assert contentions(RESULT, quiet, 0.25) == ()


def test_a_disturbed_run_can_be_refused():
    result = dataclasses.replace(RESULT, load_by_others=1.0)
    seen = isolation(result, {}, (0,), {}, WHERE, oversubscribed=False, cpuset="", contended_above=0.25)
    with pytest.raises(RunFailedError, match="Contended: others kept 1.00 of its cores busy"):
        require_uncontended(seen)
