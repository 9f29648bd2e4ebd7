"""What dask runs on a host: its own functions, by name, with plain values."""

from __future__ import annotations

import asyncio
import dataclasses
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from distributed import Worker, get_worker

from guest.records.codec import from_json
from orchestrator.fleet.host import Host
from orchestrator.fleet.orders import Order

EXTENSION = "vbstudy"
NO_HOST = "is a dask worker that was not started by vbstudy: start `vbstudy worker` on that host"

# Runs outlast the tasks that asked for them, so they have threads of their own, not dask's.
_threads = ThreadPoolExecutor(max_workers=1024, thread_name_prefix="run")


async def perform(order: dict[str, Any]) -> dict[str, Any]:
    """One run, as `Host.perform`."""
    host = _host(get_worker())
    decoded = from_json(Order, order, "order")
    receipt = await asyncio.get_running_loop().run_in_executor(_threads, host.perform, decoded)
    return dataclasses.asdict(receipt)


def describe(dask_worker: Worker) -> dict[str, Any]:
    host = dask_worker.extensions.get(EXTENSION)
    return {"trouble": NO_HOST} if host is None else host.describe()


async def at_hand(key: str, dask_worker: Worker) -> list[str]:
    return await asyncio.to_thread(_host(dask_worker).at_hand, key)


async def stop(key: str, dask_worker: Worker) -> None:
    await asyncio.to_thread(_host(dask_worker).stop, key)


async def rest(key: str, delivered: list[str], dask_worker: Worker) -> None:
    host = _host(dask_worker)
    await asyncio.to_thread(host.delivered, key, delivered)
    await asyncio.to_thread(host.rest, key)


def _host(worker: Worker) -> Host:
    host = worker.extensions.get(EXTENSION)
    if not isinstance(host, Host):
        raise RuntimeError(NO_HOST)  # noqa: TRY004  (not a matter of types to whoever reads it)
    return host
