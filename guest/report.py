"""What a training script can tell vbstudy itself; a no-op outside of it.

    from guest import report

    report.metric("accuracy", accuracy, epoch=epoch)
    report.predictions(logits, y_true)
    report.weights(model)

Needs nothing but numpy, and that only where arrays are reported. The last predictions and weights count."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any


def active() -> bool:
    """Whether vbstudy listens."""
    return bool(os.environ.get("VBSTUDY_REPORT"))


def metric(name: str, value: float, *, epoch: int | None = None) -> None:
    """One value of a metric. `epoch` is counted from 1; without it the calls are. Anything that `float` takes
    is a value, a tensor with one element too."""
    if active():
        line = json.dumps({"name": str(name), "value": float(value), "epoch": _whole(epoch)})
        with _path("metrics.jsonl").open("a", encoding="utf-8") as file:
            file.write(line + "\n")


def predictions(values: Any, y_true: Any = None) -> None:
    """Classes (N,) or scores (N, C) on the test samples, in an order that does not change from run to run,
    and their true classes (N,). Arrays, lists, or tensors of PyTorch and TensorFlow."""
    if active():
        _save("predictions.npz", {"predictions": values} | ({} if y_true is None else {"y_true": y_true}))


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
            f"report.weights: a module, a Keras model or a dict of arrays, not {type(model).__name__}"
        )
    _save("weights.npz", named)


def lightning_callback() -> Any:
    """A callback for a Lightning Trainer: metrics after each validation and test, weights at the end."""
    from guest import callbacks

    return callbacks.lightning()


def keras_callback(x_test: Any = None, y_test: Any = None) -> Any:
    """A callback for Keras's `fit`: metrics after each epoch, weights at the end, and the predictions of
    `x_test` where it is given."""
    from guest import callbacks

    return callbacks.keras(x_test, y_test)


def huggingface_callback() -> Any:
    """A callback for a Hugging Face Trainer: what it logs and evaluates, and weights at the end."""
    from guest import callbacks

    return callbacks.huggingface()


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
        raise TypeError("report: an array of numbers was expected, not of objects")
    return array


def _whole(epoch: int | None) -> int | None:
    return None if epoch is None else int(epoch)


def _path(name: str) -> Path:
    return Path(os.environ["VBSTUDY_REPORT"]) / name
