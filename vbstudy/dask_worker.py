"""Turns a dask worker into a host of vbstudy: `dask worker --preload
vbstudy.dask_worker`."""

from vbstudy.__main__ import find_application

find_application()

from orchestrator.fleet.worker import HostNanny, HostWorker, dask_setup, dask_teardown  # noqa: E402

__all__ = ["HostNanny", "HostWorker", "dask_setup", "dask_teardown"]
