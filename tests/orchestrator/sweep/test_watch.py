import dataclasses
import io
import json
import os
import signal
import socket
import subprocess
import sys
import time

import pytest
from rich.console import Console

from guest.records.codec import to_json
from orchestrator.cli import main as cli
from orchestrator.store.store import Store, now
from orchestrator.study.plan import plan
from orchestrator.study.schema import load
from orchestrator.sweep.live import LIVE_VERSION, SILENT_S, ElapsedTotal, Live, Running
from orchestrator.sweep.watch import Watcher, as_json
from orchestrator.sweep.watch_view import render, sparkline
from orchestrator.text import duration
from tests import factories
from tests.orchestrator.sweep.test_pipeline import STUDY

RUNNING = Running(
    guest="cpus-1",
    cores=(0, 1, 2, 5),
    run_id="net/fixed-seed/cpus-1/0001",
    set_id="net/fixed-seed/cpus-1",
    epochs=4,
    epoch=3,
    losses=(3.0, 2.0, 1.0),
    scores={"accuracy": 0.75},
    running_s=4.0,
)
LIVE = Live(
    version=LIVE_VERSION,
    state="running",
    process=os.getpid(),
    host=socket.gethostname(),
    cores=2,
    started_at=now(),
    updated_at=now(),
    beat=1,
    planned={"net/fixed-seed/cpus-1": 3, "net/fixed-seed/cpus-2": 3},
    took={"net/fixed-seed/cpus-1": ElapsedTotal(runs=2, seconds=20.0)},
    running=(RUNNING,),
    done_now=2,
    failed_now=1,
)


@pytest.fixture
def study(tmp_path):
    (tmp_path / "study.toml").write_text(STUDY)
    return tmp_path


def write(directory, **changes):
    live = dataclasses.replace(LIVE, **({"updated_at": now()} | changes))
    (directory / ".live").write_text(json.dumps(to_json(live)))


def publish(directory, *specs):
    store = Store(directory)
    for spec in specs:
        incoming = store.new_incoming()
        assert store.publish(incoming, factories.record(spec, factories.result(factories.fill(incoming))))


def watcher(directory):
    store = Store(directory)
    return Watcher(load(store.study_file), store)


def look(directory):
    return watcher(directory).look()


def shown(frame, columns=120, **options):
    screen = io.StringIO()
    Console(file=screen, width=columns).print(render(frame, **options))
    return screen.getvalue()


def test_a_study_that_nobody_swept_is_shown_as_it_is(study):
    frame = look(study)
    assert (frame.sweep, frame.alive, frame.planned, frame.done, frame.eta_s) == (None, False, 4, 0, None)
    text = shown(frame)
    assert "no sweep has begun" in text
    assert "run `vbstudy provision`" in text
    assert "4 left to run" in text


def test_on_many_hosts_the_time_left_is_told_from_the_cores_at_work(study):
    publish(study, *[s for s in plan(load(study / "study.toml")) if s.threads.cpus == 1])
    write(study, cores=0)
    assert look(study).eta_s == (6.0 * 1 + 30.0 * 2) / 4
    write(study, cores=0, running=())
    frame = look(study)
    assert frame.eta_s is None
    assert "none at work" in shown(frame)


def test_beside_a_sweep_runs_sets_and_time_left_are_shown(study):
    publish(study, *[s for s in plan(load(study / "study.toml")) if s.threads.cpus == 1])
    write(study)
    frame = look(study)
    assert frame.alive
    assert [(s.done, s.planned, s.running) for s in frame.sets] == [(2, 3, 1), (0, 3, 0)]
    # One run of 10 s is left, of which 4 s are over; the other set's are as long, on both cores.
    assert [s.left_s for s in frame.sets] == [6.0, 30.0]
    assert frame.eta_s == 33.0  # (6 s x 1 core + 30 s x 2 cores) on 2 cores
    text = shown(frame)
    assert "sweeping" in text
    assert "about 33 s left" in text
    assert "0-2,5" in text
    assert "█▄▁" in text.replace("▅", "▄")
    assert "loss 1, accuracy 0.7500" in text
    assert "3/4" in text


