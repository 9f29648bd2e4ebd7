"""Operations over sizes, forward and backward, for the sweeps. Sizes are odd where it matters: that is where
the last elements of a thread's share come out differently."""

# ruff: noqa: SIM905 (lists of names read better without quotes)

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 (its usual name)

Function = Callable[..., Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """`function(*inputs)`; with `gradient`, also its gradients by all inputs. `quick`: for `make test`."""

    name: str
    inputs: tuple[Tensor, ...]
    function: Function
    gradient: bool
    quick: bool

    def outputs(self) -> list[Tensor]:
        inputs = [_copy(x) for x in self.inputs]
        if self.gradient:
            inputs = [x.requires_grad_(x.is_floating_point() or x.is_complex()) for x in inputs]
        outputs = self.function(*inputs)
        outputs = list(outputs) if isinstance(outputs, (tuple, list)) else [outputs]
        found = [t.detach().clone() for t in outputs]
        if self.gradient:
            # Ones would hide what each element contributes.
            weights = [
                torch.arange(t.numel(), dtype=torch.float64).sin().to(t.dtype).view(t.shape) for t in outputs
            ]
            learnt = [x for x in inputs if x.requires_grad]
            found += [
                g for g in torch.autograd.grad(outputs, learnt, weights, allow_unused=True) if g is not None
            ]
        return found

    @property
    def random(self) -> bool:
        return self.name == "dropout"

    def of(self, dtype: torch.dtype, layout: Callable[[Tensor], Tensor] = Tensor.contiguous) -> Case:
        """The same with floating-point inputs of another type, and inputs that lie otherwise in memory."""
        inputs = (x.to(dtype) if x.is_floating_point() else x for x in self.inputs)
        return replace(self, inputs=tuple(layout(x) for x in inputs))

    def bits(self) -> list[bytes]:
        outputs = (t.resolve_conj().contiguous().view(-1) for t in self.outputs())
        return [t.view(torch.uint8).numpy().tobytes() for t in outputs]


def _copy(x: Tensor) -> Tensor:
    """With the strides and the place of the original, gaps too."""
    storage = x.detach().untyped_storage().clone()
    return torch.empty(0, dtype=x.dtype).set_(storage, x.storage_offset(), x.size(), x.stride())


def turned(x: Tensor) -> Tensor:
    """Its dimensions in reverse order in memory."""
    return x.permute(*reversed(range(x.dim()))).contiguous().permute(*reversed(range(x.dim())))


def channels_last(x: Tensor) -> Tensor:
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    return x.contiguous(memory_format=formats.get(x.dim(), torch.contiguous_format))


def every_second(x: Tensor) -> Tensor:
    """With a gap behind each element."""
    return torch.stack((x, x), -1)[..., 0]


def behind_one(x: Tensor) -> Tensor:
    """One element behind where an allocation begins."""
    return torch.cat((x.new_zeros(1), x.flatten()))[1:].view(x.shape)


LAYOUTS = (turned, channels_last, every_second, behind_one)


def cases(generator: torch.Generator) -> Iterator[Case]:
    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator)

    def inside(*shape: int) -> Tensor:
        return torch.rand(*shape, generator=generator) * 0.9 + 0.05

    def case(
        name: str, function: Function, *inputs: Tensor, gradient: bool = True, quick: bool = False
    ) -> Case:
        return Case(name=name, inputs=inputs, function=function, gradient=gradient, quick=quick)

    yield from _elementwise(case, normal, inside)
    yield from _reductions(case, normal)
    yield from _products(case, normal)
    yield from _convolutions(case, normal)
    yield from _normalisations(case, normal)
    yield from _indexed(case, normal, generator)
    yield from _losses(case, normal, inside, generator)
    yield from _layers(case, normal)
    yield from _the_rest(case, normal)
    yield from _scaled(case, normal)
    yield from _side_by_side(case, normal)
    yield from _of_one_place(case, normal)
    yield from _tiny(case, normal)
    yield from _depthwise(case, normal)


