"""The data sets: what they are, where they are found, and how they are split.

    info = DATASETS["fashion-mnist"]
    data = load("fashion-mnist", train_samples=6000)
    data.train.x, data.train.y

The split is decided by the SHA-256 of each sample's raw bytes: equal samples always fall in the same
part, and neither the part nor the order within it depends on the order in the files. Nothing here
calls BLAS or starts a thread, so a process may load data and then fork."""

from __future__ import annotations

import gzip
import hashlib
import importlib.resources
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from guest.datasets import datafiles
from guest.datasets.catalogue import DATASETS, DatasetError, DatasetInfo, info
from guest.datasets.datafiles import Progress, default_folder

if TYPE_CHECKING:
    import numpy as np

__all__ = [
    "DATASETS", "Data", "DatasetError", "DatasetInfo", "Split",
    "default_folder", "download", "find", "info", "load",
]  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """Samples and labels. x: float32 (n, height, width, channels), int32 (n, tokens) or int32
    (n, sentences + 1, words); y: int64 (n,)."""

    x: np.ndarray
    y: np.ndarray


@dataclass(frozen=True, slots=True, kw_only=True)
class Data:
    """A loaded data set in its three parts."""

    info: DatasetInfo
    train: Split
    validation: Split
    test: Split


def find(name: str, folders: Sequence[str | Path] = ()) -> Path | None:
    """The folder that holds every file of the data set, or None. Embedded sets lie in no folder."""
    wanted = info(name)
    if wanted.embedded:
        return None
    for folder in datafiles.candidates(folders, wanted):
        if all(datafiles.present(folder, source) for source in wanted.files):
            return folder
    return None


def files(name: str, folders: Sequence[str | Path] = ()) -> list[Path]:
    """The files of the data set on this machine; copied into one folder elsewhere they are found there.
    Empty for embedded sets, and where there are none."""
    folder = find(name, folders)
    if folder is None:
        return []
    return [path for source in info(name).files for path in datafiles.present(folder, source)]


def download(name: str, folder: str | Path | None = None, progress: Progress | None = None) -> Path:
    """Downloads what is missing of a data set into `folder`/name (default: the user's cache) and returns
    that folder. Calls `progress(file, done_bytes, total_bytes)`. Raises DatasetError."""
    wanted = info(name)
    if wanted.embedded:
        raise DatasetError(f"{name} is part of vbstudy: there is nothing to download")
    target = Path(folder or default_folder()).expanduser() / name
    try:
        target.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DatasetError(f"{target} cannot be made ({error}); choose another folder") from error
    for source in wanted.files:
        if not datafiles.present(target, source):
            datafiles.fetch(source, target, progress)
    return target


def load(
    name: str,
    folders: Sequence[str | Path] = (),
    train_samples: int | None = None,
    test_samples: int | None = None,
) -> Data:
    """Loads, splits and normalises a data set.

    Sets with an official test part keep it and give about 10 % of the rest to validation; the others are
    split about 70 / 15 / 15. Each part is in the order of the samples' hashes, and a limit takes the
    first of them. `test_samples` also bounds the validation part: both are evaluated after every epoch.
    Raises DatasetError when the set is unknown, not there, damaged, or smaller than asked for."""
    wanted = info(name)
    if wanted.embedded:
        x, y, tested = _embedded(wanted)
    else:
        folder = find(name, folders)
        if folder is None:
            raise DatasetError(_not_found(wanted, folders))
        x, y, tested = _images(wanted, folder)
    train, validation, test = _split(x, y, tested)
    train = _first(wanted, "training", train, train_samples)
    test = _first(wanted, "test", test, test_samples)
    if test_samples is not None:
        validation = validation[:test_samples]
    return Data(
        info=wanted,
        train=_part(wanted, x, y, train),
        validation=_part(wanted, x, y, validation),
        test=_part(wanted, x, y, test),
    )


def _not_found(wanted: DatasetInfo, folders: Sequence[str | Path]) -> str:
    searched = "\n".join(f"  {folder}" for folder in datafiles.candidates(folders, wanted))
    names = ", ".join(source.name for source in wanted.files)
    debian = ", or install Debian's package dataset-fashion-mnist" if wanted.name == "fashion-mnist" else ""
    return (
        f"{wanted.name} was not found: no folder holds {names}. Searched:\n{searched}\n"
        f"`vbstudy provision` downloads it; or put the files into one of these folders{debian}, "
        "or name their folder in VBSTUDY_DATA"
    )


