"""The arithmetic's functions of one element, called as they stand, and what they should give in float64."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Of = Callable[..., Any]
aten = torch.ops.aten
nn = torch.nn.functional


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """`true` takes float64, and `torch` float32, as many tensors as the function has inputs."""

    true: Of
    torch: Of
    inputs: int = 1
    numbers: tuple[float, ...] = ()
    crosses_zero: bool = False  # a difference that cancels: its error is of its terms', not of its own size


def same(of: Of, inputs: int = 1) -> Case:
    return Case(true=of, torch=of, inputs=inputs)


def _gelu(x: torch.Tensor) -> Any:
    return x * 0.5 * torch.erfc(-x * 0.5**0.5)


def _gelu_slope(g: torch.Tensor, x: torch.Tensor) -> Any:
    return g * (0.5 * torch.erfc(-x * 0.5**0.5) + x * torch.exp(-x * x / 2) * (0.5 / torch.pi) ** 0.5)


def _inner(x: torch.Tensor) -> Any:
    return (8 / torch.pi) ** 0.5 * (x + 0.044715 * x * x * x)


def _gelu_tanh_slope(g: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    e = torch.exp(-_inner(torch.clamp(x, -15)))
    inner = (8 / torch.pi) ** 0.5 * (1 + 3 * 0.044715 * x * x)
    return g * torch.where(x < -15, 0 * x, (1 / (1 + e) + x * inner * e / (1 + e) ** 2))


def _silu_slope(g: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    e = torch.exp(-torch.clamp(x, -300))
    return g * (1 / (1 + e) + x * e / (1 + e) / (1 + e))


def _mish(x: torch.Tensor) -> torch.Tensor:
    return x * torch.tanh(torch.log1p(torch.exp(torch.clamp(x, max=100))))


def _mish_slope(g: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    t = torch.tanh(torch.log1p(torch.exp(torch.clamp(x, max=100))))
    return g * (t + x * torch.sigmoid(x) / torch.cosh(torch.log1p(torch.exp(torch.clamp(x, max=100)))) ** 2)


def _of_numpy(name: str) -> Case:  # torch's of float64 is not good for large angles everywhere
    true = lambda x: torch.from_numpy(getattr(np, name)(x.numpy()))  # noqa: E731
    return Case(true=true, torch=getattr(torch, name))


CASES: dict[str, Case] = {
    **{
        name: same(getattr(torch, name))
        for name in (
            *(
                "exp",
                "exp2",
                "expm1",
                "log",
                "log2",
                "log10",
                "log1p",
                "asin",
                "acos",
                "atan",
                "sinh",
                "cosh",
            ),
            *("tanh", "asinh", "acosh", "atanh", "sigmoid", "erf", "erfc", "erfinv", "sqrt", "reciprocal"),
        )
    },
    **{name: _of_numpy(name) for name in ("sin", "cos", "tan")},
    "pow": same(torch.pow, 2),
    "atan2": same(torch.atan2, 2),
    "hypot": same(torch.hypot, 2),
    "logaddexp": Case(true=torch.logaddexp, torch=torch.logaddexp, inputs=2, crosses_zero=True),
    "logaddexp2": Case(true=torch.logaddexp2, torch=torch.logaddexp2, inputs=2, crosses_zero=True),
    "xlogy": same(torch.xlogy, 2),
    "rsqrt": same(torch.rsqrt),
    "gelu": Case(true=_gelu, torch=nn.gelu),
    "gelu_tanh": Case(
        true=lambda x: x / (1 + torch.exp(-_inner(x))), torch=lambda x: nn.gelu(x, approximate="tanh")
    ),
    "silu": Case(true=lambda x: x / (1 + torch.exp(-x)), torch=nn.silu),
    "mish": Case(true=_mish, torch=nn.mish),
    "log_sigmoid": Case(
        true=lambda x: torch.clamp(x, max=0) - torch.log1p(torch.exp(-x.abs())), torch=nn.logsigmoid
    ),
    "softplus": Case(
        true=lambda x: torch.where(x > 20, x, torch.log1p(torch.exp(torch.clamp(x, max=100)))),
        torch=nn.softplus,
        numbers=(1, 20),
    ),
    "elu": Case(
        true=lambda x: torch.where(x < 0, torch.expm1(x) * 1.5 * 1.25, x * 1.25),
        torch=lambda x: aten.elu(x, 1.5, 1.25, 1.0),
        numbers=(1.5, 1.25, 1),
    ),
    "logit": Case(true=lambda x: torch.log(x / (1 - x)), torch=torch.logit, numbers=(float("nan"),)),
    "gelu_backward": Case(true=_gelu_slope, torch=aten.gelu_backward, inputs=2, crosses_zero=True),
    "gelu_tanh_backward": Case(
        true=_gelu_tanh_slope,
        torch=lambda g, x: aten.gelu_backward(g, x, approximate="tanh"),
        inputs=2,
        crosses_zero=True,
    ),
    "silu_backward": Case(true=_silu_slope, torch=aten.silu_backward, inputs=2, crosses_zero=True),
    "mish_backward": Case(true=_mish_slope, torch=aten.mish_backward, inputs=2, crosses_zero=True),
    "log_sigmoid_backward": Case(
        true=lambda g, x: g / (1 + torch.exp(x)),
        torch=lambda g, x: aten.log_sigmoid_backward(g, x, torch.exp(-x.abs())),
        inputs=2,
    ),
    "tanh_backward": Case(true=lambda g, y: g * (1 - y) * (1 + y), torch=aten.tanh_backward, inputs=2),
    "sigmoid_backward": Case(true=lambda g, y: g * (1 - y) * y, torch=aten.sigmoid_backward, inputs=2),
    "softplus_backward": Case(
        true=lambda g, x: torch.where(x > 20, g, g / (1 + torch.exp(-x))),
        torch=lambda g, x: aten.softplus_backward(g, x, 1, 20),
        inputs=2,
        numbers=(1, 20),
    ),
    "elu_backward": Case(
        true=lambda g, x: torch.where(x <= 0, g * 1.5 * 1.25 * torch.exp(torch.clamp(x, max=0)), g * 1.25),
        torch=lambda g, x: aten.elu_backward(g, 1.5, 1.25, 1.0, False, x),
        inputs=2,
        numbers=(1.5, 1.25, 1, 0),
    ),
    **{
        f"pow_number {p}": Case(
            true=lambda x, p=p: torch.sqrt(x) if p == 0.5 else torch.pow(x, p),
            torch=lambda x, p=p: torch.pow(x, p),
            numbers=(p,),
        )
        for p in (0.5, 2, 3, -0.5, -1, -2, 1.5, -3)
    },
    "number_pow": Case(true=lambda x: torch.pow(2.5, x), torch=lambda x: torch.pow(2.5, x), numbers=(2.5,)),
}


class _Function(ctypes.Structure):
    _fields_ = (("name", ctypes.c_char_p), ("of", ctypes.c_void_p))


_CALL = ctypes.CFUNCTYPE(
    None, ctypes.c_long, ctypes.POINTER(ctypes.c_void_p), ctypes.POINTER(ctypes.c_double), ctypes.c_void_p
)


class Library:
    """The functions of one compiled library of the arithmetic."""

    def __init__(self, path: Path) -> None:
        self._library = ctypes.CDLL(str(path))
        self._library.vbstudy_functions.restype = ctypes.POINTER(_Function)
        table = self._library.vbstudy_functions()
        self._of: dict[str, Callable[..., None]] = {}
        for i in range(1000):
            if not table[i].name:
                break
            self._of[table[i].name.decode()] = _CALL(table[i].of)

    def names(self) -> Mapping[str, Callable[..., None]]:
        return self._of

    def __call__(
        self, name: str, x: tuple[Floats, ...], numbers: tuple[float, ...], to: Floats | None = None
    ) -> Floats:
        y = np.empty_like(x[0]) if to is None else to
        inputs = (ctypes.c_void_p * len(x))(*(a.ctypes.data for a in x))
        self._of[name.partition(" ")[0]](len(y), inputs, (ctypes.c_double * 8)(*numbers), y.ctypes.data)
        return y


def of_all_binades(step: int) -> Floats:
    """Every `step`-th float32: of both signs, denormals, infinities and NaN too."""
    return np.arange(0, 2**32, step, dtype=np.uint64).astype(np.uint32).view(np.float32)


def inputs(case: Case, step: int) -> tuple[Floats, ...]:
    """For functions of two: all binades with one another in another order, and numbers of ordinary size."""
    x = of_all_binades(step)
    if case.inputs == 1:
        return (x,)
    draw = np.random.default_rng(0)
    ordinary = [draw.normal(0, 4, len(x)).astype(np.float32) for _ in range(2)]
    return np.concatenate([x, ordinary[0], x]), np.concatenate([draw.permutation(x), *ordinary[::-1]])[
        : 3 * len(x)
    ]


def errors(case: Case, y: Floats, x: tuple[Floats, ...]) -> NDArray[np.float64]:
    """In units of the last place of the true value, where that is finite; infinite where a NaN is wrong."""
    with np.errstate(all="ignore"):
        true = case.true(*(torch.from_numpy(a).double() for a in x)).numpy()
        rounded = true.astype(np.float32)
        size = np.maximum(np.abs(true), 2.0**-126)
        if case.crosses_zero:
            size = np.maximum(size, np.max([np.abs(a) for a in x], axis=0) * 2.0**-8)
        unit = np.exp2(np.floor(np.log2(size)) - 23)
        error = np.abs(y.astype(np.float64) - true) / unit
    error = np.where(np.isnan(error), np.inf, error)
    special = ~np.isfinite(rounded)
    return np.where(special, np.where((y == rounded) | (np.isnan(y) & np.isnan(rounded)), 0, np.inf), error)
