"""Callbacks of the usual trainers, on top of `guest.report`. Each imports its library when asked for."""

from __future__ import annotations

from typing import Any

from guest import report


def lightning() -> Any:
    """For PyTorch Lightning (`lightning` or `pytorch_lightning`)."""
    try:
        from lightning.pytorch.callbacks import Callback
    except ImportError:
        from pytorch_lightning.callbacks import Callback

    class ReportCallback(Callback):  # type: ignore[misc]
        def on_validation_epoch_end(self, trainer: Any, module: Any) -> None:  # noqa: ARG002
            if not trainer.sanity_checking:
                _numbers(trainer.callback_metrics, trainer.current_epoch + 1)

        def on_test_epoch_end(self, trainer: Any, module: Any) -> None:  # noqa: ARG002
            _numbers({k: v for k, v in trainer.callback_metrics.items() if k.startswith("test")}, None)

        def on_fit_end(self, trainer: Any, module: Any) -> None:
            if trainer.is_global_zero:
                report.weights(module)

    return ReportCallback()


def keras(x_test: Any, y_test: Any) -> Any:
    """For Keras 3 and tf.keras."""
    from keras.callbacks import Callback

    class ReportCallback(Callback):  # type: ignore[misc]
        def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
            _numbers(logs or {}, epoch + 1)

        def on_train_end(self, logs: dict[str, Any] | None = None) -> None:  # noqa: ARG002
            report.weights(self.model)
            if x_test is not None:
                report.predictions(self.model.predict(x_test, verbose=0), y_test)

    return ReportCallback()


def huggingface() -> Any:
    """For the Trainer of Hugging Face transformers."""
    from transformers import TrainerCallback

    class ReportCallback(TrainerCallback):  # type: ignore[misc]
        def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:  # noqa: ARG002
            _numbers(logs or {}, None)

        def on_train_end(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:  # noqa: ARG002
            if model is not None and state.is_world_process_zero:
                report.weights(model)

    return ReportCallback()


def _numbers(named: Any, epoch: int | None) -> None:
    """Reports what is a number; trainers log other things besides."""
    for name, value in named.items():
        try:
            report.metric(name, float(value), epoch=epoch)
        except (TypeError, ValueError):
            continue
