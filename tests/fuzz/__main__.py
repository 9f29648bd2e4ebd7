"""`python -m tests.fuzz SECONDS [READER...]`: each reader as long. Ends with 1 when an input failed."""

from __future__ import annotations

import contextlib
import faulthandler
import re
import sys
import time
import traceback
import warnings
from pathlib import Path

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from tests.fuzz.readers import READERS, Reader

CORPUS = Path(__file__).parent / "corpus"
MADE = {  # as those of the corpus, and larger
    "import-csv-a-column-a-row": b"threads" + b",a" * 4000 + b",b\n" + b"1\n" * 4000,
    "inventory-deep": b"[" * 100_000,
}
HANG_S = 10.0
MOST_MIB = 512
ROUND = settings(
    max_examples=20,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
    phases=(Phase.generate, Phase.shrink),
)
PIECES = [
    b"", b"\0", b"\xff", b"\xff\xfe", b"[" * 100_000, b'{"a":' * 10_000, b"1" * 5000, b"-1", b"0", b"1e999",
    b"1e308", b"1e-320", b"NaN", b"Infinity", b"-Infinity", b"null", b"true", b"{}", b"[]", b'""', b"\\ud800",
    b"9223372036854775808", b"18446744073709551616", b"\x1b[2J", "\u202e".encode(), b"../../x",
    b"$\\\\frac{$", b",", b"\n", b'"', b"\x50\x4b\x05\x06", b"\xff" * 4, b"\x7f" + b"\xff" * 7,
]  # fmt: skip


@st.composite
def damaged(draw: st.DrawFn, whole: list[bytes]) -> bytes:
    """A whole input with up to four places replaced, removed, repeated or added to."""
    data = draw(st.sampled_from(whole))
    for _ in range(draw(st.integers(0, 4))):
        at = draw(st.integers(0, len(data)))
        end = min(len(data), at + draw(st.sampled_from([0, 1, 2, 4, 8, 20, 100, 10**6])))
        new = draw(st.sampled_from(PIECES) | st.binary(max_size=20) | st.just(data[at:end] * 3))
        data = data[:at] + new + data[end:]
    return data


def attempt(name: str, reader: Reader, data: bytes) -> None:
    """Raises AssertionError for what no input may do."""
    faulthandler.dump_traceback_later(3 * HANG_S, exit=True)
    began_s = time.process_time()  # other work on the machine does not count
    with contextlib.suppress(*reader.told), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        reader.read(data)
    took_s = time.process_time() - began_s
    faulthandler.cancel_dump_traceback_later()
    assert took_s < HANG_S, f"{name} took {took_s:.0f} s"
    # Not `ru_maxrss`, which begins with that of the process that started this one.
    peak_kib = re.search(r"VmHWM:\s*(\d+)", Path("/proc/self/status").read_text(encoding="ascii"))
    assert peak_kib
    peak_mib = int(peak_kib[1]) >> 10
    assert peak_mib < MOST_MIB, f"{name}: {peak_mib} MiB"


def fuzz(name: str, seconds: float, first: int) -> int:
    """How many inputs were tried. Raises what failed."""
    reader, tried = READERS[name], 0
    whole = [data for data in reader.whole() if data]
    kept = [path.read_bytes() for path in sorted(CORPUS.glob(f"{name}*"))]
    made = [data for key, data in MADE.items() if key.startswith(name)]
    for data in (*kept, *made, *whole):
        attempt(name, reader, data)
    until, number = time.monotonic() + seconds, first
    while time.monotonic() < until:

        @seed(number)
        @ROUND
        @given(damaged(whole))
        def one_round(data: bytes) -> None:
            nonlocal tried
            if time.monotonic() < until:
                tried += 1
                attempt(name, reader, data)

        one_round()
        number += 1
    return tried


def main() -> int:
    seconds, names = float(sys.argv[1]), sys.argv[2:] or list(READERS)
    failed = 0
    first = 0 if seconds < HANG_S else int(time.time())  # a sample is the same each time
    for name in names:
        try:
            tried = fuzz(name, seconds, first)
        except BaseException:  # noqa: BLE001  (whatever it is, the input is reported)
            traceback.print_exc()
            print(f"{name}: FAILED (seeds from {first})", flush=True)
            failed += 1
        else:
            print(f"{name}: {tried} inputs", flush=True)
    return min(failed, 1)


if __name__ == "__main__":
    sys.exit(main())
