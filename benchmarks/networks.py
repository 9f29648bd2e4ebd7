"""Networks of the kinds that people train, in plain `torch.nn`, so that nothing need be installed: after the
papers and torchvision's, Hugging Face's and diffusers' programs, with the widths and depths that make a step
take a second at most on one core. What is drawn is noise: times depend on shapes alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    module: nn.Module
    inputs: tuple[Tensor, ...]
    loss: Callable[[Tensor], Tensor]

    def training(self) -> Callable[[], float]:
        """One step of AdamW, which ends in its loss."""
        optimizer = torch.optim.AdamW(self.module.parameters(), 1e-4)

        def step() -> float:
            optimizer.zero_grad()
            loss = self.loss(self.module(*self.inputs))
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            return loss.item()

        return step

    def inference(self) -> Callable[[], float]:
        self.module.eval()

        def answer() -> float:
            with torch.inference_mode():
                return float(self.module(*self.inputs).flatten()[0])

        return answer


class Add(nn.Module):
    """x + inner(x), or the shortcut's x."""

    def __init__(self, inner: nn.Module, shortcut: nn.Module | None = None) -> None:
        super().__init__()
        self.inner, self.shortcut = inner, shortcut or nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        total: Tensor = self.inner(x) + self.shortcut(x)
        return total


# Images


