"""trace and probe as a user meets them: real processes, whole outputs, exit codes, no traceback."""

import errno
import json
import os

import pytest

from guest.records.codec import from_json
from guest.records.probe import ProbeReport
from guest.records.trace import TRACE, Outcome, decode
from orchestrator.cli import main as cli
from orchestrator.errors import StoreError
from orchestrator.store.store import Store
from tests.schemas import validate

STUDY = """
cpus = [1, 4]
variants = ["fixed-seed"]
repetitions = 1
[[workload]]
name = "lenet"
model = "lenet5"
dataset = "digits"
epochs = 1
train_samples = 192
test_samples = 50
[[workload]]
name = "mlp"
model = "mlp"
dataset = "digits"
epochs = 1
train_samples = 128
test_samples = 50
"""


@pytest.fixture
def vbstudy(tmp_path, capsys):
    """Runs a command in a study's folder; returns exit code, stdout and stderr."""
    (tmp_path / "study.toml").write_text(STUDY)

    def run(*arguments: str) -> tuple[int, str, str]:
        capsys.readouterr()
        status = cli.run(["-C", str(tmp_path), *arguments])
        output = capsys.readouterr()
        assert "Traceback" not in output.err
        return status, output.out, output.err

    return run


@pytest.mark.needs("studies")
def test_a_trace_finds_the_operation_and_keeps_what_it_found(vbstudy, tmp_path):
    status, out, err = vbstudy("trace", "--cpus", "1,4", "--steps", "2")
    assert status == 0, err
    assert "diverges at step 1" in out
    assert "aten.convolution_backward.default (backward of conv2 at guest/workloads/torch_models.py" in out
    assert "oneDNN" in out
    (folder,) = (tmp_path / "trace").iterdir()
    names = {"growth.csv", "growth.png", "growth.svg", "operations-a.jsonl", "operations-b.jsonl", TRACE}
    assert {file.name for file in folder.iterdir()} == names
    found = decode((folder / TRACE).read_bytes())
    assert (found.outcome, found.step) == (Outcome.OPERATION, 1)
    assert found.unknown == ()
    assert {growth.step for growth in found.growth} == {1, 2}
    assert not (tmp_path / "guests").exists()


def test_without_a_study_the_default_one_is_named(vbstudy, tmp_path, monkeypatch):
    def work(*arguments):
        raise StoreError("enough")

    monkeypatch.setattr("orchestrator.experiments.trace.work", work)
    assert "default study" not in vbstudy("trace", "--cpus", "1,4")[2]
    (tmp_path / "study.toml").unlink()
    told = f"trace: there is no study in {tmp_path}: a workload of the default study is traced\n"
    assert vbstudy("trace", "--cpus", "1,4")[2].startswith(told)


@pytest.mark.needs("studies")
def test_two_stored_runs_are_traced_as_they_were_run(vbstudy, tmp_path):
    for command in (["provision"], ["-q", "sweep"]):
        assert vbstudy(*command)[0] == 0
    runs = [f"lenet/fixed-seed/cpus-{n}/0001" for n in (1, 4)]
    status, out, err = vbstudy("--json", "trace", *runs, "--steps", "1")
    assert status == 0, err
    found = json.loads(out)
    validate(found, "trace")
    assert [side["run_id"] for side in found["sides"]] == runs
    assert (found["outcome"], found["step"], found["notes"]) == ("operation", 1, [])
    assert json.loads((tmp_path / "guests.json").read_text())["guests"]
    for arguments, message in (
        ((runs[0], runs[0]), "have the same threads"),
        ((runs[0], "mlp/fixed-seed/cpus-4/0001"), "their workloads differ"),
        ((runs[0], "lenet/fixed-seed/cpus-8/0001"), "is neither the id nor the folder of a stored run"),
        ((runs[0],), "two runs are compared; 1 named"),
    ):
        status, _, err = vbstudy("trace", *arguments)
        assert (status, message in err) == (2, True), err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "name two CPU counts"),
        (("--cpus", "1,1"), "1 is named twice"),
        (("--cpus", "1"), "names 1 counts; name two"),
        (("--cpus", "1,2,4"), "names 3 counts; name two"),
        (("--cpus", "1,99999"), "99999 is not between 1 and"),
        (("--cpus", "1,x"), "'x' is not a whole number"),
        (("--cpus", "1,4", "a/b/c/d"), "name two CPU counts (--cpus 1,4), or two stored runs"),
        (("--cpus", "1,4", "--workload", "lenett"), "did you mean 'lenet'?"),
        (("--cpus", "1,4", "--steps", "0"), "--steps"),
        (("--cpu", "1,4"), "Did you mean '--cpus'?"),
        (("--cpus", "1,4", "--framework", "jax"), "'jax' is not one of 'torch', 'tensorflow'"),
        (("--cpus", "1,4", "--variant", "default"), "'default' is not one of 'fixed-seed', 'control'"),
        (("nothing/there", "neither"), "is neither the id nor the folder of a stored run; there are none"),
        (("trian", "train.py"), "(of a program: vbstudy trace -- python train.py)"),
    ],
)
def test_bad_input_is_told(vbstudy, arguments, message):
    status, _, err = vbstudy("trace", *arguments)
    assert (status, message in err) == (2, True), err


