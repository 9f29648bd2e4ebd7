"""The command `vbstudy`: the list of its commands, and the only place that exits.

Everything heavy is imported inside the command that needs it, so that `vbstudy --help` is quick."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import shlex
import signal
import sys
import tempfile
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import click

from orchestrator.cli import exchange, harden, programs, report, scan, study, sweep, trace, worker
from orchestrator.cli.options import CommandFailed, Commands, Options, Stopped
from orchestrator.errors import (
    EXIT_DONE,
    EXIT_INTERRUPTED,
    STORAGE_ERRNOS,
    DefectError,
    PrerequisiteError,
    UsageError,
    VbstudyError,
    storage_error,
)
from vbstudy import __version__
from vbstudy.caches import CacheError


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "show_default": True})
@click.version_option(__version__, prog_name="vbstudy")
def cli() -> None:
    """Measure how the CPU thread count changes the models you train.

    \b
    In an empty folder:
        vbstudy provision --cpus 1,2,4,8
        vbstudy sweep
        vbstudy analyze
    """


cli.add_section(
    "A study",
    study.init, sweep.plan, sweep.sweep, study.status, sweep.watch, report.analyze, report.report,
    trace.trace, trace.probe, harden.harden,
)  # fmt: skip
cli.add_section("Your program", programs.try_, programs.exact, programs.record, programs.replay, scan.scan)
cli.add_section(
    "Machines", study.doctor, study.provision, worker.worker, study.ssh, study.logs, study.destroy
)
cli.add_section("Exchange", exchange.verify, exchange.export, exchange.import_)


@contextlib.contextmanager
def _terminate_like_interrupt() -> Iterator[None]:
    """SIGTERM, and SIGHUP of a terminal that is gone (but under nohup), stop as cleanly as Ctrl-C."""

    def interrupt(number: int, frame: Any) -> NoReturn:  # noqa: ARG001
        raise KeyboardInterrupt

    numbers = [signal.SIGTERM]
    hangup = getattr(signal, "SIGHUP", None)  # not on Windows
    if hangup and signal.getsignal(hangup) != signal.SIG_IGN:
        numbers.append(hangup)
    kept = {number: signal.signal(number, interrupt) for number in numbers}
    try:
        yield
    finally:
        for number, handler in kept.items():
            signal.signal(number, handler)


def run(arguments: list[str] | None = None) -> int:
    """Runs one command; returns its exit code, and raises nothing but what says that a package is missing."""
    options = Options()
    _mend_surroundings()
    try:
        with _terminate_like_interrupt():
            cli.main(arguments, prog_name="vbstudy", standalone_mode=False, obj=options)
    except CommandFailed as failed:
        return failed.status
    except VbstudyError as error:
        error.message = options.in_folder(error.message)
        return _print_error(error, options.verbose)
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        return UsageError.exit_code
    except click.ClickException as error:
        click.echo(f"vbstudy: {error.format_message()}", err=True)
        if isinstance(error, click.NoSuchOption) and error.ctx is not None and error.ctx.command is cli:
            _name_its_commands(error.option_name)
        if isinstance(error, click.UsageError) and error.ctx is not None:
            click.echo(f"try: {error.ctx.command_path} --help", err=True)
        return UsageError.exit_code
    except (KeyboardInterrupt, click.Abort, Stopped) as stopped:
        more = f"; {stopped}" if str(stopped) else ""
        below = "\n" if sys.stderr.isatty() else ""  # the terminal's ^C
        click.echo(f"{below}vbstudy: stopped{more}", err=True)
        return EXIT_INTERRUPTED
    except ModuleNotFoundError:
        raise  # `vbstudy.__main__` names the package
    except Exception as error:  # noqa: BLE001  (whatever nobody expected)
        return _print_error(_unforeseen(error), options.verbose)
    return EXIT_DONE


def _name_its_commands(option: str) -> None:
    """Of an option that was given before its command."""
    commands = cli.commands.items()
    having = [name for name, command in commands if any(option in each.opts for each in command.params)]
    if having:
        click.echo(f"{option} goes after its command: {', '.join(having)}", err=True)


def _has_current_folder() -> bool:
    try:
        Path.cwd()
    except FileNotFoundError:
        return False
    return True


def _mend_surroundings() -> None:
    """Closed streams (of a daemon) lead nowhere; a width of no columns is none; figures go into files."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115  (until the end)
    if os.environ.get("COLUMNS") == "0":
        del os.environ["COLUMNS"]
    if os.environ.get("MPLBACKEND", "").startswith("module://"):  # of Jupyter's environment
        del os.environ["MPLBACKEND"]


def _unforeseen(error: Exception) -> VbstudyError:
    """The error for what no command expected: of the storage, of a name, or a defect, with its traceback in a
    file."""
    if isinstance(error, OSError) and error.errno in STORAGE_ERRNOS:
        return storage_error(error.filename or "the output or a file", error, "read or written")
    if isinstance(error, OSError) and error.errno == errno.ENAMETOOLONG:
        return UsageError(f"{error.filename!s:.80}...: {error.strerror}")
    if isinstance(error, IsADirectoryError | NotADirectoryError) and error.filename:
        return UsageError(f"{error.filename2 or error.filename}: {error.strerror}")
    if isinstance(error, FileNotFoundError) and not error.filename and not _has_current_folder():
        return UsageError("the current folder was removed; change to another one")
    if isinstance(error, CacheError):
        return PrerequisiteError(str(error))
    text = f"vbstudy {__version__}, Python {sys.version}\n{shlex.join(sys.argv)}\n"
    text += "".join(traceback.format_exception(error))
    try:
        descriptor, name = tempfile.mkstemp(prefix="vbstudy-defect-", suffix=".txt")
        with os.fdopen(descriptor, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(text)
        kept = f"its traceback is in {name}"
    except OSError:
        kept = "`-v` shows its traceback"
    said = "".join(traceback.format_exception_only(error)).strip().replace("\n", " ")
    return DefectError(f"this is a defect of vbstudy, please report it: {said:.300}; {kept}", evidence=text)


def _print_error(error: VbstudyError, verbose: bool) -> int:
    from guest.records.printable import printable  # much of it is a guest's text

    click.echo(f"vbstudy: {printable(error.message, lines=True)}", err=True)
    if error.evidence and verbose:
        click.echo(printable(error.evidence, lines=True), err=True)
    return error.exit_code


class _Lossy(io.FileIO):
    """Drops what cannot be written: a sweep outlives the terminal or the program that shows its progress."""

    def write(self, data: Any) -> int:
        try:
            return super().write(data)
        except OSError:
            return len(data)


def main() -> NoReturn:
    # The encoding of a stream may lack a character that is printed.
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")
    if isinstance(sys.stderr, io.TextIOWrapper):
        lossy = io.BufferedWriter(_Lossy(sys.stderr.fileno(), "w", closefd=False))
        sys.stderr = io.TextIOWrapper(lossy, sys.stderr.encoding, "replace", line_buffering=True)
    sys.exit(run())


if __name__ == "__main__":
    main()
