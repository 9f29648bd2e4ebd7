"""What makes guests. A provider is one file here and one line in PROVIDERS; `tests/providers` holds
the suite that each must pass."""

from __future__ import annotations

from typing import Protocol

from orchestrator.connection import Connection
from orchestrator.guests import GuestSpec, Observation
from orchestrator.providers.local import LocalProvider
from orchestrator.store import Store
from orchestrator.study import Study


class Provider(Protocol):
    """The contract. Every method may be called again after a crash in the middle of any other."""

    name: str

    def check(self) -> list[str]:
        """What is missing on this host and how to get it, a sentence each; empty when all is there."""

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


PROVIDERS = {"local": LocalProvider}


def make(study: Study, store: Store) -> Provider:
    return PROVIDERS[study.provider.kind](study, store)
