"""Exact mode: torch on CPUs computes bits that depend on nothing but the inputs, at about its usual speed.

    from vbstudy import exact

    exact.enable()                  # the whole process, until exact.disable()
    with exact.mode(): ...          # or only here
    with exact.mode(strict=True): ...   # an operation that is not at the level is an error
    exact.enable(level="threads")   # torch's own kernels: bits depend on the CPU, but on no thread count

Operations are replaced at the dispatcher, for the CPU. At level machine float32 is computed by an
arithmetic of our own (`docs/arithmetic.md`). At level threads, and for what that has no kernels for,
operations are cut into pieces by their shapes and layouts alone, each piece is computed by torch's own
kernel on one thread, and sums are added in a fixed order; what is known to depend on no thread count
stays as it is, and all else is computed by one thread. No model changes, and other devices are not
affected. `operations.toml` has the lists.

Random numbers need seeds as ever.

The operations are C++, which is compiled at its first use and kept in the user's cache (`compiled.py`):
`arithmetic/` knows nothing of torch and is compiled for an instruction set; `machine.h` and
`functions_glue.h` put it in place of torch's operations, `plans.h` and `kernels.cpp` are level threads.
This room imports the standard library, numpy, torch (and TensorFlow for its pools) and `vbstudy.caches`,
and nothing else. Frameworks are imported when exact mode is first enabled, so that the import of this
package costs a guest nothing."""

import sys

if sys.version_info < (3, 11):  # noqa: UP036  (a program that vbstudy runs may have another)
    raise ImportError(f"exact mode needs Python 3.11 or later, and this is {sys.version.split()[0]}")

from vbstudy.exact.errors import ExactError
from vbstudy.exact.pools import enable_tensorflow
from vbstudy.exact.state import Coverage, active, coverage, disable, enable, mode

__all__ = ["Coverage", "ExactError", "active", "coverage", "disable", "enable", "enable_tensorflow", "mode"]
