"""The `[provider]` table of a study file: one model for each kind of provider."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    PlainValidator,
    StrictBool,
    Tag,
    field_validator,
    model_validator,
)

from guest.records.run import CPU_MODEL

MAX_THREADS = 1024
MAX_S = 365 * 24 * 3600  # a year: no clock or system call overflows

Count = Annotated[int, Field(ge=1, lt=2**31, strict=True)]
ThreadCount = Annotated[int, Field(ge=1, le=MAX_THREADS, strict=True)]
Seconds = Annotated[float, Field(gt=0, le=MAX_S, strict=True)]
Port = Annotated[int, Field(ge=1, le=65535, strict=True)]


def _host_key(value: str) -> str:
    from orchestrator.errors import UsageError
    from orchestrator.transport.keys import parse_public

    try:
        return parse_public(value)
    except UsageError:
        raise ValueError(
            "is not a public key, or not all of it; it looks like 'ssh-ed25519 AAAA...'"
        ) from None


HostKey = Annotated[str, AfterValidator(_host_key)]


def matching(pattern: str, needed: str) -> AfterValidator:
    """For a text that the whole pattern fits; `needed` tells a person so."""

    def check(value: str) -> str:
        if not re.fullmatch(pattern, value):
            raise ValueError(needed)
        return value

    return AfterValidator(check)


CREDENTIALS = re.compile(r"^https?://[^/]*@|^\w+://[^/@]*:[^/@]*@")


def no_credentials(url: str) -> str:
    """Raises ValueError for a URL with a password in it, or with what is used as one."""
    if CREDENTIALS.search(url):
        raise ValueError(
            "has a user or password in it, which would be stored with every run and published; leave it to "
            "git's credential helper or ~/.netrc, or use an ssh:// URL"
        )
    return url


class Section(BaseModel):
    """A table of the study file; unknown keys are errors, numbers are finite, and no text has a NUL."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    @field_validator("*")
    @classmethod
    def _has_no_nul(cls, value: Any) -> Any:
        texts = value if isinstance(value, tuple) else (value,)
        if any(isinstance(text, str | Path) and "\0" in str(text) for text in texts):
            raise ValueError("has a NUL character, which no path and no argument of a program can have")
        return value


Table = TypeVar("Table", bound=Section)


class LocalTable(Section):
    """Process sandboxes on this machine."""

    kind: Literal["local"] = "local"
    python: str | None = Field(default=None, examples=["/path/to/python"])
    cpuset: Literal["auto", "cgroup", "affinity"] = "auto"


def _home_path(value: str) -> str:
    """A path that begins with `~/`, without it: others count from the account's home too."""
    path = value.removeprefix("~/")
    if not path or path.startswith("~"):
        raise ValueError("a folder in the account's home, or a path that begins with / is needed")
    return path


HostPython = Annotated[
    str, matching(r"(?s)/.*|[^/~]+", "a command, or a path on the host that begins with / is needed")
]


class SshHostTable(Section):
    """A machine that is there already. `cpus` is how many of its cores may be used."""

    host: Annotated[
        str,
        # A colon alone begins a port, those of an IPv6 address are two at least.
        matching(
            r"[^\s@:[\]-][^\s@:[\]]*|[^\s@[\]-]*:[^\s@[\]]*:[^\s@[\]]*",
            "a host name or an address is needed; user and port are keys of their own",
        ),
    ] = Field(examples=["node1"])
    cpus: ThreadCount = Field(examples=[8])
    user: str | None = Field(default=None, examples=["me"])
    port: Port = 22
    key: Path | None = Field(default=None, examples=["id_ed25519"])
    host_key: HostKey | None = Field(default=None, examples=["ssh-ed25519 AAAA..."])
    known_hosts: Path | None = Field(default=None, examples=["known_hosts"])
    python: HostPython = "python3"
    folder: Annotated[str, AfterValidator(_home_path)] = ".vbstudy"

    @model_validator(mode="after")
    def _one_source_of_its_key(self) -> Self:
        if self.host_key and self.known_hosts:
            raise ValueError("host_key and known_hosts each say which key it must show; leave one out")
        return self