def _elementwise(case: Any, normal: Any, inside: Any) -> Iterator[Case]:
    sizes = [(100003,), (257, 391)]
    unary = (
        "exp exp2 expm1 log log2 log10 log1p sin cos tan tanh asin acos atan sinh cosh asinh atanh sigmoid "
        "erf erfc erfinv sqrt rsqrt reciprocal lgamma digamma square abs relu sinc i0 logit floor round"
    )
    for name in unary.split():
        for size in sizes:
            yield case(f"{name} {size}", getattr(torch, name), inside(*size), quick=size == sizes[0])
    for name in "i0e i1 ndtri log_ndtr erfcx entr".split():
        yield case(f"special.{name}", getattr(torch.special, name), inside(100003), gradient=False)
    activations = (
        "gelu silu mish softplus elu selu celu leaky_relu hardswish hardsigmoid hardtanh logsigmoid softsign "
        "tanhshrink softshrink hardshrink relu6 glu"
    )
    for name in activations.split():
        for size in [(100004,), (257, 392)]:
            yield case(f"{name} {size}", getattr(F, name), normal(*size), quick=size == (100004,))
    yield case("gelu tanh", lambda x: F.gelu(x, approximate="tanh"), normal(100003))
    yield case("sigmoid of a transposed", lambda x: x.t().sigmoid(), normal(257, 391), quick=True)
    yield case("sigmoid of every second", lambda x: x[:, ::2].sigmoid(), normal(257, 391))
    yield case("sigmoid in place", lambda x: (x + 0).sigmoid_(), normal(100003), quick=True)
    yield case(
        "sigmoid into", lambda x: torch.sigmoid(x, out=torch.empty_like(x)), normal(100003), gradient=False
    )
    yield case("sigmoid of float64", torch.sigmoid, normal(100003).double())
    for name in "add sub mul div pow atan2 fmod remainder maximum hypot logaddexp copysign xlogy".split():
        yield case(
            name, getattr(torch, name), inside(257, 391), inside(257, 391), quick=name in ("pow", "atan2")
        )
    yield case("broadcast pow", torch.pow, inside(257, 391), inside(391))
    yield case("number to the power", lambda x: 2.5**x, inside(100003), quick=True)
    yield case("to the power of a number", lambda x: x**2.5, inside(100003))
    yield case(
        "addcmul", lambda a, b, c: torch.addcmul(a, b, c, value=0.3), *(normal(100003) for _ in range(3))
    )
    yield case(
        "addcdiv", lambda a, b, c: torch.addcdiv(a, b, c, value=0.3), *(inside(100003) for _ in range(3))
    )
    yield case("lerp", lambda a, b: torch.lerp(a, b, 0.3), normal(100003), normal(100003))
    for name in "add sub rsub".split():
        scaled = lambda a, b, n=name: getattr(torch, n)(a, b, alpha=0.3)  # noqa: E731
        yield case(f"{name} scaled", scaled, normal(100003), normal(100003))
    yield case("add scaled in place", lambda a, b: (a + 0).add_(b, alpha=0.3), normal(100003), normal(100003))
    yield case("mul by a number", lambda a: a * 0.3, normal(100003))
    yield case("arange", lambda a: torch.arange(0, 10000.3, 0.1, dtype=a.dtype), normal(1), gradient=False)
    yield case("linspace", lambda a: torch.linspace(0, 1, 100003, dtype=a.dtype), normal(1), gradient=False)


