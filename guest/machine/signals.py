"""How processes end, in words. Real-time signals have numbers and no names of Python's."""

from __future__ import annotations

import signal


def signal_name(number: int) -> str:
    """`SIGKILL`, `SIGRTMIN+3`; `signal 33` for one that is the C library's own."""
    try:
        return signal.Signals(number).name
    except ValueError:
        if signal.SIGRTMIN < number < signal.SIGRTMAX:
            return f"SIGRTMIN+{number - signal.SIGRTMIN}"
        return f"signal {number}"


def how_ended(status: int) -> str:
    """Of a status as `subprocess` has it: below 0 for a signal."""
    return f"killed by {signal_name(-status)}" if status < 0 else f"exit status {status}"
