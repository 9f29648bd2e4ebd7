"""The command scan: the requirements of projects, and their sources of nondeterminism."""

from __future__ import annotations

import contextlib
import glob
import os
import re
import shlex
import stat
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import click

from orchestrator.cli.options import Options
from orchestrator.errors import STORAGE_ERRNOS, PrerequisiteError, StoreError, UnmetError, UsageError
from vbstudy import __version__

if TYPE_CHECKING:
    from rich.console import Console

    from analysis.scan.results import Scan
    from analysis.scan.settings import Settings

FORMATS = ("table", "json", "csv", "sarif")
LINT, REQUIREMENTS = "lint", "requirements"


def _explain(context: click.Context, _parameter: click.Parameter, rule: str | None) -> None:
    """Prints a rule in place of a scan."""
    if rule is None or context.resilient_parsing:
        return
    from analysis.scan.lint.rules import explained

    try:
        click.echo(explained(rule.strip().upper()), nl=False)
    except ValueError as error:
        raise UsageError(f"--explain: {error}") from None
    context.exit()


@click.command()
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@click.option("--explain", metavar="RULE", is_eager=True, expose_value=False, callback=_explain,
              help="Print what a rule finds, with examples, and exit.")  # fmt: skip
@click.option("--each", is_flag=True, help="Every folder in PATH is a project, not PATH itself.")
@click.option("--only", type=click.Choice((LINT, REQUIREMENTS)), help="Run only this half of the scan.")
@click.option("--select", metavar="CODES", default="", show_default=False,
              help="Use only these rules, such as VB1,VB402.")  # fmt: skip
@click.option("--extend-select", metavar="CODES", default="", show_default=False,
              help="Use these rules too, such as VB503.")  # fmt: skip
@click.option("--ignore", metavar="CODES", default="", show_default=False, help="Use all rules but these.")
@click.option("--exclude", metavar="PATTERN", multiple=True,
              help="Leave out files or folders, such as 'old/*'; may be repeated.")  # fmt: skip
@click.option("--baseline", type=click.Path(path_type=Path),
              help="Show only findings that this file (of --format json) does not have.")  # fmt: skip
@click.option(
    "--fix",
    type=click.Choice(("diff", "write")),
    help="Instead of findings, print a diff that sorts listings (VB301); with write, change the files too.",
)
@click.option("--format", "form", type=click.Choice(FORMATS), help="Output format.", show_default="table")
@click.option("--output", type=click.Path(path_type=Path), help="Write to this file in place of stdout.")
@click.option("--keep", is_flag=True, help="Keep the result as scan.json of the study, for finding F6.")
@click.option("--check", is_flag=True, help="Exit with 1 when there are errors or warnings.")
@click.option(
    "--jobs", type=click.IntRange(min=1), metavar="N", help="How many processes.", show_default="one per core"
)
@click.pass_obj
def scan(
    options: Options,
    paths: tuple[str, ...],
    each: bool,
    only: str | None,
    select: str,
    extend_select: str,
    ignore: str,
    exclude: tuple[str, ...],
    baseline: Path | None,
    fix: str | None,
    form: str | None,
    output: Path | None,
    keep: bool,
    check: bool,
    jobs: int | None,
) -> None:
    """Report a project's requirements and sources of nondeterminism.

    Each PATH, a folder or a file, is one project; with --each, every folder in it is one. Nothing in them is
    run or imported. Findings are silenced by `# vbstudy: ignore[VB101]` on their line. For one PATH, the
    table `[tool.vbstudy.scan]` of the nearest pyproject.toml that has it sets select, extend-select, ignore,
    exclude and per-file-ignores."""
    from rich.console import Console

    from analysis.scan.files import checked_pattern
    from analysis.scan.kept import without
    from analysis.scan.lint.rules import EVERYWHERE, chosen
    from analysis.scan.printed import print_notes
    from analysis.scan.results import Level
    from guest.records.printable import counted

    if fix and (options.as_json or form or output or keep or check or baseline):
        raise UsageError(
            "--fix: prints a diff only; leave --json, --format, --output, --keep, --check and --baseline out"
        )
    projects = _projects(paths, each)
    own = _settings(projects, each)
    asked, added, but = _codes(select), _codes(extend_select), _codes(ignore)
    more = added or own.extend_select
    try:  # what an option selects, only an option ignores
        rules = chosen(asked or own.select, but or (() if asked else own.ignore))
        rules |= chosen(more, but or (() if added else own.ignore)) if more else frozenset()
    except ValueError as error:
        raise UsageError(f"--select, --extend-select, --ignore: {error}") from None
    if only != REQUIREMENTS and rules <= {EVERYWHERE}:
        raise UsageError(
            "--select, --ignore and [tool.vbstudy.scan] leave no rule; select others, or --only requirements"
        )
    former = _former(baseline, paths, each)
    form = form or ("json" if options.as_json else "table")
    rules = frozenset() if only == REQUIREMENTS else rules
    try:
        excluded = [glob.escape(own.within) + checked_pattern(pattern) for pattern in exclude]
    except ValueError as error:
        raise UsageError(f"--exclude: {error}") from None
    own = replace(own, exclude=(*own.exclude, *excluded))
    found = _scan(options, projects, rules, own, jobs)
    if fix:
        _fix(found, options, write=fix == "write")
        return
    if former is not None:
        found = without(found, former)
    shown = found
    if only == LINT:
        shown = replace(found, projects=tuple(replace(p, software=(), hardware=()) for p in found.projects))
    _print(shown, form, output, only)
    if form == "table":
        print_notes(found, Console(stderr=True))
    if keep:
        _keep(found, options)
    bad = [f for p in found.projects for f in p.findings if f.level is not Level.NOTE]
    if check and bad:
        raise UnmetError(f"{counted(len(bad), 'finding')} of level error or warning")


