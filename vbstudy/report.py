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
        _save("predictions.npz", {"predictions": values, **({} if y_true is None else {"y_true": y_true})})


def weights(model: Any) -> None:
    """The weights of a PyTorch module, of a Keras model, or a dict of arrays by name."""
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
    _save("weights.npz", named)


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
    import numpy as np

    part = _path(f".{name}")
    with part.open("wb") as file:
        np.savez(file, **{key: _array(value) for key, value in arrays.items()})
    part.rename(_path(name))


def _array(value: Any) -> Any:
    import numpy as np

    if hasattr(value, "detach"):
        value = value.detach().cpu()
        value = value.float() if str(value.dtype) == "torch.bfloat16" else value
    array = np.asarray(value)
    if array.dtype.kind == "O":
        raise TypeError("report: expected an array of numbers, got one of objects")
    return array


def _path(name: str) -> Path:
    return Path(os.environ["VBSTUDY_REPORT"]) / name
