"""Stages run their tests with a plugin by which what is skipped, and what does not end, is a failure."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.needs import ROOT

REPOSITORY = Path(__file__).parents[2]
WAITS_FOR_EVER = """
import threading


def test_it():
    threading.Thread(target=threading.Event().wait, name="waits for ever").start()
"""
KEEPS_A_WORKER = """
from concurrent.futures import ThreadPoolExecutor

KEPT = ThreadPoolExecutor(max_workers=1)


def test_it():
    assert KEPT.submit(int).result() == 0
"""
SKIPPED = """
import pytest


def test_it():
    pytest.skip("nothing is here")
"""


def run(folder: Path, text: str, *options: str) -> subprocess.CompletedProcess[str]:
    case = folder / "test_case.py"
    case.write_text(text)
    # Without the plugins of others, which take longer to start than the test, and a stage's options.
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "tests.strict", *options, str(case)],
        env=os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_ADDOPTS": ""},
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )


@pytest.mark.needs("studies")
@pytest.mark.parametrize("options", [(), ("-p", "xdist", "-n", "1")], ids=["one process", "xdist"])
def test_a_thread_that_waits_for_ever_fails_the_stage_and_does_not_hold_it(tmp_path, options):
    ended = run(tmp_path, WAITS_FOR_EVER, *options)
    assert ended.returncode == pytest.ExitCode.TESTS_FAILED
    assert "threads that did not end: waits for ever" in ended.stdout
    assert "1 passed" in ended.stdout


def test_a_worker_without_work_is_no_thread_that_was_left(tmp_path):
    assert run(tmp_path, KEEPS_A_WORKER).returncode == pytest.ExitCode.OK


def test_a_skipped_test_fails_the_stage(tmp_path):
    ended = run(tmp_path, SKIPPED)
    assert ended.returncode == pytest.ExitCode.TESTS_FAILED
    assert "skipped, which counts as failed here: " in ended.stdout


def test_a_test_that_only_root_can_run_is_reported_as_not_run_and_does_not_fail_the_stage(tmp_path):
    ended = run(tmp_path, SKIPPED.replace("nothing is here", ROOT))
    assert ended.returncode == pytest.ExitCode.OK
    assert "not run, for only root can: " in ended.stdout
