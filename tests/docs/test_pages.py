"""The commands of README and the tutorials are executed, and those of all pages exist, with their options.

Commands to be executed stand in fences of `sh`. Those that this machine cannot execute, or another test
executes, have the comment `<!-- not run here: REASON -->` in the line before."""

import os
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from orchestrator import errors
from orchestrator.cli.main import cli
from orchestrator.study import schema  # noqa: F401  (all tables)
from orchestrator.study.providers import Section
from orchestrator.study.template import sentences

REPOSITORY = Path(__file__).parents[2]
PAGES = [REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").glob("*.md"))]
NOT_RUN = "<!-- not run here: "
FENCE = re.compile(r"^(?P<above>.*)\n(?P<indent> *)```sh\n(?P<text>(?:.*\n)*?)(?P=indent)```$", re.M)
PATIENCE_S = 1200
CELL_WIDTH = 300  # characters; what is longer stands below the table


def blocks(page: Path) -> Iterator[str]:
    """The blocks of commands that are executed."""
    for found in FENCE.finditer(page.read_text(encoding="utf-8")):
        if not found["above"].strip().startswith(NOT_RUN):
            yield found["text"]


def commands(page: Path) -> Iterator[list[str]]:
    """The lines of blocks that begin with `vbstudy`, and what is quoted as one in the text."""
    text = page.read_text(encoding="utf-8")
    fenced = "\n".join(found["text"] for found in FENCE.finditer(text))
    lines = re.findall(r"^ {4,}(?:- run: )?(vbstudy .*)$", text, re.M)
    lines += re.findall(r"^ *(vbstudy .*)$", fenced, re.M)
    for line in lines + re.findall(r"`(vbstudy [-a-z][^`]*)`", text):
        words = re.split(r"  +| \|\|", re.sub(r"\[[^\]]*\]|…|\.\.\.", "", line.replace("\\|", "|")))[0]
        yield shlex.split(words, comments=True)[1:]


def execute(page: str, folder: Path) -> None:
    script = "set -eux\n" + "\n".join(blocks(REPOSITORY / page))
    home = os.environ | {"HOME": str(folder), "PATH": f"{REPOSITORY}/.venv/bin:{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", "-c", script], cwd=REPOSITORY, env=home, text=True, capture_output=True, timeout=PATIENCE_S
    )
    assert done.returncode == 0, f"{page}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_cells_of_tables_are_short(page: Path) -> None:
    rows = re.findall(r"^\|.*\|$", page.read_text(encoding="utf-8"), re.M)
    cells = [cell.strip() for row in rows for cell in re.split(r"(?<!\\)\|", row)]
    assert [cell for cell in cells if len(cell) > CELL_WIDTH] == []


@pytest.mark.needs("pages")
def test_every_command_of_the_first_study_works_and_ends_with_a_report(tmp_path: Path) -> None:
    execute("docs/first-study.md", tmp_path)
    page = (tmp_path / "first-study/report/index.html").read_text(encoding="utf-8")
    assert "exact" in page


@pytest.mark.needs("pages")
def test_every_command_of_the_tutorial_for_own_scripts_works(tmp_path: Path) -> None:
    execute("docs/own-script.md", tmp_path)
    assert (tmp_path / "my-study/report/index.html").is_file()


@pytest.mark.needs("pages")
def test_the_readme_answers_for_a_program_in_its_folder(tmp_path: Path) -> None:
    (text,) = blocks(REPOSITORY / "README.md")
    path = f"{REPOSITORY}/.venv/bin:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-ec", text],
        cwd=REPOSITORY / "examples/torch-loop",
        env=os.environ | {"PATH": path, "HOME": str(tmp_path)},
        text=True,
        capture_output=True,
        timeout=PATIENCE_S,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.startswith("The thread count")


@pytest.mark.needs("pages")
def test_every_command_of_the_tutorial_for_virtual_machines_works(tmp_path: Path) -> None:
    (tmp_path / ".cache").symlink_to(Path.home() / ".cache")  # images that were built are used
    execute("docs/machines.md", tmp_path)
    assert (tmp_path / "machines/report/index.html").is_file()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_and_options_of_a_page_exist(page: Path) -> None:
    context = cli.make_context("vbstudy", [], resilient_parsing=True)
    for words in commands(page):
        named = next(
            (word for word in words if not word.startswith("-") and cli.get_command(context, word)), None
        )
        assert named or all(word.startswith("-") for word in words), (
            f"{page.name}: vbstudy {shlex.join(words)}"
        )
        if named is None:
            continue
        command = cli.get_command(context, named)
        assert command is not None
        known = {option for each in command.params if isinstance(each, click.Option) for option in each.opts}
        own = words[words.index(named) + 1 :]
        own = own[: own.index("--")] if "--" in own else own
        if command.context_settings.get("ignore_unknown_options"):
            continue
        unknown = [word for word in own if re.match(r"--[a-z]", word) and word.split("=")[0] not in known]
        assert not unknown, f"{page.name}: vbstudy {shlex.join(words)}: {unknown}"


def test_the_reference_has_every_exit_code_and_no_other() -> None:
    text = (REPOSITORY / "docs/reference.md").read_text(encoding="utf-8")
    table = text.split("## Exit codes")[1].split("##")[0]
    kinds = [
        each
        for each in vars(errors).values()
        if isinstance(each, type) and issubclass(each, errors.VbstudyError)
    ]
    codes = {kind.exit_code for kind in kinds} | {
        errors.EXIT_DONE,
        errors.EXIT_RUNS_FAILED,
        errors.EXIT_INTERRUPTED,
    }
    assert sorted(map(int, re.findall(r"^\| (\d+) ", table, re.M))) == sorted(codes)


def test_every_key_of_the_study_file_has_a_sentence_and_no_other_has_one() -> None:
    tables = [
        *Section.__subclasses__(),
        *(deep for each in Section.__subclasses__() for deep in each.__subclasses__()),
    ]
    keys = {table.__name__: set(table.model_fields) for table in tables if table.model_fields}
    assert {name: set(each) for name, each in sentences().items()} == keys