def test_one_guest_at_a_time_takes_the_sum(study):
    (study / "study.toml").write_text(STUDY + "\n[engine]\nside_by_side = false\n")
    write(study, running=(), took={"net/fixed-seed/cpus-2": ElapsedTotal(runs=1, seconds=5.0)})
    assert look(study).eta_s == 3 * 5.0 + 3 * 5.0


def test_without_a_finished_run_the_time_left_is_not_known(study):
    write(study, took={})
    assert look(study).eta_s is None
    assert "unknown until the first runs end" in shown(look(study))


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"state": "ended"}, "the sweep has ended"),
        ({"state": "stopped"}, "the sweep was stopped"),
        ({"state": "failed"}, "ended with an error"),
        ({"updated_at": "2020-01-01T00:00:00+00:00"}, "no update from the sweep for"),
        ({"process": 2**22 + 1}, "no update from the sweep for"),  # no process has this number
    ],
)
def test_a_sweep_that_is_over_or_dead_is_not_taken_for_running(study, changes, text):
    write(study, **changes)
    frame = look(study)
    assert not frame.alive
    assert frame.running == ()
    assert text in shown(frame)


def test_a_sweep_on_another_machine_lives_by_its_beat_whatever_its_clock_says(study, monkeypatch):
    clock = [1000.0]
    monkeypatch.setattr("orchestrator.sweep.watch.time.monotonic", lambda: clock[0])
    other = {"host": "elsewhere", "process": 1, "updated_at": "2020-01-01T00:00:00+00:00"}
    write(study, **other)
    seen = watcher(study)
    assert not seen.look().alive  # nothing but its clock is known yet
    write(study, **other, beat=2)
    assert seen.look().alive
    clock[0] += SILENT_S - 1
    assert seen.look().alive
    clock[0] += 2
    assert not seen.look().alive
    write(study, **other, beat=3)
    assert seen.look().alive


def test_the_last_failures_are_told_newest_first_without_their_control_characters(study):
    store = Store(study)
    for number in range(1, 8):
        spec = factories.spec(repetition=number)
        why = {"kind": "ValueError", "message": f"\x1b[2J[red]{number}"}
        kept = store.keep_failure(spec, 1, store.new_incoming(), why)
        kept.rename(kept.with_name(f"{number:04d}-2026010{number}T000000-aaaaaa"))
    (study / "failed/lenet5/fixed-seed/cpus-2/0009-20260109T000000-aaaaaa").mkdir()
    frame = look(study)
    assert [failure.why for failure in frame.failures] == [
        f"ValueError: ?[2J[red]{number}" for number in (7, 6, 5, 4, 3)
    ]
    assert "ValueError: ?[2J[red]7" in shown(frame)
    assert "failed/lenet5/fixed-seed/cpus-2/0007-20260107T000000-aaaaaa" in shown(frame, columns=200)
    assert "\x1b[2J" not in shown(frame)


def test_what_does_not_fit_is_left_out_from_the_complete_sets_on(study):
    (study / "study.toml").write_text(STUDY.replace("[1, 2]", str(list(range(1, 31)))))
    publish(study, *[s for s in plan(load(study / "study.toml")) if s.threads.cpus <= 5])
    text = shown(look(study), height=20)
    assert "cpus-6 " in text
    assert "cpus-1 " not in text
    assert "and 26 more conditions" in text
    assert "cpus-1 " in shown(look(study))


