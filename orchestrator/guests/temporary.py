"""Guests for what is not a sweep: those that are provisioned, and where nothing is, sandboxes on this machine
that are removed in the end."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

from orchestrator.errors import UsageError, for_each
from orchestrator.guests.provision import make_all, read_guests
from orchestrator.inventory import Guest, GuestSpec
from orchestrator.providers import Provider, make
from orchestrator.providers.local import LocalProvider
from orchestrator.store.store import Store
from orchestrator.study.schema import Study
from orchestrator.text import Say


@contextlib.contextmanager
def guests(
    study: Study, store: Store, wanted: Sequence[GuestSpec], say: Say, *, stand_in: bool = True
) -> Iterator[tuple[Provider, dict[str, Guest]]]:
    """The wanted guests by their names, and who starts them. Sandboxes stand in for machines where none are
    provisioned, if they may. Raises UsageError when the study has machines, but not these, and
    what `read_guests` raises."""
    there = read_guests(study, store).by_name() if store.guests_file.exists() else {}
    missing = [spec for spec in dict.fromkeys(wanted) if spec.name not in there]
    if missing and study.provider.kind != "local" and (there or not stand_in):
        counts = ",".join(map(str, sorted({*study.cpus, *(spec.cpus for spec in wanted)})))
        raise UsageError(f"there is no guest {missing[0].name}; run `vbstudy provision --cpus {counts}`")
    provider = make(study, store) if there else LocalProvider(study, store)
    try:
        made = make_all(missing, provider, lambda guest: None, say)  # noqa: ARG005
        yield provider, there | {guest.spec.name: guest for guest in made}
    finally:
        for_each(provider.destroy, missing)
        if missing and store.guests.is_dir() and not any(store.guests.iterdir()):
            store.guests.rmdir()
