"""What it costs to hand a run to a host and to take back what comes of it, on a dask cluster of four local
workers: runs that do nothing, so that nothing but this is measured.

What is fair about it: plain dask gets the same function, the same orders and the same resources, handed over
in one go and gathered as they end; it places them as it likes, where ours are placed one by one by what each
host has room for. Both take turns in one run of the benchmark. The last row is the whole way of a run in a
sweep, with the checking and the durable publishing of its files, which plain dask has not."""

from __future__ import annotations

import contextlib
import dataclasses
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from distributed import Client, LocalCluster, as_completed

from benchmarks.fabricated import plain_record
from benchmarks.table import Row, over
from guest.records.codec import from_json, seal, to_json
from guest.records.run import ARTIFACTS, RunSpec
from orchestrator.engine import Summary
from orchestrator.engine.packing import Packing, Room
from orchestrator.fleet.clusters import LOOPBACK, quieten
from orchestrator.fleet.dispatch import Dispatch
from orchestrator.fleet.fleet import Fleet
from orchestrator.fleet.orders import Order, Receipt
from orchestrator.fleet.worker import PRELOAD
from orchestrator.store.index import Checked
from orchestrator.store.store import Store
from orchestrator.study.plan import plan
from orchestrator.study.schema import Study, parse
from orchestrator.sweep.progress import composite

RATIO = 1.2
OVERHEAD_MS = 30.0
WORKERS, SLOTS = 4, 4  # of each worker
TURNS = 5
STUDY = """
cpus = [1]
variants = ["fixed-seed"]
[[workload]]
name = "none"
model = "lenet1"
dataset = "digits"
"""


def nothing(order: dict[str, Any]) -> str:
    """A run that does nothing."""
    return str(order["key"])


def nothing_kept(order: dict[str, Any]) -> dict[str, Any]:
    """The same with the files and the record of a run."""
    files = dict.fromkeys(ARTIFACTS, b"nothing")
    record = plain_record(from_json(Order, order, "order").spec, files)
    return dataclasses.asdict(Receipt(host="", record=seal(record), files=files))


def measure(name: str, runs: int, report: Callable[[str], None]) -> list[Row]:
    study = parse(STUDY)
    specs = plan(study, runs)
    orders = {
        spec.run_id: to_json(Order(study=STUDY, key="benchmark", spec=spec, agent_sha256=""))
        for spec in specs
    }
    plain: list[float] = []
    ours: list[float] = []
    with tempfile.TemporaryDirectory() as folder, _cluster(Path(folder)) as client:
        _plainly(client, orders)  # imports what is imported once
        for turn in range(TURNS):
            plain.append(_plainly(client, orders))
            ours.append(_dispatched(client, specs, orders))
            report(f"turn {turn + 1} of {TURNS}: dask {plain[-1]:.2f} s, dispatched {ours[-1]:.2f} s")
        swept_s = _swept(client, study, specs, Store(Path(folder) / "study"))
    what = f"runs that do nothing on {WORKERS} local workers, against plain dask submission"
    ratio, n = sum(ours) / sum(plain), f"{TURNS} x {runs}"
    ours_ms, swept_ms = [1000 * seconds / runs for seconds in ours], [1000 * swept_s / runs]
    mean_ms = sum(ours_ms) / TURNS
    published = "the same with checked and durably published files"
    return [
        Row(what, over(ours, plain), name=name, n=n, value=ratio, at_most=RATIO),
        Row("dispatch overhead a run", ours_ms, "ms", n=n, value=mean_ms, at_most=OVERHEAD_MS),
        Row(published, swept_ms, "ms", n=str(runs), at_most=OVERHEAD_MS),
    ]


@contextlib.contextmanager
def _cluster(folder: Path) -> Iterator[Client]:
    quieten()
    with (
        LocalCluster(
            n_workers=WORKERS,
            threads_per_worker=SLOTS,
            host=LOOPBACK,
            dashboard_address=None,
            resources={"vcpu": SLOTS},
            memory_limit=0,
            preload=[PRELOAD],
            preload_argv=["--folder", str(folder)],
        ) as cluster,
        Client(cluster) as client,
    ):
        yield client


def _plainly(client: Client, orders: dict[str, Any]) -> float:
    began = time.perf_counter()
    futures = [client.submit(nothing, order, resources={"vcpu": 1}, pure=False) for order in orders.values()]
    got = sum(1 for _ in as_completed(futures, with_results=True))
    assert got == len(orders)
    return time.perf_counter() - began


def _dispatched(client: Client, specs: list[RunSpec], orders: dict[str, Any]) -> float:
    began = time.perf_counter()
    packing = Packing()
    for spec in specs:
        packing.add(spec.set_id, spec.run_id, Room(cpus=spec.threads.cpus))
    dispatch = Dispatch(client, packing, nothing, lambda run, host: orders[run])  # noqa: ARG005
    got = 0
    while got < len(specs):
        for landed in dispatch.step(packing.add_host, lambda host, runs: None):  # noqa: ARG005
            assert landed.value == "benchmark", landed.error
            got += 1
    return time.perf_counter() - began


def _swept(client: Client, study: Study, specs: list[RunSpec], store: Store) -> float:
    """The whole way, but for the run itself."""
    store.directory.mkdir()
    began = time.perf_counter()
    summary = Summary()
    checked = Checked(store.runs, {}, None)
    fleet = Fleet(study, store, "benchmark", composite(), summary, checked, lambda text: None)  # noqa: ARG005
    fleet.expect(specs)

    def order(run: str, host: str) -> Any:
        delivered, spec = fleet.take_delivered(host), fleet.specs[run]
        return to_json(Order(study=STUDY, key="benchmark", spec=spec, agent_sha256="", delivered=delivered))

    fleet.run(client, Dispatch(client, fleet.packing, nothing_kept, order))
    took_s = time.perf_counter() - began
    assert summary.done_now == len(specs) == len(list(store.records()))
    return took_s