def _reductions(case: Any, normal: Any) -> Iterator[Case]:
    shapes = [(100003,), (333, 777), (1000, 64), (64, 16, 31, 31), (7, 50001), (50001, 7)]
    for shape in shapes:
        quick = shape in ((100003,), (333, 777))
        x = normal(*shape)
        for name in "sum mean var std nansum amax amin argmax median".split():
            learnt = name in ("sum", "mean", "var", "std")
            yield case(f"{name} {shape}", lambda x, n=name: getattr(x, n)(), x, gradient=learnt, quick=quick)
            for dim in (0, -1):
                function = (
                    (lambda x, d=dim: x.median(d)[0])
                    if name == "median"
                    else (lambda x, n=name, d=dim: getattr(x, n)(d))
                )
                yield case(f"{name} {shape} along {dim}", function, x, gradient=learnt)
        if len(shape) == 4:
            for name in "sum mean var".split():
                for dims in ((2, 3), (0, 2, 3)):
                    yield case(f"{name} {shape} along {dims}", lambda x, n=name, d=dims: getattr(x, n)(d), x)
            yield case("sum keeping dimensions", lambda x: x.sum((0, 3), keepdim=True), x, quick=True)
        for order in (1, 2, 3, torch.inf):
            yield case(
                f"norm {order} {shape}", lambda x, o=order: torch.linalg.vector_norm(x, o), x, quick=quick
            )
        yield case(f"prod {shape}", lambda x: (1 + x * 1e-4).prod(), x, quick=quick)
        yield case(f"logsumexp {shape}", lambda x: x.logsumexp(tuple(range(x.dim()))), x, quick=quick)
        for name in "softmax log_softmax cumsum logcumsumexp".split():
            for dim in (0, -1):
                yield case(
                    f"{name} {shape} along {dim}",
                    lambda x, n=name, d=dim: getattr(torch, n)(x, d),
                    x,
                    quick=quick,
                )
    yield case("dist", torch.dist, normal(100003), normal(100003))
    yield case(
        "total norm",
        lambda a, b: torch.nn.utils.get_total_norm([a, b]),
        normal(100003),
        normal(333, 777),
        gradient=False,
        quick=True,
    )
    yield case(
        "foreach norm",
        lambda a, b: torch._foreach_norm([a, b]),
        normal(100003),
        normal(333, 777),
        gradient=False,
    )


def _products(case: Any, normal: Any) -> Iterator[Case]:
    wide = "64,784,256 64,256,10 1280,64,64 64,1280,64 333,777,555"
    narrow = "1,4096,1000 2048,64,1 17,33,65 64,64,1280 16,576,4096"
    for text in (*wide.split(), *narrow.split()):
        m, k, n = map(int, text.split(","))
        quick = text in ("64,784,256", "1280,64,64", "333,777,555")
        yield case(f"mm {text}", torch.mm, normal(m, k), normal(k, n))
        yield case(f"linear {text}", F.linear, normal(m, k), normal(n, k), normal(n), quick=quick)
    yield case("mm of transposed", lambda a, b: a.t() @ b.t(), normal(400, 300), normal(500, 400), quick=True)
    yield case(
        "addmm scaled",
        lambda c, a, b: torch.addmm(c, a, b, beta=0.5, alpha=2),
        normal(300, 200),
        normal(300, 400),
        normal(400, 200),
    )
    yield case("mm of bfloat16", torch.mm, normal(333, 777).bfloat16(), normal(777, 555).bfloat16())
    yield case("mm of float64", torch.mm, normal(333, 777).double(), normal(777, 555).double())
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        long = normal(4099, 64).to(dtype), normal(4099, 128).to(dtype)
        yield case(f"mm of long sums {dtype}", lambda a, b: a.t() @ b, *long, quick=dtype == torch.float32)
    for text in "256,20,16,20 3,333,77,55 64,12,64,64 1000,8,8,8 2,512,512,512 1,300,200,100".split():
        b, m, k, n = map(int, text.split(","))
        quick = text in ("3,333,77,55", "64,12,64,64")
        yield case(f"bmm {text}", torch.bmm, normal(b, m, k), normal(b, k, n), quick=quick)
        yield case(f"baddbmm {text}", torch.baddbmm, normal(b, m, n), normal(b, m, k), normal(b, k, n))
    for m, k in ((1000, 777), (10, 100003), (100003, 10)):
        yield case(f"mv {m, k}", torch.mv, normal(m, k), normal(k), quick=m == 1000)
        yield case(f"addmv {m, k}", torch.addmv, normal(m), normal(m, k), normal(k))
        yield case(f"addr {m, k}", torch.addr, normal(m, k), normal(m), normal(k))
    yield case("dot", torch.dot, normal(1000003), normal(1000003), quick=True)
    yield case("cdist", torch.cdist, normal(200, 64), normal(300, 64))
    yield case(
        "einsum", lambda a, b: torch.einsum("bij,bjk->ik", a, b), normal(20, 64, 50), normal(20, 50, 33)
    )


