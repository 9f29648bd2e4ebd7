from __future__ import annotations

import os

import pytest

from analysis.scan import files
from analysis.scan.results import Part, Project
from analysis.scan.run import scan


def project(tmp_path, **files: str) -> Project:
    for name, text in files.items():
        path = tmp_path / name.replace("__", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return scan([tmp_path]).projects[0]


def test_every_kind_of_file_is_read_by_its_name(tmp_path):
    files = {
        "requirements-gpu__txt": "a==1",
        "pyproject__toml": '[project]\ndependencies = ["b==1"]',
        "poetry__lock": '[[package]]\nname = "c"\nversion = "1"',
        "Pipfile": '[packages]\nd = "==1"',
        "Pipfile__lock": '{"default": {"e": {"version": "==1"}}}',
        "setup__py": "setup(install_requires=['f==1'])",
        "setup__cfg": "[options]\ninstall_requires = g==1",
        "environment__yml": "dependencies:\n- h==1",
        "conda-linux-64__lock": "https://x/i-1-0.conda",
        "Dockerfile": "RUN pip install j==1",
        "README__md": "pip install k==1",
    }
    found = project(tmp_path, **files)
    assert sorted(r.name for r in found.software) == list("abcdefghijk")
    assert found.pinned
    assert found.notes == ()


def test_one_open_requirement_makes_a_project_unpinned(tmp_path):
    assert not project(tmp_path, requirements__txt="a==1\nb\n").pinned


def test_hardware_has_its_sentence_file_and_line(tmp_path):
    found = project(tmp_path, README__md="# T\n\nWe need 16 GB of RAM.\n", notes__md="It ran on a V100.\n")
    assert [(h.part, h.quote, h.place.path, h.place.line) for h in found.hardware] == [
        (Part.MEMORY, "We need 16 GB of RAM.", "README.md", 3),
        (Part.GPU, "It ran on a V100.", "notes.md", 1),
    ]


def test_readmes_count_in_every_folder(tmp_path):
    found = project(tmp_path, **{"part/README__md": "It needs Python 3.8 and a V100."})
    assert [(r.name, r.place.path) for r in found.software] == [("python", "part/README.md")]
    assert [h.words for h in found.hardware] == ["V100"]


def test_broken_manifests_are_notes(tmp_path):
    found = project(tmp_path, pyproject__toml="[", setup__py="print 'x'")
    assert {note.path for note in found.notes} == {"pyproject.toml", "setup.py"}
    assert all("its requirements are not known" in n.text or "Python 2" in n.text for n in found.notes)


def test_what_cannot_be_read_is_named_with_the_reason(tmp_path):
    (tmp_path / "Pipfile.lock").symlink_to("Pipfile.lock")
    (tmp_path / "Pipfile").symlink_to("/dev/zero")
    os.mkfifo(tmp_path / "requirements.txt")
    with (tmp_path / "poetry.lock").open("wb") as file:
        file.truncate(100_000_000)
    (tmp_path / "sub").symlink_to(tmp_path)
    found = project(
        tmp_path, pyproject__toml="a = " + "[" * 10_000, README__md="a\0b", environment__yml="a\0b"
    )
    notes = {note.path: note.text for note in found.notes}
    assert notes.keys() >= {
        "Pipfile",
        "Pipfile.lock",
        "README.md",
        "environment.yml",
        "poetry.lock",
        "pyproject.toml",
        "requirements.txt",
        "sub",
    }
    assert "Too many levels" in notes["Pipfile.lock"]
    assert "not a regular file" in notes["Pipfile"]
    assert "100 MB" in notes["poetry.lock"]
    assert "null bytes" in notes["README.md"]


def test_no_python_at_all_is_a_note(tmp_path):
    assert [note.text for note in project(tmp_path, README__md="x").notes] == [
        "has no Python and no notebooks; nothing to lint"
    ]


def test_a_license_or_a_change_log_states_no_hardware(tmp_path):
    assert project(tmp_path, CHANGELOG__md="Runs on a V100 now.", LICENSE__md="A V100.").hardware == ()


@pytest.mark.parametrize(("pin", "rule"), [("1.13.1", "VB502"), ("2.13.0", "VB501")])
def test_the_pinned_version_decides_what_an_operation_does(tmp_path, pin, rule):
    code = "import torch\npool = torch.nn.MaxPool3d(3, 2)\n"
    found = project(tmp_path, requirements__txt=f"torch=={pin}\n", main__py=code)
    assert [f.rule for f in found.findings] == [rule]


@pytest.mark.parametrize(
    ("files", "found"),
    [
        ({"requirements__txt": "tensorflow<2.10\nnumpy\n"}, 0),
        ({"requirements__txt": "tensorflow>=2.4,<=2.9\n"}, 0),
        ({"requirements__txt": "tensorflow~=2.8.0\n"}, 0),
        ({"requirements__txt": "tensorflow~=2.8\n"}, 1),
        ({"requirements__txt": "tensorflow<=2.10\n"}, 1),
        ({"README__md": "It needs TensorFlow 2.5.\n"}, 0),
        ({"README__md": "It needs TensorFlow 2.5.\n", "requirements__txt": "tensorflow==2.15.0\n"}, 1),
    ],
)
def test_what_decides_the_weights_of_keras_follows_from_the_newest_version_that_is_allowed(
    tmp_path, files, found
):
    code = "import tensorflow as tf\ntf.random.set_seed(1)\nm = tf.keras.Model(tf.keras.layers.Dense(1))\n"
    rules = [each.rule for each in project(tmp_path, main__py=f"{code}m.fit(x)\n", **files).findings]
    assert rules.count("VB101") == found


@pytest.mark.parametrize(
    "files",
    [
        {"pyproject__toml": '[project.scripts]\nfit-it = "parts.cli:fit"\n'},
        {"setup__cfg": "[options.entry_points]\nconsole_scripts =\n    fit-it = parts.cli:fit\n"},
        {"setup__py": "setup(entry_points={'console_scripts': ['fit-it = parts.cli:fit']})\n"},
    ],
)
def test_functions_that_are_declared_as_commands_are_programs(tmp_path, files):
    text = "import torch\n\ndef fit():\n    torch.rand(3).sum().backward()\n    optimizer.step()\n"
    for folder, manifests, rules in (("with", files, {"VB101", "VB401"}), ("without", {}, set())):
        (tmp_path / folder / "parts").mkdir(parents=True)
        (tmp_path / folder / "parts" / "cli.py").write_text(text)
        found = project(tmp_path / folder, **manifests)
        assert {f.rule for f in found.findings} == rules


def test_a_group_of_commands_is_a_program(tmp_path):
    found = project(
        tmp_path,
        pyproject__toml='[project.scripts]\nfit = "cli:app"\n',
        cli__py="import typer\nfrom train import train\napp = typer.Typer()\napp.command()(train)\n",
        train__py="import torch\n\ndef train():\n    torch.nn.Linear(1, 1)(x).backward()\n    opt.step()\n",
    )
    assert "VB101" in {each.rule for each in found.findings}


@pytest.mark.parametrize(
    ("pin", "model", "argument", "found"),
    [
        ("==4.35.0", "CausalLM", "", 0),
        ("==4.36.0", "CausalLM", "", 1),
        ("==4.36.0", "Seq2SeqLM", "", 0),
        ("==4.55.0", "Seq2SeqLM", "", 1),
        ("==4.40.1", "TokenClassification", "", 1),
        (">=4.30", "Seq2SeqLM", "", 1),
        (">=4.30", "Seq2SeqLM", "evaluation_strategy='epoch'", 0),
        (">=4.30", "Seq2SeqLM", "eval_strategy='epoch'", 1),
    ],
)
def test_old_versions_of_transformers_have_no_fused_attention(tmp_path, pin, model, argument, found):
    code = f"from transformers import AutoModelFor{model}, Trainer, TrainingArguments\n"
    code += f"net = AutoModelFor{model}.from_pretrained('a')\n"
    code += f"Trainer(net, TrainingArguments({argument})).train()\n"
    files = {"requirements__txt": f"transformers{pin}\n", "main__py": code}
    assert [f.rule for f in project(tmp_path, **files).findings].count("VB501") == found


@pytest.mark.parametrize(("pin", "found"), [("1.3.1", 0), ("1.4.18", 0), ("1.4.21", 1), ("2.0.8", 1)])
def test_old_versions_of_albumentations_draw_from_python(tmp_path, pin, found):
    code = "import albumentations as A\nimport random\nimport torch\ntorch.manual_seed(1)\nrandom.seed(1)\n"
    code += "c = A.Compose([A.HorizontalFlip()])\nloss.backward()\noptimizer.step()\n"
    files = {"requirements__txt": f"albumentations=={pin}\n", "main__py": code}
    assert [f.rule for f in project(tmp_path, **files).findings].count("VB101") == found
    files["main__py"] = code.replace("random.seed(1)\n", "")
    assert [f.rule for f in project(tmp_path, **files).findings].count("VB101") == 1


@pytest.mark.parametrize(
    ("files", "found"),
    [
        ({"configs/a.yaml": "data:\n  augment: false\n", "b.json": '{"augment": false,\n"x": true}'}, False),
        ({"configs/a.yaml": "data:\n  augment: false\n", "configs/b.yml": "augment: True  # here\n"}, True),
        ({".github/a.yaml": "augment: false\n"}, True),
        ({"a.yaml": "augment: false\n", "b.yaml": "augment: yes\n"}, True),
        ({"a.yaml": "augment: false\n", "b.json": '{"x": 1, "augment": 0.5}'}, True),
        ({"a.yaml": "augment: no\n"}, False),
        ({}, True),
    ],
)
def test_a_branch_that_no_configuration_file_takes_is_not_read(tmp_path, files, found):
    files["train.py"] = (
        "import random\nimport torch\ntorch.manual_seed(0)\n"
        "def turn(rows):\n    random.shuffle(rows)\n"
        "if config['data'].get('augment', False):\n    turn(rows)\n"
        "torch.nn.Linear(2, 2)(rows).sum().backward()\noptimizer.step()\n"
    )
    findings = project(tmp_path, **files).findings
    assert any(each.rule == "VB101" for each in findings) == found


def test_a_file_that_is_scanned_alone_names_what_it_imports_and_nobody_read(tmp_path):
    folder = tmp_path / "package"
    (folder / "nets").mkdir(parents=True)
    for name in ("model.py", "utils.py", "unused.py", "numpy.py", "nets/small.py"):
        (folder / name).write_text("")
    train = folder / "train.py"
    train.write_text(
        "import os, numpy, package.utils, elsewhere\nfrom . import model\nfrom nets.small import Net\n"
    )
    (note,) = scan([train]).projects[0].notes
    assert str(note).startswith("train.py: model.py, nets/, utils.py are imported and not read; ")
    assert not scan([folder]).projects[0].notes
    assert not scan([folder / "unused.py"]).projects[0].notes


@pytest.mark.parametrize("kind", ["a file", "a folder", "excluded", "a link", "a file that is too large"])
def test_a_program_whose_modules_are_there_and_not_read_keeps_its_findings(tmp_path, monkeypatch, kind):
    top = tmp_path / "top"
    (top / ".git").mkdir(parents=True)
    train = top / "scripts" / "train.py"
    train.parent.mkdir()
    train.write_text(
        "import random\nfrom utils import load\nrandom.shuffle(load())\nloss.backward()\noptimizer.step()\n"
    )
    utils = {"a folder": top, "a link": tmp_path}.get(kind, train.parent) / "utils.py"
    utils.write_text("def load():\n    return []\n")
    if kind == "a link":
        (top / "utils").symlink_to(tmp_path)
    if kind == "a file that is too large":
        utils.write_text("#" * 1000)
        monkeypatch.setattr(files, "LARGEST_BYTES", 999)
    root = {"a file": train, "a folder": train.parent}.get(kind, top)
    found = scan([root], exclude=["scripts/utils.py"] * (kind == "excluded")).projects[0]
    assert "VB101" in {each.rule for each in found.findings}
    assert not any("not judged" in note.text for note in found.notes)


def test_a_program_that_cannot_run_is_named_with_the_reason(tmp_path):
    text = "import model_dir\nimport torch\ntorch.nn.Linear(2, 2)(x).sum().backward()\noptimizer.step()\n"
    found = project(tmp_path, train__py=text)
    assert [str(note) for note in found.notes] == [
        "train.py: line 1: imports model_dir, which was not found; a program that cannot run is not judged"
    ]
