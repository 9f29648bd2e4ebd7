import contextlib
import json
import math
from types import SimpleNamespace

import pytest

from guest.records.run import Message
from orchestrator.sweep import live as live_module
from orchestrator.sweep.live import LOSSES_KEPT, LiveFile, read_live
from tests import factories

SPEC = factories.spec(cpus=1)
GUEST = "cpus-1"


@pytest.fixture
def path(tmp_path):
    return tmp_path / ".live"


def epoch(number, **body):
    return Message("epoch", SPEC.run_id, {"epoch": number, **body})


def test_what_is_at_work_is_read_from_another_process(path):
    with LiveFile(path, 2) as live:
        live.planned([SPEC, factories.spec(cpus=1, repetition=2)], [])
        live.waiting("guest cpus-1 waits for cores")
        live._write("running")
        assert read_live(path).waiting == "guest cpus-1 waits for cores"
        live.started(GUEST, SPEC, (0, 3))
        live.message(GUEST, Message("heartbeat", SPEC.run_id, {"step": True}))
        live.message(GUEST, Message("heartbeat", SPEC.run_id, {"step": 7}))
        live.message(GUEST, epoch(1, train_loss=2.5, test_accuracy=0.25, test_loss=2.0))
        live.message(GUEST, epoch(2, train_loss=math.nan, test_accuracy=0.5))
        live._write("running")
        seen = read_live(path)
        assert (seen.state, seen.cores, seen.planned) == ("running", 2, {SPEC.set_id: 2})
        (run,) = seen.running
        assert (run.guest, run.cores, run.run_id) == ("cpus-1", (0, 3), SPEC.run_id)
        assert (run.epoch, run.epochs, run.step, run.scores) == (2, 2, 7, {"accuracy": 0.5})
        assert run.losses[0] == 2.5
        assert math.isnan(run.losses[1])
        live.finished(SPEC, factories.result({}))
        live._write("running")
        seen = read_live(path)
        assert (seen.running, seen.done_now) == ((), 1)
        assert seen.took[SPEC.set_id].runs == 1
    assert read_live(path).state == "ended"


def test_a_failed_attempt_leaves_its_guest_and_counts(path):
    with LiveFile(path, 1) as live:
        live.started(GUEST, SPEC, (0,))
        live.failed(SPEC, "no", path, again=False)
    seen = read_live(path)
    assert (seen.failed_now, seen.running, seen.took) == (1, (), {})


@pytest.mark.parametrize(("error", "state"), [(KeyboardInterrupt, "stopped"), (ValueError, "failed")])
def test_how_the_sweep_ended_is_kept(path, error, state):
    live = LiveFile(path, 1)
    with contextlib.suppress(error), live:
        live.started(GUEST, SPEC, (0,))
        raise error
    assert (read_live(path).state, read_live(path).running) == (state, ())


def test_the_beat_goes_on_while_nothing_happens(path, monkeypatch):
    monkeypatch.setattr(live_module, "EVERY_S", 0.01)
    with LiveFile(path, 1):
        first = read_live(path).beat
        for _ in range(1000):
            if read_live(path).beat > first + 3:
                break
            live_module.time.sleep(0.01)
        assert read_live(path).beat > first + 3


def test_losses_are_kept_up_to_a_number(path):
    with LiveFile(path, 1) as live:
        live.started(GUEST, SPEC, (0,))
        for number in range(3 * LOSSES_KEPT):
            live.message(GUEST, epoch(number, train_loss=float(number)))
        live._write("running")
        assert read_live(path).running[0].losses == tuple(map(float, range(2 * LOSSES_KEPT, 3 * LOSSES_KEPT)))


def test_a_file_that_is_none_or_cut_or_of_others_is_no_state(path):
    assert read_live(path) is None
    with LiveFile(path, 1):
        pass
    whole = path.read_text()
    for text in (whole[:-1], "", "[]", json.dumps({**json.loads(whole), "state": "dancing"})):
        path.write_text(text)
        assert read_live(path) is None


def test_a_full_disk_stops_no_sweep(path):
    path.mkdir()
    with LiveFile(path, 1) as live:
        live.started(GUEST, SPEC, (0,))
    assert path.is_dir()


def test_took_adds_up(path, monkeypatch):
    clock_s = iter([5.0, 15.0, 30.0, 50.5])
    monkeypatch.setattr(live_module, "time", SimpleNamespace(monotonic=lambda: next(clock_s)))
    live = LiveFile(path, 1)  # without its thread, which reads the clock too
    for repetition in (1, 2):
        spec = factories.spec(cpus=1, repetition=repetition)
        live.started(GUEST, spec, (0,))
        live.finished(spec, factories.result({}))
    took = live._took[SPEC.set_id]
    assert (took.runs, took.seconds) == (2, 30.5)


def test_a_run_whose_start_was_not_told_took_what_its_result_says(path):
    result = factories.result({})
    with LiveFile(path, 0) as live:
        live.finished(SPEC, result)
        assert live._took[SPEC.set_id].seconds == result.timings.wall_s


def test_a_run_that_starts_elsewhere_is_no_longer_where_it_was(path):
    with LiveFile(path, 0) as live:
        live.started(GUEST, SPEC, (0,))
        live.started("cpus-1.1@node2", SPEC, (0,))
        live._write("running")
        assert [run.guest for run in read_live(path).running] == ["cpus-1.1@node2"]
