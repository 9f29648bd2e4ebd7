"""A guest that is started for runs."""

import pytest

from orchestrator.errors import GuestError
from orchestrator.guests.session import Session
from orchestrator.inventory import Guest, Observation, guest_spec
from orchestrator.store.store import Store
from orchestrator.study import schema


class StartedError(Exception):
    pass


class Provider:
    def stop(self, guest):
        raise StartedError


def session(tmp_path, oversubscribed: bool) -> Session:
    seen = Observation(provider_cpus=2, guest_cpus=2, oversubscribed=oversubscribed, start_s=1.0, details={})
    guest = Guest(spec=guest_spec(2), observed=seen, created_at="now")
    study = schema.parse('[[workload]]\nmodel = "lenet1"\ndataset = "digits"\n')
    return Session(study, Store(tmp_path), Provider(), guest, (0,), None)


def test_a_guest_is_not_started_on_fewer_cores_than_it_was_made_with(tmp_path):
    with pytest.raises(GuestError, match="guest cpus-2: 1 core for it, 2 when made"):
        session(tmp_path, oversubscribed=False).executor()


def test_an_oversubscribed_guest_is_started_on_the_cores_there_are(tmp_path):
    with pytest.raises(StartedError):
        session(tmp_path, oversubscribed=True).executor()
