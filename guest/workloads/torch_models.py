"""The reference networks in PyTorch. Layer names and the order of their arguments follow
`keras_models`; a test holds the two together, parameter by parameter and logit by logit."""

from __future__ import annotations

# mypy: disable-error-code="no-any-return"
# (calling a torch module is typed as returning Any)
import itertools
import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 (its usual name)

from guest.datasets.catalogue import DatasetInfo


class Dropout(nn.Module):
    """Dropout that draws from a generator of its own, so that nothing else shifts its masks."""

    def __init__(self, rate: float, generator: torch.Generator) -> None:
        super().__init__()
        self.rate = rate
        self.generator = generator

    def forward(self, x: Tensor) -> Tensor:
        if not self.training:
            return x
        keep = torch.empty_like(x).bernoulli_(1 - self.rate, generator=self.generator)
        return x * keep / (1 - self.rate)


class AddedEmbedding(nn.Module):
    """A trained table (rows, width) that is added to its input: positions, or times."""

    def __init__(self, rows: int, width: int) -> None:
        super().__init__()
        self.embeddings = nn.Parameter(torch.empty(rows, width))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.embeddings


def _flatten(x: Tensor) -> Tensor:
    """(n, channels, height, width) -> (n, height * width * channels), Keras's order."""
    return x.permute(0, 2, 3, 1).flatten(1)