def _convolutions(case: Any, normal: Any) -> Iterator[Case]:
    shapes: list[tuple[tuple[int, ...], tuple[int, ...], dict[str, int]]] = [
        ((64, 1, 28, 28), (6, 1, 5, 5), {"padding": 2}),
        ((64, 6, 14, 14), (16, 6, 5, 5), {}),
        ((64, 3, 32, 32), (16, 3, 3, 3), {"padding": 1}),
        ((64, 16, 32, 32), (32, 16, 3, 3), {"padding": 1, "stride": 2}),
        ((63, 64, 8, 8), (64, 64, 3, 3), {"padding": 1}),
        ((1, 64, 56, 56), (64, 64, 3, 3), {"padding": 1}),
        ((1, 3, 224, 224), (64, 3, 7, 7), {"padding": 3, "stride": 2}),
        ((8, 32, 28, 28), (32, 1, 3, 3), {"padding": 1, "groups": 32}),
        ((8, 32, 28, 28), (64, 16, 3, 3), {"padding": 1, "groups": 2}),
        ((8, 32, 28, 28), (32, 32, 3, 3), {"padding": 2, "dilation": 2}),
        ((5, 256, 7, 7), (512, 256, 1, 1), {}),
        ((2, 17, 33, 35), (19, 17, 3, 3), {}),
        ((3, 512, 4, 4), (512, 512, 3, 3), {"padding": 1}),
        ((64, 128, 3, 3), (32, 128, 3, 3), {"padding": 1}),  # cut in two, with pieces of the weight's sizes
        ((64, 8192, 1, 1), (32, 8192, 1, 1), {"stride": 2}),  # the same
        ((32, 16, 1000), (32, 16, 9), {"padding": 4}),
        ((1, 16, 10000), (32, 16, 9), {}),
        ((4, 8, 16, 16, 16), (16, 8, 3, 3, 3), {"padding": 1}),
        ((1, 3, 16, 32, 32), (16, 3, 3, 3, 3), {}),
    ]
    for x, w, options in shapes:
        kind = f"conv{len(x) - 2}d"
        quick = x in (
            (64, 6, 14, 14),
            (63, 64, 8, 8),
            (1, 64, 56, 56),
            (64, 128, 3, 3),
            (64, 8192, 1, 1),
            (5, 256, 7, 7),
            (2, 17, 33, 35),
            (1, 3, 16, 32, 32),
        )
        name = f"{kind} {x} {w} {options}"
        convolve = getattr(F, kind)
        yield case(
            name,
            lambda x, w, b, f=convolve, o=options: f(x, w, b, **o),
            normal(*x),
            normal(*w) * 0.1,
            normal(w[0]),
            quick=quick,
        )
        if "groups" not in options:
            transposed = getattr(F, f"conv_transpose{len(x) - 2}d")
            back = (x[1], w[0], *w[2:])
            function = lambda x, w, b, f=transposed, o=options: f(x, w, b, **o)  # noqa: E731
            yield case(f"transposed {name}", function, normal(*x), normal(*back) * 0.1, normal(w[0]))
    last = torch.channels_last
    yield case(
        "conv2d channels last",
        lambda x, w: F.conv2d(x.contiguous(memory_format=last), w, padding=1),
        normal(64, 16, 32, 32),
        normal(16, 16, 3, 3),
        quick=True,
    )