def test_80_columns_show_whole_names_of_the_usual_length(study):
    name = "lenet1-digits-torch"
    (study / "study.toml").write_text(STUDY.replace('"net"', f'"{name}"'))
    losses = tuple(1 / n for n in range(1, 20))
    write(
        study, running=(dataclasses.replace(RUNNING, run_id=f"{name}/fixed-seed/cpus-1/0001", losses=losses),)
    )
    text = shown(look(study), columns=80)
    assert "…" not in text
    for part in ("fixed-seed/cpus-1/", "fixed-seed/cpus-1 ", "fixed-seed/cpus-2 ", "0.7500"):
        assert part in text
    assert text.count(f"{name}/ ") == 3
    (study / "study.toml").write_text(STUDY.replace("[1, 2]", str(list(range(1, 31)))))
    text = shown(look(study), columns=80, height=40, width=80)
    assert "and 19 more conditions" in text


def test_json_is_json_for_every_reader(study):
    write(study, running=(dataclasses.replace(RUNNING, losses=(float("nan"), 1.0)),))
    data = json.loads(json.dumps(as_json(look(study)), allow_nan=False))
    assert data["sweep"]["running"][0]["losses"] == [None, 1.0]
    assert (data["alive"], data["planned"], data["done"]) == (True, 6, 0)


@pytest.mark.parametrize(
    ("losses", "drawn"),
    [([], ""), ([1.0], "▁"), ([3, 2, 1], "█▅▁"), ([1, float("nan"), 2], "▁!█"), ([float("inf")], "!")],
)
def test_losses_are_drawn_from_the_smallest_to_the_largest(losses, drawn):
    assert sparkline(losses) == drawn


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(None, "?"), (0, "0 s"), (89, "89 s"), (90, "2 min"), (5400, "1 h 30 min")],
)
def test_durations_read_like_durations(seconds, text):
    assert duration(seconds) == text


@pytest.mark.parametrize("environment", [{}, {"FORCE_COLOR": "1"}])
def test_once_prints_a_frame_and_so_does_a_pipe(study, capsys, monkeypatch, environment):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("orchestrator.cli.sweep.time.sleep", lambda _: pytest.fail("a second frame"))
    write(study)
    for arguments in (["watch", "--once"], ["watch"]):
        assert cli.run(["-C", str(study), *arguments]) == 0
        assert "sweeping" in capsys.readouterr().out
    assert cli.run(["-C", str(study), "--json", "watch"]) == 0
    assert json.loads(capsys.readouterr().out)["alive"]


def test_watching_changes_nothing(study):
    before = sorted(study.rglob("*"))
    look(study)
    assert sorted(study.rglob("*")) == before


def test_ctrl_c_leaves_the_terminal_as_it_was(study):
    """In a real terminal: the screen is switched, drawn on, and switched back; the cursor is there again."""
    import pty

    write(study)
    parent, child = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "vbstudy", "-C", str(study), "watch", "--every", "0.2"],
        stdin=child,
        stdout=child,
        stderr=child,
        start_new_session=True,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "100", "LINES": "40"},
    )
    os.close(child)
    said = b""
    deadline = time.monotonic() + 600
    while b"net/fixed-seed/cpus-2" not in said and time.monotonic() < deadline:
        said += os.read(parent, 65536)
    process.send_signal(signal.SIGINT)
    try:
        while piece := os.read(parent, 65536):
            said += piece
    except OSError:
        pass  # the terminal's other end is closed
    os.close(parent)
    assert process.wait(120) == 0
    assert b"Traceback" not in said
    assert said.count(b"\x1b[?1049h") == said.count(b"\x1b[?1049l") == 1
    assert said.rindex(b"\x1b[?25h") > said.rindex(b"\x1b[?25l")


def test_json_leaves_out_the_epochs_of_a_project_as_their_number_is_not_known(study):
    write(study, running=(dataclasses.replace(RUNNING, epochs=0, epoch=0, losses=()),))
    (run,) = as_json(watcher(study).look())["sweep"]["running"]
    assert run["run_id"] == RUNNING.run_id
    assert not {"epoch", "epochs"} & set(run)