class SshTable(Section):
    """Existing machines, reached over SSH."""

    kind: Literal["ssh"]
    hosts: tuple[SshHostTable, ...]
    cpuset: Literal["auto", "cgroup", "affinity"] = "auto"
    use_ssh_config: StrictBool = False
    connect_timeout_s: Seconds = 20
    patience_s: float = Field(default=30, ge=0, le=MAX_S, strict=True)

    @field_validator("hosts")
    @classmethod
    def _some(cls, value: tuple[SshHostTable, ...]) -> tuple[SshHostTable, ...]:
        if not value:
            raise ValueError("at least one is needed")
        accounts = [(each.user, each.host, each.port) for each in value]
        for account in accounts:
            if accounts.count(account) > 1:
                raise ValueError(f"host {account[1]!r} is named twice with the same user and port")
        return value


def _cpu_model(value: Any) -> str | tuple[str, ...]:
    models = value if isinstance(value, list | tuple) else [value]
    for model in models:
        if not isinstance(model, str) or not re.fullmatch(CPU_MODEL, model):
            raise ValueError("a model as `qemu-system-x86_64 -cpu help` lists it is needed, or several in []")
        if models.count(model) > 1:
            raise ValueError(f"{model!r} is named twice")
    if not models:
        raise ValueError("at least one is needed")
    return tuple(value) if isinstance(value, list | tuple) else value


CpuModel = Annotated[str | tuple[str, ...], PlainValidator(_cpu_model)]
"""One model for all guests, or several to be compared: then there is a guest for each."""


PythonVersion = Annotated[
    str, matching(r"3\.(1[1-9]|[2-9]\d)", "a Python like '3.12', 3.11 at least, is needed")
]


class QemuTable(Section):
    """Virtual machines on this machine."""

    kind: Literal["qemu"]
    memory_mib: int = Field(default=2048, ge=512, le=1 << 20, strict=True)
    cpu_model: CpuModel = "max"
    accelerator: Literal["auto", "kvm", "tcg"] = "auto"
    snapshot: StrictBool = True
    boot_timeout_s: Seconds = 300
    image: Path | None = Field(default=None, examples=["debian-12.qcow2"])
    python: str = "/usr/bin/python3"
    python_version: PythonVersion | None = Field(default=None, examples=["3.11"])

    @model_validator(mode="after")
    def _belongs_to_an_image(self) -> Self:
        if self.image is None and self.model_fields_set & {"python", "python_version"}:
            raise ValueError("python and python_version belong to an image of your own (image = ...)")
        return self


Box = Annotated[
    str,
    matching(
        r"[A-Za-z0-9][A-Za-z0-9_.-]*(/[A-Za-z0-9][A-Za-z0-9_.-]*)?",
        "a box as `vagrant box list` names it is needed, such as 'debian/bookworm64'",
    ),
]


class VagrantTable(Section):
    """Machines that Vagrant makes from a box."""

    kind: Literal["vagrant"]
    hypervisor: Literal["virtualbox", "libvirt"] = "virtualbox"
    box: Box = "debian/bookworm64"
    memory_mib: int = Field(default=2048, ge=512, le=1 << 20, strict=True)
    python: str | None = Field(default=None, examples=["/usr/bin/python3"])
    boot_timeout_s: Seconds = 300


DISK_IMAGES = (".vdi", ".vmdk", ".vhd", ".vhdx", ".qcow2", ".raw", ".img")
APPLIANCES = (".ova", ".ovf")


Sha256 = Annotated[
    str,
    matching("[0-9A-Fa-f]{64}", "64 hexadecimal digits are needed, as in the publisher's SHA256SUMS"),
]
Url = Annotated[
    str,
    matching(r"https?://\S+", "an address that begins with https:// or http:// is needed"),
    AfterValidator(no_credentials),
]
GuestPath = Annotated[str, matching("(?s)/.*", "a path in the guest that begins with / is needed")]


