"""The command line: thin commands over the pipeline, and the only place that exits.

Everything heavy is imported inside the command that needs it, so that `vbstudy --help` is quick."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from orchestrator import (
    __version__,
    cli_exchange,
    cli_harden,
    cli_hosts,
    cli_plan,
    cli_replay,
    cli_scan,
    cli_trace,
    cli_try,
    cli_watch,
)
from orchestrator.cli_options import CommandFailed, Commands, Options, Stopped, print_json, result, stdout
from orchestrator.errors import (
    EXIT_DONE,
    EXIT_INTERRUPTED,
    EXIT_RUNS_FAILED,
    STORAGE_ERRNOS,
    UsageError,
    VbstudyError,
    storage_error,
)

if TYPE_CHECKING:
    from orchestrator.store import Store
    from orchestrator.study import Study
    from orchestrator.sweeping import Sequential

# As in orchestrator.providers, which is too heavy to import for --help.
PROVIDERS = ("local", "ssh", "qemu", "vagrant", "virtualbox")
FORMATS = ("table", "json", "markdown", "latex", "csv")


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="vbstudy")
@click.option(
    "-C", "--directory", type=click.Path(path_type=Path), default=".", help="The study's folder [default: .]."
)
@click.option("-q", "--quiet", is_flag=True, help="No progress, only results and errors.")
@click.option("-v", "--verbose", is_flag=True, help="Show the evidence of errors.")
@click.option("--json", "as_json", is_flag=True, help="Results as JSON on stdout.")
@click.pass_context
def cli(context: click.Context, directory: Path, quiet: bool, verbose: bool, as_json: bool) -> None:
    """Measure how the CPU thread count changes the models you train.

    \b
    In an empty folder:
        vbstudy provision --cpus 1,2,4,8
        vbstudy sweep
        vbstudy analyze
    """
    context.obj = Options(directory, quiet, verbose, as_json)


@cli.command()
@click.option("--force", is_flag=True, help="Overwrite a study.toml that is there.")
@click.pass_obj
def init(options: Options, force: bool) -> None:
    """Write a commented study.toml."""
    store = options.store()
    if store.study_file.exists() and not force:
        raise UsageError(f"{store.study_file}: exists already; edit it, or overwrite it with --force")
    _write_default_study(store, (1, 2, 4, 8))
    result(options, {"study": str(store.study_file)}, f"wrote {store.study_file}")


@cli.command()
@click.pass_obj
def doctor(options: Options) -> None:
    """Say what this host can do, and what to install for the rest."""
    from orchestrator import doctor as doctor_

    report = doctor_.examine(options.store())
    if options.as_json:
        print_json(doctor_.as_json(report))
    else:
        stdout().print(doctor_.as_table(report))
    problem = doctor_.first_problem(report)
    if problem:
        raise problem


@cli.command()
@click.option("--cpus", metavar="N,N,...", help="One guest for each count; kept in study.toml.")
@click.option("--provider", type=click.Choice(PROVIDERS), help="What makes the guests; kept in study.toml.")
@click.pass_obj
def provision(options: Options, cpus: str | None, provider: str | None) -> None:
    """Make one guest for each CPU count."""
    from orchestrator import provision as provision_
    from orchestrator import study, study_template
    from orchestrator.guests import Guest
    from orchestrator.progress import DownloadProgress
    from orchestrator.providers import make

    counts = study.parse_counts(cpus) if cpus is not None else None
    store = options.store()
    console = options.stderr()
    with store.lock("vbstudy provision"):
        if not store.study_file.exists():
            _write_default_study(store, counts or (1, 2, 4, 8))
            console.print(f"wrote {store.study_file}", highlight=False, soft_wrap=True)
        changed = study_template.edit(store.study_file, counts, provider)
        if changed:
            console.print(f"{store.study_file}: {changed}", highlight=False, soft_wrap=True)
        loaded = options.study()

        def on_guest(guest: Guest) -> None:
            note = " (oversubscribed: its timings will not count)" if guest.observed.oversubscribed else ""
            console.print(
                f"guest {guest.spec.name}: CPUs asked for {guest.spec.cpus}, "
                f"seen inside {guest.observed.guest_cpus}{note}",
                highlight=False,
                soft_wrap=True,
            )

        def notify(text: str) -> None:
            console.print(text, highlight=False, soft_wrap=True)

        with DownloadProgress(console, quiet=options.quiet) as progress:
            provider_ = make(loaded, store, notify)
            inventory = provision_.provision(loaded, store, provider_, on_guest, progress)
    from guest.records import to_json

    result(options, to_json(inventory), f"{len(inventory.guests)} guests ready; next: vbstudy sweep")


cli.add_command(cli_plan.plan)


@cli.command()
@click.option("--runs", type=click.IntRange(min=1), metavar="N", help="Repetitions of each experiment set.")
@click.option("--until", metavar="RULE", help="Add runs where the answer is not clear yet: sd_halfwidth<X, "
              "mean_halfwidth<X, decided(tests) or decided(tests, margin=X).")  # fmt: skip
@click.option("--max-runs", type=click.IntRange(min=1), metavar="N", help="The cap of --until [default: 30].")
@click.option("--robustness", is_flag=True, help="Then measure the stored models under noise and attack.")
@click.option(
    "--scheduler", metavar="ADDRESS", help="Run on the workers of this dask scheduler: tcp://HOST:PORT."
)
@click.option("--security", type=click.Path(path_type=Path), help="TLS for a tls:// scheduler: a TOML file.")
@click.pass_obj
def sweep(
    options: Options,
    runs: int | None,
    until: str | None,
    max_runs: int | None,
    robustness: bool,
    scheduler: str | None,
    security: Path | None,
) -> None:
    """Run what is planned and not done yet. Ctrl-C stops; running it again resumes."""
    from orchestrator import sweeping

    store, loaded = options.store(), cli_hosts.on_scheduler(options.study(), scheduler, security)
    rule = None
    if until is not None:
        rule = _sequential(loaded, store, runs or loaded.repetitions, until, max_runs)
    elif max_runs is not None:
        raise UsageError("--max-runs is the cap of --until; without it, --runs says how many")
    outcome = sweeping.work(loaded, store, options.stderr(), options.quiet, runs, rule, robustness)
    result(options, *sweeping.told(outcome, store))
    if outcome.failed:
        raise RunsFailed


cli.add_command(cli_hosts.worker)


def _sequential(loaded: Study, store: Store, first: int, until: str, max_runs: int | None) -> Sequential:
    """The rule of --until with its looks, decided by the analysis."""
    from analysis import sequential
    from analysis.load import View
    from orchestrator import sweeping
    from orchestrator.forecasting import VIEWS
    from orchestrator.plan import plan

    try:
        rule = sequential.parse(until)
        looks = sequential.schedule(first, max_runs or max(30, first))
    except sequential.RuleError as error:
        raise UsageError(f"--until {error}") from None
    except ValueError as error:
        raise UsageError(f"--max-runs: {error}") from None
    views = tuple(View(name) for name in VIEWS[loaded.model_selection])
    sets = frozenset(spec.set_id for spec in plan(loaded, 1))
    look = sequential.decider(store.directory, rule, looks, views, sets)
    return sweeping.Sequential(rule=str(rule), looks=looks, decide=look)


@cli.command()
@click.option("--runs", type=click.IntRange(min=1), metavar="N", help="Repetitions, as given to sweep.")
@click.pass_obj
def status(options: Options, runs: int | None) -> None:
    """Show guests, and done, failed and to do per experiment set."""
    from orchestrator import status as status_

    report = status_.examine(options.study(), options.store(), runs)
    if options.as_json:
        print_json(status_.as_json(report))
    else:
        for table in status_.as_tables(report):
            stdout().print(table)


cli.add_command(cli_watch.watch)


@cli.command(context_settings={"ignore_unknown_options": True})
@click.argument("guest")
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
@click.pass_obj
def ssh(options: Options, guest: str, command: tuple[str, ...]) -> None:
    """Open a shell in a guest, or run a command there."""
    from orchestrator import shell

    store, loaded = options.store(), options.study()
    with store.lock(f"vbstudy ssh {guest}"):
        status = shell.enter(loaded, store, guest, command)
    if status != 0:
        raise CommandFailed(status)


@cli.command()
@click.argument("guest")
@click.pass_obj
def logs(options: Options, guest: str) -> None:
    """Print what a guest's machine has said: its console, its hypervisor."""
    from guest.printable import printable
    from orchestrator import shell

    store = options.store()
    text = shell.logs(store, guest)
    if text:
        click.echo(printable(text, lines=True))
    else:
        options.stderr().print(f"{guest} has no console; logs of runs lie in {store.runs} and {store.failed}")


