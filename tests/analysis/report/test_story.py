from __future__ import annotations

import re

import pytest

from analysis.findings.summary import headline, which_threads
from analysis.pipeline import analyze
from analysis.report.page import page, typeset
from analysis.report.story import causes, commands, cures, strips
from guest.records.codec import seal
from guest.records.trace import TRACE
from tests import factories
from tests.analysis.conftest import sha
from tests.analysis.diagnosis.test_hardening import everything, plain
from tests.analysis.diagnosis.test_traces import own_workload, trace
from tests.analysis.provenance.test_overrides import own


def prose(text):
    """What a reader sees of a page: neither its script and styles nor what is to be copied as it is."""
    text = re.sub(r"<(script|style|pre)\b.*?</\1>", "", text, flags=re.S)
    return re.sub(r"<[^>]*>", " ", text)


def test_the_page_tells_one_story_from_the_headline_down(usual):
    text = page(usual, [])
    title = re.search(r'<h1 id="result">(.*?)</h1>', text)
    assert re.sub("<.*?>", "", title[1]) == headline(usual)
    parts = ("result", "cause", "cure", "threads", "findings", "figures", "tables", "table-runs", "copy")
    places = [text.index(f'id="{name}"') for name in parts]
    assert places == sorted(places)


def test_the_picture_has_a_colour_for_each_result_of_one_seed(study):
    for cpus, weights, labels in ((1, "a", [0, 1, 2, 0]), (2, "a", [0, 1, 2, 0]), (4, "b", [0, 1, 2, 1])):
        for repetition in (1, 2):
            study.run(cpus, repetition, weights=weights, predicted=labels)
    (strip,) = strips(analyze(study.directory), {"lenet5/fixed-seed/cpus-4": "still running"})
    assert strip.heads == [("1", 2, ""), ("2", 2, ""), ("4", 2, "still running")]
    rows = dict(strip.rows)
    assert [(tile.text, tile.colour) for tile in rows["weights"]] == [("A", 0), ("A", 0), ("B", 1)]
    assert rows["weights"][2].detail == sha("b")[:8]
    assert [tile.detail for tile in rows["predictions"]] == [
        "0 of 4 differ",
        "0 of 4 differ",
        "1 of 4 differ",
    ]
    assert {(tile.text, tile.colour) for tile in rows["accuracy"]} == {("0.75000", 0)}
    assert "3 thread counts gave 2 models, 2 sets of predictions and 1 value of accuracy" in strip.caption


def test_a_thread_count_whose_own_runs_differ_has_all_their_letters_and_no_colour(study):
    for repetition, weights in ((1, "a"), (2, "b")):
        study.run(1, repetition, weights=weights)
    (strip,) = strips(analyze(study.directory), {})
    (tile,) = dict(strip.rows)["weights"]
    assert (tile.text, tile.detail, tile.colour) == ("A B", "runs differ", None)


def test_what_differs_within_a_thread_count_is_not_traced_across_them(study):
    for cpus in (1, 2):
        for repetition in (1, 2):
            study.run(cpus, repetition, weights=f"{cpus}-{repetition}")
    analysis = analyze(study.directory)
    assert "trace" not in commands(analysis)
    assert "First make one thread count repeat itself" in page(analysis, [])


def test_thread_settings_of_one_cpu_count_are_not_said_to_differ_within_one(study):
    for threads in (1, 2):
        for repetition in (1, 2):
            study.run(4, repetition, intra_op=threads, weights=f"{threads}")
    text = page(analyze(study.directory), [])
    assert "share one CPU count; <code>vbstudy trace --cpus</code> cannot compare them" in text
    assert "First make one thread count repeat itself" not in text


def test_of_several_seeds_the_picture_shows_one(study):
    for cpus in (1, 2):
        for repetition, seed in ((1, 1), (2, 2)):
            study.run(cpus, repetition, seed=seed, weights=f"{cpus}-{seed}")
    (strip,) = strips(analyze(study.directory), {})
    assert [n for _, n, _ in strip.heads] == [1, 1]
    assert "one of the study's 2 seeds" in strip.caption