def test_a_trace_that_fails_publishes_nothing(tmp_path):
    store = Store(tmp_path)

    def write():
        with store.new_trace("t") as folder:
            (folder / TRACE).write_text("half")
            raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(StoreError, match="disk is full"):
        write()
    assert not list(store.incoming.iterdir())
    assert not store.traces.exists()
    assert store.new_trace_id("w", ["cpus-1", "cpus-4"]) == "w-cpus-1-cpus-4-0001"


@pytest.mark.needs("studies")
def test_a_probe_compares_threads_and_runs(vbstudy, tmp_path):
    # PyTorch's own code, equal on every CPU: with channels last each thread sums some of the rows, otherwise
    # each sums whole channels. What oneDNN and the BLAS library do depends on the CPU.
    status, out, err = vbstudy(
        "probe", "--threads", "1,2", "--operation", "batch_norm*", "--quick", "--runs", "2"
    )
    assert status == 0, err
    assert "batch_norm" in out
    data = json.loads((tmp_path / "probe" / "probe-torch.json").read_text())
    validate(data, "probe")
    del data["record_sha256"]
    report = from_json(ProbeReport, data)
    assert {row.threads for row in report.rows} == {1, 2}
    assert all(row.equal for row in report.rows if row.threads == 1)
    varying = [row for row in report.rows if not row.equal]
    assert {(row.operation, row.part) for row in varying} == {
        ("batch_norm_channels_last", "forward"),
        ("batch_norm_channels_last", "backward"),
    }
    assert all(row.vermv > 0 and 0 < row.vc <= 1 and row.max_ulp > 0 for row in varying)
    assert {file.suffix for file in (tmp_path / "probe").iterdir()} == {".json", ".csv", ".png", ".svg"}


def test_a_probe_in_a_study_at_work_is_refused(vbstudy, tmp_path):
    with Store(tmp_path).lock("vbstudy sweep"):
        status, _, err = vbstudy("probe", "--quick", "--operation", "mm")
    assert (status, "another vbstudy works in this folder" in err) == (2, True), err


def test_the_folder_of_probes_is_replaced_as_a_whole_and_keeps_its_other_files(tmp_path):
    store, names = Store(tmp_path), ("probe-torch.csv", "probe-torch.json")
    store.probe.mkdir()
    for name in (*names, "probe-tensorflow.json"):
        (store.probe / name).write_text("old")

    def write(folder):
        for name in names:
            (folder / name).write_text("new")

    former = os.open(store.probe, os.O_RDONLY)  # a reader that has opened the folder
    try:
        store.write_together(store.probe, write)
        assert not os.path.samestat(os.fstat(former), store.probe.stat())
    finally:
        os.close(former)
    expected = dict.fromkeys(names, "new") | {"probe-tensorflow.json": "old"}
    assert {file.name: file.read_text() for file in store.probe.iterdir()} == expected
    assert [path.name for path in tmp_path.iterdir()] == ["probe"]


@pytest.mark.parametrize("study", ["", "study"])
def test_a_folder_beside_the_output_of_a_probe_is_none_of_its_business(tmp_path, study):
    for name in ("results.part", "results.former"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "thesis.txt").write_text("mine")
    store = Store(tmp_path / study)
    for _ in range(2):  # into a folder that is not there, and into one that is
        store.write_together(tmp_path / "results", lambda folder: (folder / "probe.json").write_text("new"))
    assert (tmp_path / "results" / "probe.json").read_text() == "new"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["results", "results.former", "results.part"]
    assert all((tmp_path / name / "thesis.txt").exists() for name in ("results.part", "results.former"))


def test_a_folder_of_probes_survives_a_kill_while_it_is_replaced(tmp_path):
    store = Store(tmp_path)
    (tmp_path / "probe.former").mkdir()  # killed between the two renames
    (tmp_path / "probe.former" / "probe-tensorflow.json").write_text("old")
    store.write_together(store.probe, lambda folder: (folder / "probe-torch.json").write_text("new"))
    assert {file.name for file in store.probe.iterdir()} == {"probe-torch.json", "probe-tensorflow.json"}
    assert [path.name for path in tmp_path.iterdir()] == ["probe"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--operation", "conv9d"), "no operation has such a name"),
        (("--threads", "2"), "at least two thread counts"),
        (("--threads", "1,1"), "--threads 1,1: 1 is named twice"),
        (("--cpus", "2"), "at least two thread counts"),  # as other commands call it
        (("--operation", "conv2"), "did you mean 'conv2d'?"),
        (("--dtypes", "float31"), "'float31' is none of float32, float64, bfloat16; did you mean 'float32'?"),
        (("--dtypes", ""), "'' is none of float32"),
        (("--runs", "1"), "--runs"),
        (("--runs", "101"), "--runs"),
        (("--thread", "1,2"), "Did you mean '--threads'?"),
    ],
)
def test_bad_input_to_a_probe_is_told(vbstudy, arguments, message):
    status, _, err = vbstudy("probe", *arguments)
    assert (status, message in err) == (2, True), err


def test_a_disk_that_is_full_beside_the_store_is_told_too(vbstudy, monkeypatch):
    def full(*arguments):
        raise OSError(errno.ENOSPC, "No space left on device", "/somewhere/else")

    monkeypatch.setattr("orchestrator.experiments.probe.work", full)
    status, _, err = vbstudy("probe", "--quick")
    assert status == 6
    assert "/somewhere/else: cannot be read or written: the disk is full" in err