def conv(i: int, o: int, k: int, stride: int = 1, groups: int = 1) -> list[nn.Module]:
    return [nn.Conv2d(i, o, k, stride, k // 2, groups=groups, bias=False), nn.BatchNorm2d(o)]


def resnet(depths: tuple[int, ...], bottleneck: bool) -> nn.Module:
    """He et al. 2016, https://arxiv.org/abs/1512.03385: (2, 2, 2, 2) is ResNet-18."""
    layers: list[nn.Module] = [*conv(3, 64, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    i = 64
    for width, depth in zip((64, 128, 256, 512), depths, strict=True):
        for block in range(depth):
            stride = 2 if block == 0 and width > 64 else 1
            o = width * 4 if bottleneck else width
            if bottleneck:
                inner = [*conv(i, width, 1), nn.ReLU(), *conv(width, width, 3, stride), nn.ReLU()]
                inner += conv(width, o, 1)
            else:
                inner = [*conv(i, o, 3, stride), nn.ReLU(), *conv(o, o, 3)]
            shortcut = None if i == o and stride == 1 else nn.Sequential(*conv(i, o, 1, stride))
            layers += [Add(nn.Sequential(*inner), shortcut), nn.ReLU()]
            i = o
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(i, 100))


class Squeeze(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        few = channels // 4
        self.gate = nn.Sequential(
            nn.AdaptiveAvgPool2d(1),
            nn.Conv2d(channels, few, 1),
            nn.ReLU(),
            nn.Conv2d(few, channels, 1),
            nn.Hardsigmoid(),
        )

    def forward(self, x: Tensor) -> Tensor:
        gate: Tensor = self.gate(x)
        return x * gate


def mobilenet() -> nn.Module:
    """MobileNetV3-Small, https://arxiv.org/abs/1905.02244."""
    table = [  # kernel, expansion, output, squeeze, activation, stride
        (3, 16, 16, True, nn.ReLU, 2),
        (3, 72, 24, False, nn.ReLU, 2),
        (3, 88, 24, False, nn.ReLU, 1),
        (5, 96, 40, True, nn.Hardswish, 2),
        (5, 240, 40, True, nn.Hardswish, 1),
        (5, 240, 40, True, nn.Hardswish, 1),
        (5, 120, 48, True, nn.Hardswish, 1),
        (5, 144, 48, True, nn.Hardswish, 1),
        (5, 288, 96, True, nn.Hardswish, 2),
        (5, 576, 96, True, nn.Hardswish, 1),
        (5, 576, 96, True, nn.Hardswish, 1),
    ]
    layers: list[nn.Module] = [*conv(3, 16, 3, 2), nn.Hardswish()]
    i = 16
    for k, wide, o, squeeze, act, stride in table:
        inner = [*conv(i, wide, 1), act(), *conv(wide, wide, k, stride, wide), act()]
        inner += [*([Squeeze(wide)] if squeeze else []), *conv(wide, o, 1)]
        block = nn.Sequential(*inner)
        layers.append(Add(block) if stride == 1 and i == o else block)
        i = o
    layers += [*conv(i, 576, 1), nn.Hardswish(), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    return nn.Sequential(*layers, nn.Linear(576, 1024), nn.Hardswish(), nn.Dropout(0.2), nn.Linear(1024, 100))


class Permute(nn.Module):
    def __init__(self, *order: int) -> None:
        super().__init__()
        self.order = order

    def forward(self, x: Tensor) -> Tensor:
        return x.permute(self.order)


def convnext() -> nn.Module:
    """ConvNeXt-Tiny, https://arxiv.org/abs/2201.03545."""

    def norm(width: int) -> list[nn.Module]:
        return [Permute(0, 2, 3, 1), nn.LayerNorm(width, 1e-6), Permute(0, 3, 1, 2)]

    layers: list[nn.Module] = [nn.Conv2d(3, 96, 4, 4), *norm(96)]
    for width, depth in zip((96, 192, 384, 768), (3, 3, 9, 3), strict=True):
        if width > 96:
            layers += [*norm(width // 2), nn.Conv2d(width // 2, width, 2, 2)]
        for _ in range(depth):
            inner = [nn.Conv2d(width, width, 7, padding=3, groups=width), *norm(width)[:2]]
            inner += [*mlp(width), Permute(0, 3, 1, 2)]
            layers.append(Add(nn.Sequential(*inner)))
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.LayerNorm(768)]
    return nn.Sequential(*layers, nn.Linear(768, 100))


def images(module: nn.Module, batch: int, pixels: int, channels_last: bool = False) -> Network:
    x, y = torch.randn(batch, 3, pixels, pixels), torch.randint(0, 100, (batch,))
    if channels_last:
        module = module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        x = x.contiguous(memory_format=torch.channels_last)
    return Network(module=module, inputs=(x,), loss=lambda logits: F.cross_entropy(logits, y))


class ResidualBlock(nn.Module):
    """Of a diffusion model: told the time between its convolutions."""

    def __init__(self, i: int, o: int, time: int) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.GroupNorm(32, i), nn.SiLU(), nn.Conv2d(i, o, 3, padding=1))
        self.time = nn.Sequential(nn.SiLU(), nn.Linear(time, o))
        self.second = nn.Sequential(nn.GroupNorm(32, o), nn.SiLU(), nn.Conv2d(o, o, 3, padding=1))
        self.shortcut = nn.Conv2d(i, o, 1) if i != o else nn.Identity()

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        total: Tensor = self.shortcut(x) + self.second(self.first(x) + self.time(time)[..., None, None])
        return total


class UNet(nn.Module):
    """The noise in an image, after https://arxiv.org/abs/2006.11239: three resolutions, attention at the
    second."""

    def __init__(self, widths: tuple[int, ...] = (64, 128, 128)) -> None:
        super().__init__()
        time = 4 * widths[0]
        self.time = nn.Sequential(nn.Linear(widths[0], time), nn.SiLU(), nn.Linear(time, time))
        self.begin, i = nn.Conv2d(3, widths[0], 3, padding=1), widths[0]
        self.down, self.up = nn.ModuleList(), nn.ModuleList()
        for level, width in enumerate(widths):
            attention = [Pixels(width)] if level == 1 else []
            smaller = [nn.Conv2d(width, width, 3, 2, 1)] if level < len(widths) - 1 else []
            after = nn.Sequential(*attention), nn.Sequential(*smaller)
            self.down.append(nn.ModuleList([ResidualBlock(i, width, time), *after]))
            larger = [nn.Upsample(scale_factor=2), nn.Conv2d(i, i, 3, padding=1)] if level else []
            self.up.append(nn.ModuleList([ResidualBlock(2 * width, i, time), nn.Sequential(*larger)]))
            i = width
        self.middle = ResidualBlock(i, i, time)
        self.end = nn.Sequential(
            nn.GroupNorm(32, widths[0]), nn.SiLU(), nn.Conv2d(widths[0], 3, 3, padding=1)
        )

    def forward(self, x: Tensor, when: Tensor) -> Tensor:
        half = self.begin.out_channels // 2
        angle = when[:, None] * torch.exp(torch.arange(half) * (-9.2 / half))
        time, x, kept = self.time(torch.cat([angle.sin(), angle.cos()], 1)), self.begin(x), []
        for stage in self.down:
            block, attention, smaller = stage.children()
            kept.append(attention(block(x, time)))
            x = smaller(kept[-1])
        x = self.middle(x, time)
        for stage in list(self.up)[::-1]:
            block, larger = stage.children()
            x = larger(block(torch.cat([x, kept.pop()], 1), time))
        noise: Tensor = self.end(x)
        return noise


class Pixels(nn.Module):
    """Attention among an image's pixels."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.attention = nn.GroupNorm(32, width), Attention(width, width // 8)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.attention(self.norm(x).flatten(2).transpose(1, 2))
        return x + y.transpose(1, 2).reshape(x.shape)


def unet(batch: int) -> Network:
    x, noise = torch.randn(batch, 3, 32, 32), torch.randn(batch, 3, 32, 32)
    when = torch.randint(0, 1000, (batch,))
    return Network(module=UNet(), inputs=(x, when), loss=lambda guess: F.mse_loss(guess, noise))


# Words


def mlp(width: int) -> list[nn.Module]:
    return [nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)]


class Attention(nn.Module):
    def __init__(self, width: int, heads: int, causal: bool = False) -> None:
        super().__init__()
        self.heads, self.causal = heads, causal
        self.project, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.project(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        out: Tensor = self.out(mixed.transpose(1, 2).flatten(2))
        return out


class Words(nn.Module):
    def __init__(self, words: int, width: int, length: int) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(length, width)

    def forward(self, x: Tensor) -> Tensor:
        embedded: Tensor = self.words(x) + self.places.weight[: x.shape[1]]
        return embedded


class First(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x[:, 0]


def bert(batch: int) -> Network:
    """As BERT-mini, https://arxiv.org/abs/1908.08962, of 128 tokens; normalised after each part."""
    width, layers = 256, list[nn.Module]()
    for _ in range(4):
        for part in ([Attention(width, 4)], mlp(width)):
            layers += [Add(nn.Sequential(*part, nn.Dropout(0.1))), nn.LayerNorm(width)]
    begin = [Words(30522, width, 128), nn.LayerNorm(width), nn.Dropout(0.1)]
    end = [First(), nn.Linear(width, width), nn.Tanh(), nn.Dropout(0.1), nn.Linear(width, 2)]
    x, y = torch.randint(0, 30522, (batch, 128)), torch.randint(0, 2, (batch,))
    module = nn.Sequential(*begin, *layers, *end)
    return Network(module=module, inputs=(x,), loss=lambda logits: F.cross_entropy(logits, y))


def gpt2(batch: int) -> Network:
    """As GPT-2 small, with 4 of its 12 layers, 8,000 of its 50,257 words and 128 tokens."""
    width, layers = 768, list[nn.Module]()
    for _ in range(4):
        for part in ([Attention(width, 12, causal=True)], mlp(width)):
            layers.append(Add(nn.Sequential(nn.LayerNorm(width), *part, nn.Dropout(0.1))))
    words, head = Words(8000, width, 128), nn.Linear(width, 8000, bias=False)
    head.weight = words.words.weight
    module = nn.Sequential(words, nn.Dropout(0.1), *layers, nn.LayerNorm(width), head)
    x = torch.randint(0, 8000, (batch, 128))
    return Network(
        module=module,
        inputs=(x,),
        loss=lambda logits: F.cross_entropy(logits[:, :-1].flatten(0, 1), x[:, 1:].flatten()),
    )


class Packed(nn.Module):
    def __init__(self, lengths: Tensor) -> None:
        super().__init__()
        self.lengths, self.lstm, self.head = lengths, nn.LSTM(128, 256, batch_first=True), nn.Linear(256, 10)

    def forward(self, x: Tensor) -> Tensor:
        packed = pack_padded_sequence(x, self.lengths, batch_first=True, enforce_sorted=False)
        logits: Tensor = self.head(pad_packed_sequence(self.lstm(packed)[0], batch_first=True)[0].mean(1))
        return logits


def packed_lstm(batch: int) -> Network:
    x, y = torch.randn(batch, 60, 128), torch.randint(0, 10, (batch,))
    module = Packed(torch.randint(20, 61, (batch,)))
    return Network(module=module, inputs=(x,), loss=lambda logits: F.cross_entropy(logits, y))


# Graphs and tables


class GraphAttention(nn.Module):
    """https://arxiv.org/abs/1710.10903."""

    def __init__(self, i: int, o: int, heads: int) -> None:
        super().__init__()
        self.project, self.shape = nn.Linear(i, heads * o), (heads, o)
        self.source, self.target = nn.Parameter(torch.randn(heads, o)), nn.Parameter(torch.randn(heads, o))

    def forward(self, x: Tensor, source: Tensor, target: Tensor) -> Tensor:
        z = self.project(x).unflatten(1, self.shape)
        score = (z * self.source).sum(-1)[source] + (z * self.target).sum(-1)[target]
        weight = F.leaky_relu(score, 0.2).exp()
        total = torch.zeros(len(x), self.shape[0]).index_add(0, target, weight)
        mixed = torch.zeros_like(z).index_add(0, target, z[source] * weight[..., None])
        out: Tensor = (mixed / (total[..., None] + 1e-9)).flatten(1)
        return out


class Gat(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = GraphAttention(128, 16, 8), GraphAttention(128, 7, 1)

    def forward(self, x: Tensor, source: Tensor, target: Tensor) -> Tensor:
        logits: Tensor = self.second(F.elu(self.first(x, source, target)), source, target)
        return logits


def gat(nodes: int) -> Network:
    """A graph of the size of Cora, with six edges a node."""
    edges = torch.randint(0, nodes, (2, 6 * nodes))
    y = torch.randint(0, 7, (nodes,))
    inputs = torch.randn(nodes, 128), edges[0], edges[1]
    return Network(module=Gat(), inputs=inputs, loss=lambda logits: F.cross_entropy(logits, y))


class Dlrm(nn.Module):
    """https://arxiv.org/abs/1906.00091: eight tables, four entries of each a sample."""

    def __init__(self) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.EmbeddingBag(10_000, 32, mode="sum") for _ in range(8))
        self.bottom = nn.Sequential(nn.Linear(13, 256), nn.ReLU(), nn.Linear(256, 32), nn.ReLU())
        self.top = nn.Sequential(nn.Linear(32 + 36, 256), nn.ReLU(), nn.Linear(256, 1))

    def forward(self, dense: Tensor, entries: Tensor) -> Tensor:
        x = self.bottom(dense)
        z = torch.stack([x, *(table(part) for table, part in zip(self.tables, entries, strict=True))], 1)
        row, column = torch.tril_indices(9, 9, -1)
        pairs = torch.bmm(z, z.transpose(1, 2))[:, row, column]
        logits: Tensor = self.top(torch.cat([x, pairs], 1))[:, 0]
        return logits


def dlrm(batch: int) -> Network:
    inputs = torch.randn(batch, 13), torch.randint(0, 10_000, (8, batch, 4))
    y = torch.rand(batch).round()
    loss = F.binary_cross_entropy_with_logits
    return Network(module=Dlrm(), inputs=inputs, loss=lambda logits: loss(logits, y))


# The network of a batch, and the batch that it is trained with.
NETWORKS: dict[str, tuple[Callable[[int], Network], int]] = {
    "resnet18": (lambda batch: images(resnet((2, 2, 2, 2), bottleneck=False), batch, 64), 32),
    "resnet50": (lambda batch: images(resnet((3, 4, 6, 3), bottleneck=True), batch, 128), 8),
    "resnet50-channels-last": (lambda batch: images(resnet((3, 4, 6, 3), True), batch, 128, True), 8),
    "mobilenet-v3": (lambda batch: images(mobilenet(), batch, 128), 16),
    "convnext": (lambda batch: images(convnext(), batch, 96), 8),
    "bert": (bert, 16),
    "gpt2": (gpt2, 2),
    "unet": (unet, 8),
    "gat": (gat, 2708),
    "packed-lstm": (packed_lstm, 32),
    "dlrm": (dlrm, 512),
}
