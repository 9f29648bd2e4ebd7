"""Callbacks of trainers, made by `vbstudy.report` with its own functions. Each imports its library when it is
asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    Metrics = Callable[[Any, int | None], None]  # values by name, epoch
    Weights = Callable[[Any], None]  # the model


def lightning(metrics: Metrics, weights: Weights) -> Any:
    """For PyTorch Lightning (`lightning` or `pytorch_lightning`)."""
    try:
        from lightning.pytorch.callbacks import Callback
    except ImportError:
        from pytorch_lightning.callbacks import Callback

    class ReportCallback(Callback):  # type: ignore[misc]
        def __init__(self) -> None:
            self._known: dict[str, Any] = {}

        def _epoch(self, trainer: Any) -> None:
            """What the epoch before has logged. At its end the metrics are not complete: callbacks come
            before the module's own hook. Those of an earlier validation are still the same objects."""
            new = {k: v for k, v in trainer.callback_metrics.items() if v is not self._known.get(k)}
            self._known.update(new)
            if trainer.is_global_zero:
                metrics(new, trainer.current_epoch)

        def on_train_epoch_start(self, trainer: Any, module: Any) -> None:  # noqa: ARG002
            self._epoch(trainer)

        def on_train_end(self, trainer: Any, module: Any) -> None:  # noqa: ARG002
            self._epoch(trainer)

        def on_validation_end(self, trainer: Any, module: Any) -> None:  # noqa: ARG002
            if trainer.state.fn == "validate" and trainer.is_global_zero:  # "fit" also has validations
                metrics(trainer.callback_metrics, None)

        def on_test_end(self, trainer: Any, module: Any) -> None:  # noqa: ARG002
            if trainer.is_global_zero:
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
            if state.is_world_process_zero:
                metrics(logs or {}, None)

        def on_train_end(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:  # noqa: ARG002
            if model is not None and state.is_world_process_zero:
                weights(model)

    return ReportCallback()
