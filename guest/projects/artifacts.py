"""A project's predictions and weights, read from the files it wrote. Nothing is unpickled: formats that
cannot be read otherwise are refused, with what to write instead."""

from __future__ import annotations

import csv
import dataclasses
import io
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from guest.records import csv_values

if TYPE_CHECKING:
    import numpy as np

PICKLES = (".pkl", ".pickle", ".joblib", ".dill", ".cloudpickle")
TORCH = (".pt", ".pth", ".bin", ".ckpt")
STATES = ("state_dict", "model_state_dict", "model", "weights", "net")
PREDICTED = ("predictions", "logits", "last", "probabilities", "scores", "y_pred", "pred", "arr_0")
NUMBERS, TEXT_AND_TIMES = "fiubc", "USMm"  # kinds of dtypes; V may be numbers that numpy has not (bfloat16)
TRUTHS = ("y_true", "labels", "targets", "y", "y_test")
INSTEAD = "write a .safetensors, .npz or .weights.h5 file, or torch.save(model.state_dict(), ...)"


class ArtifactError(ValueError):
    """A file that is missing, refused, or not of the format of its name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Predictions:
    """`values` are classes (N,) of integers, scores (N, C), or other numbers (N,); `y_true` classes (N,).
    Where `mixed`, the columns (N, C) are no scores."""

    values: np.ndarray
    y_true: np.ndarray | None
    mixed: bool = False

    def classes(self) -> np.ndarray | None:
        """(N,) int64, or None where the values are no classes and no scores of several."""
        import numpy as np

        values = self.values
        if self.mixed:
            return None
        if values.ndim == 2:
            best: np.ndarray = values.argmax(axis=1)
            return best
        flat = values.ravel()
        if flat.dtype.kind in "iub":
            return flat.astype(np.int64)
        if _are_whole(flat) and (flat >= 0).all():
            return flat.astype(np.int64)
        return None


def ending(path: Path) -> str:
    """In lower case; `.pth` of `checkpoint.pth.tar`, as PyTorch's tutorials name what is no archive."""
    inner = path.with_suffix("") if path.suffix.lower() == ".tar" else path
    return (inner if inner.suffix.lower() in TORCH else path).suffix.lower()


def locate(folder: Path, name: str, what: str) -> Path:
    """A plain file of the project's. Raises ArtifactError."""
    path = folder / name
    if not path.resolve().is_relative_to(folder.resolve()):
        raise ArtifactError(f"{what} = {name}: leads out of the project's folder")
    if not path.is_file():
        near = sorted(p.name for p in path.parent.iterdir())[:20] if path.parent.is_dir() else None
        there = "there is no such folder" if near is None else f"there are {', '.join(near) or 'no files'}"
        raise ArtifactError(f"{what} = {name}: the project wrote no such file; {there}")
    return path


def load_weights(path: Path, *, whole: bool = False) -> dict[str, np.ndarray]:
    """Arrays by name; of a checkpoint of PyTorch the model's, or all (`whole`). Raises ArtifactError for what
    cannot be read without running code from it."""
    suffix = ending(path)
    try:
        found = _torch(path, whole) if suffix in TORCH else _READERS.get(suffix, _refused)(path)
    except ArtifactError as error:
        raise ArtifactError(f"{path.name}: {error}") from None
    except ImportError as error:
        raise ArtifactError(f"{path.name}: to read it the guest's own Python needs {error.name}") from None
    except Exception as error:  # noqa: BLE001  (readers of damaged files raise whatever they like)
        raise ArtifactError(f"{path.name}: cannot be read: {type(error).__name__}: {error}") from None
    if not found:
        raise ArtifactError(f"{path.name}: holds no arrays")
    return found


def load_predictions(path: Path) -> Predictions:
    """Reads .npy, .npz or .csv. Raises ArtifactError."""
    reader = {".npy": _array_alone, ".npz": _named_arrays, ".csv": _csv}.get(path.suffix.lower())
    if reader is None:
        raise ArtifactError(f"{path.name}: predictions are read from .npy, .npz and .csv")
    try:
        values, truth = reader(path)
    except ArtifactError as error:
        raise ArtifactError(f"{path.name}: {error}") from None
    except (OSError, ValueError, EOFError, csv.Error, zipfile.BadZipFile) as error:
        refused = " (arrays of objects are pickles, which are never loaded)" if "pickle" in str(error) else ""
        raise ArtifactError(f"{path.name}: cannot be read: {error}{refused}") from None
    found = checked(values, truth, path.name)
    return dataclasses.replace(found, mixed=reader is _csv and _is_mixed(found.values))


def _array_alone(path: Path) -> tuple[np.ndarray, None]:
    import numpy as np

    array: np.ndarray = np.load(path, allow_pickle=False)
    return array, None


def _named_arrays(path: Path) -> tuple[np.ndarray, np.ndarray | None]:
    arrays = _numpy(path)
    name = next((n for n in PREDICTED if n in arrays), None)
    name = next(iter(arrays)) if name is None and len(arrays) == 1 else name
    if name is None:
        raise ArtifactError(f"has the arrays {', '.join(arrays)}; expected one of {', '.join(PREDICTED)}")
    return arrays[name], next((arrays[n] for n in TRUTHS if n in arrays and n != name), None)


