"""What all commands share: the global options, the list of commands, how results and errors are printed."""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import shlex
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource
from click.shell_completion import CompletionItem

from orchestrator.errors import STORAGE_ERRNOS, PrerequisiteError, StoreError, UsageError, storage_error

if TYPE_CHECKING:
    from rich.console import Console

    from orchestrator.store.store import Store
    from orchestrator.study.schema import Study


FORMATS = ("table", "json", "markdown", "latex", "csv")
WRAPPED = 200  # characters: the list of commands wraps their sentences instead of cutting them
RESUMED = frozenset({"sweep", "harden"})  # commands that keep what is finished
KEPT = "finished runs are kept, run it again to continue"


PROGRAM = "vbstudy.program"  # in the context: the words behind `--`
WORDS = click.Path(readable=False)  # a program and its arguments, of any kind: the tab key completes files


def counts(_context: click.Context, parameter: click.Parameter, text: str | None) -> tuple[int, ...] | None:
    """The callback of an option with CPU or thread counts, as `1,2,4,8`."""
    from orchestrator.study.schema import parse_counts

    return parse_counts(text, parameter.opts[0]) if text is not None else None


class FiniteRange(click.FloatRange):
    """Numbers in a range: neither "nan" nor "inf" is one."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a finite number.", param, ctx)
        return number


SEED = click.option("--seed", type=click.IntRange(0, 2**31 - 1), metavar="N",
                    help="The seed of a program's random generators.", show_default="1")  # fmt: skip
TIMEOUT = click.option("--timeout", "timeout_s", type=FiniteRange(0, min_open=True), metavar="SECONDS",
                       show_default="none", help="The most seconds of one run of a program.")  # fmt: skip
SECURITY = click.option("--security", type=click.Path(path_type=Path),
                        help="A TOML file with ca, cert and key for a tls:// scheduler.")  # fmt: skip


class ProgramCommand(click.Command):
    """A command that takes a user's program, behind `--` where it could be mistaken."""

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        pieces = super().collect_usage_pieces(ctx)
        return pieces if "PROGRAM" in str(pieces) else [*pieces, "[-- PROGRAM ...]"]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        dashes = args.index("--") if "--" in args else len(args)
        begins = dashes - len(self._undashed(ctx, args[:dashes]))
        program = args[begins:] if begins < dashes else args[dashes + 1 :]
        if dashes < len(args) and not program and not ctx.resilient_parsing:
            raise click.UsageError("no program is named after `--`: write -- python train.py", ctx)
        if program or dashes < len(args):
            ctx.meta[PROGRAM] = tuple(program)
        args = args[:begins]
        return super().parse_args(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        if PROGRAM in ctx.meta:
            return [CompletionItem(incomplete, type="file")]
        return super().shell_complete(ctx, incomplete)

    def _undashed(self, ctx: click.Context, args: list[str]) -> list[str]:
        """A program without `--` before it: what begins with a word that is no option and no stored run."""
        parser = self.make_parser(ctx)
        parser.allow_interspersed_args = False
        values, rest, _ = parser.parse_args(args=list(args))
        runs = values.get("runs")
        if not isinstance(runs, tuple):  # it has no such argument, or none is named
            return rest
        return list(runs) if shutil.which(runs[0]) or os.path.isfile(runs[0]) else []  # noqa: PTH113


@dataclass(slots=True)
class Options:
    """The global options. They are set while the command line is parsed, before and after the command."""

    directory: Path = Path()
    quiet: bool = False
    verbose: bool = False
    as_json: bool = False

    def folder(self) -> Path:
        if not os.path.isdir(self.directory):  # noqa: PTH112  (a Path raises for a name that is too long)
            path = str(self.directory)
            new = len(path) <= 200 and not os.path.lexists(path)
            make = f"; make it: mkdir -p {shlex.quote(path)}" if new else ""
            raise UsageError(f"-C {path:.200}: is not a folder{make}")
        return self.directory

    def store(self) -> Store:
        from orchestrator.store.store import Store

        store = Store(self.folder())
        store.clear_temporary()
        if store.study_file.exists():  # else `runs` may be a folder of a program's
            store.check_readable()
        return store

    def stderr(self) -> Console:
        from rich.console import Console

        return Console(stderr=True, quiet=self.quiet)

    def reporter(self, prefix: str = "", console: Console | None = None) -> Callable[[str], None]:
        """Prints a line of progress for each text, unless -q is given."""
        console = console or self.stderr()
        return lambda text: console.print(_safe(prefix + text), highlight=False, soft_wrap=True, markup=False)

    @property
    def program(self) -> str:
        """What begins a command that is to be copied."""
        folder = "" if self.directory == Path() else f" -C {shlex.quote(str(self.directory))}"
        return f"vbstudy{folder}"

    def in_folder(self, text: str) -> str:
        """With -C, as it was given, in the commands with which it ends, and in quoted ones that are to be run
        or are for programs."""
        before, begins, commands = text.partition("next:")
        before = re.sub(
            r"((?<=run `)|(?<=`)(?=\w+ [a-z]+ [^`]*-- ))vbstudy(?= [a-z])", lambda _: self.program, before
        )
        commands = re.sub(r"(?m)^( *)vbstudy(?= [a-z])", lambda found: found[1] + self.program, commands)
        return before + begins + commands

    def show_next(self, command: str, why: str = "") -> None:
        show(self.in_folder(f"\n{why}\nnext: {command}" if why else f"\nnext: {command}"))

    def study(self) -> Study:
        from orchestrator.study import schema

        store = self.store()
        check_not_lost(store)
        return schema.load(store.study_file)

    def study_or_default(self) -> Study:
        """The study's file, or the default study where there is none."""
        from orchestrator.study import schema, template

        store = self.store()
        check_not_lost(store)
        if store.study_file.exists():
            return self.study()
        return schema.parse(template.for_this_host("study", (1, 2, 4, 8)))


def _set(context: click.Context, parameter: click.Parameter, value: Any) -> None:
    """Sets a global option where the command line names it: the command's wins over the group's."""
    if parameter.name and context.get_parameter_source(parameter.name) is ParameterSource.COMMANDLINE:
        setattr(context.obj, parameter.name, value)


def global_options() -> list[click.Parameter]:
    """New instances of -C, -q, -v and --json, which vbstudy takes before and after a command."""

    def flag(*names: str, help: str) -> click.Option:  # noqa: A002  (click's name)
        return click.Option(names, is_flag=True, expose_value=False, callback=_set, help=help)

    return [
        click.Option(["-C", "--directory"], type=click.Path(path_type=Path), default=".", expose_value=False,
                     callback=_set, help="The folder of the study, or of the program."),
        flag("-q", "--quiet", help="No progress, only results and errors."),
        flag("-v", "--verbose", help="Show the evidence of errors."),
        flag("--json", "as_json", help="Results as JSON on stdout."),
    ]  # fmt: skip


class Commands(click.Group):
    """Lists commands by section, in the order of the work, gives each the global options, and corrects
    spellings."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self._sections: dict[str, list[str]] = {}
        self.params += global_options()

    def add_section(self, title: str, *commands: click.Command) -> None:
        for command in commands:
            command.params += global_options()
            self.add_command(command)
            self._sections.setdefault(title, []).append(command.name or "")

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(self.commands)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        for title, names in self._sections.items():
            with formatter.section(title):
                formatter.write_dl(
                    [(name, self.commands[name].get_short_help_str(WRAPPED)) for name in names]
                )

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in self.commands:
            from orchestrator.study.messages import did_you_mean

            hint = did_you_mean(args[0], self.commands) or f"; there are {', '.join(self.commands)}"
            raise click.UsageError(f"there is no command '{args[0]}'{hint}", ctx)
        if sys.platform != "linux":
            raise PrerequisiteError(
                f"this is {sys.platform}, and vbstudy runs on Linux: it pins programs and guests to "
                "cores as only Linux can; use a Linux machine, or a Linux virtual machine with several CPUs"
            )
        return super().resolve_command(ctx, args)

    def make_context(self, *arguments: Any, **settings: Any) -> click.Context:
        try:
            return super().make_context(*arguments, **settings)
        except BrokenPipeError:  # --help and --version print while they are parsed
            _end_output()
            raise click.exceptions.Exit from None

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except (KeyboardInterrupt, click.Abort):
            raise Stopped(KEPT if ctx.invoked_subcommand in RESUMED else "") from None
        except BrokenPipeError:
            _end_output()
        except SystemExit as ended:
            if not isinstance(ended.__context__, BrokenPipeError):
                raise
            _end_output()  # of a console: rich ends with 1


def _end_output() -> None:
    """The reader (`| head`) has enough: click would end with 1. What is still flushed goes nowhere."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class Stopped(Exception):  # noqa: N818  (not an error: the user stopped it)
    """Ctrl-C, SIGTERM or SIGHUP; the text says what is kept, or is not."""


class CommandFailed(Exception):  # noqa: N818  (the status is passed on, everything else was reported)
    """Runs of a sweep failed, or the user's program or command in a guest did not end with 0."""

    def __init__(self, status: int) -> None:
        super().__init__(f"status {status}")
        self.status = status


def note_edited(options: Options, difference: str) -> None:
    """Reports in what the runs differ from those that the study file plans, where they do."""
    if difference:
        options.reporter("note: ")(f"study.toml has changed since these runs were made: {difference}")


def note_misplaced(options: Options, program: Sequence[str]) -> None:
    """Reports long options of the command that stand behind the program, where no script that it names has
    them: they may be meant for vbstudy."""
    own = {name for each in click.get_current_context().command.params for name in each.opts}
    scripts = [_script(options.directory / word) for word in program]
    for name in dict.fromkeys(word.partition("=")[0] for word in program[1:]):
        if name not in own or not name.startswith("--"):
            continue
        known = re.compile(rf"\b{name[2:].replace('-', '[-_]')}\b")
        if not any(map(known.search, scripts)):
            told = f"{name} after the program is passed to the program; vbstudy's options go before it"
            options.reporter("note: ")(told)


def _script(path: Path) -> str:
    """Its text; "" for what is none."""
    try:
        if not path.is_file():  # but a pipe, say
            return ""
        with path.open(encoding="utf-8") as file:
            return file.read(1 << 20)
    except (OSError, ValueError):
        return ""


def check_not_lost(store: Store) -> None:
    """Raises UsageError for runs without a study file: that of another study is none for them."""
    if store.study_file.exists():
        return
    from analysis.load.runs import run_folders
    from guest.records.run import RECORD

    if any((each / RECORD).is_file() for each in run_folders(store.directory)):
        raise UsageError(
            f"{store.study_file}: there are runs here and no study file; `vbstudy report` has one "
            'that is made from them, under "To copy"'
        )


def check_begun(options: Options) -> None:
    """Raises UsageError for a study without runs and imports; the error names what to do first."""
    from analysis.exchange.imported import FOLDER
    from analysis.load.runs import run_folders
    from orchestrator.study.plan import conditions
    from orchestrator.sweep.status import next_command

    store = options.store()
    with contextlib.suppress(OSError):  # what goes meanwhile had begun
        if not run_folders(store.directory) and not (store.directory / FOLDER).exists():
            study = options.study()
            command, why = next_command(study, store, {spec.set_id for spec in conditions(study)})
            raise UsageError("; ".join(filter(None, ("no run is finished yet", why, f"next: {command}"))))


@contextlib.contextmanager
def analysis_errors(target: Path | None = None) -> Iterator[None]:
    """Errors of the analysis as errors with exit codes. `target` is what was written where the system does
    not name the file."""
    from analysis.exchange.archive import ArchiveError, DamagedStudyError
    from analysis.exchange.files import ImportFormatError
    from analysis.exchange.parquet import ExtraMissingError
    from analysis.inference.published import UnknownPublishedError
    from analysis.load.design import StudyFileError
    from analysis.load.study import NothingToAnalyse
    from analysis.provenance.checks import MixedHardwareError
    from analysis.results.printing import NoTableError
    from guest.records.codec import NewerSchemaError

    try:
        yield
    except DamagedStudyError as error:
        raise StoreError(f"{error}; the first: {error.verification.damaged[0]}") from None
    except (ArchiveError, NewerSchemaError) as error:
        raise StoreError(str(error)) from None
    except ExtraMissingError as error:
        raise PrerequisiteError(str(error)) from None
    except BrokenPipeError:  # nobody reads the output any more; no file is meant
        raise
    except (
        NothingToAnalyse,
        NoTableError,
        MixedHardwareError,
        UnknownPublishedError,
        ImportFormatError,
        StudyFileError,
        FileExistsError,  # also a report that is none
    ) as error:
        raise UsageError(str(error)) from None
    except OSError as error:
        is_target = target is not None and Path(error.filename or target).absolute() == target.absolute()
        name = error.filename or target or "the output or a file"
        if error.errno in STORAGE_ERRNOS or is_target:
            raise storage_error(name, error) from None
        raise UsageError(f"{name}: {error.strerror}") from None


def stdout() -> Console:
    from rich.console import Console

    return Console()


def print_json(data: Any) -> None:
    click.echo(json.dumps(data, indent=1))


def result(options: Options, data: Any, text: str) -> None:
    """One result, for a program or for a person."""
    if options.as_json:
        print_json(data)
    else:
        show(options.in_folder(text))


def show(text: str) -> None:
    """Prints it; in a terminal folded between words, down to the commands to copy."""
    text = _safe(text)
    if sys.stdout.isatty():
        before, begins, commands = text.partition("\nnext:")
        width = shutil.get_terminal_size().columns
        text = "\n".join(_folded(line, width) for line in before.split("\n")) + begins + commands
    click.echo(text)


def _safe(text: str) -> str:
    """Much of it comes from programs and files of others."""
    from guest.records.printable import printable

    return printable(text, lines=True)


def _folded(line: str, width: int) -> str:
    """With what continues it below its text: behind an indentation, or behind a first column. Lines to paste
    are indented by four, and stay."""
    if re.match(r" {4}\S", line):
        return line
    hang = re.match(r" *(?:\S+ {2,})?", line)
    indent = " " * (hang.end() if hang and hang.end() < width // 2 else 0)
    parts = textwrap.wrap(
        line, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )
    return "\n".join(parts)


@contextlib.contextmanager
def running(options: Options, told: str, prefix: str = "") -> Iterator[Callable[[str], None]]:
    """While programs run: the reporter, and on a terminal the time since its last line. `told` says what
    Ctrl-C does not keep."""
    from rich.progress import Progress, TextColumn, TimeElapsedColumn

    console = options.stderr()
    report = options.reporter(prefix, console)
    try:
        with Progress(
            TextColumn("  running"),
            TimeElapsedColumn(),
            console=console,
            transient=True,
            refresh_per_second=1,  # beside programs whose time is taken
            disable=options.quiet or not console.is_terminal,
        ) as bars:
            task = bars.add_task("")

            def say(text: str) -> None:
                report(text)
                bars.reset(task)

            yield say
    except KeyboardInterrupt:
        raise Stopped(told) from None
