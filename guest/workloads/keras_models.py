"""The reference networks in Keras. Layer names and the order of their arguments follow
`torch_models`; a test holds the two together, parameter by parameter and logit by logit."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
from keras import Input, Model, layers, ops

from guest.datasets.catalogue import DatasetInfo

Tensor = Any  # a KerasTensor while the network is put together
Seeds = Callable[[], int]
"""Gives every dropout layer a seed of its own."""

_IMAGES = {"data_format": "channels_last"}  # never what a configuration file says


class AddedEmbedding(layers.Layer):  # type: ignore[misc]
    """A trained table (rows, width) that is added to its input: positions, or times."""

    def build(self, shape: tuple[int | None, ...]) -> None:
        self.embeddings = self.add_weight(shape=shape[1:], name="embeddings")

    def call(self, x: Tensor) -> Tensor:
        return x + self.embeddings


def _pool(x: Tensor) -> Tensor:
    return layers.MaxPooling2D(2, **_IMAGES)(x)


def _mean(x: Tensor) -> Tensor:
    return layers.GlobalAveragePooling2D(**_IMAGES)(x)


def _lenet(info: DatasetInfo, maps: tuple[int, int], hidden: tuple[int, ...], pad: int) -> Model:
    """Two convolutions 5x5 with maximum pooling, then dense layers."""
    padding = "same" if pad else "valid"
    start = Input(info.shape)
    x = _pool(layers.Conv2D(maps[0], 5, padding=padding, activation="relu", name="conv1", **_IMAGES)(start))
    x = _pool(layers.Conv2D(maps[1], 5, activation="relu", name="conv2", **_IMAGES)(x))
    x = layers.Flatten(**_IMAGES)(x)
    for i, units in enumerate(hidden):
        x = layers.Dense(units, activation="relu", name=f"dense.{i}")(x)
    return Model(start, layers.Dense(info.classes, name="out")(x))


def _mlp(info: DatasetInfo, seeds: Seeds) -> Model:
    start = Input(info.shape)
    x = layers.Flatten(**_IMAGES)(start)
    x = layers.Dense(256, activation="relu", name="dense1")(x)
    x = layers.Dropout(0.2, seed=seeds())(x)
    x = layers.Dense(128, activation="relu", name="dense2")(x)
    x = layers.Dropout(0.2, seed=seeds())(x)
    return Model(start, layers.Dense(info.classes, name="out")(x))


def _norm(x: Tensor, name: str) -> Tensor:
    """Keras's momentum is one minus torch's. Its running variance is the biased one, torch's is not."""
    return layers.BatchNormalization(axis=-1, momentum=0.9, epsilon=1e-5, name=name)(x)


def _conv(x: Tensor, outputs: int, name: str, stride: int = 1) -> Tensor:
    """3x3 with one pixel of padding on every side; "same" would pad one side only when the stride is 2."""
    x = layers.ZeroPadding2D(1, **_IMAGES)(x) if stride > 1 else x
    padding = "valid" if stride > 1 else "same"
    return layers.Conv2D(outputs, 3, stride, padding, use_bias=False, name=name, **_IMAGES)(x)


def _cnn_bn(info: DatasetInfo) -> Model:
    start = Input(info.shape)
    x = _pool(ops.relu(_norm(_conv(start, 32, "conv1"), "norm1")))
    x = _pool(ops.relu(_norm(_conv(x, 64, "conv2"), "norm2")))
    x = ops.relu(_norm(_conv(x, 64, "conv3"), "norm3"))
    return Model(start, layers.Dense(info.classes, name="out")(_mean(x)))


def _residual_block(x: Tensor, name: str, outputs: int, stride: int) -> Tensor:
    """Two convolutions 3x3. Where the size changes the shortcut takes every other pixel and adds
    zero channels: option A of He et al. 2016, section 4.2."""
    y = ops.relu(_norm(_conv(x, outputs, f"{name}.conv1", stride), f"{name}.norm1"))
    y = _norm(_conv(y, outputs, f"{name}.conv2"), f"{name}.norm2")
    added = outputs - x.shape[-1]
    if added:
        before = added // 2
        x = ops.pad(x[:, ::stride, ::stride, :], ((0, 0), (0, 0), (0, 0), (before, added - before)))
    return ops.relu(x + y)


def _resnet(info: DatasetInfo, blocks: int) -> Model:
    """6 * blocks + 2 layers."""
    start = Input(info.shape)
    x = ops.relu(_norm(_conv(start, 16, "conv"), "norm"))
    widths = [16] + [16] * blocks + [32] * blocks + [64] * blocks
    for i, (inputs, outputs) in enumerate(itertools.pairwise(widths)):
        x = _residual_block(x, f"blocks.{i}", outputs, 1 if inputs == outputs else 2)
    return Model(start, layers.Dense(info.classes, name="out")(_mean(x)))


def _wide_block(x: Tensor, name: str, outputs: int, stride: int) -> Tensor:
    """BatchNorm and ReLU come first; where the width changes the shortcut is a convolution 1x1."""
    y = ops.relu(_norm(x, f"{name}.norm1"))
    kept = x
    if x.shape[-1] != outputs:
        kept = layers.Conv2D(outputs, 1, stride, use_bias=False, name=f"{name}.shortcut", **_IMAGES)(y)
    y = _conv(y, outputs, f"{name}.conv1", stride)
    return kept + _conv(ops.relu(_norm(y, f"{name}.norm2")), outputs, f"{name}.conv2")


