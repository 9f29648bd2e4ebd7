import os
import shutil
import sys
from pathlib import Path

import pytest

from guest.datasets import datasets
from orchestrator.agent import archive, data
from orchestrator.study import schema
from orchestrator.transport.connection import LocalConnection
from vbstudy.exact import compiled

PROGRAM = """
import torch
from vbstudy import exact
exact.enable()
print(int((torch.ones(300, 300) @ torch.ones(300, 300)).sum()))
"""


@pytest.mark.needs("studies")
def test_a_guest_without_a_compiler_gets_the_library_of_exact_mode(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path.parent)  # a study's folder is the current one, and its guests' are relative
    folder = Path(tmp_path.name)
    connection = LocalConnection(folder, sys.executable, (min(os.sched_getaffinity(0)),), None, {})
    agent = archive.build()
    (tmp_path / "sent").mkdir()
    connection.put(agent.write(tmp_path / "sent"), agent.name)
    environment = {"PATH": "", "PYTHONPATH": agent.name}
    try:
        refused = connection.run([sys.executable, "-c", PROGRAM], environment, 300)
        data.bring_exact_library(connection)
        done = connection.run([sys.executable, "-c", PROGRAM], environment, 300)
    finally:
        connection.close()
    assert "there is no C++ compiler: install one (`apt install g++`)" in refused.stderr
    assert done.stdout.split() == [str(300**3)], done.stderr
    brought = (tmp_path / ".cache" / "vbstudy" / "exact").glob("*.so")
    assert {path.name for path in brought} == {path.name for path in compiled.libraries()}


class Copying:
    """A connection to a guest with files of its own: the current folder."""

    shares_files = False

    def put(self, source: Path, target: str) -> None:
        Path(target).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, target)


def test_each_of_two_data_sets_with_the_same_file_names_is_found_in_the_guest(tmp_path, monkeypatch):
    host, names = tmp_path / "host", ("mnist", "fashion-mnist")
    for name in names:
        (host / name).mkdir(parents=True)
        for source in datasets.info(name).files:
            (host / name / source.name).write_text(name)
    (tmp_path / "guest").mkdir()
    monkeypatch.chdir(tmp_path / "guest")
    tables = (f'[[workload]]\nmodel = "lenet5"\ndataset = "{name}"\n' for name in names)
    folders = data.bring(schema.parse("".join(tables)), (host,), Copying())
    for name in names:
        assert {path.read_text() for path in datasets.files(name, folders)} == {name}
