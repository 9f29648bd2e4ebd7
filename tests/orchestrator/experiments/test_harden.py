"""Real hardening: real guests, real training, small."""

import dataclasses
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from guest.machine import tiers
from guest.records import trace as trace_records
from guest.records.codec import digest, to_json
from guest.records.harden import Proof, decode
from guest.records.run import Framework, Seeds, Tier
from orchestrator.agent.executor import Executor, RunFailedError
from orchestrator.cli import main as cli
from orchestrator.experiments import harden
from orchestrator.store.store import Store
from orchestrator.study.plan import first_runs
from tests import factories
from tests.orchestrator.sweep.test_pipeline import STUDY, vbstudy
from tests.processes import wait_until
from tests.schemas import validate

pytestmark = pytest.mark.needs("studies")

GOLDEN = Path(__file__).parents[2] / "golden"


def study(directory):
    (directory / "study.toml").write_text(STUDY.replace("epochs = 2", "epochs = 1"))
    return directory


def stored(directory):
    return decode((directory / "harden" / "net.json").read_bytes())


@pytest.fixture(scope="module")
def hardened(tmp_path_factory):
    """One study whose default and one thread were tried on 1 and 2 CPUs, for tests that only look at it."""
    directory = study(tmp_path_factory.mktemp("hardened"))
    assert vbstudy(directory, "-q", "harden", "--runs", "1", "--tiers", "one-thread") == 0
    return directory


def test_one_thread_is_proved_and_the_default_is_not(hardened):
    found = stored(hardened)
    assert {result.tier: result.proof for result in found.results} == {
        Tier.SEEDS: Proof.DIFFERS,
        Tier.ONE_THREAD: Proof.PROVED,
    }
    assert found.cheapest is Tier.ONE_THREAD
    assert all(cost.n == 1 and cost.ratio > 0 for result in found.results for cost in result.costs)
    (environment,) = found.environments.values()
    assert environment["libraries"]["torch"]
    assert environment["cpu"]["model"]


def test_nothing_is_left_but_the_result(hardened):
    assert sorted(path.name for path in hardened.iterdir()) == [".lock", "harden", "study.toml"]


def test_what_is_measured_is_not_measured_again(hardened, capsys):
    before = stored(hardened).measurements
    capsys.readouterr()
    assert vbstudy(hardened, "--json", "harden", "--runs", "1", "--tiers", "0,5") == 0
    printed = json.loads(capsys.readouterr().out)
    validate(printed, "harden")
    (told,) = printed
    assert told["cheapest"] == "one-thread"
    assert stored(hardened).measurements == before


def test_the_lines_to_paste_are_those_of_the_tier_and_what_was_not_seen_is_said(hardened):
    text = "\n".join(harden.told(stored(hardened)))
    assert "    torch.set_num_threads(1)" in text
    assert "export PYTHONHASHSEED=1" in text
    assert "seen on 1, 2 CPUs in 2 trainings, and said of nothing else" in text
    assert "not profiled" in text


def test_a_killed_hardening_keeps_what_was_measured_and_goes_on(tmp_path):
    directory = study(tmp_path)
    command = [sys.executable, "-m", "vbstudy", "-q", "-C", str(directory), "harden"]
    command += ["--runs", "1", "--tiers", "seeds"]
    process = subprocess.Popen(command, start_new_session=True, stdout=subprocess.DEVNULL)
    path = directory / "harden" / "net.json"
    try:
        wait_until(lambda: path.exists())
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    first = stored(directory).measurements
    assert len(first) >= 1
    assert cli.run(command[3:]) == 1, "the default is not proved"
    measured = stored(directory).measurements
    assert measured[: len(first)] == first
    assert len(measured) == 2


@pytest.mark.needs("exact")
@pytest.mark.parametrize("framework", Framework)
def test_exact_mode_is_proved_where_the_default_is_not(tmp_path, framework):
    directory = study(tmp_path)
    text = (directory / "study.toml").read_text() + f'framework = "{framework}"\n'
    (directory / "study.toml").write_text(text)
    assert vbstudy(directory, "-q", "harden", "--cpus", "1,2,4", "--tiers", "exact") == 0
    proofs = {result.tier: (result.proof, result.n) for result in stored(directory).results}
    assert proofs == {Tier.SEEDS: (Proof.DIFFERS, 9), Tier.EXACT: (Proof.PROVED, 9)}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--cpus", "2"), "two or more CPU counts"),
        (("--tiers", "exakt"), "'exakt' is none of 0 seeds, 1 switches"),
        (("--workload", "nett"), "did you mean 'net'"),
        (("--cpus", "0,2"), "0 is not between 1 and"),
        (("--cpu", "1,2"), "Did you mean '--cpus'?"),
        (("--runs", "0"), "--runs"),
    ],
)
def test_mistakes_are_told_before_anything_is_trained(tmp_path, capsys, arguments, message):
    assert vbstudy(study(tmp_path), "harden", *arguments) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "harden").exists()


