"""The commands that make a study and its guests: init, doctor, provision, status, ssh, logs, destroy."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from guest.records.printable import counted
from orchestrator.cli.options import (
    CommandFailed,
    Options,
    check_not_lost,
    counts,
    note_edited,
    print_json,
    result,
    stdout,
)
from orchestrator.errors import UsageError

if TYPE_CHECKING:
    from orchestrator.store.store import Store

# As in orchestrator.providers, which is too heavy to import for --help.
PROVIDERS = ("local", "ssh", "qemu", "vagrant", "virtualbox")


@click.command()
@click.option("--force", is_flag=True, help="Overwrite an existing study.toml.")
@click.option("--from-try", is_flag=True, help="Write a study of the program that `vbstudy try` ran last.")
@click.pass_obj
def init(options: Options, force: bool, from_try: bool) -> None:
    """Write a commented study.toml."""
    from orchestrator.files import write_durably

    store = options.store()
    if store.study_file.exists() and not force:
        raise UsageError(f"{store.study_file}: exists already; edit it, or overwrite it with --force")
    wrote = f"wrote {store.study_file}"
    if from_try:
        from orchestrator.programs import try_study

        tried = try_study.last()
        if store.directory.resolve() == Path(tried.folder):
            raise UsageError(
                f"--from-try: {tried.folder} is the program's own folder, and a study has files of its own: "
                "make it in an empty one, by -C"
            )
        write_durably(store.study_file, try_study.study(tried, _name(store)))
        wrote += f": a study of `{shlex.join(tried.command)}` in {tried.folder}"
    else:
        _write_default_study(store, (1, 2, 4, 8))
    result(options, {"study": str(store.study_file)}, f"{wrote}\n\nnext: vbstudy provision")


@click.command()
@click.pass_obj
def doctor(options: Options) -> None:
    """Report what this host can do, and what to install for the rest."""
    from orchestrator.guests import doctor as doctor_

    report = doctor_.examine(options.store())
    if options.as_json:
        print_json(doctor_.as_json(report))
    else:
        stdout().print(doctor_.as_text(report), highlight=False)
        options.show_next(doctor_.next_command(report))


@click.command()
@click.option(
    "--cpus", callback=counts, metavar="N,N,...", help="CPU counts, one guest each; written to study.toml."
)
@click.option(
    "--provider", type=click.Choice(PROVIDERS), help="What makes the guests; written to study.toml."
)
@click.pass_obj
def provision(options: Options, cpus: tuple[int, ...] | None, provider: str | None) -> None:
    """Make one guest for each CPU count."""
    from guest.records.codec import to_json
    from orchestrator.files import write_durably
    from orchestrator.guests import provision as provision_
    from orchestrator.inventory import Guest
    from orchestrator.providers import make
    from orchestrator.study import schema, template
    from orchestrator.sweep.progress import DownloadProgress

    store = options.store()
    report = options.reporter()

    def on_guest(guest: Guest) -> None:
        note = (
            " (oversubscribed: its times are excluded from comparisons)"
            if guest.observed.oversubscribed
            else ""
        )
        report(
            f"guest {guest.spec.name}: CPUs asked for {guest.spec.cpus}, "
            f"seen inside {guest.observed.guest_cpus}{note}"
        )

    with store.lock("vbstudy provision"):
        check_not_lost(store)
        if not store.study_file.exists():
            _write_default_study(store, cpus or (1, 2, 4, 8))
            report(f"wrote {store.study_file}")
        if provider is not None:
            provision_.check_former(options.study(), store, provider)
        text, changed = template.edited(store.study_file, cpus, provider)
        loaded = schema.parse(text, str(store.study_file))
        provider_ = make(loaded, store, report)
        if changed:
            if provider is not None:
                provision_.check(provider_)  # what makes no guests is not written down
            write_durably(store.study_file, text)
            report(f"{store.study_file}: {changed}")
        with DownloadProgress(options.stderr()) as progress:
            inventory = provision_.provision(loaded, store, provider_, on_guest, progress, report)
    result(
        options, to_json(inventory), f"{counted(len(inventory.guests), 'guest')} ready; next: vbstudy sweep"
    )


def _write_default_study(store: Store, cpus: tuple[int, ...]) -> None:
    from orchestrator.files import write_durably
    from orchestrator.study import template

    write_durably(store.study_file, template.for_this_host(_name(store), cpus))


def _name(store: Store) -> str:
    import re

    from guest.records.printable import unaccented

    plain = unaccented(store.directory.resolve().name)
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", plain).strip("-._") or "study"
    return name[:64]


@click.command()
@click.option("--runs", type=click.IntRange(min=1), metavar="N", help="Runs of each condition, as for sweep.")
@click.pass_obj
def status(options: Options, runs: int | None) -> None:
    """Show guests, and done, failed and remaining runs of each condition."""
    from guest.records.codec import to_json
    from orchestrator.study.edited import edited
    from orchestrator.sweep import status as status_

    study, store = options.study(), options.store()
    report = status_.examine(study, store, runs)
    note_edited(options, edited(store))
    if options.as_json:
        print_json(to_json(report))
        return
    from analysis.results.printing import print_tables

    click.echo(status_.answer(report))
    print_tables(status_.as_tables(report), sys.stdout)
    to_do = {each.set_id for each in report.sets if each.to_do}
    options.show_next(*status_.next_command(study, store, to_do, runs))


# What follows GUEST belongs to the command in the guest, whatever it looks like.
@click.command(context_settings={"allow_interspersed_args": False})
@click.argument("guest")
@click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="[--] [COMMAND]...")
@click.pass_obj
def ssh(options: Options, guest: str, command: tuple[str, ...]) -> None:
    """Open a shell in a guest, or run a command there."""
    from orchestrator.guests import shell

    if command[:1] == ("--",):  # click leaves the one behind GUEST where it is
        command = command[1:]
    store, loaded = options.store(), options.study()
    with store.lock(f"vbstudy ssh {guest}"):
        status = shell.enter(loaded, store, guest, command, options.reporter())
    if status != 0:
        raise CommandFailed(status)


@click.command()
@click.argument("guest")
@click.pass_obj
def logs(options: Options, guest: str) -> None:
    """Print a guest's console and hypervisor logs."""
    from guest.records.printable import printable
    from orchestrator.guests import shell

    store = options.store()
    text = shell.logs(store, guest)
    if text:
        click.echo(printable(text, lines=True))
    else:
        options.stderr().print(f"{guest} has no console; logs of runs are in {store.runs} and {store.failed}")


@click.command()
@click.pass_obj
def destroy(options: Options) -> None:
    """Remove all guests. Runs and reports stay."""
    from orchestrator.guests import provision as provision_

    store, loaded = options.store(), options.study()
    with store.lock("vbstudy destroy"):
        names = provision_.destroy(loaded, store)
    result(
        options, {"destroyed": names}, f"{counted(len(names), 'guest')} removed; runs and reports are kept"
    )
