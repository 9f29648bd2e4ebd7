"""A virtual machine is a process here: what it uses is its own, what others use beside it is not."""

import multiprocessing
import os
import time
from multiprocessing.synchronize import Event

import pytest

from guest.machine.load import Look
from orchestrator.cores import load
from orchestrator.cores.load import HostLook

BURN_S = 0.6


def burn(core: int, looked: Event, done: Event, over: Event) -> None:
    """BURN_S of one core between the two looks."""
    os.sched_setaffinity(0, {core})
    looked.wait()
    began = time.process_time()
    while time.process_time() < began + BURN_S:
        pass
    done.set()
    over.wait()


def seen(at_s: float, busy_s: float | None, **cpu_s: float) -> HostLook:
    conditions = {} if busy_s is None else {"steal_s": busy_s / 10}
    processes = {int(name.removeprefix("p")): seconds for name, seconds in cpu_s.items()}
    return HostLook(at_s=at_s, cores=Look(busy_s=busy_s, conditions=conditions), cpu_s=processes)


def test_what_the_machine_used_itself_is_not_the_load_of_others():
    told = load.between(seen(0.0, 10.0, p7=1.0), seen(4.0, 15.0, p7=4.0))
    assert told == {"wall_s": 4.0, "load_by_others": 0.5, "steal_s": 0.5}


@pytest.mark.parametrize(
    "after",
    [
        pytest.param(seen(4.0, 15.0, p8=4.0), id="another process"),
        pytest.param(seen(4.0, 15.0), id="no process"),
        pytest.param(seen(4.0, None, p7=4.0), id="a kernel that does not tell"),
    ],
)
def test_what_cannot_be_told_apart_is_not_told(after):
    assert "load_by_others" not in load.between(seen(0.0, 10.0, p7=1.0), after)


def test_without_two_looks_nothing_is_told():
    assert load.between(None, seen(0.0, 1.0)) == {}
    assert load.between(seen(0.0, 1.0), None) == {}


def test_a_process_of_others_on_the_same_core_is_seen_from_the_machine_below():
    core = min(os.sched_getaffinity(0))
    spawn = multiprocessing.get_context("spawn")
    looked, over, done = spawn.Event(), spawn.Event(), (spawn.Event(), spawn.Event())
    machine, other = (spawn.Process(target=burn, args=(core, looked, each, over)) for each in done)
    machine.start()
    before = load.look((core,), [machine.pid])
    looked.set()
    other.start()
    for each in done:
        each.wait()
    after = load.look((core,), [machine.pid])
    over.set()
    for process in (machine, other):
        process.join()
    told = load.between(before, after)
    busy_s = after.cores.busy_s - before.cores.busy_s
    own_s = after.cpu_s[machine.pid] - before.cpu_s[machine.pid]
    others_s = told["load_by_others"] * told["wall_s"]
    assert others_s == pytest.approx(busy_s - own_s, abs=0.01 + 0.001 * told["wall_s"])  # a rounded share
    assert min(own_s, others_s) >= 0.8 * BURN_S  # the kernel counts a core's time in ticks
