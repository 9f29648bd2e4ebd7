"""The live report in a browser: it follows the sweep by itself, asks nobody but its server, and says when
that has ended."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time

import pytest

from analysis.report.page import waiting_page
from analysis.report.progress import Unfinished
from orchestrator.sweep.live_report import Site, serving
from tests.analysis.conftest import Fabricator
from tests.browser.chromium import Chromium
from tests.orchestrator.sweep.test_live_report import STUDY
from tests.orchestrator.sweep.test_watch import write

pytestmark = pytest.mark.needs("browser")

SETS = {"lenet5/fixed-seed/cpus-1": 2, "lenet5/fixed-seed/cpus-2": 2}


@pytest.fixture
def study(tmp_path):
    """Three of four planned runs, and a sweep that is at work."""
    fabricator = Fabricator(tmp_path)
    for cpus, repetition in ((1, 1), (1, 2), (2, 1)):
        fabricator.run(cpus, repetition)
    (tmp_path / "study.toml").write_text(STUDY)
    ended = threading.Event()

    def keep_beating():
        beat = 1
        while not ended.wait(0.3):
            write(tmp_path, planned=SETS, running=(), beat=(beat := beat + 1))

    write(tmp_path, planned=SETS, running=(), beat=1)
    sweep = threading.Thread(target=keep_beating)
    sweep.start()
    yield tmp_path
    ended.set()
    sweep.join()


def wait_for(browser, text):
    deadline = time.monotonic() + 600
    while text not in (said := browser.value("(document.body || {innerText: ''}).innerText")):
        assert time.monotonic() < deadline, said[:500]
        time.sleep(0.5)


def test_the_page_follows_the_sweep_and_says_when_its_server_has_ended(study):
    process = subprocess.Popen(
        [sys.executable, "-m", "vbstudy", "-C", str(study), "--json", "report", "--live"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    browser = Chromium()
    try:
        text = ""
        while not text.endswith("}\n"):
            text += process.stdout.readline()
        url = json.loads(text)["url"]
        time.sleep(1)
        browser.look()
        browser.call("Page.navigate", url=url)
        wait_for(browser, "Which thread count should I use?")  # it waited for the first page
        wait_for(browser, "3 of 4 planned runs · the sweep is at work, 1 condition still running")
        marks = browser.value("[...document.querySelectorAll('th .unfinished')].map(e => e.textContent)")
        assert marks == ["still running: 1 of 2 runs"]
        Fabricator(study).run(2, 2)
        wait_for(browser, "4 of 4 planned runs · all planned runs are done")
        assert browser.value("document.querySelectorAll('th .unfinished').length") == 0
        assert browser.complaints() == []
        asked = [each for each in browser.requests() if not each.startswith("data:")]
        assert set(asked) == {url, f"{url}version"}
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=600)
        assert (process.returncode, errors) == (0, "")
        wait_for(browser, "No longer live: the server has ended")
    finally:
        browser.close()
        process.kill()
        process.communicate()
    assert not (study / "report").exists()


def test_a_page_whose_port_another_server_took_says_that_its_own_has_ended():
    live = Unfinished(sets=dict.fromkeys(SETS, (0, 2)), sweeping=True, version="1", at="2026-01-01T00:00:00Z")
    with serving(0) as server:
        server.site = Site(
            page=waiting_page("mine", live, "No run is done yet.").encode(), version="1", files={}
        )
        browser = Chromium()
        try:
            browser.look()
            browser.call("Page.navigate", url=server.url)
            wait_for(browser, "Live")
            server.token = "another"
            wait_for(browser, "No longer live: the server has ended")
        finally:
            browser.close()
