"""Guests, and the progress of each condition. Reads names of folders, and a record of each project."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from guest.records.printable import counted
from guest.records.run import RunSpec
from orchestrator.cores.locks import flocked
from orchestrator.errors import UsageError, VbstudyError
from orchestrator.guests.provision import read_guests
from orchestrator.inventory import Guest, Now, guest_for, guest_spec, read_inventory
from orchestrator.providers import Watching, make
from orchestrator.store.integrity import DamagedRunError, read_record
from orchestrator.store.store import Store
from orchestrator.study.edited import refused
from orchestrator.study.plan import condition, conditions, planned
from orchestrator.study.schema import Study
from orchestrator.sweep.failures import failing, missing
from orchestrator.sweep.live import sweeping

if TYPE_CHECKING:
    from analysis.results.model import Table

MISSING = 'study.toml is missing: the report has one that is made from the runs, under "To copy"'
CHANGED = (
    'a sweep refuses study.toml, which has changed: set it back (the report has that of the runs, under "To '
    'copy"), give the workload a new name, or move the old folders out of runs/'
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SetStatus:
    """One condition: runs planned and done, attempts that failed, runs still to do."""

    set_id: str
    planned: int
    done: int
    failed_attempts: int
    to_do: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    guests: tuple[Guest, ...]
    sets: tuple[SetStatus, ...]
    warnings: tuple[str, ...]  # what projects override, by their runs
    now: dict[str, Now]  # what machines do, by guest, where the provider can tell
    now_unknown: str  # why it is, or nothing


def examine(study: Study, store: Store, repetitions: int | None = None) -> Status:
    firsts = conditions(study)
    now, unknown = _now(study, store)
    return Status(
        guests=provisioned(study, store),
        sets=tuple(
            set_status(store, spec.set_id, planned(study, spec.variant, repetitions)) for spec in firsts
        ),
        warnings=tuple(_warnings(firsts, store)),
        now=now,
        now_unknown=unknown,
    )


def provisioned(study: Study, store: Store) -> tuple[Guest, ...]:
    """Raises what `read_guests` raises; with dask, which makes its own guests, none need be the study's."""
    if not store.guests_file.exists():
        return ()
    here = study.engine.kind == "local"
    return (read_guests(study, store) if here else read_inventory(store.guests_file)).guests


def set_status(store: Store, set_id: str, planned: int) -> SetStatus:
    """Of the repetitions 1 to `planned`, by the names of their folders."""
    done = sum(1 <= repetition <= planned for repetition in store.repetitions(set_id))
    failed = sum(n for repetition, n in store.failures(set_id).items() if 1 <= repetition <= planned)
    return SetStatus(set_id=set_id, planned=planned, done=done, failed_attempts=failed, to_do=planned - done)


def _warnings(firsts: Sequence[RunSpec], store: Store) -> Iterator[str]:
    """What the projects of the study override, as recorded by the first finished run of each condition."""
    found: dict[tuple[str, str], None] = {}
    for spec in firsts:
        finished = store.repetitions(spec.set_id) if spec.workload.project is not None else ()
        if not finished:
            continue
        with contextlib.suppress(DamagedRunError):
            run = dataclasses.replace(spec, repetition=min(finished))
            project = read_record(store.folder(run)).result.project
            for each in project.overrides if project else ():
                found[spec.workload.name, f"{each.what} = {each.value} ({each.where or 'a library'})"] = None
    for name in dict.fromkeys(name for name, _ in found):
        overrides = "; ".join(text for workload, text in found if workload == name)
        yield f"{name} overrides the study: {overrides}"


def _now(study: Study, store: Store) -> tuple[dict[str, Now], str]:
    if not store.guests.is_dir():
        return {}, ""
    try:
        provider = make(study, store)
        if not isinstance(provider, Watching):
            return {}, ""
        return provider.watch([guest_spec(n, model) for model in study.cpu_models for n in study.cpus]), ""
    except VbstudyError as error:  # the rest of the status is as good as ever
        return {}, error.message


def answer(status: Status) -> str:
    """How far the study is, in a sentence."""
    planned, done, failed = (
        sum(getattr(s, name) for s in status.sets) for name in ("planned", "done", "failed_attempts")
    )
    runs = (
        f"All {planned} runs are done"
        if done == planned
        else f"{done} of {planned} runs are done, {planned - done} to do"
    )
    attempts = f"; {counted(failed, 'attempt')} failed" if failed else ""
    return f"{runs}{attempts}; {counted(len(status.guests), 'guest')} provisioned."


