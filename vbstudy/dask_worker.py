"""Turns a dask worker into a host of vbstudy: `dask worker --preload vbstudy.dask_worker`."""

from typing import Any

from vbstudy.__main__ import find_application

find_application()

from orchestrator.fleet import tasks  # noqa: E402
from orchestrator.fleet.worker import HostNanny, HostWorker, dask_setup, dask_teardown  # noqa: E402

__all__ = ["HostNanny", "HostWorker", "dask_setup", "dask_teardown", "perform"]


async def perform(order: dict[str, Any]) -> dict[str, Any]:
    """`tasks.perform`, by a name that a scheduler can import: in a wheel, `orchestrator` is found by this
    module alone."""
    return await tasks.perform(order)
