"""How far two results of one computation lie apart, down to single bits. Pure functions of finite arrays
of one shape, D elements; A is the reference (a deterministic result), B another result.

All are 0 for equal values. +0 and -0 are equal here; SHA-256 tells them apart, these do not."""

from __future__ import annotations

import math

import numpy as np
from scipy import stats

BITS = {np.dtype(np.float16): np.uint16, np.dtype(np.float32): np.uint32, np.dtype(np.float64): np.uint64}


def l2(a: np.ndarray, b: np.ndarray) -> float:
    """The Euclidean distance of two vectors (D,), in float64: differences are taken before squares, so
    that nearly equal vectors keep their digits."""
    _check(a, b)
    return float(np.linalg.norm(np.subtract(a, b, dtype=np.float64)))


def l2_of_units(a: np.ndarray, b: np.ndarray) -> float:
    """The distance of a/|a| and b/|b|, in [0, 2] (Zhuang et al., MLSys 2022, section 3.2). A vector of
    zeros has no direction and counts as itself."""
    _check(a, b)
    return float(np.linalg.norm(_unit(a) - _unit(b)))


def _unit(vector: np.ndarray) -> np.ndarray:
    vector = vector.astype(np.float64)
    length = np.linalg.norm(vector)
    return vector / length if length else vector


def ulp_distance(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """(D,) uint64: how many representable numbers lie between, plus one; 0 for equal values. Both arrays
    have one type, of float16, float32 and float64."""
    _check(a, b)
    if a.dtype != b.dtype or a.dtype not in BITS:
        raise ValueError(f"ULPs are counted between equal types of float, not {a.dtype} and {b.dtype}")
    kind = BITS[a.dtype]
    magnitude = kind(2 ** (8 * a.dtype.itemsize - 1) - 1)
    x, y = ((v.view(kind) & magnitude).astype(np.uint64) for v in (a, b))
    apart: np.ndarray = np.maximum(x, y) - np.minimum(x, y)
    return np.where(np.signbit(a) == np.signbit(b), apart, x + y)


def vs(reference: float, other: float) -> float:
    """Vs = 1 - |S_nd / S_d| of two scalars (Shanmugavelu et al. 2024, section 3): the sign says which is
    larger in magnitude. A reference of 0 leaves 0 for 0, and -inf for anything else."""
    if not (math.isfinite(reference) and math.isfinite(other)):
        raise ValueError(f"Vs is of finite numbers, not of {reference} and {other}")
    if reference == 0:
        return 0.0 if other == 0 else -math.inf
    return 1 - abs(other / reference)


def vermv(reference: np.ndarray, other: np.ndarray) -> float:
    """Vermv = (1/D) sum |A-B| / |A| (Shanmugavelu et al. 2024, section 3).

    Where A is 0 and B is not, the quotient has no value; such an element counts 1, the quotient with |B|
    below instead. No other element is touched (an epsilon under all of them would shrink every small
    one), and the sum is still 0 only for equal arrays."""
    _check(reference, other)
    a, b = reference.astype(np.float64), other.astype(np.float64)
    below = np.where(a == 0, np.abs(b), np.abs(a))
    apart = np.abs(a - b)
    return float(np.divide(apart, below, out=np.zeros_like(apart), where=below > 0).mean())


def vc(reference: np.ndarray, other: np.ndarray) -> float:
    """Vc = (1/D) sum 1(A != B), in [0, 1]: the share of elements that differ (same source)."""
    _check(reference, other)
    return float((reference != other).mean())


def kl_to_gaussian(values: np.ndarray) -> float | None:
    """Kullback-Leibler divergence, in nats, of the histogram of `values` (n,) to the Gaussian with their
    mean and SD (asked of Vs by Shanmugavelu et al. 2024, section 4). Equal bins by Rice's rule, 2 n^(1/3)
    of them; the outer ones hold the Gaussian's tails, so that both sum to 1 and the result is >= 0.
    None for fewer than 8 finite values and for equal ones: they have no shape."""
    kept = values[np.isfinite(values)]
    n = len(kept)
    if n < 8 or kept.min() == kept.max() or (sd := float(kept.std(ddof=1))) == 0:
        return None
    edges = np.linspace(kept.min(), kept.max(), math.ceil(2 * n ** (1 / 3)) + 1)
    p = np.histogram(kept, edges)[0] / n
    cumulated = stats.norm.cdf(edges[1:-1], kept.mean(), sd)
    q = np.diff(np.concatenate([[0.0], cumulated, [1.0]]))
    some = p > 0
    return float((p[some] * np.log(p[some] / np.maximum(q[some], np.finfo(float).tiny))).sum())


def _check(a: np.ndarray, b: np.ndarray) -> None:
    if a.shape != b.shape or a.size == 0:
        raise ValueError(f"arrays of one shape and not empty are compared, not {a.shape} and {b.shape}")
    if not (np.isfinite(a).all() and np.isfinite(b).all()):
        raise ValueError("only finite numbers are compared")