def _codes(text: str) -> tuple[str, ...]:
    return tuple(code.strip().upper() for code in text.split(",") if code.strip())


def _projects(paths: tuple[str, ...], each: bool) -> list[Path]:
    from analysis.scan.run import projects_of
    from guest.records.printable import printable

    for given in paths:
        path = Path(given)
        if re.match(r"\w+://|git@", given):
            raise UsageError(f"{given}: is an address; clone it, and name the folder")
        if not given or not path.exists():
            raise UsageError(
                f"{given or '(empty)'}: does not exist; name a folder, a Python file or a notebook"
            )
        if not (path.is_dir() or path.is_file()):
            raise UsageError(f"{given}: is no regular file; name a folder, a Python file or a notebook")
        if each and not path.is_dir():
            raise UsageError(f"{path}: is not a folder, and --each wants a folder of projects")
    if not each:
        return [Path(path) for path in paths]
    try:
        found, notes = projects_of([Path(path) for path in paths])
    except OSError as error:
        raise UsageError(f"{error.filename}: {error.strerror}") from None
    for note in notes:
        click.echo(printable(str(note)), err=True)
    if not found:
        raise UsageError(
            f"{', '.join(paths)}: has no folders in it; leave --each out to scan it as one project"
        )
    return found


def _settings(projects: list[Path], each: bool) -> Settings:
    """Those of the one project that is scanned; a table of many projects follows none of them."""
    from analysis.scan.settings import Settings, SettingsError, settings_of

    if each or len(projects) > 1:
        return Settings()
    try:
        return settings_of(projects[0])
    except SettingsError as error:
        raise UsageError(str(error)) from None


def _former(baseline: Path | None, paths: tuple[str, ...], each: bool) -> Scan | None:
    from analysis.scan.kept import KeptScanError, read_scan

    if baseline is None:
        return None
    try:
        former = read_scan(baseline)
    except KeptScanError as error:
        raise UsageError(f"--baseline {baseline}: {error}") from None
    if former is None:
        output = ["--format", "json", "--output", str(baseline)]
        command = shlex.join(["vbstudy", "scan", *["--each"] * each, *output, "--", *paths])
        raise UsageError(f"--baseline {baseline}: does not exist; {command} writes it")
    return former


def _scan(
    options: Options, projects: list[Path], rules: frozenset[str], own: Settings, jobs: int | None
) -> Scan:
    from concurrent.futures.process import BrokenProcessPool

    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from analysis.scan.run import scan as scan_

    console = options.stderr()
    columns = (
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.description}"),
    )
    with Progress(
        *columns, console=console, transient=True, disable=options.quiet or not console.is_terminal
    ) as bars:
        task = bars.add_task("", total=None)

        def progress(done: int, total: int, what: str) -> None:
            bars.update(task, completed=done, total=total, description=what[-60:])

        try:
            return scan_(
                projects,
                rules=rules,
                exclude=own.exclude,
                ignores=own.per_file_ignores,
                within=own.within,
                jobs=jobs,
                progress=progress,
            )
        except BrokenProcessPool:
            raise PrerequisiteError(
                "a process of the scan was killed, mostly for want of memory; try --jobs 1"
            ) from None


