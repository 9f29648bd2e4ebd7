"""A client of the dask scheduler that a study names, or of a cluster that is started for the sweep."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import time
import tomllib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import dask
from distributed import Client, LocalCluster
from distributed.comm import connect
from distributed.core import Status
from distributed.security import Security
from tornado.ioloop import PeriodicCallback

from guest.records.printable import last_line
from orchestrator.cores.leases import host_cores, host_memory_mib
from orchestrator.engine import require_dask
from orchestrator.errors import GuestError, UsageError
from orchestrator.files import expand
from orchestrator.fleet.worker import PRELOAD
from orchestrator.store.store import Store
from orchestrator.study.engine import EngineTable, JobQueueTable, LocalClusterTable, SshClusterTable
from orchestrator.text import Say

LOOPBACK = "127.0.0.1"
CONNECT_TIMEOUT_S = 10.0
SUBMIT_EVERY_S = 10.0
KEYS = ("ca", "cert", "key")


@contextlib.contextmanager
def scheduler(settings: EngineTable, store: Store, notify: Say) -> Iterator[Callable[[float], Client]]:
    """What connects to the scheduler within a time in seconds, as often as is needed. A cluster of the
    study's is started before and ended after. Raises PrerequisiteError, GuestError."""
    quieten()
    with contextlib.ExitStack() as stack:
        address = settings.scheduler
        security = read_security(settings.security and store.directory / settings.security)
        if address is not None:
            require_known(address)
        else:
            link = dask.config.get("distributed.dashboard.link").replace("{host}", LOOPBACK)
            set_ = {"distributed.scheduler.work-stealing": False, "distributed.dashboard.link": link}
            stack.enter_context(dask.config.set(set_))
            address, security = stack.enter_context(_cluster(settings, store, security, notify))
        yield lambda patience_s: _connect(address, security, patience_s, notify)


def require_known(address: str) -> None:
    """Raises UsageError for a scheduler on a host that nobody knows."""
    host, _, port = address.partition("://")[2].rpartition(":")
    try:
        socket.getaddrinfo(host.strip("[]"), int(port))
    except OSError as error:
        raise UsageError(f"{address}: host {host!r} is not found: {error.strerror}") from None


def quieten() -> None:
    """dask logs lost workers and connections at length; the engine reports what matters."""
    for name in list(logging.root.manager.loggerDict):
        if name.partition(".")[0] in ("distributed", "tornado", "dask_jobqueue", "asyncssh"):
            logging.getLogger(name).setLevel(logging.CRITICAL + 1)


