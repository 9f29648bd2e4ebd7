"""Batch invariance: an answer does not depend on what else was asked with it. At level machine a sample's
logits have the same bits in every batch, whatever its size and the sample's place in it, on any number of
threads."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from vbstudy import exact

BATCHES = (1, 2, 7, 64, 256)
WORDS, LENGTH, WIDTH = 200, 13, 48


class Attention(nn.Module):
    def __init__(self, heads: int) -> None:
        super().__init__()
        self.heads, self.project, self.out = heads, nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        q, k, v = self.project(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return self.out(mixed.transpose(1, 2).flatten(2))


class AlongPatches(nn.Sequential):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.transpose(1, 2)).transpose(1, 2)


class Block(nn.Module):
    """Mixes patches or words, then the numbers of each; normalised before, or after as in BERT."""

    def __init__(self, mix: nn.Module, *, after: bool = False) -> None:
        super().__init__()
        self.mix, self.hidden, self.after = mix, mlp(WIDTH, 192), after
        self.first, self.second = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)

    def forward(self, x: Tensor, *mask: Tensor) -> Tensor:
        if self.after:
            x = self.first(x + self.mix(x, *mask))
            return self.second(x + self.hidden(x))
        x = x + self.mix(self.first(x))
        return x + self.hidden(self.second(x))


def mlp(width: int, hidden: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(width, hidden), nn.GELU(), nn.Linear(hidden, width))


class Bert(nn.Module):
    """Words that are padding are masked."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 5)
        self.blocks = nn.ModuleList(Block(Attention(4), after=True) for _ in range(2))

    def forward(self, words: Tensor) -> Tensor:
        mask = (words > 20)[:, None, None] | torch.eye(LENGTH, dtype=torch.bool)
        x = self.norm(self.words(words) + self.places.weight)
        for block in self.blocks:
            x = block(x, mask)
        return self.head(x[:, 0].tanh())


class Encoder(nn.Module):
    """torch's own encoder, which in inference is one fused operation a layer."""

    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(WIDTH, 4, 192, batch_first=True)
        self.words, self.head = nn.Embedding(WORDS, WIDTH), nn.Linear(WIDTH, 5)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)

    def forward(self, words: Tensor) -> Tensor:
        return self.head(self.layers(self.words(words)).mean(1))


class OfPatches(nn.Module):
    """ViT-like or MLP-Mixer-like, by what mixes the patches."""

    def __init__(self, mix: Callable[[], nn.Module]) -> None:
        super().__init__()
        self.patches, self.places = nn.Conv2d(3, WIDTH, 8, 8), nn.Parameter(torch.randn(1, 16, WIDTH))
        self.blocks = nn.Sequential(*(Block(mix()) for _ in range(2)))
        self.head = nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 5))

    def forward(self, images: Tensor) -> Tensor:
        x = self.patches(images).flatten(2).transpose(1, 2) + self.places
        return self.head(self.blocks(x).mean(1))


class Lstm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.lstm = (
            nn.Embedding(WORDS, 24),
            nn.LSTM(24, 40, 2, batch_first=True, bidirectional=True),
        )
        self.head = nn.Linear(80, 5)

    def forward(self, words: Tensor) -> Tensor:
        return self.head(self.lstm(self.words(words))[0][:, -1])


def cnn() -> nn.Module:
    """Plain, strided, depthwise, pointwise, and one with more weights than there are activations."""
    net = nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1, bias=False),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 16, 5, stride=2, padding=2, groups=16),
        nn.BatchNorm2d(16),
        nn.SiLU(),
        nn.Conv2d(16, 96, 1),
        nn.BatchNorm2d(96),
        nn.Hardswish(),
        nn.Conv2d(96, 96, 3, stride=2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(96, 5),
    )
    for part in net.modules():
        if isinstance(part, nn.BatchNorm2d):
            part.running_mean.uniform_(-0.5, 0.5)
            part.running_var.uniform_(0.5, 1.5)
    return net


def words() -> Tensor:
    return torch.randint(0, WORDS, (max(BATCHES), LENGTH))


def images() -> Tensor:
    return torch.randn(max(BATCHES), 3, 32, 32)


def channels_last() -> Tensor:
    return images().contiguous(memory_format=torch.channels_last)


NETWORKS: dict[str, tuple[Callable[[], nn.Module], Callable[[], Tensor]]] = {
    "BERT-like": (Bert, words),
    "torch's encoder": (Encoder, words),
    "ViT-like": (lambda: OfPatches(lambda: Attention(3)), images),
    "MLP-Mixer-like": (lambda: OfPatches(lambda: AlongPatches(*mlp(16, 24))), images),
    "CNN": (cnn, images),
    "CNN, channels last": (cnn, channels_last),
    "LSTM": (Lstm, words),
}


@pytest.mark.parametrize("network", NETWORKS)
def test_a_sample_has_the_same_logits_in_every_batch(network: str) -> None:
    torch.manual_seed(0)
    make, draw = NETWORKS[network]
    net, samples = make().eval(), draw()
    with exact.mode(), torch.inference_mode():
        torch.set_num_threads(1)
        whole = net(samples)
        for threads in (1, 3):
            torch.set_num_threads(threads)
            for size in BATCHES:
                for begin in {0, 5 if size < 256 else 0, 256 - size}:
                    part = slice(begin, begin + size)
                    unequal = int((net(samples[part]) != whole[part]).sum())
                    assert not unequal, f"{unequal} logits of a batch of {size} on {threads} threads"
    assert whole.isfinite().all()
    assert whole.std() > 0.01


@pytest.mark.parametrize("n", [1, 2, 5, 16, 21, 24, 25, 64, 65, 256, 300, 512, 513, 700])
def test_a_row_has_the_softmax_and_gradients_that_it_has_alone_along_any_dimension(n: int) -> None:
    """A single row is computed by itself, several are computed side by side, one in each lane."""
    draw = torch.Generator().manual_seed(n)
    functions = (
        (torch.softmax, torch._softmax_backward_data),
        (torch.log_softmax, torch._log_softmax_backward_data),
    )
    with exact.mode():
        for outer, inner in ((70, 1), (2, 64), (3, 37), (20, 3)):
            x, dy = torch.randn(2, outer, n, inner, generator=draw) * 20
            x[0, 0, 0], x[1, :, -1] = -torch.inf, 1e-40
            for forward, backward in functions:
                y = forward(x, 1)
                dx = backward(dy, y, 1, x.dtype)
                for o, i in ((0, 0), (1, inner - 1), (outer - 1, inner // 2)):
                    alone, given = (t[o, :, i].contiguous() for t in (x, dy))
                    row = forward(alone, 0)
                    assert same(y[o, :, i], row)
                    assert same(dx[o, :, i], backward(given, row, 0, x.dtype))


def same(a: Tensor, b: Tensor) -> bool:
    """Bitwise, but for the NaN's."""
    a, b = (torch.nan_to_num(t, nan=7.0, posinf=torch.inf, neginf=-torch.inf).contiguous() for t in (a, b))
    return torch.equal(a.view(torch.int32), b.view(torch.int32))
