"""What try, trace and harden advise for a program is accepted as printed, and repeats what was asked."""

import re
import shlex
import sys
from pathlib import Path

import click
import pytest

from guest.records.trace import Growth, Origin, Outcome
from orchestrator.cli import main as cli
from orchestrator.cli.options import PROGRAM, Options
from orchestrator.cli.trace import _program_summary
from orchestrator.experiments.trace_program import BY_ITSELF, UNKNOWN, ProgramTrace
from orchestrator.programs.conditions import INSTRUCTION_SET, THREADS

FOLDER = "/a b"
ORIGIN = Origin(
    index=0, op="aten.mm.default", phase="forward", module="", source="", text="", inputs=(), outputs=(),
    elements=2, differing=1, max_ulp=1, setting="",
)  # fmt: skip


@pytest.fixture
def parsed(monkeypatch):
    """Parses the commands that a text advises, and runs none; their names and values."""
    seen: list[tuple[str, dict]] = []

    def note(command: click.Command, context: click.Context) -> None:
        if not isinstance(command, click.Group):
            program = context.meta.get(PROGRAM) or context.params.get("command")
            seen.append(
                (command.name, context.params | {"program": program, "folder": context.obj.directory})
            )

    def parse(text: str) -> list[tuple[str, dict]]:
        seen.clear()
        commands = re.findall(r"^(?:.*; )?(?:next:)? *(vbstudy .*)", text.partition("next:")[2], re.MULTILINE)
        assert commands
        with monkeypatch.context() as patched:
            patched.setattr(click.Command, "invoke", note)
            assert [cli.run(shlex.split(each)[1:]) for each in commands] == [0] * len(commands)
        return list(seen)

    return parse


def found(**settings) -> ProgramTrace:
    usual = {
        "command": ("python", "my train.py", "--cpus", "3"), "framework": "torch", "factor": THREADS,
        "sides": ("2 threads", "4 threads"), "threads": (2, 4), "seed": 7, "hold": (), "steps": 1, "step": 1,
        "outcome": Outcome.OPERATION, "operations": 1, "origin": ORIGIN, "at": (), "unrepeatable": "",
        "growth": (), "notes": (),
    }  # fmt: skip
    return ProgramTrace(**usual | settings)


NAMED_FIRST = {"outcome": Outcome.UNREPEATABLE, "origin": None, "at": ("a", "b"), "unrepeatable": "2 threads"}


@pytest.mark.parametrize(
    ("settings", "cpus", "vary", "names"),
    [
        ({}, (2, 4), "threads", ["harden", "trace"]),
        ({"hold": ("aten.add.Tensor",)}, (2, 4), "threads", ["harden", "trace"]),
        ({"seed": None}, (2, 4), "threads", ["trace"]),
        ({"framework": "jax"}, (2, 4), "threads", ["harden"]),
        ({"factor": INSTRUCTION_SET}, (2,), "isa", ["try"]),
        (NAMED_FIRST, (2, 4), "threads", ["scan", "trace"]),
        (NAMED_FIRST | {"unrepeatable": "4 threads"}, (2, 4), "threads", ["scan", "trace", "harden"]),
        (NAMED_FIRST | {"unrepeatable": "4 threads", "notes": (BY_ITSELF,)}, (2, 4), "threads", ["harden"]),
        (NAMED_FIRST | {"notes": (BY_ITSELF,)}, (2, 4), "threads", ["scan", "trace"]),
        (NAMED_FIRST | {"seed": None}, (2, 4), "threads", ["scan"]),
        (NAMED_FIRST | {"factor": "A"}, (2,), "env:A=x y,z", ["scan", "trace"]),
    ],
)
def test_what_trace_advises_repeats_the_settings(parsed, settings, cpus, vary, names):
    trace = found(**settings)
    options = Options(directory=Path(FOLDER))
    text = options.in_folder("\n".join(_program_summary(trace, cpus, vary, options.directory)))
    told = parsed(text)
    assert [name for name, _ in told] == names
    for name, values in told:
        assert values["folder"] == Path(FOLDER)
        if name == "scan":
            assert values["paths"] == (FOLDER,)
            continue
        assert (values["program"], values["cpus"]) == (trace.command, cpus)
        assert values.get("vary") in ((None, "threads") if vary == "threads" else (vary,))
        assert values.get("replay") or values["seed"] == trace.seed


@pytest.mark.parametrize(
    ("settings", "advised"),
    [
        ({"framework": "jax", "seed": None}, "next: a cure can be found once a seed fixes"),
        ({"factor": INSTRUCTION_SET, "seed": None}, ""),
        ({"factor": INSTRUCTION_SET, "framework": "tensorflow"}, ""),
    ],
)
def test_no_cure_is_advised_that_vbstudy_does_not_have(settings, advised):
    text = "\n".join(_program_summary(found(**settings), (2,), "threads", Path(FOLDER)))
    assert "vbstudy" not in text
    assert advised in text
    assert ("next:" in text) == bool(advised)


def test_inputs_that_cannot_be_compared_are_not_said_to_differ():
    unlocated = {"outcome": Outcome.UNLOCATED, "origin": None, "at": ("a", "b")}
    text = "\n".join(_program_summary(found(**unlocated, notes=(UNKNOWN,)), (), "threads", Path(FOLDER)))
    assert "an operation differs, and not all of its inputs can be compared (step 1" in text
    text = "\n".join(_program_summary(found(**unlocated), (), "threads", Path(FOLDER)))
    assert "the inputs of an operation differ" in text


@pytest.mark.parametrize("differing", [0, 3])
def test_growth_names_whose_weights_it_counts_where_none_differs(differing):
    growth = (
        Growth(step=1, layer="", elements=9, differing=differing, max_ulp=None, l2=0.0, relative_l2=0.0),
    )
    text = "\n".join(_program_summary(found(growth=growth), (2, 4), "threads", Path(FOLDER)))
    assert ("the weights of the optimizer" in text) == (differing == 0)


@pytest.mark.parametrize("numbers", [["--seed", "7"], ["--replay"]])
def test_a_program_without_a_framework_is_tried_pool_by_pool(parsed, tmp_path, capsys, numbers):
    (tmp_path / "train.py").write_text("import random; print(random.random())")
    program = [sys.executable, "train.py"]
    assert cli.run(["-C", str(tmp_path), "-q", "trace", "--cpus", "1,2", *numbers, "--", *program]) == 2
    (((name, values),)) = parsed(capsys.readouterr().err)
    assert (name, values["which"], values["cpus"], values["folder"]) == ("try", True, (1, 2), tmp_path)
    assert (values["replay"], values["seed"]) == ((True, 1) if numbers == ["--replay"] else (False, 7))


@pytest.mark.needs("studies")
def test_what_does_not_repeat_is_tried_with_the_same_factor(parsed, tmp_path, capsys):
    (tmp_path / "train.py").write_text("import os; print('loss:', os.urandom(1)[0] + 0.5)")
    asked = ["--vary", "env:A=x,y", "--cpus", "2"]
    program = [sys.executable, "train.py"]
    assert cli.run(["-C", str(tmp_path), "-q", "try", "--runs", "5", *asked, "--", *program]) == 0
    ((_, values),) = parsed(out := capsys.readouterr().out)
    assert (values["replay"], values["vary"], values["cpus"]) == (True, "env:A=x,y", (2,))
    assert cli.run(shlex.split(out.rpartition("vbstudy ")[2])) == 0