def test_without_cause_and_cure_the_page_has_the_commands_that_add_them(usual):
    assert (causes(usual), cures(usual)) == ([], [])
    text = page(usual, [])
    assert commands(usual)["trace"] == ["vbstudy trace --cpus 1,2"]
    for name, wanted in (("do-trace-1", "vbstudy trace --cpus 1,2"), ("do-harden-1", "vbstudy harden")):
        assert f'<pre id="{name}">{wanted}</pre><button type="button" data-copy="{name}"' in text


def test_a_project_has_the_commands_of_a_network(study):
    own(study)
    found = commands(analyze(study.directory))
    assert found["trace"] == ["vbstudy trace --cpus 1,2"]
    assert found["harden"] == ["vbstudy harden"]


def test_equal_models_have_neither_cause_nor_cure(study):
    for cpus in (1, 2):
        study.run(cpus)
    text = page(analyze(study.directory), [])
    assert 'id="cause"' not in text
    assert 'id="cure"' not in text


def test_the_cause_is_the_traced_operation_with_its_line(study):
    for cpus in (1, 4):
        study.run(cpus, weights=f"w{cpus}")
    folder = study.directory / "trace" / "t"
    folder.mkdir(parents=True)
    (folder / TRACE).write_text(seal(trace(workload=own_workload(study))))
    analysis = analyze(study.directory)
    (cause,) = causes(analysis)
    assert cause.title == "`aten.convolution_backward.default`, backward of `conv2`"
    assert cause.code == trace().origins[0].text
    assert dict(cause.facts)["When"] == "training step 1, between cpus-1 and cpus-4 (n = 2 models)"
    assert 'id="do-trace-1"' not in page(analysis, [])


@pytest.mark.parametrize("exact_s", [2.4, None], ids=["cheapest", "not proved"])
def test_the_cure_is_the_proved_tier_with_its_price(study, exact_s):
    for cpus in (1, 2):
        study.run(cpus, weights=f"w{cpus}")
    made = plain if exact_s is None else (lambda _cpus, repetition: {"train_s": exact_s + repetition / 10})
    (study.directory / "harden").mkdir()
    stored = factories.hardening(
        everything(seeds=plain, exact=made), cpus=(1, 2), repetitions=2, workload=own_workload(study)
    )
    (study.directory / "harden" / "lenet5.json").write_text(seal(stored))
    analysis = analyze(study.directory)
    (cure,) = cures(analysis)
    answers = dict(which_threads(analysis))
    assert "harden" not in commands(analysis)
    facts = dict(cure.facts)
    if exact_s is None:
        assert cure.title == "no tier is proved"
        assert answers["same model?"] == "no; not repeated at every count"
        assert answers["advice"].startswith("keep one count")
    else:
        assert cure.title == "Exact mode (tier 4)"
        assert "from vbstudy import exact; exact.enable()" in cure.paste[1][1]
        assert '<pre id="cure-1-2">import random' in page(analysis, [])
        assert answers["same model?"] == "no; not repeated at every count; yes by tier 4 exact mode"
        assert answers["advice"].startswith("use tier 4 exact mode, or keep one count")
        assert facts["Price"] == "1.27 of the default's training time (n = 4 trainings)"


def test_the_cure_names_the_seeds_that_it_is_shown_for(study):
    for seed in (1, 2):
        for cpus in (1, 2):
            study.run(cpus, seed, seed=seed, weights=f"{cpus} {seed}")
    (study.directory / "harden").mkdir()
    made = everything(seeds=plain, exact=lambda _cpus, repetition: {"train_s": 2.4 + repetition / 10})
    stored = factories.hardening(made, cpus=(1, 2), repetitions=2, workload=own_workload(study))
    (study.directory / "harden" / "lenet5.json").write_text(seal(stored))
    answers = dict(which_threads(analyze(study.directory)))
    assert answers["advice"].startswith("use tier 4 exact mode (shown for 1 of 2 seeds), or keep one count")
    for cpus in (1, 2):
        for seed in (1, 2):
            study.run(cpus, seed, variant="exact", seed=seed, weights=f"{seed}")
    answers = dict(which_threads(analyze(study.directory)))
    assert answers["advice"].startswith("use tier 4 exact mode, or keep one count")


def test_backticks_are_typeset(study):
    assert typeset("run `a<b`; a ` alone") == "run <code>a&lt;b</code>; a ` alone"
    study.usual()
    study.run(1, variant="control", weights="a")
    study.run(2, variant="control", weights="b")
    assert "`" not in prose(page(analyze(study.directory), []))