def read_security(path: Path | None) -> Security | None:
    """TLS for all connections, from a TOML file with `ca`, `cert` and `key`: PEM files, relative to it."""
    if path is None:
        return None
    try:
        data = tomllib.loads(expand(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path}: is not TOML: {error}") from None
    if set(data) != set(KEYS) or not all(isinstance(data[key], str) for key in KEYS):
        raise UsageError(f"{path}: must have the keys ca, cert and key, each the name of a PEM file")
    files = {key: expand(path).parent / expand(data[key]) for key in KEYS}
    missing = [str(file) for file in files.values() if not file.is_file()]
    if missing:
        raise UsageError(f"{path}: there is no file {', '.join(missing)}")
    made = _security(*(files[name] for name in KEYS))
    try:
        made.get_connection_args("client")
    except OSError as error:  # that of ssl too, which names no file
        raise UsageError(
            f"{path}: ca, cert and key must be PEM files, and key that of cert: {error}"
        ) from None
    return made


def _security(*files: Path) -> Security:
    """Of PEM files in the order of KEYS."""
    ca, cert, key = map(str, files)
    return Security(
        require_encryption=True,
        tls_ca_file=ca,
        tls_client_cert=cert,
        tls_client_key=key,
        tls_worker_cert=cert,
        tls_worker_key=key,
        tls_scheduler_cert=cert,
        tls_scheduler_key=key,
    )


def _made_for_jobs(store: Store) -> Security:
    """One certificate for all ends of a cluster, in files that its jobs read; the next sweep removes them."""
    folder, made = store.new_incoming().resolve(), Security.temporary()
    folder.chmod(0o700)
    cert, key = folder / "cert.pem", folder / "key.pem"
    cert.write_text(made.tls_client_cert)
    key.write_text(made.tls_client_key)
    return _security(cert, cert, key)  # it signs itself


def _connect(address: str, security: Security | None, patience_s: float, notify: Say) -> Client:
    deadline, reported = time.monotonic() + patience_s, False
    while True:
        try:
            asyncio.run(_greet(address, security))
            return Client(address, security=security, timeout=CONNECT_TIMEOUT_S, set_as_default=False)
        except (OSError, TimeoutError) as error:
            if time.monotonic() > deadline:
                raise GuestError(
                    f"the scheduler {address} does not answer: is it running (`dask scheduler`), is this its "
                    "address, and do both ends use TLS with certificates of one authority, or neither?",
                    evidence=str(error),
                ) from None
        if not reported:
            notify(f"the scheduler {address} does not answer; waiting for it")
            reported = True
        time.sleep(0.5)


async def _greet(address: str, security: Security | None) -> None:
    """Sees whether a scheduler answers, in a limited time; dask's client waits for a silent one for ever.
    Raises GuestError for what is none, OSError, TimeoutError."""
    proofs = (security or Security()).get_connection_args("client")
    try:
        comm = await asyncio.wait_for(connect(address, CONNECT_TIMEOUT_S, **proofs), CONNECT_TIMEOUT_S)
    except (OSError, TimeoutError):
        raise
    except Exception as error:  # noqa: BLE001  (whatever dask makes of noise)
        raise GuestError(
            f"what answers at {address} is no dask scheduler; give the scheduler's port, not its dashboard's",
            evidence=repr(error),
        ) from None
    comm.abort()


@contextlib.contextmanager
def _cluster(
    settings: EngineTable, store: Store, security: Security | None, notify: Say
) -> Iterator[tuple[str, Security | None]]:
    """Where no certificates are given, one is made for this cluster: other accounts reach its ports too."""
    table = settings.cluster or LocalClusterTable()
    try:
        match table:
            case LocalClusterTable():
                made = _local(table, store, security or Security.temporary())
            case SshClusterTable():
                made = _ssh(table, store)
            case JobQueueTable():
                made = job_queue(table, security or _made_for_jobs(store))
    except (OSError, TimeoutError, RuntimeError) as error:
        raise GuestError(f"the {table.kind} cluster was not started: {error}", evidence=repr(error)) from None
    with made:
        if isinstance(table, JobQueueTable):
            keep_submitted(made, table.jobs, notify)
        yield made.scheduler_address, made.security


def _worker_options(cores: int, memory_mib: int, arguments: Sequence[str] = ()) -> dict[str, Any]:
    """`arguments` are those of `dask_setup`."""
    return {
        "nthreads": cores,
        "resources": {"vcpu": cores, "memory": memory_mib},
        "preload": [PRELOAD],
        "preload_argv": list(arguments),
    }


def _local(table: LocalClusterTable, store: Store, security: Security) -> Any:
    if table.workers > len(host_cores()):
        raise UsageError(
            f"engine.cluster.workers = {table.workers}: this machine has {len(host_cores())} cores, and each "
            "worker needs one"
        )
    options = _worker_options(
        len(host_cores()) // table.workers,
        host_memory_mib() // table.workers,
        ("--folder", str(store.guests.resolve()), "--shares", str(table.workers)),
    )
    return LocalCluster(
        n_workers=table.workers,
        threads_per_worker=options.pop("nthreads"),
        processes=True,
        host=LOOPBACK,
        dashboard_address=f"{LOOPBACK}:0",
        security=security,
        memory_limit=0,
        silence_logs=logging.CRITICAL,
        **options,
    )


def _ssh(table: SshClusterTable, store: Store) -> Any:
    require_dask("asyncssh", ["asyncssh"])
    from distributed import SSHCluster

    options = _worker_options(table.cores, table.memory_mib)
    login: dict[str, Any] = {"port": table.port}
    if table.user:
        login["username"] = table.user
    if table.key:
        login["client_keys"] = [str(store.directory / expand(table.key))]
    if table.known_hosts:
        login["known_hosts"] = str(store.directory / expand(table.known_hosts))
    try:
        return SSHCluster(
            [table.hosts[0], *table.hosts],
            connect_options=login,
            worker_options={**options, "memory_limit": 0},
            # It listens on the address by which it is reached, and on no other.
            scheduler_options={"host": table.hosts[0], "port": 0, "dashboard_address": f"{LOOPBACK}:0"},
            worker_class=f"{PRELOAD}.HostNanny",
            remote_python=table.python,
        )
    except Exception as error:  # noqa: BLE001  (dask raises plain ones, asyncssh its own)
        raise GuestError(
            f"the ssh cluster was not started: {error}; does `ssh` log in to each of engine.cluster.hosts "
            "without a question, and has engine.cluster.python there vbstudy and distributed?",
            evidence=repr(error),
        ) from None


def job_queue(table: JobQueueTable, security: Security) -> Any:
    """A scheduler of its own, to which the jobs of a batch system will come; none is submitted yet."""
    require_dask("dask_jobqueue", ["dask-jobqueue"])
    import dask_jobqueue  # type: ignore[import-not-found,import-untyped,unused-ignore]

    options = _worker_options(table.cores, table.memory_mib)
    resources = ",".join(f"{name}={amount}" for name, amount in options["resources"].items())
    extra = {"python": table.python} if table.python else {}
    return dask_jobqueue.SLURMCluster(
        cores=table.cores,
        processes=1,
        memory=f"{table.memory_mib} MiB",
        walltime=table.walltime,
        queue=table.queue,
        account=table.account,
        interface=table.interface,
        job_extra_directives=list(table.directives),
        worker_extra_args=[
            "--worker-class", f"{PRELOAD}.HostWorker", "--dashboard-address", f"{LOOPBACK}:0",
            "--resources", resources, "--preload", PRELOAD,
        ],
        nanny=False,  # it would be ended together with the worker, before that has removed its guests
        scheduler_options={"dashboard_address": f"{LOOPBACK}:0"},
        security=security,
        **extra,
    )  # fmt: skip


def keep_submitted(cluster: Any, jobs: int, notify: Say) -> None:
    """Submits the jobs; one that was refused, or had connected and ends (its walltime is over, its node is
    gone), is submitted again. Raises GuestError where all are refused at first."""
    for _ in range(jobs):
        cluster.worker_spec.update(cluster.new_worker_spec())
    refusal, reported = cluster.sync(_submit, cluster), ""
    if refusal and not cluster.workers:
        raise GuestError(f"[engine.cluster]: {refusal}; check its queue, account and directives")

    def report(refusal: str) -> None:
        nonlocal reported
        if refusal and refusal != reported:
            notify(f"jobs that were refused are submitted again: {refusal}")
        reported = refusal

    async def again() -> None:
        report(await _submit(cluster))

    report(refusal)
    cluster.loop.add_callback(PeriodicCallback(again, SUBMIT_EVERY_S * 1000).start)


async def _submit(cluster: Any) -> str:
    """Submits the jobs that are lacking; the last line of why some were refused, or ""."""
    refusal = ""
    try:
        await cluster._correct_state()
    except (OSError, RuntimeError, ValueError) as error:
        refusal = last_line(str(error))
    for name, job in list(cluster.workers.items()):
        if job.job_id is None:  # dask would take it for submitted, and wait for its end
            job.status = Status.failed
            del cluster.workers[name]
    return refusal
