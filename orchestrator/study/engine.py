"""The `[engine]` table of a study file, and the clusters that it can name."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, AliasChoices, Field, StrictBool, ValidationError, model_validator

from guest.records.run import CONTENDED_ABOVE
from orchestrator.errors import UsageError
from orchestrator.study.providers import MAX_S, MAX_THREADS, Count, Port, Seconds, Section

SCHEDULER = r"(tcp|tls)://(\[[0-9A-Fa-f:]+\]|[^\s:/@\[\]]+):\d{1,5}"

Hosts = Annotated[tuple[str, ...], Field(min_length=1)]


def scheduler_address(value: str) -> str:
    """Raises ValueError for what no scheduler is reached by."""
    if not re.fullmatch(SCHEDULER, value):
        raise ValueError("an address like 'tcp://host:8786' or 'tls://host:8786' is needed")
    return value


class LocalClusterTable(Section):
    """Workers on this machine, which share its cores."""

    kind: Literal["local"] = "local"
    workers: Count = 1


class SshClusterTable(Section):
    """Workers that are started over SSH, one a host; the scheduler on the first host."""

    kind: Literal["ssh"]
    hosts: Hosts = Field(examples=[["node1", "node2"]])
    cores: Count = Field(examples=[8])
    memory_mib: Count = Field(examples=[32000])
    user: str | None = Field(default=None, examples=["me"])
    port: Port = 22
    key: Path | None = Field(default=None, examples=["id_ed25519"])
    known_hosts: Path | None = Field(default=None, examples=["known_hosts"])
    python: str = "python3"


class JobQueueTable(Section):
    """Workers that are jobs of a batch system, each on a node of its own."""

    kind: Literal["slurm"]
    jobs: Count = Field(examples=[8])
    cores: Count = Field(examples=[32])
    memory_mib: Count = Field(examples=[64000])
    walltime: str = "24:00:00"
    queue: str | None = Field(default=None, examples=["long"])
    account: str | None = Field(default=None, examples=["me"])
    directives: tuple[str, ...] = Field(default=(), examples=[["--exclusive"]])
    interface: str | None = Field(default=None, examples=["ib0"])
    python: str | None = Field(default=None, examples=["python3"])


ClusterTable = Annotated[LocalClusterTable | SshClusterTable | JobQueueTable, Field(discriminator="kind")]


class EngineTable(Section):
    """How runs are executed. `cluster` and `scheduler` belong to kind = "dask": a cluster is started and
    ended with the sweep, a scheduler is there already."""

    retries: int = Field(default=1, ge=0, le=100)
    timeout_s: Seconds = 24 * 3600
    heartbeat_s: Seconds = 5
    lost_after_s: Seconds = 120
    side_by_side: StrictBool = True
    hyper_threads: StrictBool = True
    reserve: int = Field(default=0, ge=0, le=MAX_THREADS, strict=True)
    contended_above: float = Field(
        default=CONTENDED_ABOVE,
        gt=0,
        strict=True,
        validation_alias=AliasChoices("contended_above", "disturbed_above"),  # the second in older studies
    )
    redo_contended: StrictBool = Field(
        default=False, validation_alias=AliasChoices("redo_contended", "redo_disturbed")
    )
    kind: Literal["local", "dask"] = "local"
    scheduler: Annotated[str, AfterValidator(scheduler_address)] | None = Field(
        default=None, examples=["tcp://node0:8786"]
    )
    security: Path | None = Field(default=None, examples=["security.toml"])
    workers_wait_s: float = Field(default=600, ge=0, le=MAX_S, strict=True)
    cluster: ClusterTable | None = None

    @model_validator(mode="after")
    def _heartbeats_arrive_in_time(self) -> Self:
        if self.heartbeat_s >= self.lost_after_s:
            raise ValueError(
                f"heartbeat_s = {self.heartbeat_s:g} must be below lost_after_s = {self.lost_after_s:g}: "
                "every run that takes longer would count as lost"
            )
        return self

    @model_validator(mode="after")
    def _belongs_to_dask(self) -> Self:
        if self.kind == "local" and (self.scheduler or self.cluster or self.security):
            raise ValueError('scheduler, security and cluster belong to kind = "dask"')
        if self.scheduler and self.cluster:
            raise ValueError("either a scheduler that is there, or a cluster that is started; not both")
        if self.security and isinstance(self.cluster, SshClusterTable):
            raise ValueError(
                "a cluster of kind ssh cannot use TLS: start scheduler and workers by hand for that"
            )
        if self.scheduler and self.scheduler.startswith("tls://") and not self.security:
            raise ValueError('a tls:// scheduler needs security = "FILE" (keys ca, cert, key)')
        return self


def on_scheduler(table: EngineTable, address: str, security: Path | None) -> EngineTable:
    """The same with the scheduler that the command line names. Raises UsageError."""
    kept = table.model_dump(exclude_unset=True, exclude={"cluster"})
    named = {"security": security.resolve()} if security else {}
    try:
        return EngineTable.model_validate(kept | {"kind": "dask", "scheduler": address} | named)
    except ValidationError as error:
        reason = str(error.errors()[0]["msg"]).removeprefix("Value error, ")
        raise UsageError(f"--scheduler {address}: {reason}") from None


ENGINE_TABLES: dict[str, type[Section]] = {
    "engine": EngineTable,
    "engine.cluster.local": LocalClusterTable,
    "engine.cluster.ssh": SshClusterTable,
    "engine.cluster.slurm": JobQueueTable,
}