def _fix(found: Scan, options: Options, *, write: bool) -> None:
    """Prints each change before it is written, in the bytes of the files: `git apply` and `patch` read it."""
    from analysis.scan.fix import ChangedError, fixes
    from analysis.scan.results import Note
    from guest.records.printable import counted, printable

    stdout = sys.stdout.buffer
    calls, files = 0, 0
    for each in fixes(found):
        if isinstance(each, Note):
            click.echo(printable(str(each)), err=True)
            continue
        diff = each.diff()
        if sys.stdout.isatty():
            diff = printable(diff.decode(errors="replace"), lines=True).encode()
        stdout.write(diff)
        stdout.flush()
        try:
            if write:
                each.write()
        except ChangedError as error:
            click.echo(printable(f"{each.path}: {error}"), err=True)
            continue
        except OSError as error:
            raise StoreError(f"{each.path}: cannot be written: {error.strerror}") from None
        calls, files = calls + each.calls, files + 1
    done = f"{counted(calls, 'listing')} in {counted(files, 'file')}"
    then = "sorted" if write else "to sort; git apply -p1 or --fix write changes them" if calls else "to sort"
    options.reporter()(f"{done} {then}")


def _print(found: Scan, form: str, output: Path | None, only: str | None) -> None:
    from rich.console import Console

    from analysis.scan.kept import encode
    from analysis.scan.printed import to_csv
    from analysis.scan.sarif import to_sarif

    try:
        with contextlib.ExitStack() as held:
            try:
                file = sys.stdout if output is None else held.enter_context(_opened(output))
            except OSError as error:
                if error.errno in STORAGE_ERRNOS:
                    raise
                raise UsageError(f"--output {output}: {error.strerror}") from None
            if form == "table":
                _tables(found, Console(file=file, width=None if output is None else 160), only)
            else:
                texts: dict[str, Callable[[Scan], str]] = {
                    "json": encode,
                    "csv": to_csv,
                    "sarif": lambda found: to_sarif(found, __version__),
                }
                file.write(texts[form](found))
            file.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise StoreError(f"{output or 'stdout'}: cannot be written: {error.strerror}") from None


@contextlib.contextmanager
def _opened(output: Path) -> Iterator[TextIO]:
    """A file that is in its place whole, or not at all: it may be the baseline. Devices and pipes, and files
    in folders that cannot be written to, are written as they stand."""
    from analysis.results.temporary import temporary

    exists, special = output.exists(), output.absolute().parts[1:2] in [("dev",), ("proc",)]
    replaceable = not exists or (output.is_file() and os.access(output, os.W_OK))
    target = output.resolve()
    if special or not replaceable or not os.access(target.parent, os.W_OK):
        with output.open("w", encoding="utf-8") as file:
            yield file
        return
    with temporary(target) as part:
        with part.open("w", encoding="utf-8") as file:
            if exists:
                part.chmod(stat.S_IMODE(target.stat().st_mode))
            yield file
        part.replace(target)


def _tables(found: Scan, console: Console, only: str | None) -> None:
    from analysis.scan.printed import print_answer, print_findings, print_requirements

    if only != REQUIREMENTS:
        print_answer(found, console)
    if only != LINT:
        print_requirements(found, console)
        if len(found.projects) > 1:
            from analysis.results.printing import TableText
            from analysis.scan.requirements.shares import requirements_table

            console.print(TableText(requirements_table(found)))
    if only != REQUIREMENTS:
        print_findings(found, console)
        if any(project.findings for project in found.projects):
            console.print("\nnext: vbstudy try -- python YOUR_PROGRAM shows whether the thread count matters")


def _keep(found: Scan, options: Options) -> None:
    from analysis.scan.kept import encode
    from orchestrator.files import write_durably

    store = options.store()
    try:
        write_durably(store.scan_file, encode(found))
    except OSError as error:
        raise StoreError(f"{store.scan_file}: cannot be written: {error.strerror}") from None
    options.reporter()(f"kept in {store.scan_file}; `vbstudy analyze` decides F6 from it")