def _normalisations(case: Any, normal: Any) -> Iterator[Case]:
    for shape in ((64, 16, 31, 31), (1280, 64), (33, 100, 17)):
        c, last = shape[1], shape[-1]
        quick = shape != (33, 100, 17)
        yield case(
            f"batch_norm {shape}",
            lambda x, w, b: F.batch_norm(x, None, None, w, b, True),
            normal(*shape),
            normal(c),
            normal(c),
            quick=quick,
        )
        yield case(
            f"layer_norm {shape}",
            lambda x, w, b: F.layer_norm(x, x.shape[-1:], w, b),
            normal(*shape),
            normal(last),
            normal(last),
            quick=quick,
        )
        yield case(
            f"rms_norm {shape}", lambda x, w: F.rms_norm(x, x.shape[-1:], w), normal(*shape), normal(last)
        )
        if len(shape) > 2:
            yield case(
                f"group_norm {shape}",
                lambda x, w, b: F.group_norm(x, 4, w, b),
                normal(*shape),
                normal(c),
                normal(c),
                quick=quick,
            )
            yield case(
                f"instance_norm {shape}",
                lambda x, w, b: F.instance_norm(x, None, None, w, b),
                normal(*shape),
                normal(c),
                normal(c),
            )
    yield case(
        "group_norm of large channels last",
        lambda x: F.group_norm(x.contiguous(memory_format=torch.channels_last), 4),
        normal(4, 16, 65, 65),
        quick=True,
    )
    yield case(
        "group_norm of attention's strides",
        lambda x: F.group_norm(x.transpose(1, 2).view(4, 16, 65, 65), 4),
        normal(4, 65 * 65, 16),
        quick=True,
    )
    shape = (64, 16, 31, 31)
    for name, function in {
        "batch_norm": lambda x, w, b: F.batch_norm(x, None, None, w, b, True),
        "group_norm": lambda x, w, b: F.group_norm(x, 4, w, b),
    }.items():

        def last(x: Tensor, w: Tensor, b: Tensor, function: Function = function) -> Tensor:
            return function(x.contiguous(memory_format=torch.channels_last), w, b)

        yield case(f"{name} channels last", last, normal(*shape), normal(16), normal(16))


def _indexed(case: Any, normal: Any, generator: torch.Generator) -> Iterator[Case]:
    words = torch.randint(0, 1000, (64, 50), generator=generator)
    places = torch.randint(0, 500, (100000,), generator=generator)
    table = {
        "embedding": lambda w: F.embedding(words, w),
        "embedding_bag": lambda w: F.embedding_bag(words, w),
        "rows": lambda w: w[places],
        "gather": lambda w: w.gather(0, places[: 64 * 1000].view(1000, 64)),
        "index_select": lambda w: w.index_select(0, places),
    }
    for name, function in table.items():
        yield case(name, function, normal(1000, 64), quick=name in ("embedding", "rows"))
    for width in (1, 5):
        wide = places[:, None].expand(-1, width)
        into = {
            "index_add": lambda x: x.new_zeros(500, x.shape[1]).index_add(0, places, x),
            "scatter_add": lambda x, i=wide: x.new_zeros(500, x.shape[1]).scatter_add(0, i, x),
            "scatter mean": lambda x, i=wide: x.new_zeros(500, x.shape[1]).scatter_reduce(0, i, x, "mean"),
            "index_put": lambda x: x.new_zeros(500, x.shape[1]).index_put((places,), x, accumulate=True),
        }
        for name, function in into.items():
            yield case(f"{name} {width}", function, normal(100000, width), quick=width == 1)
    yield case("bincount", lambda x: torch.bincount(places, x), normal(100000), gradient=False)
    yield case("histc", lambda x: x.histc(50), normal(100000), gradient=False)
    yield case(
        "histogram",
        lambda x, w: torch.histogram(x, 50, weight=w)[0],
        normal(100000),
        normal(100000),
        gradient=False,
    )