def checked(values: np.ndarray, truth: np.ndarray | None, name: str) -> Predictions:
    """Predictions of a shape that can be compared. Raises ArtifactError."""
    if values.dtype.kind not in "fiub" or values.ndim not in (1, 2) or values.size == 0:
        raise ArtifactError(
            f"{name}: an array {values.shape} of {values.dtype}; expected classes (N,) or scores (N, C)"
        )
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    if truth is not None and (truth.ndim != 1 or len(truth) != len(values)):
        raise ArtifactError(f"{name}: {len(values)} predictions, but true classes of shape {truth.shape}")
    if truth is not None and truth.dtype.kind == "f" and _are_whole(truth):
        truth = truth.astype("int64")
    if truth is not None and truth.dtype.kind not in "iub":
        raise ArtifactError(f"{name}: true classes are whole numbers, and here they are {truth.dtype}")
    return Predictions(values=values, y_true=truth)


def _are_whole(values: np.ndarray) -> bool:
    import numpy as np

    return bool(np.isfinite(values).all() and (values == np.rint(values)).all())


def _numpy(path: Path) -> dict[str, np.ndarray]:
    import numpy as np

    loaded = np.load(path, allow_pickle=False)
    if isinstance(loaded, np.ndarray):
        return {"array": loaded}
    with loaded as arrays:
        return {name: arrays[name] for name in arrays.files}


def _csv(path: Path) -> tuple[np.ndarray, np.ndarray | None]:
    """Of a table the columns that are named so, or all."""
    import numpy as np

    with path.open(encoding="utf-8-sig") as file:
        head = [cell.strip(csv_values.MARKS) for cell in next(csv.reader(file), [])]
        named = [next((n for n in known if n in head), None) for known in (PREDICTED, TRUTHS)]
        if named[0] is None:
            file.seek(0)
            return csv_values.read(file), None
        columns = [head.index(name) for name in named if name is not None]
        predicted, *truth = np.loadtxt(
            file, delimiter=",", usecols=columns, ndmin=2, unpack=True, quotechar='"', comments=None
        )
    # Targets of a regression are no classes.
    return predicted, next((each for each in truth if _are_whole(each)), None)


def _is_mixed(table: np.ndarray) -> bool:
    """Whether a table has other columns than scores: one of different whole numbers (that of a reference
    class is constant), and rows that are no probabilities, which may be rounded to two decimals."""
    import numpy as np

    if table.ndim == 1:
        return False
    classes = (table == np.rint(table)).all(axis=0) & (table != table[0]).any(axis=0)
    one = np.allclose(table.sum(axis=1), 1, atol=0.005 * table.shape[1])
    return bool(classes.any() and not (one and (table >= 0).all()))


def _refused(path: Path) -> dict[str, np.ndarray]:
    pickled = path.suffix.lower() in PICKLES
    what = "is a pickle, which is never loaded" if pickled else "has no known format"
    raise ArtifactError(f"{what}: {INSTEAD}")


def _safetensors(path: Path) -> dict[str, np.ndarray]:
    from safetensors.numpy import load_file

    try:
        return dict(load_file(path))
    except (TypeError, KeyError):  # bfloat16, which numpy has not
        from safetensors import safe_open

        with safe_open(path, framework="pt") as file:
            return {name: _array(file.get_tensor(name)) for name in file.keys()}  # noqa: SIM118


def _torch(path: Path, whole: bool) -> dict[str, np.ndarray]:
    import pickle
    import warnings

    import torch

    try:
        with warnings.catch_warnings(action="ignore"):  # what it says of pickles is the program's affair
            loaded = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError:
        raise ArtifactError(
            f"is a pickle that holds more than tensors, which is never loaded: {INSTEAD}"
        ) from None
    for name in () if whole else STATES:
        if isinstance(loaded, dict) and isinstance(loaded.get(name), dict):
            loaded = loaded[name]
            break
    return dict(_tensors(loaded, ""))


def _tensors(value: Any, name: str) -> Any:
    """(name, array) of every tensor in nested dicts and lists."""
    import torch

    if isinstance(value, torch.Tensor):
        yield name or "tensor", _array(value)
    elif isinstance(value, dict):
        for key, each in value.items():
            yield from _tensors(each, f"{name}.{key}" if name else str(key))
    elif isinstance(value, list | tuple):
        for i, each in enumerate(value):
            yield from _tensors(each, f"{name}.{i}" if name else str(i))


def _array(tensor: Any) -> np.ndarray:
    import numpy as np
    import torch

    tensor = tensor.detach().cpu()
    wide = tensor.float() if tensor.dtype is torch.bfloat16 else tensor  # exact: float32 holds all of it
    return np.array(wide.numpy())


def _hdf5(file: Any) -> dict[str, np.ndarray]:
    import h5py
    import numpy as np

    found: dict[str, np.ndarray] = {}

    def visit(name: str, item: Any) -> None:
        # Strings and references are read as objects, whose bytes are addresses.
        if not isinstance(item, h5py.Dataset) or item.dtype.kind not in f"{NUMBERS}V" or item.dtype.hasobject:
            return
        array = np.asarray(item)
        if item.attrs.get("dtype") == "bfloat16":  # Keras stores its bits alone
            array = np.asarray(array.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
        found[name] = array

    with h5py.File(file, "r") as opened:
        opened.visititems(visit)
    return found


def _keras(path: Path) -> dict[str, np.ndarray]:
    """The weights of a .keras archive; its configuration, which may name code, is not read."""
    with zipfile.ZipFile(path) as archive:
        return _hdf5(io.BytesIO(archive.read("model.weights.h5")))


_READERS: dict[str, Callable[[Path], dict[str, np.ndarray]]] = {
    ".safetensors": _safetensors,
    **dict.fromkeys((".npz", ".npy"), _numpy),
    **dict.fromkeys((".h5", ".hdf5"), _hdf5),
    ".keras": _keras,
}
