"""A pytest plugin for stages that prepared everything their tests need: there, a skipped test is a failed
one. Used as `pytest -p tests.no_skips`."""

import pytest

_skipped: list[str] = []


def pytest_runtest_logreport(report) -> None:
    if report.skipped:
        _skipped.append(report.nodeid)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session, exitstatus) -> None:
    if _skipped and exitstatus == 0:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter) -> None:
    if _skipped:
        terminalreporter.write_line(f"skipped, which counts as failed here: {', '.join(_skipped)}", red=True)
