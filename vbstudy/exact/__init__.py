"""Exact mode: torch on CPUs computes the same bits on any number of threads, at about its usual speed.

    from vbstudy import exact

    exact.enable()                  # the whole process, until exact.disable()
    with exact.mode(): ...          # or only here
    with exact.mode(strict=True): ...   # an operation that exact mode does not know is an error

Operations whose bits depend on the thread count are replaced, at the dispatcher, for the CPU: they are cut
into pieces by their shapes and layouts alone, each piece is computed by torch's own kernel on one thread, and
sums are added in a fixed order. Operations that are known to depend on no thread count stay as they are, and
all others are computed by one thread. No model changes, and other devices are not affected.
`operations.toml` has the lists.

Runs are comparable when exact mode is on in all of them, with the same version of torch and the same
instruction set: bits differ from those without it, and random numbers need seeds as ever.

The operations are C++ (`kernels.cpp`, `plans.h`), which is compiled at its first use and kept in the user's
cache (`compiled.py`). This room imports the standard library, numpy, torch (and TensorFlow for its pools) and
`vbstudy.caches`, and nothing else. Frameworks are imported when exact mode is first enabled, so that the
import of this package costs a guest nothing."""

from vbstudy.exact.errors import ExactError
from vbstudy.exact.pools import enable_tensorflow
from vbstudy.exact.state import Coverage, active, coverage, disable, enable, mode

__all__ = ["Coverage", "ExactError", "active", "coverage", "disable", "enable", "enable_tensorflow", "mode"]
