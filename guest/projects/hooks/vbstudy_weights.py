"""The weights that a program trains, whether it saves them or not: what the last optimizers of PyTorch and
Keras have changed, hashed when the process ends. For `vbstudy try`."""

from __future__ import annotations

import atexit
import hashlib
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

KEPT = 4  # optimizers, of a GAN and the like; a search that trains one model after the other keeps no more
TORCH = "torch.optim.optimizer"
KERAS = "keras.src.optimizers.base_optimizer"
_kept: dict[int, tuple[Any, Callable[[Any], Iterator[Any]]]] = {}


def install() -> None:
    """The weights are now written as `weights` at the end, unless the process is ended by force: `optimizer`
    states that there are some."""
    from vbstudy_hook import AFTER, write

    def after_torch(module: ModuleType) -> None:
        module.register_optimizer_step_post_hook(lambda it, *_: _keep(it, _of_torch))

    def after_keras(module: ModuleType) -> None:
        build = module.BaseOptimizer.build

        def built(self: Any, *args: Any, **kwargs: Any) -> Any:
            _keep(self, _of_keras)
            return build(self, *args, **kwargs)

        module.BaseOptimizer.build = built

    def at_end() -> None:
        try:
            digest, count = _hashed()
        except Exception as error:  # noqa: BLE001  (the project must end as it does without us)
            write("trouble", what=f"weights in memory: {type(error).__name__}: {error}")
            return
        if count:
            write("weights", digest=digest, count=count)

    AFTER.update({TORCH: after_torch, KERAS: after_keras})
    atexit.register(at_end)


def _hashed() -> tuple[str, int]:
    """The SHA-256 of all arrays, and how many there are."""
    total, count = hashlib.sha256(), 0
    for optimizer, arrays in _kept.values():
        for array in arrays(optimizer):
            total.update(f"{array.dtype} {array.shape}".encode())
            total.update(array.tobytes())
            count += 1
    return total.hexdigest(), count


def _keep(optimizer: Any, arrays: Callable[[Any], Iterator[Any]]) -> None:
    if not _kept:
        from vbstudy_hook import write

        write("optimizer")
    _kept.setdefault(id(optimizer), (optimizer, arrays))
    if len(_kept) > KEPT:
        del _kept[next(iter(_kept))]


def _of_torch(optimizer: Any) -> Iterator[Any]:
    import torch

    for group in optimizer.param_groups:
        for each in group["params"]:
            yield each.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()


def _of_keras(optimizer: Any) -> Iterator[Any]:
    from keras import ops

    for each in optimizer._trainable_variables:
        yield ops.convert_to_numpy(each)
