"""The reference networks, each the same in PyTorch and in Keras, behind one small protocol.

    backend = build(spec, data.info, seeds, deterministic=False)
    loss = backend.train_step(x, y)

"The same" is meant literally: both frameworks get the same layers, the same parameters and, for equal
seeds, the same initial weights to the bit. These are drawn here, in numpy, because a framework's own
initialisation can depend on the instruction set.

    kernels of convolutions    He uniform, by fan-in (He et al., Delving deep into rectifiers, 2015)
    other kernels              Glorot uniform (Glorot and Bengio, 2010), recurrent ones too
    embeddings                 uniform with a standard deviation of 0.1
    biases                     0; the forget gate's 1 (Jozefowicz et al., 2015)
    scales                     1

This module imports no framework; the backends are imported when they are needed."""

from __future__ import annotations

import difflib
import importlib
import math
import zlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol, cast

from guest.datasets import datasets
from guest.datasets.catalogue import DatasetInfo, Kind
from guest.records.run import Framework, Seeds, Tier, WorkloadSpec

if TYPE_CHECKING:
    import numpy as np

_BACKENDS = {
    Framework.TORCH: "guest.workloads.torch_backend",
    Framework.TENSORFLOW: "guest.workloads.keras_backend",
}
EVALUATION_BATCH = 500
NO_GRADIENT = "words have no gradient: only images can be perturbed"
PAD_PIXELS = 4


class WorkloadError(ValueError):
    """A model that is unknown or does not fit its data. The text names what would fit."""


