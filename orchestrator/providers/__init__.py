"""Providers make, start, observe and remove guests: sandboxes here, machines under a hypervisor, hosts over
SSH. A provider is a module or folder here, an entry in PROVIDERS and a table of the study file, see
docs/extending.md; `test_contract.py` is the suite that each must pass. May import `agent`, `cores`, `study`,
`transport`, `store` and below."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, runtime_checkable

from pydantic import TypeAdapter, ValidationError

from orchestrator.cores.leases import MachineCores
from orchestrator.errors import UsageError
from orchestrator.inventory import Guest, GuestSpec, Now, Observation
from orchestrator.providers.local import LocalProvider
from orchestrator.store.store import Store
from orchestrator.study.providers import ProviderTable
from orchestrator.study.schema import Study
from orchestrator.text import Say
from orchestrator.transport.connection import Connection


class Provider(Protocol):
    """The contract. Every method may be called again after a crash in the middle of any other."""

    name: str

    def check(self) -> list[str]:
        """What is missing on this host and how to get it, a sentence each; empty when all is there."""

    def cores(self, guest: GuestSpec) -> tuple[int, ...]:
        """The cores that guests may be given on the machine that this one runs on."""

    def create(self, guest: GuestSpec) -> None:
        """Makes the guest. Does nothing when it exists."""

    def start(self, guest: GuestSpec, cores: tuple[int, ...]) -> Connection:
        """Starts it on the given host cores; returns a connection that answers."""

    def observe(self, guest: GuestSpec, connection: Connection) -> Observation:
        """What is really there. Raises GuestError when provider and guest count CPUs differently."""

    def stop(self, guest: GuestSpec) -> None:
        """Ends everything that runs in it. Does nothing when it is stopped."""

    def destroy(self, guest: GuestSpec) -> None:
        """Stops it and leaves nothing behind, whatever failed before."""


@runtime_checkable
class Watching(Protocol):
    """A provider that can report cheaply what all its machines are doing."""

    def watch(self, guests: Sequence[GuestSpec]) -> dict[str, Now]:
        """By the guests' names; those that have no machine are left out."""


@runtime_checkable
class Elsewhere(Protocol):
    """A provider whose guests do not run on this machine."""

    def machine(self, guest: GuestSpec) -> MachineCores:
        """The one that a guest runs on; the same object for guests on the same machine."""

    def host(self, guest: GuestSpec) -> str:
        """Its name, as in `Observation.machine`; of a guest that was made, that of the inventory."""


@runtime_checkable
class Virtual(Protocol):
    """A provider whose guests are virtual machines on this machine."""

    def processes(self, guest: GuestSpec) -> list[int]:
        """Those that are the machine; none while it is off."""


@runtime_checkable
class Resolving(Protocol):
    """A provider whose settings may be `auto`: each start takes what works then."""

    def resolved(self, guest: GuestSpec, cores: tuple[int, ...]) -> dict[str, str]:
        """What a start on these cores would take now, with the keys of `Observation.details`."""


def _local(study: Study, store: Store, notify: Say) -> Provider:  # noqa: ARG001
    return LocalProvider(study, store)


def _ssh(study: Study, store: Store, notify: Say) -> Provider:  # noqa: ARG001
    from orchestrator.providers.ssh import SshProvider  # paramiko is heavy, and few need it

    return SshProvider(study, store)


def _qemu(study: Study, store: Store, notify: Say) -> Provider:
    from orchestrator.providers.qemu.provider import QemuProvider

    return QemuProvider(study, store, notify)


def _vagrant(study: Study, store: Store, notify: Say) -> Provider:
    from orchestrator.providers.vagrant.provider import VagrantProvider

    return VagrantProvider(study, store, notify)


def _virtualbox(study: Study, store: Store, notify: Say) -> Provider:
    from orchestrator.providers.virtualbox.provider import VirtualBoxProvider

    return VirtualBoxProvider(study, store, notify)


PROVIDERS: dict[str, Callable[[Study, Store, Say], Provider]] = {
    "local": _local,
    "ssh": _ssh,
    "qemu": _qemu,
    "vagrant": _vagrant,
    "virtualbox": _virtualbox,
}


def machine_of(provider: Provider, guest: GuestSpec) -> MachineCores | None:
    """Whose cores a guest is given; None for this machine."""
    return provider.machine(guest) if isinstance(provider, Elsewhere) else None


def cores_of(provider: Provider, guest: Guest) -> tuple[int, ...]:
    """The cores that a guest may be given on its machine; of this one, those that are offered now."""
    return guest.observed.machine_cores if guest.observed.machine else provider.cores(guest.spec)


def _ignore(text: str) -> None:
    """For callers that show no progress."""


def make(study: Study, store: Store, notify: Say = _ignore) -> Provider:
    """The study's provider. It reports to `notify` what takes long."""
    return PROVIDERS[study.provider.kind](study, store, notify)


def make_former(kind: str, study: Study, store: Store) -> Provider:
    """The provider that made guests before the study was changed to another one."""
    if kind == study.provider.kind:
        return make(study, store)
    return PROVIDERS[kind](study.model_copy(update={"provider": former_table(kind)}), store, _ignore)


def former_table(kind: str) -> ProviderTable:
    """What is known of a provider whose table is no longer in the study. Raises UsageError where that does
    not suffice to remove its guests."""
    try:
        return TypeAdapter(ProviderTable).validate_python({"kind": kind})
    except ValidationError:
        raise UsageError(
            f"the guests that are there were made by provider {kind!r}: run `vbstudy destroy` while its "
            "settings are in study.toml"
        ) from None