def _losses(case: Any, normal: Any, inside: Any, generator: torch.Generator) -> Iterator[Case]:
    labels = torch.randint(0, 10, (10001,), generator=generator)
    for how in ("mean", "sum"):

        def loss(name: str, how: str = how, **options: Any) -> Function:
            return lambda *inputs: getattr(F, name)(*inputs, reduction=how, **options)

        yield case(
            f"cross_entropy {how}",
            lambda x, how=how: F.cross_entropy(x, labels, reduction=how),
            normal(10001, 10),
            quick=True,
        )
        for name in "mse_loss l1_loss smooth_l1_loss huber_loss binary_cross_entropy_with_logits".split():
            yield case(f"{name} {how}", loss(name), normal(100003), inside(100003), quick=name == "mse_loss")
        yield case(
            f"binary_cross_entropy {how}", loss("binary_cross_entropy"), inside(100003), inside(100003)
        )
    for how in ("batchmean", "sum"):
        divergence = lambda a, b, how=how: F.kl_div(a.log_softmax(-1), b, reduction=how)  # noqa: E731
        yield case(f"kl_div {how}", divergence, normal(1001, 101), inside(1001, 101))
    pixels = torch.randint(0, 5, (8, 60, 60), generator=generator)
    yield case(
        "cross_entropy of pixels", lambda x: F.cross_entropy(x, pixels), normal(8, 5, 60, 60), quick=True
    )
    lengths, targets = torch.full((16,), 50), torch.randint(1, 20, (16, 10), generator=generator)
    yield case(
        "ctc_loss",
        lambda x: F.ctc_loss(x.log_softmax(-1), targets, lengths, lengths // 5),
        normal(50, 16, 20),
    )


def _layers(case: Any, normal: Any) -> Iterator[Case]:
    for shape in ((8, 4, 128, 16), (2, 4, 513, 64), (1, 2, 1000, 32), (64, 4, 20, 16)):
        quick = shape == (1, 2, 1000, 32)
        heads = [normal(*shape) for _ in range(3)]
        yield case(f"attention {shape}", F.scaled_dot_product_attention, *heads, quick=quick)
        causal = lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True)  # noqa: E731
        yield case(f"causal attention {shape}", causal, *heads)
        mask = normal(shape[0], 1, shape[2], shape[2]) > -1
        masked = lambda q, k, v, m=mask: F.scaled_dot_product_attention(q, k, v, attn_mask=m)  # noqa: E731
        yield case(f"masked attention {shape}", masked, *heads)
    for kind in ("LSTM", "GRU", "RNN"):
        for i, h, b, t in ((32, 64, 64, 20), (65, 129, 33, 11)):
            torch.manual_seed(0)
            layer = getattr(torch.nn, kind)(i, h, batch_first=True)

            def run(x: Tensor, *weights: Tensor, layer: torch.nn.Module = layer) -> Tensor:
                names = [name for name, _ in layer.named_parameters()]
                return torch.func.functional_call(layer, dict(zip(names, weights, strict=True)), x)[0]

            yield case(f"{kind} {i, h, b, t}", run, normal(b, t, i), *layer.parameters(), quick=i == 32)
    images = {
        "max_pool2d": lambda x: F.max_pool2d(x, 3, 2, 1),
        "avg_pool2d": lambda x: F.avg_pool2d(x, 3, 2, 1),
        "adaptive_avg_pool2d": lambda x: F.adaptive_avg_pool2d(x, 7),
        "global average": lambda x: F.adaptive_avg_pool2d(x, 1),
        "adaptive_max_pool2d": lambda x: F.adaptive_max_pool2d(x, 5),
        "bilinear": lambda x: F.interpolate(x, size=(50, 50), mode="bilinear"),
        "nearest": lambda x: F.interpolate(x, scale_factor=2),
        "nearest-exact": lambda x: F.interpolate(x, size=(50, 50), mode="nearest-exact"),
        "reflected": lambda x: F.pad(x, (1, 1, 1, 1), mode="reflect"),
        "replicated": lambda x: F.pad(x, (1, 1, 1, 1), mode="replicate"),
        "grid_sample": lambda x: F.grid_sample(
            x, torch.linspace(-1, 1, 64 * 800).view(64, 20, 20, 2), align_corners=False
        ),
        "unfold": lambda x: F.unfold(x, 3),
        "pixel_shuffle": lambda x: F.pixel_shuffle(x, 2),
    }
    for name, function in images.items():
        yield case(name, function, normal(64, 16, 31, 31), quick=name in ("max_pool2d", "bilinear"))
        last = lambda x, f=function: f(x.contiguous(memory_format=torch.channels_last))  # noqa: E731
        yield case(f"{name} channels last", last, normal(64, 16, 31, 31))


