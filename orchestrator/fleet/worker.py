"""The dask worker of a hypervisor host: `vbstudy worker`, and what makes workers that others start (dask's
own clusters, batch systems) into such ones (`dask worker --preload vbstudy.dask_worker`)."""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import signal
import time
from pathlib import Path
from typing import Any

import click
from distributed import Nanny, Worker
from distributed.comm import get_address_host
from distributed.security import Security
from distributed.utils import get_ip

from orchestrator.cores.leases import host_cores, host_memory_mib
from orchestrator.errors import GuestError, UsageError
from orchestrator.fleet.host import Host
from orchestrator.fleet.tasks import EXTENSION
from orchestrator.text import Say
from vbstudy import caches

PRELOAD = "vbstudy.dask_worker"  # exports what others start
BACK_AFTER_S = 0.5
TOLD_EVERY_S = 10.0


def hosts_folder() -> Path:
    """The folders of this user's workers on this machine, with runs that are not delivered yet."""
    return caches.folder() / "hosts"


class HostWorker(Worker):  # type: ignore[misc]
    """Listens where its scheduler reaches it, and nowhere else: whoever reaches a worker can run code there.
    Leaves at once when its scheduler is gone: runs go on without it, in threads of their own."""

    def __init__(self, scheduler_ip: str, *arguments: Any, **options: Any) -> None:
        super().__init__(scheduler_ip, *arguments, **_facing(scheduler_ip, options))

    async def close(self, *arguments: Any, **options: Any) -> Any:
        return await super().close(*arguments, **options | {"executor_wait": False})


class HostNanny(Nanny):  # type: ignore[misc]
    """The same for the process that restarts a worker when it dies."""

    def __init__(self, scheduler_ip: str, *arguments: Any, **options: Any) -> None:
        super().__init__(scheduler_ip, *arguments, **_facing(scheduler_ip, options))


def _facing(scheduler: str, options: dict[str, Any]) -> dict[str, Any]:
    """The options of a worker, with the address to listen on; dask's default is every one of the machine."""
    if options.get("host") or options.get("interface"):
        return options
    mine = get_ip(get_address_host(scheduler))
    return options | {"host": f"[{mine}]" if ":" in mine else mine}


def serve(
    scheduler: str,
    folder: Path,
    provider: str,
    cores: tuple[int, ...],
    memory_limit_mib: int | None,
    security: Security | None,
    wait_s: float | None,
    notify: Say,
) -> None:
    """Serves until it is interrupted, or terminated. A scheduler that goes is waited for: runs that are
    under way go on, and are handed over to whoever asks for them when it is back. Raises GuestError for one
    that does not answer within `wait_s`."""
    os.sched_setaffinity(0, cores)  # inherited by every thread and guest
    host = Host(folder, provider)
    try:
        asyncio.run(_serve(host, scheduler, folder, memory_limit_mib, security, wait_s, notify))
    finally:
        host.end()


async def _serve(
    host: Host,
    scheduler: str,
    folder: Path,
    memory_limit_mib: int | None,
    security: Security | None,
    wait_s: float | None,
    notify: Say,
) -> None:
    ended = asyncio.Event()
    hang_up = () if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN else (signal.SIGHUP,)  # as of nohup
    for number in (signal.SIGINT, signal.SIGTERM, *hang_up):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    resources = {"vcpu": len(host.cores), "memory": memory_limit_mib or host_memory_mib()}
    since, told = time.monotonic(), ""
    limit_s = math.inf if wait_s is None else wait_s

    def left_s() -> float:
        return limit_s - (time.monotonic() - since)

    while not ended.is_set():
        if not told:
            notify(f"looking for the scheduler {scheduler}")
        worker = HostWorker(
            scheduler,
            nthreads=len(host.cores),
            name=f"{os.uname().nodename}-{os.getpid()}",
            resources=resources,
            local_directory=str(folder / "dask"),
            memory_limit=0,
            security=security,
        )
        attach(worker, host)
        start, silent = asyncio.ensure_future(worker.start()), False
        while not silent:
            await _first(start, ended.wait(), asyncio.sleep(min(TOLD_EVERY_S, left_s())))
            if start.done() or ended.is_set():
                break
            silent = left_s() <= 0
            if not silent:
                waited_s = time.monotonic() - since
                notify(
                    f"the scheduler {scheduler} does not answer; waiting for it, {waited_s:.0f} s so far: "
                    "is it running, and is this its address?"
                )
        if not start.done():
            start.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await start
        elif start.exception() is None:
            notify(f"at work for {scheduler}: {resources['vcpu']} cores, {resources['memory']} MiB")
            await _first(worker.finished(), ended.wait())
            if not ended.is_set():
                notify("the scheduler is gone; runs that are under way go on")
            since, told = time.monotonic(), ""
        else:
            silent = left_s() <= 0
            why = f"the scheduler {scheduler} cannot be used; trying again: {start.exception()!r:.200}"
            if not silent and why != told:
                notify(why)
                told = why
        await worker.close(reason="vbstudy-worker")
        if silent:
            raise GuestError(f"the scheduler {scheduler} did not answer within --wait {wait_s:g} s")
        await _first(asyncio.sleep(BACK_AFTER_S), ended.wait())


async def _first(*awaitables: Any) -> None:
    """Returns when one of them is done; the others that were made here are given up."""
    tasks = [asyncio.ensure_future(awaitable) for awaitable in awaitables]
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task, given in zip(tasks, awaitables, strict=True):
        if task is not given and not task.done():
            task.cancel()


def attach(worker: Worker, host: Host) -> None:
    """Makes this worker take the orders of that host."""

    def tell(key: str, event: dict[str, Any]) -> None:
        worker.log_event(topic(key), event)

    worker.extensions[EXTENSION] = host
    host.tell = tell


def topic(key: str) -> str:
    """Where events of a study are published."""
    return f"vbstudy-{key}"


@click.command()
@click.option("--folder", type=click.Path(path_type=Path))
@click.option("--shares", type=int, default=1)
def dask_setup(worker: Worker, folder: Path | None, shares: int) -> None:
    """For dask's own workers. `shares`: how many there are on this machine, named from 0 on."""
    cores = host_cores()
    number = int(worker.name) if shares > 1 else 0
    os.sched_setaffinity(0, cores[number * len(cores) // shares : (number + 1) * len(cores) // shares])
    attach(worker, _host(folder or hosts_folder()))
    if worker.nanny is None:  # dask would end at once, and leave the guests
        _close_when_told(worker)


def _host(folder: Path) -> Host:
    """In the first folder that no other worker on this machine holds: the next worker finds there what a
    killed one left. (dask's own name of a worker is an address, which is another each time.)"""
    number = 0
    while True:
        with contextlib.suppress(UsageError):
            return Host(folder / f"{os.uname().nodename}-{number}")
        number += 1


def _close_when_told(worker: Worker) -> None:
    """Batch systems end a job by signals, to all of its processes, and kill it a little later."""
    loop = asyncio.get_running_loop()

    def close() -> None:
        closing.append(asyncio.ensure_future(worker.close(executor_wait=False, reason="signal")))

    closing: list[asyncio.Future[Any]] = []  # the loop alone would forget it
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, close)


async def dask_teardown(worker: Worker) -> None:
    host = worker.extensions.pop(EXTENSION)
    await asyncio.to_thread(host.end)
