"""Each reader for VBSTUDY_FUZZ_S seconds, in a process of its own: its memory is measured."""

import os
import subprocess
import sys

import pytest

from tests.fuzz.readers import READERS

SECONDS = float(os.environ.get("VBSTUDY_FUZZ_S", "0"))


@pytest.mark.needs("fuzz")
@pytest.mark.parametrize("reader", READERS)
def test_no_input_makes_a_reader_fail_otherwise_hang_or_fill_memory(reader):
    run([str(SECONDS / len(READERS)), reader])


def test_a_sample_of_inputs_makes_no_reader_fail_otherwise():
    run(["0.1"])


def run(arguments):
    environment = os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MPLBACKEND": "agg"}
    done = subprocess.run(
        [sys.executable, "-m", "tests.fuzz", *arguments], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr[-6000:]
