"""Callbacks of trainers, made by `vbstudy.report` with its own functions. Each imports its library when it is
asked for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Metrics = Callable[[Any, int | None], None]  # values by name, epoch
Weights = Callable[[Any], None]  # the model


def lightning(metrics: Metrics, weights: Weights) -> Any:
    """For PyTorch Lightning (`lightning` or `pytorch_lightning`)."""
    try:
        from lightning.pytorch.callbacks import Callback
    except ImportError:
        from pytorch_lightning.callbacks import Callback

    class ReportCallback(Callback):  # type: ignore[misc]
        def on_validation_epoch_end(self, trainer: Any, module: Any) -> None:  # noqa: ARG002
            if not trainer.sanity_checking:
                metrics(trainer.callback_metrics, trainer.current_epoch + 1)

        def on_test_epoch_end(self, trainer: Any, module: Any) -> None:  # noqa: ARG002
            metrics({k: v for k, v in trainer.callback_metrics.items() if k.startswith("test")}, None)

        def on_fit_end(self, trainer: Any, module: Any) -> None:
            if trainer.is_global_zero:
                weights(module)

    return ReportCallback()


def keras(metrics: Metrics, trained: Weights) -> Any:
    """For Keras 3 and tf.keras. `trained` is called with the model at the end of its training."""
    from keras.callbacks import Callback

    class ReportCallback(Callback):  # type: ignore[misc]
        def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
            metrics(logs or {}, epoch + 1)

        def on_train_end(self, logs: dict[str, Any] | None = None) -> None:  # noqa: ARG002
            trained(self.model)

    return ReportCallback()


def huggingface(metrics: Metrics, weights: Weights) -> Any:
    """For the Trainer of Hugging Face transformers."""
    from transformers import TrainerCallback

    class ReportCallback(TrainerCallback):  # type: ignore[misc]
        def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:  # noqa: ARG002
            metrics(logs or {}, None)

        def on_train_end(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:  # noqa: ARG002
            if model is not None and state.is_world_process_zero:
                weights(model)

    return ReportCallback()