def _the_rest(case: Any, normal: Any) -> Iterator[Case]:
    for kind in ("SGD", "Adam", "AdamW", "Adagrad"):
        for way in ("fused", "foreach"):
            if (kind, way) == ("Adagrad", "fused"):
                continue

            def steps(weights: Tensor, gradient: Tensor, kind: str = kind, way: str = way) -> Tensor:
                parameter = torch.nn.Parameter(weights.clone())
                parameter.grad = gradient.clone()
                optimizer = getattr(torch.optim, kind)([parameter], lr=0.01, **{way: True})
                for _ in range(3):
                    optimizer.step()
                return parameter.detach()

            yield case(
                f"{kind} {way}", steps, normal(100003), normal(100003), gradient=False, quick=kind == "Adam"
            )
    factor = normal(120, 120)
    matrix = factor @ factor.t() + 120 * torch.eye(120)
    for name, function in {
        "inverse": torch.linalg.inv,
        "cholesky": torch.linalg.cholesky,
        "qr": lambda x: torch.linalg.qr(x)[0],
        "svd": torch.linalg.svdvals,
        "eigh": lambda x: torch.linalg.eigh(x)[0],
        "solve": lambda x: torch.linalg.solve(x, x + 1),
        "determinant": torch.linalg.slogdet,
        "matrix_exp": lambda x: torch.matrix_exp(x / 500),
    }.items():
        yield case(name, function, matrix, gradient=name not in ("svd", "eigh"))
    yield case("rfft", lambda x: torch.view_as_real(torch.fft.rfft(x)), normal(64, 1000))
    yield case("rfft2", lambda x: torch.view_as_real(torch.fft.rfft2(x)), normal(64, 100, 100))
    draws = {
        "normal": lambda x: torch.empty_like(x).normal_(),
        "uniform": lambda x: torch.empty_like(x).uniform_(),
        "bernoulli": lambda x: torch.empty_like(x).bernoulli_(0.3),
        "exponential": lambda x: torch.empty_like(x).exponential_(),
        "dropout": lambda x: F.dropout(x, 0.3),
        "randperm": lambda x: torch.randperm(len(x)),
        "multinomial": lambda x: torch.multinomial(x[:1000].abs(), 500),
        "log_normal": lambda x: torch.empty_like(x).log_normal_(),
    }
    for name, draw in draws.items():

        def seeded(x: Tensor, draw: Function = draw) -> Any:
            torch.manual_seed(1)
            return draw(x)

        yield case(name, seeded, normal(100003), gradient=name == "dropout", quick=name == "dropout")


