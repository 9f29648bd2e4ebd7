"""Reports metrics, predictions and weights of a training script to vbstudy; does nothing outside of it.

    from vbstudy import report

    report.metric("accuracy", accuracy, epoch=epoch)
    report.predictions(logits, y_true)
    report.weights(model)

Needs nothing but numpy, and that only where arrays are reported. The last predictions and weights that are
reported are those of the run."""

from __future__ import annotations

import json
import os
import warnings
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from vbstudy import callbacks


def active() -> bool:
    """Whether the script runs in vbstudy, so that reports are kept."""
    return bool(os.environ.get("VBSTUDY_REPORT"))


def metric(name: str, value: float, *, epoch: int | None = None) -> None:
    """One value of a metric. `epoch` counts from 1; without it, each call is the next epoch. The value is
    anything that `float` accepts, such as a tensor with one element."""
    if active():
        number = None if epoch is None else int(epoch)
        line = json.dumps({"name": str(name), "value": float(value), "epoch": number})
        with _path("metrics.jsonl").open("a", encoding="utf-8") as file:
            file.write(line + "\n")


def predictions(values: Any, y_true: Any = None) -> None:
    """Classes (N,) or scores (N, C) on the test samples, in the same order in every run, and the true
    classes (N,). Arrays, lists, or tensors of PyTorch and TensorFlow."""
    if active():
        given = {"predictions": values, **({} if y_true is None else {"y_true": y_true})}
        _save("predictions.npz", {name: _array(name, value) for name, value in given.items()})


def weights(model: Any) -> None:
    """The weights of a PyTorch module, of a Keras model, or a dict of arrays by name. Dicts and lists within
    are flattened; a warning names what is neither, nor an array of numbers, and is not kept."""
    if not active():
        return
    if hasattr(model, "state_dict"):
        named = dict(model.state_dict())
    elif hasattr(model, "get_weights"):
        named = {f"{i:04d}": array for i, array in enumerate(model.get_weights())}
    elif isinstance(model, dict):
        named = model
    else:
        raise TypeError(
            f"report.weights: expected a module, Keras model or dict of arrays, got {type(model).__name__}"
        )
    found = {name: array for key, value in named.items() for name, array in _arrays(str(key), value)}
    left = [name for name, array in found.items() if array is None]
    if left:
        warnings.warn(f"report.weights: no arrays of numbers, and not kept: {', '.join(left)}", stacklevel=2)
    _save("weights.npz", {name: array for name, array in found.items() if array is not None})


def lightning_callback() -> Any:
    """A callback for a Lightning Trainer: metrics after each epoch (of its validations the last), `validate`
    and `test`; weights at the end."""
    return callbacks.lightning(_metrics, weights)


def keras_callback(x_test: Any = None, y_test: Any = None) -> Any:
    """A callback for Keras's `fit`: metrics after each epoch, weights at the end, and the predictions of
    `x_test` where it is given."""

    def trained(model: Any) -> None:
        weights(model)
        if x_test is not None:
            predictions(model.predict(x_test, verbose=0), y_test)

    return callbacks.keras(_metrics, trained)


def huggingface_callback() -> Any:
    """A callback for a Hugging Face Trainer: what it logs and evaluates, and weights at the end."""
    return callbacks.huggingface(_metrics, weights)


def _metrics(named: Any, epoch: int | None) -> None:
    """Reports the numbers among what a trainer logs."""
    for name, value in named.items():
        try:
            metric(name, float(value), epoch=epoch)
        except (TypeError, ValueError):
            continue


def _save(name: str, arrays: dict[str, Any]) -> None:
    """As `np.savez`, whose own arguments' names no array can have."""
    import numpy as np

    part = _path(f".{name}")
    with zipfile.ZipFile(part, "w") as archive:
        for key, array in arrays.items():
            with archive.open(f"{key}.npy", "w", force_zip64=True) as file:
                np.lib.format.write_array(file, array, allow_pickle=False)
    part.rename(_path(name))


def _arrays(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """The arrays in a value by name; None for what is none."""
    try:
        array = _array(name, value)
    except TypeError:
        if hasattr(value, "detach"):
            raise
        if isinstance(value, dict | list | tuple):
            parts = value.items() if isinstance(value, dict) else enumerate(value)
            for key, each in parts:
                yield from _arrays(f"{name}.{key}", each)
        else:
            yield name, None
    else:
        yield name, array


def _array(name: str, value: Any) -> Any:
    import numpy as np

    try:
        listed = isinstance(value, list | tuple) and any(hasattr(each, "detach") for each in value)
        array = np.asarray([_dense(each) for each in value] if listed else _dense(value))
    except (RuntimeError, TypeError, ValueError) as error:
        raise TypeError(f"report: {name}: expected an array of numbers: {error}") from error
    if array.dtype.kind == "O":
        raise TypeError(f"report: {name}: expected an array of numbers, got one of objects")
    return array


def _dense(value: Any) -> Any:
    """A tensor of PyTorch as numpy takes it, with the same numbers."""
    if not hasattr(value, "detach"):
        return value
    value = value.detach().cpu()
    value = value.dequantize() if value.is_quantized else value
    value = value if str(value.layout) == "torch.strided" else value.to_dense()
    return value.float() if str(value.dtype).startswith(("torch.bfloat16", "torch.float8")) else value


def _path(name: str) -> Path:
    return Path(os.environ["VBSTUDY_REPORT"]) / name