class VirtualBoxTable(Section):
    """Machines under VirtualBox, cloned from `base`: a file, or the name or number of a machine."""

    kind: Literal["virtualbox"]
    base: str = Field(min_length=1, examples=["image.vdi"])
    base_sha256: Sha256 | None = Field(default=None, examples=["..."])
    url: Url | None = Field(default=None, examples=["https://..."])
    cloud_init: StrictBool = False
    user: str = "root"
    key: Path | None = Field(default=None, examples=["id_ed25519"])
    host_key: HostKey | None = Field(default=None, examples=["ssh-ed25519 AAAA..."])
    python: str = "python3"
    folder: GuestPath = "/var/tmp/vbstudy"  # noqa: S108  (in the guest, which is the study's alone)
    memory_mib: int = Field(default=2048, ge=64, le=1 << 20, strict=True)
    nested_paging: StrictBool = True
    execution_engine: Literal["auto", "native", "interpreter"] = "auto"
    snapshot: Literal["live", "saved", "off"] = "live"
    boot_timeout_s: Seconds = 300

    def is_file(self) -> bool:
        """Whether `base` names a disk image or an appliance, rather than a machine."""
        return Path(self.base).suffix.lower() in DISK_IMAGES + APPLIANCES

    @model_validator(mode="after")
    def _belongs_together(self) -> Self:
        if self.url and not self.base_sha256:
            raise ValueError("url needs base_sha256, so that what arrives can be checked")
        if (self.url or self.base_sha256) and not self.is_file():
            named = ", ".join(DISK_IMAGES + APPLIANCES)
            raise ValueError(f"url and base_sha256 go with a base that is a file ({named})")
        if self.cloud_init and self.host_key:
            raise ValueError("with cloud_init the study gives the guest its host key; leave host_key out")
        return self


def _kind(value: Any) -> str:
    if isinstance(value, dict):
        return str(value.get("kind", "local"))
    return str(getattr(value, "kind", "local"))


ProviderTable = Annotated[
    Annotated[LocalTable, Tag("local")]
    | Annotated[SshTable, Tag("ssh")]
    | Annotated[QemuTable, Tag("qemu")]
    | Annotated[VagrantTable, Tag("vagrant")]
    | Annotated[VirtualBoxTable, Tag("virtualbox")],
    Discriminator(_kind),
]

# How guests are reached and started, not which machines they are.
ACCESS = {
    "hosts", "user", "key", "host_key", "use_ssh_config", "connect_timeout_s", "patience_s", "boot_timeout_s",
    "snapshot",
}  # fmt: skip


def machine_settings(table: Section) -> dict[str, Any]:
    """What decides which machines its guests are, by key. Of a host: what it offers."""
    found: dict[str, Any] = table.model_dump(mode="json", exclude=ACCESS)
    for host in table.hosts if isinstance(table, SshTable) else ():
        found |= {
            f"hosts {host.host}:{host.port} {key}": getattr(host, key) for key in ("cpus", "python", "folder")
        }
    return found


def with_absolute_paths(table: Table, directory: Path) -> Table:
    """The same files, read from another folder than the study's. `~` stays the home of who reads."""
    named = {key: value for key in table.model_fields_set if isinstance(value := getattr(table, key), Path)}
    if isinstance(table, VirtualBoxTable) and table.is_file():
        named["base"] = Path(table.base)
    if isinstance(table, LocalTable) and table.python and "/" in table.python:
        named["python"] = Path(table.python)
    moved = {
        key: type(getattr(table, key))(directory / path)
        for key, path in named.items()
        if not path.is_absolute() and not str(path).startswith("~")
    }
    return table.model_copy(update=moved)


PROVIDER_TABLES: dict[str, type[Section]] = {
    "provider.local": LocalTable,
    "provider.qemu": QemuTable,
    "provider.vagrant": VagrantTable,
    "provider.virtualbox": VirtualBoxTable,
    "provider.ssh": SshTable,
    "provider.ssh.hosts": SshHostTable,
}
"""By the path of the table, the kind of provider in it."""
