"""Every `--json` output, and the stored files, against the schemas that the reference shows."""

import contextlib
import io
import json
import sys

import pytest

from docs.schemas import SCHEMAS
from orchestrator.cli import main as cli
from tests.orchestrator.sweep.test_project_sweep import make
from tests.schemas import GOLDEN, made, validate

pytestmark = pytest.mark.needs("studies")

# Checked with the runs of a study, or where something is traced, hardened or probed.
ELSEWHERE = {"run.json", "findings.json", "report --live", "trace", "trace -- PROGRAM", "harden", "probe"}


def test_a_schema_that_changes_gets_a_new_version():
    differing = [name for name, each in made().items() if json.loads(GOLDEN.read_text()).get(name) != each]
    assert not differing, f"raise their versions, then run `python -m tests.schemas`: {differing}"


@pytest.fixture(scope="module")
def said(tmp_path_factory):
    """What each command prints, in a study of a program."""
    base = tmp_path_factory.mktemp("schemas")
    study = make(base / "study")
    program = study / "mine"
    (base / "other.csv").write_text("threads,accuracy\n1,0.5\n2,0.6\n")
    run = [sys.executable, "train.py"]
    draw = [sys.executable, "-c", "import random; random.random()"]
    commands = {
        "doctor": ["doctor"],
        "provision": ["provision"],
        "plan": ["plan", "--hosts", "2", "--cores", "2"],
        "sweep": ["sweep"],
        "status": ["status"],
        "watch": ["watch"],
        "analyze": ["analyze"],
        "analyze --list-tables": ["analyze", "--list-tables"],
        "report": ["report"],
        "verify": ["verify", "--rerun", "1"],
        "export": ["export", str(base / "study.zip")],
        "import an archive": ["import", str(base / "study.zip"), "--name", "again"],
        "import": ["import", str(base / "other.csv")],
        "scan": ["scan", str(program)],
        "destroy": ["destroy"],
        "try": ["-C", str(program), "try", "--cpus", "1,2", "--save", str(base / "saved.json"), "--", *run],
        "try --which": ["-C", str(program), "try", "--which", "--cpus", "1,2", "--", *run],
        "harden -- PROGRAM": ["-C", str(program), "harden", "--cpus", "1,2", "--runs", "2", "--", *run],
        "record": ["-C", str(program), "record", "--output", str(base / "x.rec"), "--", *draw],
        "replay": ["replay", str(base / "x.rec"), "--", *draw],
        "init": ["-C", str(base), "init"],
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(base / "cache"))
        yield (
            study,
            {name: _printed(["-C", str(study), "--json", *words]) for name, words in commands.items()},
        )


def _printed(words: list[str]) -> object:
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as told:
        code = cli.run(words)
    assert code in (0, 1), (words, code, told.getvalue())
    return json.loads(out.getvalue())


@pytest.mark.parametrize("name", sorted(set(SCHEMAS) - ELSEWHERE))
def test_what_a_command_prints_is_of_its_schema(said, name):
    validate(said[1][name], name)


def test_stored_files_are_of_their_schemas(said):
    study, _ = said
    (record, *_) = sorted(study.glob("runs/*/*/*/*/run.json"))
    validate(json.loads(record.read_text()), "run.json")
    validate(json.loads((study / "report" / "findings.json").read_text()), "findings.json")
