"""The arithmetic's self-test: a battery of operations whose results have one hash on every machine. It takes
less than a second, and is run once for each compiled library, torch and CPU: another result is an error,
because trainings would have other bits here than elsewhere."""

from __future__ import annotations

import contextlib
import hashlib
import platform
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 (its usual name)

from vbstudy import caches
from vbstudy.exact.errors import ExactError

if TYPE_CHECKING:
    from vbstudy.exact.compiled import Compiled

EXPECTED = {
    "products": "0f0481d1f3cf74cf",
    "convolutions": "a94e67f8bab326dd",
    "normalisations": "7df37d8904ca2b19",
    "sums": "bf5cd06539eae9e9",
    "variances": "5052fc40411567a7",
    "softmax": "1fd83efe56d2fc00",
    "attention": "3b725a2d34b30302",
    "lstm": "9d6d10607089d5bd",
    "functions": "d274f1992e3f144d",
    "normal_": "a610304f7eca2581",
}


def once(library: Compiled) -> None:
    """Raises ExactError where a result is not what it is elsewhere. Exact mode is on, at level machine."""
    facts = f"{library.arithmetic_file}\n{torch.__version__}\n{_cpu()}\n{EXPECTED}"
    seen = hashlib.sha256(facts.encode()).hexdigest()[:16]
    passed = caches.folder() / "exact" / f"self-test-{seen}"
    if passed.exists():
        return
    found = hashes()
    wrong = [name for name, value in EXPECTED.items() if found[name] != value]
    if wrong:
        raise ExactError(
            f"the self-test of exact mode failed on this machine ({_cpu()}, {library.instructions()}) in "
            f"{', '.join(wrong)}: the compiler or the CPU does not round as it should. Remove "
            f"{library.arithmetic_file} and name another compiler in CXX, or use level threads: "
            'exact.enable(level="threads")'
        )
    with contextlib.suppress(OSError):  # then it is run again
        passed.touch()


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return platform.processor()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())


def hashes() -> dict[str, str]:
    """Of each group's results, in whatever way torch computes at the moment."""
    found = {}
    with torch.autocast("cpu", enabled=False):
        for name, results in _battery():
            digest = hashlib.sha256()
            for t in results:
                digest.update(t.detach().contiguous().numpy().tobytes())
            found[name] = digest.hexdigest()[:16]
    return found


def _values(seed: int, *shape: int) -> Tensor:
    """Between -1 and 1, by integers: the same on every machine."""
    state = np.arange(int(np.prod(shape)), dtype=np.uint64) + np.uint64(seed << 32)
    for factor in (0xBF58476D1CE4E5B9, 0x94D049BB133111EB):
        state = (state ^ (state >> np.uint64(30))) * np.uint64(factor)
    numbers = (state >> np.uint64(40)).astype(np.float32) / np.float32(2**23) - np.float32(1)
    return torch.from_numpy(numbers.reshape(shape))


def _with_gradients(results: Tensor | tuple[Tensor, ...], *inputs: Tensor) -> list[Tensor]:
    outputs = list(results) if isinstance(results, tuple) else [results]
    weights = [_values(99 + i, *t.shape) for i, t in enumerate(outputs)]
    return outputs + list(torch.autograd.grad(outputs, inputs, weights))


@torch.inference_mode(mode=False)
@torch.enable_grad()
def _battery() -> Iterator[tuple[str, list[Tensor]]]:
    def learnt(seed: int, *shape: int) -> Tensor:
        return _values(seed, *shape).requires_grad_()

    products = []
    for m, k, n in ((64, 784, 128), (1, 300, 77), (7, 5, 3), (33, 1025, 65), (5, 5000, 4)):
        a, b, c = learnt(1, m, k), learnt(2, n, k), learnt(3, n)
        products += _with_gradients(F.linear(a, b, c), a, b, c)
    products.append(torch.bmm(_values(4, 3, 17, 40), _values(5, 3, 40, 29)))
    yield "products", products
    convolved = []
    for channels, size, filters, kernel, stride, padding, groups in (
        (3, 19, 16, 3, 1, 1, 1),
        (16, 8, 33, 3, 2, 1, 1),
        (64, 4, 72, 3, 1, 1, 1),
        (32, 9, 64, 1, 1, 0, 1),
        (12, 11, 12, 5, 1, 2, 12),
    ):
        x, w = learnt(6, 5, channels, size, size), learnt(7, filters, channels // groups, kernel, kernel)
        convolved += _with_gradients(F.conv2d(x, w, None, stride, padding, 1, groups), x, w)
    yield "convolutions", convolved
    x, w, b = learnt(8, 9, 24, 7, 7), learnt(9, 24), learnt(10, 24)
    rows, v, c = learnt(11, 40, 72), learnt(12, 72), learnt(13, 72)
    yield (
        "normalisations",
        [
            *_with_gradients(F.batch_norm(x, None, None, w, b, training=True), x, w, b),
            *_with_gradients(F.group_norm(x, 4, w, b), x, w, b),
            *_with_gradients(F.layer_norm(rows, (72,), v, c), rows, v, c),
        ],
    )
    wide = learnt(14, 3, 70001)
    sums = [wide.sum(), wide.sum(0), wide.sum(1), wide.mean(1), wide.norm()]
    yield "sums", [*sums, torch.linalg.vector_norm(wide, dim=0)]
    equal = torch.full((3, 500), 0.1, device="cpu", dtype=torch.float32)
    variances = [wide.var(), wide.var(1), *torch.std_mean(wide, (0, 1), correction=0)]
    far = [(wide * 2.0**power).std(1) for power in (-100, 100)]
    yield "variances", [*variances, equal.var(1), *far]
    scores, short = learnt(15, 9, 1000), learnt(16, 50, 10)
    yield (
        "softmax",
        [
            *_with_gradients(F.softmax(scores * 9, 1), scores),
            *_with_gradients(F.log_softmax(short, 1), short),
            *_with_gradients(F.softmax(short, 0), short),
        ],
    )
    q, k_, v_ = (learnt(seed, 2, 3, 70, 24) for seed in (17, 18, 19))
    yield "attention", _with_gradients(F.scaled_dot_product_attention(q, k_, v_, is_causal=True), q, k_, v_)
    with torch.random.fork_rng(devices=()):
        layer = torch.nn.LSTM(24, 40, bidirectional=True, device="cpu", dtype=torch.float32)
    for i, parameter in enumerate(layer.parameters()):
        parameter.data.copy_(_values(20 + i, *parameter.shape) / 8)
    steps = learnt(40, 9, 5, 24)
    yield "lstm", _with_gradients(layer(steps)[0], steps, *layer.parameters())
    many = _values(41, 30011) * 8
    positive = many.abs()
    found = [f(many) for f in (torch.exp, torch.expm1, torch.exp2, torch.tanh, torch.sigmoid, torch.erf)]
    found += [f(many) for f in (torch.sin, torch.cos, torch.atan, torch.asinh, torch.cosh, torch.reciprocal)]
    found += [f(positive) for f in (torch.sqrt, torch.rsqrt, torch.log, torch.log1p, torch.log10)]
    found += [f(many) for f in (F.gelu, F.silu, F.softplus, F.mish, F.elu)]
    found += [F.gelu(many, approximate="tanh"), positive**2.5, torch.lerp(many, many.flip(0), 0.3)]
    yield "functions", found
    draws = torch.empty(5003, device="cpu", dtype=torch.float32)
    draws.normal_(0, 2, generator=torch.Generator().manual_seed(3))
    yield "normal_", [draws]
