from pathlib import Path

import pytest

from guest.datasets import datasets
from orchestrator.errors import PrerequisiteError
from orchestrator.guests import provision
from orchestrator.store.store import Store
from orchestrator.study import schema

TEXT = '[[workload]]\nmodel = "lenet5"\ndataset = "mnist"\n'


def test_data_is_looked_for_in_the_study_s_folder_first_and_in_the_user_s_cache_always(tmp_path):
    folders = provision.data_folders(schema.parse("[data]\nfolder = 'mine'\n" + TEXT), Store(tmp_path))
    assert folders == (tmp_path / "mine", datasets.default_folder())
    assert provision.data_folders(schema.parse(TEXT), Store(tmp_path)) == (datasets.default_folder(),)


def test_a_data_set_that_cannot_be_fetched_is_a_missing_prerequisite(tmp_path, monkeypatch):
    def refuse(name, folder, progress):
        raise datasets.DatasetError(f"{name}: no connection; put its files into {folder}")

    monkeypatch.setattr(datasets, "find", lambda name, folders: None)
    monkeypatch.setattr(datasets, "download", refuse)
    with pytest.raises(PrerequisiteError, match="mnist: no connection; put its files into"):
        provision.fetch_datasets(schema.parse(TEXT), Store(tmp_path), lambda *_: None)


def test_a_data_set_that_is_here_is_not_fetched_again(tmp_path, monkeypatch):
    fetched = []
    monkeypatch.setattr(datasets, "find", lambda name, folders: Path("/somewhere"))
    monkeypatch.setattr(datasets, "download", lambda *arguments: fetched.append(arguments))
    provision.fetch_datasets(schema.parse(TEXT), Store(tmp_path), lambda *_: None)
    assert fetched == []
