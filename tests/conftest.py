"""What all tests share."""

import gc
import os
import signal

import pytest
from hypothesis import settings

from orchestrator.cores import locks
from tests import environments
from tests.needs import pytest_addoption, pytest_collection_modifyitems, pytest_configure

__all__ = ["pytest_addoption", "pytest_collection_modifyitems", "pytest_configure"]  # hooks of pytest

# Threads that wait by spinning keep the tests beside them off their cores; `guest.machine.threads` tells
# guests so.
os.environ.setdefault("GOMP_SPINCOUNT", "1000")

# Collecting tests makes millions of objects that stay: a third of its time goes into looking for garbage.
gc.disable()

# Other work on the machine must not decide whether a property holds.
settings.register_profile("unhurried", deadline=None)
# CI draws the same examples each time: what it finds is of the change that it checks.
settings.register_profile("repeatable", deadline=None, derandomize=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "unhurried"))


def pytest_collection_finish():
    gc.freeze()
    gc.enable()


@pytest.fixture(autouse=True, scope="session")
def locks_of_their_own(tmp_path_factory):
    """Studies in tests wait for each other's cores, also in tests side by side, not for those of studies
    outside; and `init --from-try` outside means no program of a test."""
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(locks.FOLDER, str(folder / "cores"))
        patch.setenv("XDG_STATE_HOME", str(folder / "state"))
        yield


@pytest.fixture(autouse=True, scope="session")
def interrupts_are_heard():
    """A shell starts background work with SIGINT ignored, which the processes of the tests would inherit."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def server(tmp_path):
    """A machine behind a real sshd, which is this one."""
    from tests import sshd  # with fabric, for those that need it

    with sshd.running(tmp_path / "sshd") as started:
        yield started


@pytest.fixture(scope="session")
def without_vbstudy(tmp_path_factory):
    """The Python of an environment that has the packages of this one, but no vbstudy."""
    return environments.make(tmp_path_factory.mktemp("environment"))