def next_command(
    study: Study, store: Store, to_do: Collection[str], runs: int | None = None
) -> tuple[str, str]:
    """The command, and why where it is not that of the usual order. `to_do` are the ids of the conditions
    with runs to do, when each has `runs`."""
    if not to_do and not refused(store):  # refused runs are done only by their names
        return "vbstudy analyze", ""
    command, why = instead_of_sweep(store, missing(study, store, runs)) or ("sweep", "")
    if command != "sweep":
        return f"vbstudy {command}", why
    needed = {guest_for(spec) for spec in conditions(study) if spec.set_id in to_do}
    try:
        there = {guest.spec.name for guest in provisioned(study, store)}
    except UsageError as error:
        return "vbstudy provision", error.message
    sweep = "vbstudy sweep" if runs is None else f"vbstudy sweep --runs {runs}"
    made = study.engine.kind != "local" or needed <= there  # hosts make their own
    return sweep if made else "vbstudy provision", why


def instead_of_sweep(store: Store, lacking: Collection[str]) -> tuple[str, str] | None:
    """Where a sweep cannot begin, or failed before at runs that are lacking: the arguments of vbstudy that
    help, and why."""
    if (running := at_work(store)) is not None:
        return running
    if not store.study_file.exists():
        return "report", MISSING
    if refused(store):
        return "report", CHANGED
    return ("sweep", why) if (why := failing(store, lacking)) else None


def at_work(store: Store) -> tuple[str, str] | None:
    """While another vbstudy has the study: the arguments that show how far it is, and what to wait for. Of
    what runs on another machine only sweeps are known."""
    command = _lock_holder(store)
    if command == "`vbstudy sweep`" or sweeping(store.live_file):
        return "watch", "a sweep is running"
    return ("status", f"{command} is running: wait for it") if command else None


def _lock_holder(store: Store) -> str:
    """The command of another process here that has the study's lock, or nothing."""
    try:
        command, _, holder = store.lock_file.read_text(errors="replace").partition(", ")
        process = flocked(store.lock_file.parent, [store.lock_file.name])[store.lock_file.name]
    except (OSError, KeyError):
        return ""
    theirs = process != os.getpid() and holder.startswith(f"process {process} on ")
    return command if theirs else ""


def as_tables(status: Status) -> list[Table]:
    """The guests, where there are some, and the conditions."""
    # Here, because `watch` needs no table, and pandas with it.
    from analysis.results.model import WHERE, Kind, Table, col, cols, count, counts

    rows = []
    for guest in status.guests:
        seen, details = guest.observed, guest.observed.details
        notes = ["oversubscribed"] if seen.oversubscribed else []
        notes += [str(details["accelerator"])] if "accelerator" in details else []
        notes += [_state(status.now[guest.spec.name])] if guest.spec.name in status.now else []
        rows.append(
            {
                "guest": guest.spec.name,
                "cpus": guest.spec.cpus,
                "given": seen.provider_cpus,
                "inside": seen.guest_cpus,
                "boot_s": seen.start_s,
                "address": str(details.get("address", "this machine")),
                "notes": ", ".join(notes),
            }
        )
    guests = Table.of(
        rows,
        col("guest"),
        count("cpus", "CPUs"),
        count("given", "CPUs given"),
        count("inside", "CPUs seen inside"),
        col("boot_s", "boot s", Kind.SECONDS),
        *cols("address", "notes"),
        name="guests",
        title="Guests",
        note=f"Their state is unknown: {status.now_unknown}" if status.now_unknown else "",
    )
    sets = Table.of(
        [dataclasses.asdict(s) | condition(s.set_id) for s in status.sets],
        *WHERE,
        col("setting", "condition"),
        *counts("planned", "done", "failed_attempts", "to_do"),
        name="conditions",
        title="Conditions",
        note="\n".join(status.warnings),
    )
    return [guests, sets] if rows or status.now_unknown else [sets]


def _state(now: Now) -> str:
    if now.state != "Running":
        return f"now {now.state}"
    return f"now {now.state} for {now.uptime_s:.0f} s on port {now.port}"
