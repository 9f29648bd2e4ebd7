"""What a reader is told of the settings that were in force in a project's run."""

import dataclasses
import io
import json
import os
import re
import tarfile
import tempfile

import numpy as np
import pytest
from safetensors.numpy import load_file

from guest.machine.threads import ThreadMismatchError
from guest.machine.tiers import EXACT_TENSORFLOW_THREADS
from guest.projects import service
from guest.projects.artifacts import ArtifactError
from guest.records import bounded
from guest.records.codec import sha256_of
from guest.records.run import LOG, WEIGHTS, MetricSource, ProjectFiles, ProjectSpec, RunRequest, Variant
from guest.runner import MessageWriter, Progress
from tests import factories

PROJECT = ProjectSpec(
    source="mine",
    commit="",
    command=("true",),
    requirements="",
    metrics=(),
    predictions="",
    weights="",
    timeout_s=None,
    disk_limit_mib=1,
)


def test_a_program_with_both_frameworks_is_told_what_was_below_and_not_of_the_pools_that_exact_mode_fixed():
    exact = {"level": "machine", "arithmetic": 1, "instructions": "avx2", "below": ["lgamma"]}
    pools = {"intra_op": EXACT_TENSORFLOW_THREADS, "inter_op": 1}
    seen = {"kind": "end", "torch": {"exact": exact}, "tensorflow": pools}
    spec = factories.spec(cpus=2, variant=Variant.EXACT)
    assert list(service._remarks([{"kind": "start"}, seen], spec)) == [
        "operations below level machine, whose bits depend on the CPU: lgamma"
    ]


def test_predictions_of_more_bytes_than_are_collected_are_refused_with_the_limit(tmp_path, monkeypatch):
    monkeypatch.setattr(bounded, "PREDICTIONS", bounded.Limit(bytes=bounded.MIB))
    project = dataclasses.replace(PROJECT, predictions="logits.npy")
    np.save(tmp_path / "logits.npy", np.zeros((100, 1500), np.float32))
    assert service._predictions(project, tmp_path, tmp_path)["logits"]
    np.save(tmp_path / "logits.npy", np.zeros((100, 1500)))
    with pytest.raises(ArtifactError, match=r"logits.npy: the predictions take 1.1 MiB, of which at most 1 "):
        service._predictions(project, tmp_path, tmp_path)


def test_weights_are_the_numbers_of_an_archive_and_those_that_safetensors_can_store_are_kept(tmp_path):
    project, hashes = dataclasses.replace(PROJECT, weights="w.npz"), []
    for text, number in (("cat", 1j), ("dog", 1j), ("dog", 2j)):
        arrays = {"w": np.ones(2), "names": np.array([text]), "day": np.array(["2026-01-01"], "M8[D]")}
        np.savez(tmp_path / "w.npz", **arrays, phases=np.array([number]), long=np.ones(2, np.longdouble))
        hashes.append(service._weights(project, tmp_path, tmp_path)[0])
        assert list(load_file(tmp_path / WEIGHTS)) == ["w"]
    assert hashes[0] == hashes[1] != hashes[2]
    np.savez(tmp_path / "w.npz", names=np.array(["cat"]), phases=np.array([1j]))
    with pytest.raises(ArtifactError, match=r"w.npz: has only arrays of <U3, complex128: write float64"):
        service._weights(project, tmp_path, tmp_path)


def test_a_table_of_classes_without_their_names_is_refused_with_what_to_write(tmp_path):
    project = dataclasses.replace(PROJECT, predictions="table.csv")
    (tmp_path / "table.csv").write_text("true,guess\n2,1\n2,2\n")
    with pytest.raises(ArtifactError, match=r"table.csv: a column of whole numbers .* y_pred and .* y_true"):
        service._predictions(project, tmp_path, tmp_path)


@pytest.mark.parametrize("status", [0, 1])
def test_a_run_has_a_temporary_folder_of_its_own_which_is_removed_however_it_ends(
    tmp_path, monkeypatch, status
):
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    monkeypatch.setattr(service, "_check", lambda _: None)  # pytest has no stdin
    program = (
        "import os, tempfile\nfolder = tempfile.gettempdir()\nprint(folder, os.listdir(folder))\n"
        f"os.mkdir(folder + '/left', 0o500)\nprint('acc 1')\nraise SystemExit({status})\n"
    )
    (tmp_path / "train.py").write_text(program)
    with tarfile.open(tmp_path / "mine.tar", "w") as archive:
        archive.add(tmp_path / "train.py", "train.py")
    sha256 = sha256_of(tmp_path / "mine.tar")
    files = ProjectFiles(
        archive=str(tmp_path / "mine.tar"), archive_sha256=sha256, tree_sha256="", commit="", wheels=""
    )
    metrics = (MetricSource(name="accuracy", pattern="acc (.*)"),)
    project = dataclasses.replace(PROJECT, command=("python", "train.py"), metrics=metrics)
    workload = dataclasses.replace(factories.workload(), framework=None, project=project)
    request = RunRequest(spec=factories.spec(workload=workload), visible_cpus=1, project=files)
    with (tmp_path / "messages").open("wb", buffering=0) as messages:
        service.execute(request, tmp_path / "out", MessageWriter(messages.fileno()))
    *_, last = (tmp_path / "messages").read_text().splitlines()
    assert json.loads(last)["kind"] == ("error" if status else "done")
    log = (tmp_path / "out" / LOG).read_text()
    assert re.match(rf"{tmp_path}/tmp/\w{{8}} \[\]\n", log)
    assert not list((tmp_path / "tmp").iterdir())


def test_an_error_that_names_a_file_whose_name_is_no_text_is_the_runs_and_does_not_end_the_agent(
    tmp_path, monkeypatch
):
    def fail(*_):
        raise ArtifactError(os.fsdecode(b"caf\xe9.npy: holds no arrays"))

    monkeypatch.setattr(service, "run", fail)
    request = RunRequest(spec=factories.spec(), visible_cpus=1)
    with (tmp_path / "messages").open("wb", buffering=0) as messages:
        assert service.execute(request, tmp_path, MessageWriter(messages.fileno()))
    *_, last = map(json.loads, (tmp_path / "messages").read_text().splitlines())
    assert last["kind"] == "error"
    assert last["body"]["message"] == r"caf\udce9.npy: holds no arrays"
    assert r"ArtifactError: caf\udce9.npy" in (tmp_path / LOG).read_text()


def test_a_project_that_sees_fewer_cores_than_its_guest_was_made_with_is_refused(tmp_path):
    files = ProjectFiles(archive="", archive_sha256="", tree_sha256="", commit="", wheels="")
    workload = dataclasses.replace(factories.workload(), project=PROJECT)
    cores = len(os.sched_getaffinity(0))
    request = RunRequest(spec=factories.spec(workload=workload), visible_cpus=cores + 1, project=files)
    with pytest.raises(ThreadMismatchError, match=f"visible_cpus is {cores}, {cores + 1} was asked for"):
        service.run(request, tmp_path, io.BytesIO(), MessageWriter(1), Progress())
