"""What others send or take, in time. Limits of silence alone are not enough: who sends a byte now and then is
never silent, and never done."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator

GRACE_S = 300.0  # an emulated guest takes its time
LEAST_BYTES_PER_S = 64 << 10

Moved = Callable[[int], None]


@contextlib.contextmanager
def paced(cut: Callable[[], None], silent_s: float) -> Iterator[Moved]:
    """Gives a function to call with the number of bytes that have moved. When it is not called for
    `silent_s`, or when after GRACE_S fewer than LEAST_BYTES_PER_S have moved, `cut` is called from another
    thread, which has to end the wait, and the block raises TimeoutError."""
    began = last = time.monotonic()
    bytes_moved, late, done = 0, "", threading.Event()

    def moved(count: int) -> None:
        nonlocal bytes_moved, last
        bytes_moved, last = bytes_moved + count, time.monotonic()

    def watch() -> None:
        nonlocal late
        while True:
            silent_at, slow_at = last + silent_s, began + GRACE_S + bytes_moved / LEAST_BYTES_PER_S
            left_s = min(silent_at, slow_at) - time.monotonic()
            if left_s <= 0:
                break
            if done.wait(left_s):
                return
        late = f"nothing came or went within {silent_s:.0f} s"
        if slow_at < silent_at:
            late = f"only {bytes_moved} bytes came or went within {time.monotonic() - began:.0f} s"
        cut()

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield moved
    except Exception:
        if not late:
            raise
    finally:
        done.set()
        watcher.join()
    if late:
        raise TimeoutError(f"{late}: see what holds up the machine there, or its network, and run this again")
