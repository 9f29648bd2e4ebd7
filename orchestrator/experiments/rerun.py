"""Does stored runs again, in the guests of a study, and compares the bits. Every run recorded the seeds that
it used, free ones as they were drawn, so each can be repeated. Nothing of it is kept."""

from __future__ import annotations

import dataclasses
import random
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from guest.records.printable import printable
from guest.records.run import RECORDING, SCHEMA_VERSION, RunRecord, RunResult, RunSpec
from orchestrator.agent import archive
from orchestrator.agent.executor import RunFailedError
from orchestrator.errors import GuestError, ProtocolError, UsageError
from orchestrator.guests.provision import read_guests
from orchestrator.guests.session import Session, alone
from orchestrator.inventory import Guest, guest_for
from orchestrator.providers import make
from orchestrator.store.integrity import DamagedRunError, read_record
from orchestrator.store.store import Store
from orchestrator.study import snapshots
from orchestrator.study.schema import Study
from orchestrator.text import Say


@dataclass(frozen=True, slots=True, kw_only=True)
class Recomputed:
    """One run done again. `difference` is empty when every hash is the stored one's; `failure` says why
    there is nothing to compare. `stored_on` and `computed_on` name the machines."""

    run_id: str
    difference: str
    failure: str
    stored_on: str
    computed_on: str
    environments: tuple[dict[str, Any], dict[str, Any]]

    @property
    def equal(self) -> bool:
        return not self.difference and not self.failure


def sample(runs: Store, run_ids: Sequence[str], guests: Iterable[str], count: int) -> list[RunRecord]:
    """`count` runs drawn at random from those of which all seeds are known and whose guests are there; fewer
    where there are no more."""
    known = set(guests)
    drawn = list(run_ids)
    random.SystemRandom().shuffle(drawn)
    found: list[RunRecord] = []
    for run_id in drawn:
        if len(found) == count:
            break
        try:
            record = read_record(runs.runs / run_id)
        except DamagedRunError:
            continue  # `verify` has told
        seeds = dataclasses.asdict(record.result.seeds_used)
        is_known = record.spec.workload.replays or None not in seeds.values()
        if is_known and guest_for(record.spec) in known:
            found.append(record)
    return found


def recompute(
    study: Study, store: Store, runs: Store, run_ids: Sequence[str], count: int, say: Say
) -> list[Recomputed]:
    """Does a sample of the runs of `runs` again, in the guests of `store`, under its lock. Raises UsageError
    when none can be, GuestError when a guest does not start, and as `check_programs`."""
    with store.lock("vbstudy verify --rerun"):
        guests = read_guests(study, store).by_name()
        records = sample(runs, run_ids, guests, count)
        if not records:
            raise UsageError(
                f"--rerun: no run of {runs.directory} belongs to a guest of {store.directory} "
                f"({', '.join(guests)}); run `vbstudy provision` with its CPU counts"
            )
        check_programs(study, store, runs, records)
        store.clear_incoming()
        provider = make(study, store)
        done = {}
        for name in dict.fromkeys(guest_for(record.spec) for record in records):
            mine = [record for record in records if guest_for(record.spec) == name]
            with alone(study, store, provider, guests[name], archive.build(), say) as session:
                for number, record in enumerate(mine, start=1):
                    run_id = record.spec.run_id
                    say(f"{name}: again {number} of {len(mine)}, {run_id}")
                    done[run_id] = _again(store, runs, session, guests[name], record)
        return [done[record.spec.run_id] for record in records]


def check_programs(study: Study, store: Store, runs: Store, records: Iterable[RunRecord]) -> None:
    """Raises UsageError for a run of a user project other than the snapshot in `store`, which is what guests
    run: code and commands from an archive are never run. Raises as `snapshots.read`."""
    commands = {table.name: table.command for table in study.projects}
    here = runs.directory == store.directory
    for record in records:
        name, made = record.spec.workload.name, record.spec.workload.project
        if made is None:
            continue
        is_known = name in commands and (here or commands[name] == made.command)
        kept = snapshots.read(store, name) if is_known else None
        ran = record.result.project
        if kept is None or (ran is not None and ran.tree_sha256 != kept.tree_sha256):
            raise UsageError(
                f"--rerun: {record.spec.run_id} is of another program than the workload {name!r} of "
                f"{store.directory}; of an archive whose programs you trust: `vbstudy import` it, and "
                "run `vbstudy verify --rerun` in its folder"
            )


def _again(store: Store, runs: Store, session: Session, guest: Guest, record: RunRecord) -> Recomputed:
    executor = session.executor()
    numbers = runs.folder(record.spec) / RECORDING if record.spec.workload.replays else None
    folder = store.new_incoming()
    failure, result = "", None
    try:
        result = executor.execute(repeatable(record), folder, lambda message: None, numbers)  # noqa: ARG005
    except (RunFailedError, ProtocolError, GuestError) as error:
        failure = printable(str(error), limit=500)
        session.close()  # the next run gets a guest in good order
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    stored, environment = record.result, result.environment if result is not None else {}
    return Recomputed(
        run_id=record.spec.run_id,
        difference=difference(stored, result) if result is not None else "",
        failure=failure,
        stored_on=_machine(stored.environment, record.guest),
        computed_on=_machine(environment, {"name": guest.spec.name}),
        environments=(stored.environment, environment),
    )


def repeatable(record: RunRecord) -> RunSpec:
    """What must be asked for to get the same bits: the run's spec with the seeds that were drawn for it."""
    return dataclasses.replace(record.spec, seeds=record.result.seeds_used, schema_version=SCHEMA_VERSION)


def difference(stored: RunResult, again: RunResult) -> str:
    """In what two results differ bitwise, and from which recorded step on; empty when in nothing."""
    hashes, others = dataclasses.asdict(stored.hashes), dataclasses.asdict(again.hashes)
    names = [name for name, sha256 in hashes.items() if others[name] != sha256]
    steps = sorted({*stored.step_hashes, *again.step_hashes}, key=lambda step: (len(step), step))
    first = next((s for s in steps if stored.step_hashes.get(s) != again.step_hashes.get(s)), None)
    what = ", ".join(name.replace("_", " ") for name in names)
    if first is None:
        return what
    return f"weights from step {first} on" + (f"; in the end {what}" if what else ", the same in the end")


def _machine(environment: dict[str, Any], guest: dict[str, Any]) -> str:
    """`Intel Xeon, torch 2.13.0, guest cpus-2 (local)`: what a run says of itself."""
    cpu, framework = environment.get("cpu"), environment.get("framework")
    told = [str(cpu["model"])] if isinstance(cpu, dict) and "model" in cpu else []
    if isinstance(framework, dict):
        told.append(f"{framework.get('name', '')} {framework.get('version', '')}".strip())
    told.append(f"guest {guest.get('name', '?')}" + (f" on {guest['host']}" if "host" in guest else ""))
    return printable(", ".join(told), limit=300)
