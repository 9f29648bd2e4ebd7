"""Pages of the site that are made from what is there already: the home page from README, the commands from
click, the study file from its models, the Python interface from docstrings. Called by mkdocs (mkdocs.yml)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

import click
from mkdocs.structure.files import File, Files
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from docs import schemas
from orchestrator.cli.main import cli
from orchestrator.study import engine, projects, providers, schema
from orchestrator.study.template import sentences

ROOT = Path(__file__).parent.parent
KEYS = sentences()
PYTHON = """# Python

::: vbstudy.exact

::: vbstudy.report
"""


def on_files(files: Files, config: Any) -> Files:
    """Adds the generated pages."""
    for name, text in (
        ("index.md", _home()),
        ("commands.md", _commands()),
        ("python.md", PYTHON),
        ("CONTRIBUTING.md", (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").replace("](docs/", "](")),
        ("study-file.md", _study_file()),
        ("json.md", _json()),
    ):
        files.append(File.generated(config, name, content=text))
    return files


def _home() -> str:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    return re.sub(r"\]\(docs/", "](", text)


def _commands() -> str:
    """What `--help` prints of each command."""
    width = {"terminal_width": 100, "max_content_width": 100}
    context = cli.make_context("vbstudy", [], resilient_parsing=True, **width)
    parts = ["# Commands", f"```text\n{cli.get_help(context)}\n```"]
    for name in cli.list_commands(context):
        command = cli.get_command(context, name)
        assert command is not None  # noqa: S101  (it is listed)
        inner = click.Context(command, info_name=name, parent=context)
        parts += [f"## {name}", f"```text\n{command.get_help(inner)}\n```"]
    return "\n\n".join(parts)


def _json() -> str:
    """The schema of every `--json` output and of the stored files."""
    parts = [
        "# JSON",
        "The JSON schema of what each command prints with `--json`, and of `run.json` and `findings.json`.",
    ]
    for name in schemas.SCHEMAS:
        made = schemas.schema(name)
        text = json.dumps(made, indent=1)
        parts += [f"## {name}, version {schemas.SCHEMAS[name][0]}", f"```json\n{text}\n```"]
    return "\n\n".join(parts)


def _study_file() -> str:
    """Every table of study.toml with its keys, types and defaults."""
    lines = [
        "# The study file",
        "",
        "Every table and key of `study.toml`; how to design one: [A study](study.md).",
        "",
    ]
    for title, model in (
        ("Top level", schema.Study),
        ("`[[workload]]`: a network", schema.WorkloadTable),
        ("`[[workload]]`: a project of your own", projects.ProjectTable),
        ("`[workload.metrics]`: each metric", projects.MetricTable),
        ("`[workload.artifacts]`", projects.ArtifactsTable),
        ("`[seeds]`", schema.SeedsTable),
        ("`[data]`", schema.DataTable),
        ("`[analysis]`", schema.AnalysisTable),
        ('`[provider]`, `kind = "local"`', providers.LocalTable),
        ('`[provider]`, `kind = "qemu"`', providers.QemuTable),
        ('`[provider]`, `kind = "vagrant"`', providers.VagrantTable),
        ('`[provider]`, `kind = "virtualbox"`', providers.VirtualBoxTable),
        ('`[provider]`, `kind = "ssh"`', providers.SshTable),
        ("`[[provider.hosts]]`", providers.SshHostTable),
        ("`[engine]`", engine.EngineTable),
        ('`[engine.cluster]`, `kind = "local"`', engine.LocalClusterTable),
        ('`[engine.cluster]`, `kind = "ssh"`', engine.SshClusterTable),
        ("`[engine.cluster]`: a batch system", engine.JobQueueTable),
    ):
        lines += [
            f"## {title}",
            "",
            "| key | meaning | type | default | range |",
            "|---|---|---|---|---|",
            *_rows(model),
            "",
        ]
    return "\n".join(lines)


def _rows(model: type[BaseModel]) -> Iterator[str]:
    for name, field in model.model_fields.items():
        meaning = KEYS[model.__name__][name]
        kind = (_type(field.annotation), _default(field), ", ".join(dict.fromkeys(_range(field))))
        cells = (f"`{field.alias or name}`", meaning, *kind)
        yield "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _type(annotation: Any) -> str:
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return ", ".join(map(_toml, inner))
    if origin in (tuple, list, frozenset):
        return f"list: {_type(inner[0])}"
    if origin is Annotated:
        return _type(inner[0])
    if inner and origin is not dict:
        return " or ".join(dict.fromkeys(_type(each) for each in inner if each not in (type(None), ...)))
    if isinstance(annotation, type) and issubclass(annotation, StrEnum):
        return ", ".join(map(_toml, annotation))
    names = {"str": "text", "Path": "text", "int": "whole number", "float": "number", "bool": "true or false"}
    return names.get(getattr(annotation, "__name__", ""), "table")


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True, validated_data={})
    if isinstance(value, BaseModel):
        return "its defaults"
    return "none" if value in (None, (), {}, "") else _toml(value)


def _toml(value: Any) -> str:
    return f"`{json.dumps(list(value) if isinstance(value, tuple) else value)}`"


def _range(of: Any) -> Iterator[str]:
    """The bounds of a field or an annotation, those of entries of lists among them."""
    signs = {"ge": "from {}", "gt": "above {}", "le": "to {}", "lt": "below {}"}
    if isinstance(of, FieldInfo):
        inner, bounds = (of.annotation,), of.metadata
    elif get_origin(of) is Annotated:
        inner, bounds = (of.__origin__,), [b for a in of.__metadata__ for b in getattr(a, "metadata", (a,))]
    else:
        inner, bounds = get_args(of) if get_origin(of) is not Literal else (), []
    for bound in bounds:
        for name, text in signs.items():
            if (value := getattr(bound, name, None)) is not None:
                yield text.format(value)
        if getattr(bound, "min_length", None):
            yield "not empty"
    for each in inner:
        yield from _range(each)