def _scaled(case: Any, normal: Any) -> Iterator[Case]:
    """Sums with a factor, of what does not lie alike."""
    scaled = lambda a, b: torch.add(a, b, alpha=0.3)  # noqa: E731
    yield case("add scaled broadcast", scaled, normal(2003, 57), normal(2003, 1))
    yield case("add scaled number", lambda a: torch.add(a, 0.7, alpha=0.3), normal(100003))
    yield case(
        "add scaled integers",
        lambda a: torch.add(a, torch.arange(len(a))[:, None], alpha=0.3),
        normal(2003, 57),
        quick=True,
    )


def _side_by_side(case: Any, normal: Any) -> Iterator[Case]:
    """Softmax of rows that are short, or do not lie along the last dimension."""
    for name in ("softmax", "log_softmax"):
        for dim, x in ((1, normal(4, 21, 64, 64)), (1, normal(30, 600, 33)), (-1, normal(20011, 7))):
            yield case(
                f"{name} {tuple(x.shape)} along {dim}",
                lambda x, n=name, d=dim: getattr(torch, n)(x, d),
                x,
                quick=dim > 0,
            )


def _of_one_place(case: Any, normal: Any) -> Iterator[Case]:
    """Convolutions whose output is one place, and transposed ones whose input is."""
    for x, w, padding in (((33, 16, 5, 5), (120, 16, 5, 5), 0), ((33, 100, 2, 2), (300, 100, 3, 3), 1)):
        yield case(
            f"conv2d {x} {w} to one place",
            lambda x, w, p=padding: F.conv2d(x, w, None, 2, p),
            normal(*x),
            normal(*w) * 0.1,
            quick=True,
        )
    transposed = F.conv_transpose2d
    yield case("conv_transpose2d of one place", transposed, normal(33, 300, 1, 1), normal(300, 64, 4, 4))


def _tiny(case: Any, normal: Any) -> Iterator[Case]:
    """Many products of few numbers."""
    yield case("bmm 20011,3,3,3", torch.bmm, normal(20011, 3, 3), normal(20011, 3, 3), quick=True)
    yield case(
        "baddbmm 20011,2,3,4",
        torch.baddbmm,
        normal(20011, 2, 4),
        normal(20011, 2, 3),
        normal(20011, 3, 4),
        quick=True,
    )


def _depthwise(case: Any, normal: Any) -> Iterator[Case]:
    """Convolutions with a kernel for every channel, and those whose places are rows of a product."""
    shapes: list[tuple[tuple[int, ...], tuple[int, ...], dict[str, int]]] = [
        ((5, 33, 17, 15), (33, 1, 5, 5), {"padding": 2, "stride": 2}),
        ((3, 130, 20, 20), (130, 1, 3, 3), {"padding": 2, "dilation": 2}),
        ((300, 16, 4, 4), (16, 1, 3, 3), {"padding": 1}),
        ((2, 70, 4, 9, 8), (70, 1, 2, 3, 3), {"padding": 1}),
        ((9, 12, 300), (12, 1, 7), {"padding": 3}),
        ((16, 208, 6, 6), (104, 208, 1, 1), {}),
    ]
    for x, w, options in shapes:
        kind = f"conv{len(x) - 2}d"
        groups = x[1] if w[1] == 1 else 1
        for name in (kind, kind.replace("v", "v_transpose")):
            function = getattr(F, name)
            weight = normal(*w) if groups > 1 or name == kind else normal(w[1], w[0], *w[2:])
            forms = [torch.contiguous_format]
            if len(x) > 3:
                forms.append(torch.channels_last if len(x) == 4 else torch.channels_last_3d)
            for form in forms:

                def convolve(
                    x: Tensor, w: Tensor, of: Function = function, groups: int = groups, form: Any = form,
                    options: Any = options,
                ) -> Tensor:  # fmt: skip
                    found: Tensor = of(x.contiguous(memory_format=form), w, groups=groups, **options)
                    return found

                named = f"{name} {x} {w} {options} {str(form).removeprefix('torch.')}"
                yield case(named, convolve, normal(*x), weight, quick=x[0] in (5, 16))