def test_a_guest_whose_disk_is_full_says_nothing_of_a_tier(hardened, monkeypatch, capsys):
    def full(*_: object) -> None:
        raise RunFailedError("OSError", "[Errno 28] No space left on device")

    monkeypatch.setattr(Executor, "execute", full)
    before = stored(hardened).measurements
    assert vbstudy(hardened, "harden", "--runs", "2", "--tiers", "one-thread") == 4
    assert "guest cpus-1: its disk is full; make room there and harden again" in capsys.readouterr().err
    assert stored(hardened).measurements == before


def test_in_a_folder_without_a_study_the_default_study_is_hardened(tmp_path, capsys):
    assert vbstudy(tmp_path, "harden", "--cpus", "1,2", "--workload", "lenet") == 2
    assert "did you mean 'lenet5'" in capsys.readouterr().err


def test_a_damaged_result_is_told_and_left_alone(tmp_path, capsys):
    directory = study(tmp_path)
    (directory / "harden").mkdir()
    (directory / "harden" / "net.json").write_text("{}")
    assert vbstudy(directory, "harden") == 6
    assert "move it away to measure again" in capsys.readouterr().err
    assert (directory / "harden" / "net.json").read_text() == "{}"


def test_results_of_another_training_or_another_agent_are_not_continued(tmp_path):
    store, said = Store(tmp_path), []
    loaded = parsed(STUDY)
    (base,) = first_runs(loaded, None)
    agent = harden.AgentArchive(b"", "b" * 64)
    done = factories.hardening([factories.measurement()], workload=base.workload)

    def begun(with_agent=agent):
        return harden.begin(loaded, store, base, (1, 2), (Tier.EXACT,), 1, with_agent, said.append)

    store.hardenings.write(base.workload.name, done)
    assert begun().measurements == done.measurements
    assert begun(harden.AgentArchive(b"", "c" * 64)).measurements == ()
    assert "they are repeated" in said[-1]
    other = Seeds(initialisation=9, data_order=1, augmentation=1, dropout=1)
    changed = factories.hardening(done.measurements, workload=base.workload, seeds=other)
    store.hardenings.write(base.workload.name, changed)
    assert begun().measurements == ()
    failed = factories.measurement(error="Lost: silent", weights="")
    store.hardenings.write(base.workload.name, factories.hardening([failed], workload=base.workload))
    assert begun().measurements == (), "what failed is tried again"


def test_fixed_threads_are_measured_anew_when_their_number_changes(tmp_path):
    store, loaded = Store(tmp_path), parsed(STUDY)
    (base,) = first_runs(loaded, None)
    agent = harden.AgentArchive(b"", "b" * 64)
    of_two = factories.measurement(tier=Tier.LOGICAL_THREADS, intra_op=2)
    plain = factories.measurement()
    store.hardenings.write(base.workload.name, factories.hardening([plain, of_two], workload=base.workload))

    def kept(cpus):
        asked = (Tier.LOGICAL_THREADS,)
        return harden.begin(loaded, store, base, cpus, asked, 1, agent, lambda text: None).measurements

    assert kept((1, 2)) == (plain, of_two)
    assert kept((1, 4)) == (plain,)


def parsed(text):
    from orchestrator.study import schema as study_

    return study_.parse(text)


def trace(directory, name, **changes):
    """The golden trace, of the first version; as older programs wrote it, its workload has no `project`."""
    data = json.loads((GOLDEN / "trace-1.json").read_text()) | {"trace_id": name, **changes}
    del data["record_sha256"]
    data["workload"] = {key: value for key, value in data["workload"].items() if key != "project"}
    path = directory / "trace" / name / "trace.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(data | {"record_sha256": digest(data)}))
    return path


def test_a_profile_is_made_of_the_traces_of_this_workload_alone_of_any_schema(tmp_path):
    store = Store(tmp_path)
    workload = trace_records.decode((GOLDEN / "trace-1.json").read_bytes()).workload
    assert harden.profile(store, workload) is None
    trace(tmp_path, "other", workload=to_json(dataclasses.replace(workload, epochs=9)))
    trace(tmp_path, "damaged").write_text("{}")
    assert harden.profile(store, workload) is None
    trace(tmp_path, "mine")
    found = harden.profile(store, workload)
    assert found is not None
    assert (found.traces, found.varying, found.unknown) == (
        ("mine",), ("aten.convolution_backward.default",), ("aten.new.default",)
    )  # fmt: skip


def test_each_tier_is_measured_with_the_threads_that_it_is_described_with():
    for framework in Framework:
        for tier in tiers.TIERS:
            spec = factories.spec(2, threads=tiers.threads_of(tier, framework, 2, 4), tier=tier)
            assert spec.set_id.endswith(f"-by-{tier}"), "never taken for a run of a study"
