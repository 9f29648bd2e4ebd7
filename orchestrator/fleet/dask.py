"""Runs on many hosts: dask.distributed carries orders for runs to the workers of hypervisor hosts, and brings
back what came of them. Guests are made there, by the study's provider.

The study's store is the ledger. The scheduler holds nothing that counts: when it, a worker or this process is
restarted, what the store does not have is asked for again, first where it is under way or done already."""

from __future__ import annotations

import contextlib
import hashlib
import os
import socket
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from distributed import Client

from guest.records.codec import to_json
from guest.records.run import Random, RunSpec
from orchestrator.agent import archive
from orchestrator.engine import Observer, Summary
from orchestrator.errors import UsageError
from orchestrator.fleet import tasks
from orchestrator.fleet.clusters import scheduler
from orchestrator.fleet.dispatch import Dispatch, SchedulerLostError, ask
from orchestrator.fleet.events import Events
from orchestrator.fleet.fleet import Fleet
from orchestrator.fleet.orders import Order
from orchestrator.fleet.worker import topic
from orchestrator.store.index import Checked
from orchestrator.store.store import Store
from orchestrator.study import snapshots
from orchestrator.study.providers import SshTable, with_absolute_paths
from orchestrator.study.schema import Study
from orchestrator.text import Say
from vbstudy.dask_worker import perform

FIRST_PATIENCE_S = 15.0
PATIENCE_S = 600.0


class DaskEngine:
    """`notify` gets news of hosts and the scheduler."""

    def __init__(self, study: Study, store: Store, notify: Say) -> None:
        if isinstance(study.provider, SshTable):
            raise UsageError(
                "provider.kind = 'ssh' needs no dask: its machines are reached from one place. Sweep with "
                "engine.kind = 'local', or start `vbstudy worker` on them and choose another provider"
            )
        for table in study.projects:
            bound = [f"wheels = {table.wheels!r}"] if table.wheels else []
            bound += ["random = 'replay'"] if table.random is Random.REPLAY else []
            if bound:
                raise UsageError(
                    f"workload {table.name!r}: {bound[0]} is not sent to other hosts: sweep with "
                    "engine.kind = 'local'"
                )
        self._study = study
        self._store = store
        self._notify = notify
        place = f"{socket.gethostname()}:{store.directory.resolve()}"
        self._key = f"{study.name}-{hashlib.sha256(os.fsencode(place)).hexdigest()[:12]}"

    def has_guest(self, name: str) -> bool:  # noqa: ARG002
        return True  # hosts make what they are asked for

    def run(self, specs: Sequence[RunSpec], observer: Observer, summary: Summary, checked: Checked) -> None:
        if not specs:
            return
        snapshots.prepare(self._study, self._store)
        fleet = Fleet(self._study, self._store, self._key, observer, summary, checked, self._notify)
        fleet.expect(specs)
        order = self._orders(fleet)
        with scheduler(self._study.engine, self._store, self._notify) as connect:
            patience_s = FIRST_PATIENCE_S
            while True:
                with self._connected(
                    connect(patience_s), fleet, Events(observer, fleet.specs, fleet.over)
                ) as client:
                    try:
                        fleet.run(client, Dispatch(client, fleet.packing, perform, order))
                    except SchedulerLostError:
                        self._notify("the scheduler is lost; its runs are handed out again")
                        patience_s = PATIENCE_S
                    else:
                        return

    def _orders(self, fleet: Fleet) -> Callable[[str, str], Any]:
        # Hosts keep their guests while this text is the same; how many runs there are is not their affair.
        tables = {
            name: with_absolute_paths(getattr(self._study, name), self._store.directory.resolve())
            for name in ("provider", "data")
        }
        ordered = self._study.model_copy(update=tables)
        study = ordered.model_dump_json(exclude_unset=True, exclude={"repetitions"})
        agent_sha256 = archive.build().sha256
        # point: token left
        directory, token = str(self._store.directory.resolve()), self._store.leave_token()
        parcel = snapshots.parcel(self._study, self._store)

        def order(run: str, host: str) -> Any:
            made = Order(
                study=study,
                key=self._key,
                spec=fleet.specs[run],
                agent_sha256=agent_sha256,
                directory=directory,
                token=token,
                delivered=fleet.take_delivered(host),
                projects=parcel,
            )
            return to_json(made)

        return order

    @contextlib.contextmanager
    def _connected(self, client: Client, fleet: Fleet, events: Events) -> Iterator[Client]:
        """Follows the events of hosts; lets them rest in the end, and stops their runs on an interrupt."""
        self._notify(f"dashboard: {client.dashboard_link}")
        try:
            client.subscribe_topic(topic(self._key), events)
            yield client
            for host in fleet.packing.hosts():
                # point: host sent to rest
                self._ask(client, host, tasks.rest, self._key, list(fleet.take_delivered(host)))
        except BaseException:
            for host in fleet.packing.hosts():
                self._ask(client, host, tasks.stop, self._key)
            raise
        finally:
            client.close(timeout=1)

    def _ask(self, client: Client, host: str, task: Callable[..., Any], *arguments: Any) -> None:
        """What a host that cannot be asked any more can do without."""
        try:
            ask(client, task, *arguments, host=host)
        except Exception as error:  # noqa: BLE001  (whatever is raised there, or on the way)
            self._notify(f"host {host}: does not answer: {error!r}")
