"""The command worker."""

from __future__ import annotations

from pathlib import Path

import click

from orchestrator.cli.options import SECURITY, FiniteRange, Options
from orchestrator.errors import UsageError

# Those that make guests on the machine that they run on.
PROVIDERS = ("local", "qemu", "vagrant", "virtualbox")


@click.command()
@click.argument("scheduler")
@click.option("--provider", type=click.Choice(PROVIDERS), default="local", help="What makes the guests "
              "here.")  # fmt: skip
@click.option("--cores", metavar="LIST", help="The cores that guests may have, such as 0-3,8.",
              show_default="all")  # fmt: skip
@click.option("--memory-mib", type=click.IntRange(min=1), metavar="M", show_default="all",
              help="The memory that guests may have, in MiB.")  # fmt: skip
@SECURITY
@click.option("--wait", "wait_s", type=FiniteRange(0, min_open=True), metavar="SECONDS",
              show_default="forever", help="How long to wait for a silent scheduler.")  # fmt: skip
@click.option("--folder", type=click.Path(path_type=Path), help="The folder of guests and undelivered "
              "runs.", show_default="~/.cache/vbstudy/hosts/NAME")  # fmt: skip
@click.pass_obj
def worker(
    options: Options,
    scheduler: str,
    provider: str,
    cores: str | None,
    memory_mib: int | None,
    security: Path | None,
    wait_s: float | None,
    folder: Path | None,
) -> None:
    """Make this machine a host for the sweeps of SCHEDULER (tcp://HOST:PORT or tls://HOST:PORT).

    One worker per machine is enough. It serves until it is stopped, waits for a scheduler that went away,
    and removes its guests when it ends."""
    from orchestrator.engine import require_dask
    from orchestrator.study.engine import scheduler_address

    require_dask()
    import os

    from orchestrator.cores.cpuset import parse_cores
    from orchestrator.cores.leases import host_cores, host_memory_mib
    from orchestrator.fleet.clusters import quieten, read_security, require_known
    from orchestrator.fleet.worker import hosts_folder, serve

    try:
        scheduler_address(scheduler)
    except ValueError as error:
        raise UsageError(f"{scheduler}: {error}") from None
    if scheduler.startswith("tls://") and security is None:
        raise UsageError(f"{scheduler}: needs --security FILE, with the keys ca, cert and key")
    try:
        wanted = host_cores() if cores is None else tuple(sorted(parse_cores(cores)))
    except ValueError:
        raise UsageError(f"--cores {cores}: write for example 0-3,8") from None
    if not wanted or not set(wanted) <= set(host_cores()):
        have = ",".join(map(str, host_cores()))
        raise UsageError(f"--cores {cores}: this process may use the cores {have}")
    proofs = read_security(security)
    require_known(scheduler)
    have_mib = host_memory_mib()
    if memory_mib is not None and memory_mib > have_mib:
        raise UsageError(f"--memory-mib {memory_mib}: this machine has {have_mib}")
    quieten()
    serve(
        scheduler,
        folder or hosts_folder() / os.uname().nodename,
        provider,
        wanted,
        memory_mib,
        proofs,
        wait_s,
        options.reporter(),
    )