def _wide_resnet(info: DatasetInfo, factor: int) -> Model:
    """WRN-28-k: three stages of 4 blocks."""
    start = Input(info.shape)
    x = _conv(start, 16, "conv")
    for stage, (outputs, stride) in enumerate([(16 * factor, 1), (32 * factor, 2), (64 * factor, 2)]):
        for i in range(4):
            x = _wide_block(x, f"blocks.{4 * stage + i}", outputs, stride if i == 0 else 1)
    x = _mean(ops.relu(_norm(x, "norm")))
    return Model(start, layers.Dense(info.classes, name="out")(x))


def _lstm(info: DatasetInfo, seeds: Seeds) -> Model:
    """The state after the last token is classified."""
    start = Input(info.shape, dtype="int32")
    x = layers.Embedding(info.vocabulary, 32, name="embedding")(start)
    x = layers.LSTM(64, name="lstm")(x)
    x = layers.Dropout(0.2, seed=seeds())(x)
    return Model(start, layers.Dense(info.classes, name="out")(x))


def _encoder_block(x: Tensor, mask: Tensor, name: str, heads: int, seeds: Seeds) -> Tensor:
    """LayerNorm first, then attention; LayerNorm first, then two dense layers; both are added.
    x: (n, tokens, width); mask: (n, 1, 1, tokens), 0 for words and very negative for padding."""
    tokens, width = x.shape[1:]
    y = layers.LayerNormalization(epsilon=1e-5, name=f"{name}.norm1")(x)

    def split(part: str) -> Tensor:
        """(n, heads, tokens, width of a head)"""
        z = layers.Dense(width, name=f"{name}.{part}")(y)
        return ops.transpose(ops.reshape(z, (-1, tokens, heads, width // heads)), (0, 2, 1, 3))

    q, k, v = split("query"), split("key"), split("value")
    scores = ops.matmul(q, ops.transpose(k, (0, 1, 3, 2))) / math.sqrt(width // heads) + mask
    attended = ops.transpose(ops.matmul(ops.softmax(scores), v), (0, 2, 1, 3))
    y = layers.Dense(width, name=f"{name}.mix")(ops.reshape(attended, (-1, tokens, width)))
    x = x + layers.Dropout(0.1, seed=seeds())(y)
    y = layers.LayerNormalization(epsilon=1e-5, name=f"{name}.norm2")(x)
    y = layers.Dense(2 * width, activation="relu", name=f"{name}.dense1")(y)
    y = layers.Dense(width, name=f"{name}.dense2")(y)
    return x + layers.Dropout(0.1, seed=seeds())(y)


def _transformer(info: DatasetInfo, seeds: Seeds) -> Model:
    """The mean over the words of the encoded text is classified."""
    start = Input(info.shape, dtype="int32")
    words = ops.cast(ops.not_equal(start, 0), "float32")
    mask = (words[:, None, None, :] - 1) * 1e9
    x = layers.Embedding(info.vocabulary, 64, name="embedding")(start)
    x = layers.Dropout(0.1, seed=seeds())(AddedEmbedding(name="position")(x))
    for i in range(2):
        x = _encoder_block(x, mask, f"blocks.{i}", 4, seeds)
    x = layers.LayerNormalization(epsilon=1e-5, name="norm")(x) * words[:, :, None]
    x = ops.sum(x, 1) / ops.sum(words, 1, keepdims=True)
    return Model(start, layers.Dense(info.classes, name="out")(x))


def _memn2n(info: DatasetInfo, hops: int = 3, width: int = 32) -> Model:
    """Sentences are sums of word embeddings. Adjacent tying: the output embedding of one hop is the
    input embedding of the next, the first one embeds the question too."""
    start = Input(info.shape, dtype="int32")
    words = ops.cast(ops.not_equal(start, 0), "float32")[..., None]
    mask = (words[:, :-1, -1, 0] - 1) * 1e9  # padding comes first: an empty sentence ends in it
    memories = []
    for i in range(hops + 1):
        embedded = layers.Embedding(info.vocabulary, width, name=f"embedding.{i}")(start)
        bags = ops.sum(embedded * words, 2)  # (n, sentences + 1, width)
        memories.append(AddedEmbedding(name=f"time.{i}")(bags[:, :-1]))
        if i == 0:
            state = bags[:, -1]
    for hop in range(hops):
        scores = ops.sum(memories[hop] * state[:, None], 2) + mask
        state = state + ops.sum(memories[hop + 1] * ops.softmax(scores)[..., None], 1)
    return Model(start, layers.Dense(info.classes, use_bias=False, name="out")(state))


def construct(model: str, info: DatasetInfo, dropout: int) -> Model:
    """The network, its weights still to be set. `dropout` seeds its dropout masks."""
    numbers = itertools.count()

    def seeds() -> int:
        return int(np.random.SeedSequence([dropout, next(numbers)]).generate_state(1)[0]) >> 1

    makers: dict[str, Callable[[], Model]] = {
        "lenet1": lambda: _lenet(info, (4, 12), (), 0),
        "lenet4": lambda: _lenet(info, (4, 16), (120,), 2),
        "lenet5": lambda: _lenet(info, (6, 16), (120, 84), 2),
        "cnn-bn": lambda: _cnn_bn(info),
        "resnet20": lambda: _resnet(info, 3),
        "resnet38": lambda: _resnet(info, 6),
        "resnet56": lambda: _resnet(info, 9),
        "wrn-28-10": lambda: _wide_resnet(info, 10),
        "mlp": lambda: _mlp(info, seeds),
        "lstm": lambda: _lstm(info, seeds),
        "transformer": lambda: _transformer(info, seeds),
        "memn2n": lambda: _memn2n(info),
    }
    return makers[model]()