@cli.command()
@click.option(
    "--format", "form", type=click.Choice(FORMATS), default="table", help="How to print [default: table]."
)
@click.option(
    "--output", type=click.Path(path_type=Path), help="Where the report goes [default: report/ in the study]."
)
@click.option("--against", metavar="NAME", default="", help="Set published numbers beside ours: issre21.")
@click.option("--allow-mixed", is_flag=True, help="Take unlike hardware within a set.")
@click.pass_obj
def analyze(options: Options, form: str, output: Path | None, against: str, allow_mixed: bool) -> None:
    """Print the findings and write the report."""
    from analysis.pipeline import analyze as analyze_
    from analysis.printing import Format, print_to
    from analysis.report import write_report
    from orchestrator import analysing

    store, views = options.store(), analysing.views(options)
    target = output or store.report
    with analysing.errors(target):
        analysis = analyze_(store.directory, views, against=against, allow_mixed=allow_mixed)
        paths = write_report(analysis, target)
    print_to(analysis, Format("json" if options.as_json else form), sys.stdout)
    options.stderr().print(f"report: {paths.page}", highlight=False, soft_wrap=True)


cli.add_command(cli_watch.report)


@cli.command()
@click.pass_obj
def destroy(options: Options) -> None:
    """Remove all guests. Runs and reports stay."""
    from orchestrator import provision as provision_

    store, loaded = options.store(), options.study()
    with store.lock("vbstudy destroy"):
        names = provision_.destroy(loaded, store)
    result(options, {"destroyed": names}, f"{len(names)} guests removed; runs and reports are kept")


