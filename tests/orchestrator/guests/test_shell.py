"""A person's way into a guest."""

import subprocess
import sys

from orchestrator.cores.leases import host_cores
from orchestrator.guests import shell
from orchestrator.inventory import (
    INVENTORY_VERSION,
    Guest,
    Inventory,
    Observation,
    guest_spec,
    write_inventory,
)
from orchestrator.providers import local
from orchestrator.store.store import Store
from orchestrator.study import schema
from tests.orchestrator.cores.test_leases import OTHER


def test_a_shell_waits_for_cores_that_another_study_uses(tmp_path, monkeypatch):
    monkeypatch.setenv("VBSTUDY_CORE_LOCKS", str(tmp_path / "locks"))
    core, study = host_cores()[0], schema.parse('[[workload]]\nmodel = "lenet1"\ndataset = "digits"\n')
    monkeypatch.setattr(local, "host_cores", lambda: (core,))
    store = Store(tmp_path)
    seen = {"provider_cpus": 1, "guest_cpus": 1, "oversubscribed": False, "start_s": 1.0, "details": {}}
    guest = Guest(spec=guest_spec(1), observed=Observation(**seen), created_at="now")
    write_inventory(
        store.guests_file, Inventory(version=INVENTORY_VERSION, provider="local", guests=(guest,))
    )
    told = []

    def and_then_it_ends(text: str) -> None:
        told.append(text)
        other.kill()

    command = [sys.executable, "-c", OTHER, str(core)]
    used = f"import os; open({str(tmp_path / 'used')!r}, 'w').write(str(os.sched_getaffinity(0)))"
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout.readline() == "leased\n"
        assert shell.enter(study, store, "cpus-1", (sys.executable, "-c", used), and_then_it_ends) == 0
        assert told == [f"guest cpus-1 waits for cores: process {other.pid} on its machine leased {core}"]
    assert (tmp_path / "used").read_text() == str({core})
