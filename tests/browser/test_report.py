"""The report as a reader meets it: in a browser, by keyboard, on a phone, in the dark, on paper."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from analysis.pipeline import analyze
from analysis.report.report import write_report
from tests.analysis.conftest import Fabricator
from tests.browser.chromium import Chromium

pytestmark = pytest.mark.needs("browser")
AXE = Path(sys.prefix) / "node_modules" / "axe-core" / "axe.min.js"  # put there by `.ci/run report`


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """A report of 18 usual runs and a control of 3, one of which differs."""
    study = Fabricator(tmp_path_factory.mktemp("study"))
    study.usual()
    for repetition in (1, 2, 3):
        study.run(1, repetition, variant="control", weights="odd" if repetition == 2 else "w", cpu_model="B")
    return write_report(analyze(study.directory), study.directory / "report")


@pytest.fixture
def browser(report):
    chromium = Chromium()
    try:
        chromium.look()
        chromium.open(report)
        yield chromium
    finally:
        chromium.close()


def column(browser, table, number, *, shown=True):
    rows = f"[...document.querySelectorAll('#table-{table} ~ .scroll tbody tr')]"
    kept = ".filter(row => row.offsetHeight > 0)" if shown else ""
    return browser.value(f"{rows}{kept}.map(row => row.cells[{number}].textContent)")


def colour(browser):
    """The brightness of the page, 0 to 255."""
    text = browser.value("getComputedStyle(document.body).backgroundColor")
    return np.mean([int(part) for part in text.strip("rgb()").split(",")])


def test_nothing_leaves_the_page_and_the_console_is_silent(browser, report):
    browser.value("scrollTo(0, document.body.scrollHeight)")
    asked = [url for url in browser.requests() if not url.startswith("data:image/svg+xml,")]
    assert asked == [report.resolve().as_uri()]
    assert browser.complaints() == []
    assert browser.value("[...document.images].every(image => image.complete && image.naturalWidth > 0)")
    assert browser.value("document.images.length") == 11


def test_the_complaints_of_a_page_would_be_seen(browser):
    browser.value("void fetch('https://vbstudy.invalid/').catch(() => 0)")
    browser.value("console.error('bad')")
    assert any("Content Security Policy" in text for text in browser.complaints())
    assert any("bad" in text for text in browser.complaints())


def test_a_table_is_sorted_by_keyboard_up_down_and_back(browser):
    before = column(browser, "runs", 10)
    index = "document.querySelector('#table-runs ~ .scroll table').tHead.rows[0].cells[10]"
    assert browser.value(f"{index}.textContent") == "seconds"
    browser.value(f"{index}.querySelector('button').focus()")
    browser.press("Enter")
    assert browser.value(f"{index}.getAttribute('aria-sort')") == "ascending"
    up = [float(text) for text in column(browser, "runs", 10)]
    assert up == sorted(up)
    assert len(set(up)) > 5
    browser.press(" ")
    assert [float(text) for text in column(browser, "runs", 10)] == up[::-1]
    browser.press("Enter")
    assert column(browser, "runs", 10) == before


def test_thread_counts_are_sorted_as_numbers_and_what_is_missing_comes_last(browser):
    heads = "document.querySelector('#table-churn ~ .scroll table').tHead.rows[0].cells"
    head = f"{heads}[7].querySelector('button')"
    for _ in range(2):
        browser.value(f"{head}.click()")
        texts = column(browser, "churn", 7)
        assert "–" not in texts[: len(texts) - texts.count("–")]
    numbers = [float(text.split()[0]) for text in texts if text != "–"]
    assert numbers == sorted(numbers, reverse=True)


def test_a_filter_keeps_the_rows_with_all_of_its_words(browser):
    browser.value("document.querySelector('#table-runs ~ .tools input').focus()")
    browser.type("FIXED-seed cpus-2")
    assert column(browser, "runs", 1) == ["fixed-seed"] * 3
    assert column(browser, "runs", 2) == ["2"] * 3
    status = "document.querySelector('#table-runs ~ .tools [role=status]').textContent"
    assert browser.value(status) == "3 of 21 rows"


def test_the_runs_that_differ_are_one_key_away(browser):
    browser.value("document.querySelector('a[href=\"#only-differing\"]').focus()")
    browser.press("Enter")
    assert column(browser, "runs", 1) == ["control"]
    assert column(browser, "runs", 3) == ["2"]
    browser.press(" ")  # the box has the focus
    assert len(column(browser, "runs", 1)) == 21


def test_tab_goes_first_to_the_result_and_every_control_shows_its_focus(browser):
    browser.press("Tab")
    assert browser.value("document.activeElement.textContent") == "To the result"
    browser.value("document.getElementById('theme').focus()")
    browser.press("Tab")
    assert browser.value("getComputedStyle(document.activeElement).outlineStyle") == "solid"


def complaints_of_axe(browser):
    """What axe-core finds wrong of the page with everything unfolded, in one line a rule."""
    browser.value("document.querySelectorAll('details').forEach(each => { each.open = true; })")
    return browser.value("""axe.run().then(found => found.violations.map(
        rule => `${rule.impact}: ${rule.help}: ${rule.nodes[0].html}`))""")


@pytest.mark.skipif(not AXE.exists(), reason=f"needs {AXE}")
@pytest.mark.parametrize("width", [390, 1280])
def test_everybody_can_read_it_in_both_themes(browser, width):
    browser.value(f"{AXE.read_text()};0")
    for scheme in ("light", "dark"):
        browser.look(width=width, scheme=scheme)
        assert complaints_of_axe(browser) == []
    browser.value("document.querySelector('figcaption').style.color = '#666'")
    assert "contrast" in complaints_of_axe(browser)[0]


def test_the_commands_of_cause_and_cure_are_copied_by_keyboard(browser):
    browser.call("Browser.grantPermissions", permissions=["clipboardReadWrite", "clipboardSanitizedWrite"])
    for name, command in (("do-trace-1", "vbstudy trace --cpus 1,2"), ("do-harden-1", "vbstudy harden")):
        browser.value(f"document.querySelector('[data-copy={name}]').focus()")
        browser.press("Enter")
        wait_until_copied(browser, name)
        assert browser.value("navigator.clipboard.readText()") == command


def test_a_link_to_a_table_of_the_appendix_unfolds_it(browser):
    browser.value("location.hash = 'table-distance'")
    browser.look()
    assert browser.value("document.getElementById('table-distance').open")


def test_the_theme_follows_the_system_until_the_reader_chooses(browser):
    assert colour(browser) > 200
    browser.look(scheme="dark")
    assert colour(browser) < 50
    assert browser.value("document.getElementById('theme').textContent") == "Light"
    browser.value("document.getElementById('theme').click()")
    assert colour(browser) > 200
    browser.look(scheme="light")
    browser.value("document.getElementById('theme').click()")
    assert colour(browser) < 50


@pytest.mark.parametrize("width", [360, 768, 1280])
def test_the_page_is_as_wide_as_the_window(browser, width):
    browser.look(width=width, height=740)
    assert browser.value("document.documentElement.scrollWidth") <= width
    # What is wider scrolls in a box of its own, which the keyboard reaches.
    boxes = "[...document.querySelectorAll('.scroll')].filter(box => box.scrollWidth > box.clientWidth)"
    assert browser.value(f"{boxes}.every(box => box.tabIndex === 0)")


def test_paper_gets_whole_tables_open_details_and_no_controls_even_in_the_dark(browser):
    browser.look(scheme="dark", media="print")
    browser.value("dispatchEvent(new Event('beforeprint'))")
    assert colour(browser) == 255
    assert browser.value("[...document.querySelectorAll('details')].every(each => each.open)")
    for hidden in (".tools", "nav", "button[data-copy]"):
        assert browser.value(f"getComputedStyle(document.querySelector('{hidden}')).display") == "none"
    assert browser.value("getComputedStyle(document.querySelector('.tall')).maxHeight") == "none"


def wait_until_copied(browser, name):
    # The label says so for 2.5 s, once the browser has asked itself for leave.
    label = browser.value(f"""new Promise(function look(done) {{
        const label = document.querySelector('[data-copy={name}]').textContent;
        if (label === "Copy") setTimeout(look, 20, done); else done(label);
    }})""")
    assert label == "Copied"


def test_copying_takes_the_whole_text(browser):
    browser.call("Browser.grantPermissions", permissions=["clipboardReadWrite", "clipboardSanitizedWrite"])
    browser.value("document.querySelector('[data-copy=text-2]').focus()")
    browser.press("Enter")
    wait_until_copied(browser, "text-2")
    hardware = browser.value("document.getElementById('text-2').textContent")
    assert hardware.startswith("All 21 models were trained on")
    assert browser.value("navigator.clipboard.readText()") == hardware
