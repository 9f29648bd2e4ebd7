from __future__ import annotations

import dataclasses

from analysis.load.study import load_study
from analysis.provenance.fingerprints import environments, flat


def test_nested_fields_are_named_by_their_path():
    assert flat({"cpu": {"model": "x", "flags": ["a"]}, "os": "y"}) == {
        "cpu.model": "x",
        "cpu.flags": ["a"],
        "os": "y",
    }


def test_only_fields_that_differ_are_listed_with_who_has_which(study):
    study.run(1)
    study.run(1, 2)
    study.run(2, cpu_model="Another CPU")
    frame = environments(load_study(study.directory)).frame
    assert list(frame.field) == ["cpu.model", "cpu.model"]
    assert list(frame.value) == ["Fabricated CPU", "Another CPU"]
    assert list(frame.n) == [2, 1]
    assert list(frame.threads) == [["1"], ["2"]]
    assert list(frame.guests) == [["cpus-1"], ["cpus-2"]]


def test_an_environment_variable_is_called_one(study):
    study.run(1)
    study.run(2, cpu_model="B")
    loaded = load_study(study.directory)
    told = dict(zip(loaded.environments, ({"knobs": {}}, {"knobs": {"OMP_PROC_BIND": "close"}}), strict=True))
    frame = environments(dataclasses.replace(loaded, environments=told)).frame
    assert set(frame.field) == {"environment variable OMP_PROC_BIND"}


def test_equal_fingerprints_give_no_row(study):
    study.run(1)
    study.run(2)
    assert environments(load_study(study.directory)).frame.empty


def test_of_lists_only_what_not_all_have_is_shown_and_what_is_absent_is_said(study):
    study.run(1)
    study.run(2, cpu_model="B")
    loaded = load_study(study.directory)
    a, b = loaded.runs.environment
    told = {
        a: {"cpu": {"flags": ["avx", "avx2", "sse"]}, "kernel": "6.1"},
        b: {"cpu": {"flags": ["avx", "sse"]}},
    }
    frame = environments(dataclasses.replace(loaded, environments=told)).frame
    assert list(zip(frame.field, frame.value, strict=True)) == [
        ("cpu.flags", "avx2"),
        ("cpu.flags", "none besides the common ones"),
        ("kernel", "6.1"),
        ("kernel", "not recorded"),
    ]
