"""A pytest plugin for stages that prepared everything their tests need: there, a skipped test is a failed
one, unless it lacks nothing but root, and so is a thread that a test leaves, for which the interpreter would
wait. Used as `pytest -p tests.strict`."""

import os
import threading
import time
from concurrent.futures import thread as executors

import pytest

from tests.needs import ROOT

PATIENCE_S = 5  # threads may take that long to end

_skipped: list[str] = []
_not_root: list[str] = []
_left: list[str] = []


def pytest_runtest_logreport(report) -> None:
    if report.skipped:
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else ""  # else an expected failure
        (_not_root if reason == f"Skipped: {ROOT}" else _skipped).append(report.nodeid)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session, exitstatus) -> None:
    _release_idle_workers()
    deadline = time.monotonic() + PATIENCE_S
    for thread in threading.enumerate():
        if thread is not threading.main_thread() and not thread.daemon:
            thread.join(max(0, deadline - time.monotonic()))
            if thread.is_alive():
                _left.append(thread.name)
    if hasattr(session.config, "workeroutput"):  # of xdist, whose main process decides
        session.config.workeroutput["left"] = _left
    elif (_skipped or _left) and exitstatus == 0:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node, error) -> None:
    """A process of xdist ended; it has no output if it was killed."""
    _left.extend(getattr(node, "workeroutput", {}).get("left", []))


def _release_idle_workers() -> None:
    """As the interpreter does at its end, before it waits for threads: a worker without work ends."""
    with executors._global_shutdown_lock:
        executors._shutdown = True
    for queue in list(executors._threads_queues.values()):
        queue.put(None)


def pytest_terminal_summary(terminalreporter) -> None:
    if _not_root:
        terminalreporter.write_line(f"not run, for only root can: {', '.join(_not_root)}", yellow=True)
    if _skipped:
        terminalreporter.write_line(f"skipped, which counts as failed here: {', '.join(_skipped)}", red=True)
    if _left:
        terminalreporter.write_line(f"threads that did not end: {', '.join(_left)}", red=True)


@pytest.hookimpl(trylast=True)
def pytest_unconfigure(config) -> None:
    if _left:
        config.get_terminal_writer().flush()
        os._exit(pytest.ExitCode.TESTS_FAILED)
