"""Exact mode in real virtual machines with one, two and four virtual CPUs. Run by `.ci/run vcpus`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from guest.records.run import Optimizer
from orchestrator.agent import archive, data
from orchestrator.cores.leases import host_cores
from orchestrator.inventory import GuestSpec, read_inventory
from orchestrator.providers.qemu.scripts import LIBRARIES
from orchestrator.transport.connection import Connection
from tests.qemu.test_qemu import destroyed, provider_of, vbstudy, write
from tests.vbstudy.exact import training
from tests.vbstudy.exact.test_training import NETWORKS

pytestmark = pytest.mark.needs("vcpus")
CPUS = (1, 2, 4)
PROGRAM, AGENT = "training.py", "agent.pyz"
# A model without AVX2, whose emulation is slower and has flaws (docs/guests.md).
MODEL = 'kind = "qemu"\nsnapshot = false\ncpu_model = "SandyBridge"'
TIMEOUT_S = 3600.0
Machines = dict[int, Connection]  # by their number of virtual CPUs


@pytest.fixture(scope="module")
def machines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machines]:
    folder = tmp_path_factory.mktemp("exact")
    agent = archive.build().write(folder)
    changes = [('kind = "qemu"', MODEL), ('isa = "portable"\n', "")]
    with destroyed(write(folder / "study", CPUS, changes=changes)) as directory:
        assert vbstudy(directory, "-q", "provision") == 0
        provider = provider_of(directory)
        specs = [guest.spec for guest in read_inventory(directory / "guests.json").guests]

        def started(spec: GuestSpec) -> Connection:
            connection = provider.start(spec, host_cores()[: spec.cpus])
            connection.put(Path(training.__file__), PROGRAM)
            connection.put(agent, AGENT)
            data.bring_exact_library(connection)  # the machines have no compiler
            return connection

        with ThreadPoolExecutor(len(specs)) as pool:
            connections = dict(zip((spec.cpus for spec in specs), pool.map(started, specs), strict=True))
        yield connections
        for spec in specs:
            provider.stop(spec)


def hashes(machines: Machines, model: str, optimizer: Optimizer, steps: int, *options: str) -> dict[int, str]:
    """Of the weights that each machine has learnt, on as many threads as it has virtual CPUs."""

    def trained(cpus: int) -> str:
        connection = machines[cpus]
        argv = [connection.python, PROGRAM, model, optimizer.value, str(cpus), "--small"]
        # Threads that spin while they wait take the cores from those that work.
        settings = {"PYTHONPATH": f"{AGENT}:{LIBRARIES}", "OMP_WAIT_POLICY": "passive"}
        done = connection.run([*argv, "--steps", str(steps), *options], settings, TIMEOUT_S)
        assert done.status == 0, done.stderr
        found = json.loads(done.stdout)
        assert found["cores"] == cpus
        return str(found["hashes"][str(cpus)])

    with ThreadPoolExecutor(len(CPUS)) as pool:
        return dict(zip(CPUS, pool.map(trained, CPUS), strict=True))


def test_without_exact_mode_they_differ(machines: Machines) -> None:
    assert len(set(hashes(machines, "lenet5", Optimizer.SGD, 2, "--default").values())) > 1


@pytest.mark.parametrize("optimizer", list(Optimizer))
@pytest.mark.parametrize("model", NETWORKS)
def test_machines_with_one_two_and_four_virtual_cpus_learn_the_same_weights(
    machines: Machines, model: str, optimizer: Optimizer
) -> None:
    found = hashes(machines, model, optimizer, training.STEPS)
    assert len(set(found.values())) == 1, found
