"""What a reader is told of the settings that were in force in a project's run."""

from guest.machine.tiers import EXACT_TENSORFLOW_THREADS
from guest.projects import service
from guest.records.run import Variant
from tests import factories


def test_a_program_with_both_frameworks_is_told_what_was_below_and_not_of_the_pools_that_exact_mode_fixed():
    exact = {"level": "machine", "arithmetic": 1, "instructions": "avx2", "below": ["lgamma"]}
    pools = {"intra_op": EXACT_TENSORFLOW_THREADS, "inter_op": 1}
    seen = {"kind": "end", "torch": {"exact": exact}, "tensorflow": pools}
    spec = factories.spec(cpus=2, variant=Variant.EXACT)
    assert list(service._remarks([{"kind": "start"}, seen], spec)) == [
        "operations below level machine, whose bits depend on the CPU: lgamma"
    ]
