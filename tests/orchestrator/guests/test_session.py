"""A guest that is started for runs."""

from pathlib import Path

import pytest

from orchestrator.cores.cpuset import Cpuset, CpusetUnavailable
from orchestrator.errors import GuestError
from orchestrator.guests.session import Session
from orchestrator.inventory import Guest, Observation, guest_spec
from orchestrator.providers import make
from orchestrator.providers.qemu import provider as qemu
from orchestrator.store.store import Store
from orchestrator.study import schema


class StartedError(Exception):
    pass


class Provider:
    def stop(self, guest):
        raise StartedError


def session(tmp_path, *, made: int, now: int, machine: bool = False) -> Session:
    """Of a guest with 2 CPUs, made where there were so many cores."""
    cpus = 2 if machine else min(made, 2)
    seen = Observation(
        provider_cpus=cpus,
        guest_cpus=cpus,
        oversubscribed=made < 2,
        start_s=1.0,
        details={},
        machine_cores=tuple(range(made)),
    )
    guest = Guest(spec=guest_spec(2), observed=seen, created_at="now")
    study = schema.parse('[[workload]]\nmodel = "lenet1"\ndataset = "digits"\n')
    return Session(study, Store(tmp_path), Provider(), guest, tuple(range(now)), None)


@pytest.mark.parametrize("machine", [False, True])
@pytest.mark.parametrize(("made", "now"), [(2, 1), (4, 1), (1, 2), (1, 4)])
def test_a_guest_is_not_started_on_another_number_of_cores_than_it_was_made_with(
    tmp_path, made, now, machine
):
    """An oversubscribed one with as many as it needs is not oversubscribed, and its record states it."""
    text = f"guest cpus-2 would get {now} cores? and had {min(made, 2)} when it was made: allow this process "
    text += rf"{min(made, 2)} cores? \(taskset, container\), or run `vbstudy provision` again"
    with pytest.raises(GuestError, match=text):
        session(tmp_path, made=made, now=now, machine=machine).executor()


@pytest.mark.parametrize("machine", [False, True])
@pytest.mark.parametrize(("made", "now"), [(2, 2), (2, 4), (4, 2), (1, 1)])
def test_a_guest_is_started_on_the_cores_it_was_made_with_or_where_there_are_more_than_it_needs(
    tmp_path, made, now, machine
):
    with pytest.raises(StartedError):
        session(tmp_path, made=made, now=now, machine=machine).executor()


@pytest.mark.parametrize(
    ("kind", "made", "now"), [("local", "cpuset", "affinity"), ("qemu", "accelerator", "tcg")]
)
def test_a_guest_that_a_start_would_give_less_than_it_was_made_with_is_refused(
    tmp_path, monkeypatch, kind, made, now
):
    """Its records would have what the inventory has."""

    def create(self, cores):
        raise CpusetUnavailable("permission denied")

    monkeypatch.setattr(Cpuset, "create", create)
    monkeypatch.setattr(qemu, "_which", lambda program: program)
    study = schema.parse(f'[provider]\nkind = "{kind}"\n[[workload]]\nmodel = "lenet1"\ndataset = "digits"\n')
    provider = make(study, Store(tmp_path))
    provider._prepared = Path("an image"), "tcg", "a kernel did not boot under it within 20 s"
    details = {made: {"cpuset": "cgroup", "accelerator": "kvm"}[made]}
    seen = Observation(provider_cpus=1, guest_cpus=1, oversubscribed=False, start_s=1.0, details=details)
    guest = Guest(spec=guest_spec(1), observed=seen, created_at="now")
    with pytest.raises(
        GuestError, match=f"made with {made} = '{details[made]}', now it is '{now}'; .*provision"
    ):
        Session(study, Store(tmp_path), provider, guest, (0,), None).executor()