class LeNet(nn.Module):
    """Two convolutions 5x5 with maximum pooling, then dense layers."""

    def __init__(self, info: DatasetInfo, maps: tuple[int, int], hidden: tuple[int, ...], pad: int) -> None:
        super().__init__()
        height, width, channels = info.shape
        self.conv1 = nn.Conv2d(channels, maps[0], 5, padding=pad)
        self.conv2 = nn.Conv2d(maps[0], maps[1], 5)
        sides = [((side + 2 * pad - 4) // 2 - 4) // 2 for side in (height, width)]
        sizes = [sides[0] * sides[1] * maps[1], *hidden]
        self.dense = nn.ModuleList(nn.Linear(a, b) for a, b in itertools.pairwise(sizes))
        self.out = nn.Linear(sizes[-1], info.classes)

    def forward(self, x: Tensor) -> Tensor:
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        x = _flatten(x)
        for layer in self.dense:
            x = F.relu(layer(x))
        return self.out(x)


class Mlp(nn.Module):
    def __init__(self, info: DatasetInfo, generator: torch.Generator) -> None:
        super().__init__()
        self.dense1 = nn.Linear(math.prod(info.shape), 256)
        self.dense2 = nn.Linear(256, 128)
        self.out = nn.Linear(128, info.classes)
        self.dropout = Dropout(0.2, generator)

    def forward(self, x: Tensor) -> Tensor:
        x = self.dropout(F.relu(self.dense1(_flatten(x))))
        x = self.dropout(F.relu(self.dense2(x)))
        return self.out(x)


def _norm(channels: int) -> nn.BatchNorm2d:
    return nn.BatchNorm2d(channels, eps=1e-5, momentum=0.1)


def _conv(inputs: int, outputs: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=False)


class CnnBn(nn.Module):
    def __init__(self, info: DatasetInfo) -> None:
        super().__init__()
        self.conv1, self.norm1 = _conv(info.shape[2], 32), _norm(32)
        self.conv2, self.norm2 = _conv(32, 64), _norm(64)
        self.conv3, self.norm3 = _conv(64, 64), _norm(64)
        self.out = nn.Linear(64, info.classes)

    def forward(self, x: Tensor) -> Tensor:
        x = F.max_pool2d(F.relu(self.norm1(self.conv1(x))), 2)
        x = F.max_pool2d(F.relu(self.norm2(self.conv2(x))), 2)
        x = F.relu(self.norm3(self.conv3(x)))
        return self.out(x.mean((2, 3)))


class ResidualBlock(nn.Module):
    """Two convolutions 3x3. Where the size changes the shortcut takes every other pixel and adds
    zero channels: option A of He et al. 2016, section 4.2."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.stride, self.added = stride, outputs - inputs
        self.conv1, self.norm1 = _conv(inputs, outputs, stride), _norm(outputs)
        self.conv2, self.norm2 = _conv(outputs, outputs), _norm(outputs)

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.norm1(self.conv1(x)))
        y = self.norm2(self.conv2(y))
        if self.added:
            before = self.added // 2
            x = F.pad(x[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, before, self.added - before))
        return F.relu(x + y)


class ResNet(nn.Module):
    """6 * blocks + 2 layers."""

    def __init__(self, info: DatasetInfo, blocks: int) -> None:
        super().__init__()
        self.conv, self.norm = _conv(info.shape[2], 16), _norm(16)
        widths = [16] + [16] * blocks + [32] * blocks + [64] * blocks
        self.blocks = nn.ModuleList(
            ResidualBlock(a, b, 1 if a == b else 2) for a, b in itertools.pairwise(widths)
        )
        self.out = nn.Linear(64, info.classes)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.norm(self.conv(x)))
        for block in self.blocks:
            x = block(x)
        return self.out(x.mean((2, 3)))


class WideBlock(nn.Module):
    """BatchNorm and ReLU come first; where the width changes the shortcut is a convolution 1x1."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.norm1, self.conv1 = _norm(inputs), _conv(inputs, outputs, stride)
        self.norm2, self.conv2 = _norm(outputs), _conv(outputs, outputs)
        self.shortcut: nn.Module | None = None
        if inputs != outputs:
            self.shortcut = nn.Conv2d(inputs, outputs, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.norm1(x))
        kept = x if self.shortcut is None else self.shortcut(y)
        y = self.conv1(y)
        return kept + self.conv2(F.relu(self.norm2(y)))


class WideResNet(nn.Module):
    """WRN-28-k: three stages of 4 blocks."""

    def __init__(self, info: DatasetInfo, factor: int) -> None:
        super().__init__()
        self.conv = _conv(info.shape[2], 16)
        stages = [(16 * factor, 1), (32 * factor, 2), (64 * factor, 2)]
        blocks, inputs = [], 16
        for outputs, stride in stages:
            for i in range(4):
                blocks.append(WideBlock(inputs, outputs, stride if i == 0 else 1))
                inputs = outputs
        self.blocks = nn.ModuleList(blocks)
        self.norm = _norm(inputs)
        self.out = nn.Linear(inputs, info.classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.conv(x)
        for block in self.blocks:
            x = block(x)
        return self.out(F.relu(self.norm(x)).mean((2, 3)))


class Lstm(nn.Module):
    """The state after the last token is classified. torch adds two biases where Keras has one: the
    second is frozen at zero, and no parameter."""

    def __init__(self, info: DatasetInfo, generator: torch.Generator) -> None:
        super().__init__()
        self.embedding = nn.Embedding(info.vocabulary, 32)
        self.lstm = nn.LSTM(32, 64, batch_first=True)
        self.lstm.get_parameter("bias_hh_l0").requires_grad_(False)
        self.dropout = Dropout(0.2, generator)
        self.out = nn.Linear(64, info.classes)

    def forward(self, x: Tensor) -> Tensor:
        states, _ = self.lstm(self.embedding(x))
        return self.out(self.dropout(states[:, -1]))


class EncoderBlock(nn.Module):
    """LayerNorm first, then attention; LayerNorm first, then two dense layers; both are added."""

    def __init__(self, width: int, heads: int, generator: torch.Generator) -> None:
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(width, eps=1e-5)
        self.query, self.key = nn.Linear(width, width), nn.Linear(width, width)
        self.value, self.mix = nn.Linear(width, width), nn.Linear(width, width)
        self.norm2 = nn.LayerNorm(width, eps=1e-5)
        self.dense1, self.dense2 = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)
        self.dropout = Dropout(0.1, generator)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """x: (n, tokens, width); mask: (n, 1, 1, tokens), 0 for words and very negative for padding."""
        y = self.norm1(x)
        q, k, v = (self._split(layer(y)) for layer in (self.query, self.key, self.value))
        scores = q @ k.transpose(2, 3) / math.sqrt(q.shape[-1]) + mask
        attended = (scores.softmax(-1) @ v).transpose(1, 2).flatten(2)
        x = x + self.dropout(self.mix(attended))
        return x + self.dropout(self.dense2(F.relu(self.dense1(self.norm2(x)))))

    def _split(self, x: Tensor) -> Tensor:
        """(n, tokens, width) -> (n, heads, tokens, width of a head)"""
        n, tokens, _ = x.shape
        return x.reshape(n, tokens, self.heads, -1).transpose(1, 2)


class Transformer(nn.Module):
    """The mean over the words of the encoded text is classified."""

    def __init__(self, info: DatasetInfo, generator: torch.Generator) -> None:
        super().__init__()
        self.embedding = nn.Embedding(info.vocabulary, 64)
        self.position = AddedEmbedding(info.shape[0], 64)
        self.dropout = Dropout(0.1, generator)
        self.blocks = nn.ModuleList(EncoderBlock(64, 4, generator) for _ in range(2))
        self.norm = nn.LayerNorm(64, eps=1e-5)
        self.out = nn.Linear(64, info.classes)

    def forward(self, tokens: Tensor) -> Tensor:
        words = (tokens != 0).float()
        mask = (words[:, None, None, :] - 1) * 1e9
        x = self.dropout(self.position(self.embedding(tokens)))
        for block in self.blocks:
            x = block(x, mask)
        x = self.norm(x) * words[:, :, None]
        return self.out(x.sum(1) / words.sum(1, keepdim=True))


class MemN2N(nn.Module):
    """Sentences are sums of word embeddings. Adjacent tying: the output embedding of one hop is the
    input embedding of the next, the first one embeds the question too."""

    HOPS = 3

    def __init__(self, info: DatasetInfo) -> None:
        super().__init__()
        sentences, width = info.shape[0] - 1, 32
        self.embedding = nn.ModuleList(nn.Embedding(info.vocabulary, width) for _ in range(self.HOPS + 1))
        self.time = nn.ModuleList(AddedEmbedding(sentences, width) for _ in range(self.HOPS + 1))
        self.out = nn.Linear(width, info.classes, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        words = (tokens != 0).float()[..., None]
        bags = [(embed(tokens) * words).sum(2) for embed in self.embedding]  # (n, sentences + 1, width)
        memories = [time(bag[:, :-1]) for time, bag in zip(self.time, bags, strict=True)]
        mask = (words[:, :-1, -1, 0] - 1) * 1e9  # padding comes first: an empty sentence ends in it
        state = bags[0][:, -1]
        for hop in range(self.HOPS):
            scores = (memories[hop] * state[:, None]).sum(2) + mask
            state = state + (memories[hop + 1] * scores.softmax(1)[..., None]).sum(1)
        return self.out(state)


def construct(model: str, info: DatasetInfo, generator: torch.Generator) -> nn.Module:
    """The network, its weights still to be set. `generator` draws its dropout masks."""
    makers: dict[str, Callable[[], nn.Module]] = {
        "lenet1": lambda: LeNet(info, (4, 12), (), 0),
        "lenet4": lambda: LeNet(info, (4, 16), (120,), 2),
        "lenet5": lambda: LeNet(info, (6, 16), (120, 84), 2),
        "cnn-bn": lambda: CnnBn(info),
        "resnet20": lambda: ResNet(info, 3),
        "resnet38": lambda: ResNet(info, 6),
        "resnet56": lambda: ResNet(info, 9),
        "wrn-28-10": lambda: WideResNet(info, 10),
        "mlp": lambda: Mlp(info, generator),
        "lstm": lambda: Lstm(info, generator),
        "transformer": lambda: Transformer(info, generator),
        "memn2n": lambda: MemN2N(info),
    }
    return makers[model]()
