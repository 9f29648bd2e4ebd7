import signal
import subprocess

import pytest

from guest.machine.signals import how_ended, signal_name


def test_every_signal_has_a_name():
    names = [signal_name(number) for number in range(1, signal.SIGRTMAX + 1)]
    assert len(set(names)) == signal.SIGRTMAX
    assert names[signal.SIGKILL - 1] == "SIGKILL"
    assert names[signal.SIGRTMIN] == "SIGRTMIN+1"
    assert names[-1] == "SIGRTMAX"


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("exit 3", "exit status 3"),
        ("exit 170", "exit status 170"),
        ("kill -TERM $$", "killed by SIGTERM"),
        (f"kill -{signal.SIGRTMIN + 6} $$", "killed by SIGRTMIN+6"),
    ],
)
def test_the_end_of_a_process_is_put_in_words(command, expected):
    assert how_ended(subprocess.run(["sh", "-c", command], check=False).returncode) == expected