class Backend(Protocol):
    """One model in training. Images come as float32 (n, height, width, channels), texts as int32
    (n, tokens), stories as int32 (n, sentences + 1, words), labels as int64 (n,)."""

    def train_step(self, x: np.ndarray, y: np.ndarray) -> float:
        """One optimiser step on one batch; the batch's mean loss before the step."""

    def logits(self, x: np.ndarray) -> np.ndarray:
        """float32 (n, classes), computed as in use: no dropout, BatchNorm by its running statistics.
        Changes nothing."""

    def input_gradient(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        """float32, shape of x: the gradient of each sample's loss by its own pixels, computed as in use.
        Changes nothing. Raises WorkloadError for words, which have none."""

    def weights(self) -> dict[str, np.ndarray]:
        """Copies of all parameters and buffers, by names that are the same in every run."""

    def load_weights(self, weights: dict[str, np.ndarray]) -> None:
        """Sets what `weights` returned. The optimiser's state stays. Raises WorkloadError when names or
        shapes differ."""


# The reference networks, and the kind of data that each takes.
MODELS: dict[str, Kind] = {
    # Convolutions of 4 and 12 maps. LeCun et al. 1989; with ReLU and maximum pooling
    "lenet1": "image",
    # Convolutions of 4 and 16 maps, 120 units. LeCun et al. 1998; with ReLU and maximum pooling
    "lenet4": "image",
    # Convolutions of 6 and 16 maps, 120 and 84 units; else as LeNet-4
    "lenet5": "image",
    # Three convolutions of 32, 64 and 64 maps, each with BatchNorm (Ioffe and Szegedy 2015)
    "cnn-bn": "image",
    # CIFAR style: three stages of 3 blocks, shortcuts without parameters. He et al. 2016
    "resnet20": "image",
    "resnet38": "image",  # as ResNet-20, with 6 blocks a stage (Pham et al. 2020)
    "resnet56": "image",  # as ResNet-20, with 9 blocks a stage
    # Wide residual network, 36.5 million parameters. Zagoruyko and Komodakis 2016; no dropout
    "wrn-28-10": "image",
    "mlp": "image",  # 256 and 128 units with ReLU and dropout 0.2
    # Embedding 32, LSTM of 64 units with one bias, dropout 0.2. Hochreiter and Schmidhuber 1997
    "lstm": "text",
    # Encoder of two pre-norm blocks of width 64 with 4 heads, dropout 0.1. Vaswani et al. 2017
    "transformer": "text",
    # End-to-end memory network: three hops, adjacent weight tying, temporal encoding. Sukhbaatar et al. 2015
    "memn2n": "story",
}


def check(model: str, dataset: str) -> None:
    """Raises WorkloadError (DatasetError for the data set) when there is no such thing, or when the
    two do not fit."""
    if model not in MODELS:
        near = difflib.get_close_matches(model.lower(), MODELS, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(MODELS)}"
        raise WorkloadError(f"unknown model {model!r}: {hint}")
    takes, has = MODELS[model], datasets.info(dataset).kind
    if takes != has:
        models = ", ".join(name for name, kind in MODELS.items() if kind == has)
        sets = ", ".join(name for name, d in datasets.DATASETS.items() if d.kind == takes)
        raise WorkloadError(
            f"{model} takes {takes} data and {dataset} is {has} data: "
            f"use {dataset} with {models}, or {model} with {sets}"
        )


def preload(framework: Framework) -> None:
    """Imports the framework with all that training needs, and runs nothing: a process may preload
    once and then fork one run after the other."""
    importlib.import_module(_BACKENDS[framework])


def build(
    spec: WorkloadSpec, info: DatasetInfo, seeds: Seeds, deterministic: bool, tier: Tier = Tier.NONE
) -> Backend:
    """The model at its initial weights, with its optimiser. `seeds` are drawn: none is None.
    `deterministic` sets the framework's switches for the whole process, and so does `tier` what belongs
    to it. Raises WorkloadError."""
    check(spec.model, info.name)
    if seeds.initialisation is None or seeds.dropout is None:
        raise WorkloadError("the seeds of initialisation and dropout must be drawn before a model is built")
    backend = importlib.import_module(_BACKENDS[spec.network_framework])
    return cast(Backend, backend.build(spec, info, seeds.initialisation, seeds.dropout, deterministic, tier))


def initial(seed: int, name: str, shape: tuple[int, ...]) -> np.ndarray:
    """The initial float32 values of one weight, in Keras's layout: kernels are (..., inputs, outputs).
    `name` is layer/role; each weight has a stream of its own, whatever the order of creation."""
    import numpy as np

    role = name.rpartition("/")[2]
    if role in ("gamma", "moving_variance"):
        return np.ones(shape, np.float32)
    if role in ("bias", "beta", "moving_mean"):
        values = np.zeros(shape, np.float32)
        if name.startswith("lstm/"):  # gates in the order input, forget, cell, output
            values[len(values) // 4 : len(values) // 2] = 1
        return values
    if role == "embeddings":
        limit = 0.1 * math.sqrt(3)
    else:
        area = math.prod(shape[:-2])
        limit = math.sqrt(6 / (area * shape[-2] if len(shape) == 4 else shape[-2] + shape[-1]))
    generator = np.random.Generator(np.random.PCG64([seed, zlib.crc32(name.encode())]))
    return ((2 * generator.random(shape) - 1) * limit).astype(np.float32)


def in_batches(compute: Callable[..., np.ndarray], *samples: np.ndarray) -> np.ndarray:
    """What `compute` gives for EVALUATION_BATCH samples at a time, as one array."""
    import numpy as np

    starts = range(0, len(samples[0]), EVALUATION_BATCH)
    return np.concatenate([compute(*(each[i : i + EVALUATION_BATCH] for each in samples)) for i in starts])


def augment(x: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """A copy of the images (n, height, width, channels), each shifted by up to 4 pixels with zeros moving
    in, and mirrored with probability 1/2 (He et al. 2016, section 4.2)."""
    import numpy as np

    count, (height, width, _) = len(x), x.shape[1:]
    padded = np.pad(x, ((0, 0), (PAD_PIXELS, PAD_PIXELS), (PAD_PIXELS, PAD_PIXELS), (0, 0)))
    tops = generator.integers(0, 2 * PAD_PIXELS + 1, size=count)
    lefts = generator.integers(0, 2 * PAD_PIXELS + 1, size=count)
    mirrored = generator.integers(0, 2, size=count)
    out = np.empty_like(x)
    for i in range(count):
        top, left = int(tops[i]), int(lefts[i])
        crop = padded[i, top : top + height, left : left + width]
        out[i] = crop[:, ::-1] if mirrored[i] else crop
    return out
