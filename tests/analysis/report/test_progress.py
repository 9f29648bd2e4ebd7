from analysis.pipeline import analyze
from analysis.report.page import page, waiting_page
from analysis.report.progress import Unfinished

SETS = {"lenet5/fixed-seed/cpus-1": (2, 2), "lenet5/fixed-seed/cpus-2": (1, 2), "other/algo/cpus-1": (0, 4)}


def unfinished(sets=SETS, *, sweeping=True):
    return Unfinished(sets=sets, sweeping=sweeping, version="7", at="2026-01-01T12:34:56.789+00:00")


def test_sets_that_lack_runs_are_running_while_a_sweep_is_at_work_and_incomplete_after_it():
    live = unfinished()
    assert (live.done, live.planned) == (3, 8)
    assert live.open_sets == {
        "lenet5/fixed-seed/cpus-2": "still running: 1 of 2 runs",
        "other/algo/cpus-1": "still running: 0 of 4 runs",
    }
    assert live.state == "the sweep is at work, 2 conditions still running"
    after = unfinished(sweeping=False)
    assert after.open_sets["other/algo/cpus-1"] == "incomplete: 0 of 4 runs"
    assert after.state == "no sweep is at work, 2 conditions incomplete"
    assert unfinished({"a": (1, 2)}).state == "the sweep is at work, 1 condition still running"


def test_when_all_is_done_nothing_is_marked():
    live = unfinished({"a": (3, 2), "b": (2, 2)})
    assert (live.open_sets, live.state) == ({}, "all planned runs are done")


def test_a_live_page_marks_the_sets_that_are_not_complete_and_no_others(study):
    for cpus, repetition in ((1, 1), (1, 2), (2, 1)):
        study.run(cpus, repetition)
    analysis = analyze(study.directory)
    text = page(analysis, [], unfinished())
    assert "3 of 8 planned runs" in text
    assert "2026-01-01 12:34:56 UTC" in text
    assert text.count("still running: 1 of 2 runs") == 2  # in the list of sets, and at its verdicts
    assert text.count("still running: 0 of 4 runs") == 1
    assert text.count("connect-src 'self'") == 1
    assert text.count("<script>") == 2
    still = page(analysis, [])
    assert "still running" not in still
    assert "connect-src" not in still
    assert still.count("<script>") == 1


def test_a_page_that_waits_says_why_and_looks_for_a_newer_one():
    text = waiting_page("<study>", unfinished(), "no run & no <b>")
    assert "no run &amp; no &lt;b&gt;" in text
    assert "&lt;study&gt;" in text
    assert 'data-version="7"' in text
    assert text.count("<script>") == 1


def test_a_page_that_waits_shows_names_that_are_no_text():
    text = waiting_page("bad\udcff", unfinished(), "bad\udcff/study.toml: is wrong")
    assert "bad?/study.toml: is wrong" in text.encode().decode()
