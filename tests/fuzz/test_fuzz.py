"""All readers, for VBSTUDY_FUZZ_S seconds together. The memory of their processes is measured: of a long run
each reader has one of its own; of a short one several share one, which starts for longer than it runs."""

import os
import subprocess
import sys

import pytest

from tests.fuzz.readers import READERS

SECONDS = float(os.environ.get("VBSTUDY_FUZZ_S", "0"))
PROCESSES = len(READERS) if SECONDS > 300 else 4
SHARES = [list(READERS)[first::PROCESSES] for first in range(PROCESSES)]


@pytest.mark.needs("fuzz")
@pytest.mark.parametrize("readers", SHARES, ids="-".join)
def test_no_input_makes_a_reader_fail_otherwise_hang_or_fill_memory(readers):
    environment = os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MPLBACKEND": "agg"}
    done = subprocess.run(
        [sys.executable, "-m", "tests.fuzz", str(SECONDS / len(READERS)), *readers],
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr[-6000:]