def _images(wanted: DatasetInfo, folder: Path) -> tuple[np.ndarray, np.ndarray, int]:
    """Raw samples x uint8 (n, height, width, channels), y int64 (n,), training part first, and how many
    of the last ones are the official test part."""
    import numpy as np

    if wanted.name.startswith("cifar"):
        (source,) = wanted.files
        height, width, channels = wanted.shape
        pixels = height * width * channels
        labels = 1 if wanted.classes == 10 else 2  # CIFAR-100 has a coarse label before the fine one
        parts = [
            np.frombuffer(data, np.uint8).reshape(-1, labels + pixels)
            for data in datafiles.read(folder, source)
        ]
        records = np.concatenate(parts)
        planes = records[:, labels:].reshape(-1, channels, height, width)
        x, y = planes.transpose(0, 2, 3, 1), records[:, labels - 1]
        return np.ascontiguousarray(x), y.astype(np.int64), len(parts[-1])
    arrays = []
    for source in wanted.files:
        (data,) = datafiles.read(folder, source)
        shape, raw = datafiles.read_idx(data, str(folder / source.name))
        arrays.append(np.frombuffer(raw, np.uint8).reshape(shape))
    x = np.concatenate([arrays[0], arrays[2]])
    y = np.concatenate([arrays[1], arrays[3]])
    return x.reshape(-1, *wanted.shape), y.astype(np.int64), len(arrays[3])


def _embedded(wanted: DatasetInfo) -> tuple[np.ndarray, np.ndarray, int]:
    """As `_images`; text comes as int32 token ids."""
    import numpy as np

    if wanted.name == "digits":
        return _digits()
    with np.load(io.BytesIO(_data("texts.npz")), allow_pickle=False) as arrays:
        x, y = arrays[f"{wanted.name}_x"], arrays[f"{wanted.name}_y"]
    return x.astype(np.int32), y.astype(np.int64), 0


def _digits() -> tuple[np.ndarray, np.ndarray, int]:
    """Every pixel becomes a block of 3 x 3 within a margin of 2; 0 .. 16 becomes 0 .. 255."""
    import numpy as np

    arrays = []
    for name in ("digits-images-idx3-ubyte.gz", "digits-labels-idx1-ubyte.gz"):
        shape, raw = datafiles.read_idx(gzip.decompress(_data(name)), name)
        arrays.append(np.frombuffer(raw, np.uint8).reshape(shape))
    images, labels = arrays
    blocks = images.repeat(3, axis=1).repeat(3, axis=2)
    pixels = (blocks.astype(np.uint16) * 255 // 16).astype(np.uint8)
    return np.pad(pixels, ((0, 0), (2, 2), (2, 2)))[..., None], labels.astype(np.int64), 0


def _data(name: str) -> bytes:
    return importlib.resources.files("guest.datasets").joinpath("data", name).read_bytes()


def _split(x: np.ndarray, y: np.ndarray, tested: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Indices of the training, validation and test samples, each in order of the hash (then of the
    label). The last `tested` samples are the official test part; 0: there is none."""
    import numpy as np

    raw = x.reshape(len(x), -1).view(np.uint8)
    digests = b"".join([hashlib.sha256(row.data).digest()[:8] for row in raw])
    position = np.frombuffer(digests, ">u8")
    order = np.lexsort((y, position))
    share = position[order] / 2.0**64  # uniform in 0 .. 1
    if tested:
        is_test = order >= len(x) - tested
        is_validation = ~is_test & (share < 0.10)
    else:
        is_test = share < 0.15
        is_validation = ~is_test & (share < 0.30)
    return order[~is_test & ~is_validation], order[is_validation], order[is_test]


def _first(wanted: DatasetInfo, part: str, indices: np.ndarray, count: int | None) -> np.ndarray:
    if count is None:
        return indices
    if not 1 <= count <= len(indices):
        raise DatasetError(too_many(wanted, part, len(indices), count))
    return indices[:count]


def too_many(wanted: DatasetInfo, part: str, there: int, asked: int) -> str:
    """Why a limit cannot be kept, and what to do."""
    return (
        f"{wanted.name} has {there} {part} samples; {asked} were asked for: "
        f"ask for 1 to {there}, or leave the limit out"
    )


def _part(wanted: DatasetInfo, x: np.ndarray, y: np.ndarray, indices: np.ndarray) -> Split:
    """Images are normalised to mean 0 and deviation 1, in steps that round the same everywhere."""
    import numpy as np

    chosen = x[indices]
    if wanted.kind == "image":
        chosen = chosen.astype(np.float32)
        chosen -= np.array(wanted.mean, np.float32) * np.float32(255)
        chosen /= np.array(wanted.std, np.float32) * np.float32(255)
    return Split(x=chosen, y=y[indices])