cli_trace.add_to(cli)
cli_exchange.add_to(cli)
cli_scan.add_to(cli)
cli_try.add_to(cli)
cli_harden.add_to(cli)
cli_replay.add_to(cli)


class RunsFailed(Exception):  # noqa: N818  (not an error: the sweep went through)
    """Some runs failed; everything else is done."""


def _write_default_study(store: Store, cpus: tuple[int, ...]) -> None:
    import re

    from orchestrator import study_template
    from orchestrator.store import write_durably

    name = re.sub(r"[^A-Za-z0-9._-]+", "-", store.directory.resolve().name).strip("-._") or "study"
    write_durably(
        store.study_file, study_template.template(name[:64], cpus, study_template.default_dataset())
    )


@contextlib.contextmanager
def _terminate_like_interrupt() -> Iterator[None]:
    """SIGTERM stops as cleanly as Ctrl-C."""

    def interrupt(number: int, frame: Any) -> NoReturn:  # noqa: ARG001
        raise KeyboardInterrupt

    kept = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, kept)


def run(arguments: list[str] | None = None) -> int:
    """Runs one command; returns its exit code and never raises."""
    verbose = "-v" in (arguments or sys.argv) or "--verbose" in (arguments or sys.argv)
    try:
        with _terminate_like_interrupt():
            cli.main(arguments, prog_name="vbstudy", standalone_mode=False)
    except RunsFailed:
        return EXIT_RUNS_FAILED
    except CommandFailed as failed:
        return failed.status
    except VbstudyError as error:
        return _told(error, verbose)
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        return UsageError.exit_code
    except click.ClickException as error:
        click.echo(f"vbstudy: {error.format_message()}", err=True)
        if isinstance(error, click.UsageError) and error.ctx is not None:
            click.echo(f"try: {error.ctx.command_path} --help", err=True)
        return UsageError.exit_code
    except (KeyboardInterrupt, click.Abort, Stopped) as stopped:
        kept = isinstance(stopped, Stopped) and stopped.resumed
        more = "; finished runs are kept, run it again to go on" if kept else ""
        below = "\n" if sys.stderr.isatty() else ""  # the terminal's ^C
        click.echo(f"{below}vbstudy: stopped{more}", err=True)
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        # The reader (`| head`) has enough; what Python would still flush goes nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_DONE
    except OSError as error:
        if error.errno not in STORAGE_ERRNOS:
            raise
        return _told(storage_error(error.filename or "the study", error, "read or written"), verbose)
    return EXIT_DONE


def _told(error: VbstudyError, verbose: bool) -> int:
    from guest.printable import printable  # much of it was said by a guest

    click.echo(f"vbstudy: {printable(error.message, lines=True)}", err=True)
    if error.evidence and verbose:
        click.echo(printable(error.evidence, lines=True), err=True)
    return error.exit_code


def main() -> NoReturn:
    sys.exit(run())


if __name__ == "__main__":
    main()
