import io
import re
from pathlib import Path

from rich.console import Console

from guest.records.run import Message
from orchestrator.sweep.progress import DownloadProgress, SweepProgress, composite
from tests import factories

GUEST = "cpus-2"


def console(terminal: bool = False, quiet: bool = False, width: int = 200) -> Console:
    file = io.StringIO()
    return Console(file=file, force_terminal=terminal, width=width, color_system=None, quiet=quiet)


def play(progress: SweepProgress) -> None:
    first, second = factories.spec(repetition=1), factories.spec(repetition=2)
    with progress:
        progress.planned([first, second], [first])
        progress.started(GUEST, second, (0,))
        progress.message(GUEST, Message("epoch", second.run_id, {"epoch": 1, "test_accuracy": 0.75}))
        progress.message(GUEST, Message("heartbeat", second.run_id, {"step": 7}))
        progress.failed(second, "ValueError: no", Path("failed/x"), again=True)
        progress.finished(second, factories.result({}))


def test_without_a_terminal_there_is_a_line_a_run_and_no_bar():
    target = console()
    play(SweepProgress(target))
    assert target.file.getvalue() == (
        "2 runs planned, 1 in the store, 1 to do\n"
        "failed, again lenet5/fixed-seed/cpus-2/0002: ValueError: no (evidence: failed/x)\n"
        "lenet5/fixed-seed/cpus-2 2/2  accuracy 0.5000  2.4 s\n"
    )


def test_a_terminal_shows_bars_with_the_current_metric():
    target = console(terminal=True)
    play(SweepProgress(target))
    assert "all runs" in target.file.getvalue()
    assert "lenet5/fixed-seed/cpus-2/0002" in target.file.getvalue()


def test_80_columns_show_counts_times_and_names_whole_with_room_for_the_terminals_interrupt():
    target = console(terminal=True, width=80)
    workload = factories.workload(name="lenet1-digits-torch")
    specs = [factories.spec(workload=workload, repetition=number) for number in range(1, 145)]
    with SweepProgress(target) as progress:
        progress.planned(specs, specs[:36])
        progress.started(GUEST, specs[36], (0,))
        epoch = {"epoch": 1, "test_accuracy": 0.75, "test_f1_macro": 0.75}
        progress.message(GUEST, Message("epoch", specs[36].run_id, epoch))
    last = target.file.getvalue().rpartition("all runs")[2].splitlines()
    assert re.search(r" +36/144 0:00:0\d -:--:--", last[0])
    assert re.search(r"lenet1-digits-torch/ .* 1/2 +0:00:0\d ", last[1])
    assert [line.split()[0] for line in last[2:4]] == ["fixed-seed/cpus-2/", "0037"]
    assert "…" not in "".join(last)
    assert max(map(len, last)) <= 80 - len("^C")


def test_the_epochs_of_a_project_are_counted_without_a_total():
    target = console(terminal=True)
    project = factories.workload(epochs=0)
    specs = [factories.spec(repetition=1), factories.spec(repetition=2, workload=project)]
    with SweepProgress(target) as progress:
        progress.planned(specs, [])
        for spec in specs:
            progress.started(GUEST, spec, (0,))
            progress.message(GUEST, Message("epoch", spec.run_id, {"epoch": 2, "test_accuracy": 0.75}))
    last = target.file.getvalue().rpartition("all runs")[2].splitlines()
    assert re.search(r" 2/\? ", last[1])


def test_what_hosts_report_is_shown_as_it_came():
    target = console()
    SweepProgress(target).report("host a: needs 'vbstudy[torch]' [/x]\x1b[2J")
    assert target.file.getvalue() == "host a: needs 'vbstudy[torch]' [/x]?[2J\n"


def test_quiet_says_nothing():
    target = console(quiet=True)
    play(SweepProgress(target))
    assert target.file.getvalue() == ""


def test_fetching_nothing_draws_nothing():
    target = console()
    with DownloadProgress(target):
        pass
    assert target.file.getvalue() == ""


def test_a_fetched_file_has_a_bar_with_its_bytes():
    target = console(terminal=True)
    with DownloadProgress(target) as progress:
        progress("train.gz", 50, 100)
        progress("train.gz", 100, 100)
    assert "fetching train.gz" in target.file.getvalue()
    assert "100/100 bytes" in target.file.getvalue()


def test_all_observers_get_the_same_events():
    first, second = console(), console()
    several = composite(SweepProgress(first), SweepProgress(second))
    spec = factories.spec()
    several.planned([spec], [])
    several.quarantined(spec, "[/red]\x1b[2J", Path("q/x"))
    several.waiting("for cores")
    several.started(GUEST, spec, (0,))
    several.message(GUEST, Message("heartbeat", spec.run_id, {"step": 7}))
    several.failed(spec, "no", Path("failed/x"), again=False)
    several.finished(spec, factories.result({}))
    said = first.file.getvalue()
    assert said == second.file.getvalue()
    assert "damaged lenet5/fixed-seed/cpus-2/0001: [/red]?[2J; quarantined in q/x" in said
    assert "waiting for cores" in said
    assert said.count("\n") == 5
