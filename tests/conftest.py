"""What all tests share."""

import signal

import pytest
from hypothesis import settings

from orchestrator import core_locks

# Other work on the machine must not decide whether a property holds.
settings.register_profile("unhurried", deadline=None)
settings.load_profile("unhurried")


@pytest.fixture(autouse=True, scope="session")
def locks_of_their_own(tmp_path_factory):
    """Studies in tests wait for each other's cores, not for those of studies outside."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(core_locks.FOLDER, str(tmp_path_factory.mktemp("cores")))
        yield


@pytest.fixture(autouse=True, scope="session")
def interrupts_are_heard():
    """A shell starts background work with SIGINT ignored, which the processes of the tests would inherit."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
