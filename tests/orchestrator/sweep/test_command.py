"""What a sweep asks for before it begins."""

import os
import tempfile
from pathlib import Path

import pytest

from orchestrator.cli import main as cli
from orchestrator.engine import Summary
from orchestrator.errors import StoreError, UsageError
from orchestrator.store.store import Store
from orchestrator.study.plan import plan
from orchestrator.study.schema import parse
from orchestrator.sweep import command
from orchestrator.sweep.pipeline import run_missing
from orchestrator.sweep.progress import composite
from tests.orchestrator.store.test_store import publish
from tests.orchestrator.sweep.test_pipeline import STUDY


def test_a_sweep_on_other_hosts_that_measures_robustness_asks_for_its_guest_before_it_begins(
    tmp_path, capsys, monkeypatch
):
    pytest.importorskip("distributed")
    monkeypatch.setattr(command, "run_missing", lambda *_: pytest.fail("the sweep began"))
    (tmp_path / "study.toml").write_text(STUDY)
    arguments = ["-C", str(tmp_path), "-q", "sweep", "--robustness", "--scheduler", "tcp://127.0.0.1:1"]
    assert cli.run(arguments) == 2
    assert f"there are no guests yet; run `vbstudy -C {tmp_path} provision` first" in capsys.readouterr().err


@pytest.fixture
def other_disk(tmp_path):
    memory = Path("/dev/shm")
    if not os.access(memory, os.W_OK) or memory.stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip("there is no second file system")
    with tempfile.TemporaryDirectory(dir=memory) as folder:
        yield Path(folder)


class Engine:
    """Counts what it is given."""

    given = 0
    without = ()

    def has_guest(self, name):
        return name not in self.without

    def run(self, specs, observer, summary, checked):
        self.given += len(specs)


def test_only_guests_of_runs_that_are_not_done_are_asked_for(tmp_path):
    store, engine, specs = Store(tmp_path), Engine(), plan(parse(STUDY))
    engine.without = ("cpus-1", "cpus-2")
    with pytest.raises(UsageError, match="there is no guest cpus-[12] or cpus-[12]; run `vbstudy provision`"):
        run_missing(specs, store, engine, composite())
    for spec in specs:
        if spec.threads.cpus == 2:
            publish(store, spec)
    engine.without = ("cpus-2",)
    assert run_missing(specs, store, engine, composite()).without_guest == []
    assert engine.given == 2
    for spec in specs:
        if spec.threads.cpus == 1:
            publish(store, spec)
    engine.without = ("cpus-1", "cpus-2")
    summary = run_missing(specs, store, engine, composite())
    assert (summary.done_before, summary.without_guest) == (4, [])


@pytest.mark.parametrize("name", ["runs", "failed"])
def test_results_that_would_have_to_go_to_another_disk_are_refused_before_anything_trains(
    tmp_path, other_disk, name
):
    store, engine = Store(tmp_path), Engine()
    (tmp_path / name).symlink_to(other_disk)
    with pytest.raises(StoreError, match=f"{name}: is on another disk than .*: move the whole study there"):
        run_missing(plan(parse(STUDY)), store, engine, composite())
    assert engine.given == 0
    (tmp_path / name).unlink()
    (tmp_path / name).symlink_to(tmp_path / "gone")
    with pytest.raises(StoreError, match="No such file"):
        run_missing(plan(parse(STUDY)), store, engine, composite())
    (tmp_path / "gone").mkdir()
    run_missing(plan(parse(STUDY)), store, engine, composite())
    assert engine.given == 4


def test_a_sweep_with_failed_runs_quotes_the_last_error_and_names_its_evidence(tmp_path):
    store, spec = Store(tmp_path), plan(parse(STUDY))[0]
    kept = store.keep_failure(spec, 1, store.new_incoming(), {"kind": "ValueError", "message": "boom"})
    summary = Summary(failed=[spec.run_id])
    _, text = command.summaries(command.SweepOutcome(summary=summary), store)
    why = f"{spec.run_id} failed with ValueError: boom (evidence: {kept.relative_to(tmp_path)})"
    assert text.endswith(f"; 1 failed, the last: {why}; mend the cause first")


def test_a_trace_that_would_have_to_go_to_another_disk_is_refused_before_it_begins(tmp_path, other_disk):
    (tmp_path / "trace").symlink_to(other_disk)
    with (
        pytest.raises(StoreError, match="trace: is on another disk than"),
        Store(tmp_path).new_trace("net-cpus-1-cpus-2-0001"),
    ):
        pytest.fail("it began")
