"""What all commands share: the global options, the list of commands, how results are printed."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from orchestrator.errors import UsageError

if TYPE_CHECKING:
    from rich.console import Console

    from orchestrator.store import Store
    from orchestrator.study import Study


RESUMED = frozenset({"sweep", "harden"})  # commands that keep what is finished


@dataclass(frozen=True, slots=True)
class Options:
    """The global options."""

    directory: Path
    quiet: bool
    verbose: bool
    as_json: bool

    def store(self) -> Store:
        from orchestrator.store import Store

        if not self.directory.is_dir():
            raise UsageError(f"-C {self.directory}: is not a folder")
        return Store(self.directory)

    def stderr(self) -> Console:
        from rich.console import Console

        return Console(stderr=True, quiet=self.quiet)

    def study(self) -> Study:
        from orchestrator import study

        return study.load(self.store().study_file)

    def study_or_default(self) -> Study:
        """The study's file, or the default study where there is none."""
        from orchestrator import study, study_template

        if self.store().study_file.exists():
            return self.study()
        return study.parse(study_template.template("study", (1, 2, 4, 8), study_template.default_dataset()))


class Commands(click.Group):
    """Lists commands in the order of the work, not of the alphabet, and knows near spellings."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(self.commands)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in self.commands:
            import difflib

            near = difflib.get_close_matches(args[0], self.commands, 1, 0.5)
            hint = f"; did you mean '{near[0]}'?" if near else f"; there are {', '.join(self.commands)}"
            raise click.UsageError(f"there is no command '{args[0]}'{hint}", ctx)
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except (KeyboardInterrupt, click.Abort):
            raise Stopped(resumed=ctx.invoked_subcommand in RESUMED) from None


class Stopped(Exception):  # noqa: N818  (no error: somebody wanted it)
    """Ctrl-C or SIGTERM. `resumed` is whether the command, run again, goes on where it was."""

    def __init__(self, *, resumed: bool) -> None:
        super().__init__("stopped")
        self.resumed = resumed


class CommandFailed(Exception):  # noqa: N818  (its own affair; the status is passed on)
    """A command in a guest, or a program of the user's, ended with a status other than 0."""

    def __init__(self, status: int) -> None:
        super().__init__(f"status {status}")
        self.status = status


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
        click.echo(text)
