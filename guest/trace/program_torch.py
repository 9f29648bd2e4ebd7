"""Inside a user's program: every operation of PyTorch's, in order, to the tracer."""

from __future__ import annotations

import contextlib
import functools
import threading
import weakref
from collections.abc import Callable
from types import FrameType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.utils._python_dispatch import _disable_current_modes, _get_current_dispatch_mode_stack
from torch.utils.data import dataloader

from guest.records.trace import TensorNote
from guest.trace.torch_log import OperationLog, readable, tensors_of, typed_bits
from guest.trace.wire import Wire
from vbstudy.exact import first_call

UNSEEN_THREAD = (
    "the program computes in another thread than the one that imported torch: operations and optimizer "
    "steps of that thread were not traced"
)
COLLECTIVES = ("c10d::", "_c10d_functional::")  # no schema of theirs names what they write to
NODES = 100_000  # of autograd, whose lines are remembered


def start(wire: Wire, set_threads: Callable[[int], None], write: Callable[..., None]) -> None:
    """Logs what this thread does from now on."""
    first_call.settle()  # it would differ from run to run
    log = ProgramLog(wire, set_threads, lambda: write("untraced", what=UNSEEN_THREAD))
    log.hooks()
    if not wire.settings["loading"]:
        # With workers, also the sampler is asked at other times.
        for loads, name in (dataloader.DataLoader, "__iter__"), (dataloader._BaseDataLoaderIter, "__next__"):
            setattr(loads, name, log.unlogged(getattr(loads, name)))
    log.__enter__()  # type: ignore[no-untyped-call]


class ProgramLog(OperationLog):  # type: ignore[no-untyped-call]
    """The log of a program whose models are not known before they compute. Hooks are called in all threads,
    and the operations of only one are seen; `unseen_thread` is called once where others compute."""

    def __init__(
        self, wire: Wire, set_threads: Callable[[int], None], unseen_thread: Callable[[], None]
    ) -> None:
        super().__init__(nn.Module(), functools.partial(wire.operation, "torch"))
        self._wire = wire
        self._set_threads = set_threads
        self._unseen_thread = unseen_thread
        self._told = False
        self._thread = threading.get_ident()
        self._hold = frozenset(wire.settings["hold"])
        self._modules: weakref.WeakKeyDictionary[nn.Module, str] = weakref.WeakKeyDictionary()

    # ---- where the program is ----------------------------------------------------------------

    def _sees(self) -> bool:
        """Whether this thread is seen: that of the start, and autograd's own, which have its modes."""
        if threading.get_ident() == self._thread or self in _get_current_dispatch_mode_stack():
            return True
        if self._wire.on and not self._told:
            self._told = True
            self._unseen_thread()
        return False

    def enter(self, module: nn.Module, inputs: Any) -> None:  # noqa: ARG002
        if not self._sees():
            return
        if module not in self._modules and not self._stack:
            for path, each in module.named_modules():
                self._modules.setdefault(each, ".".join(filter(None, (type(module).__name__, path))))
            for name, tensor in (*module.named_parameters(), *module.named_buffers()):
                if is_lazy(tensor):
                    self._modules.pop(module, None)  # looked at again, once this has a shape
                elif readable(tensor) and tensor.numel():
                    with contextlib.suppress(RuntimeError):  # within transforms of torch.func
                        self._call(tensor, name)
        self._push(self._modules.get(module, type(module).__name__))

    def leave(self, module: nn.Module, inputs: Any, output: Any) -> None:  # noqa: ARG002
        if self._sees() and self._stack:
            self._stack.pop()

    def optimizer_begins(self, optimizer: Any, args: Any, kwargs: Any) -> tuple[Any, Any]:
        return super().optimizer_begins(optimizer, args, kwargs) if self._sees() else (args, kwargs)

    def optimizer_ends(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        if not self._sees():
            return
        super().optimizer_ends(optimizer, args, kwargs)
        if not self._optimizers:  # one that calls another makes a single step
            self._wire.step(
                lambda: typed_bits(p for group in optimizer.param_groups for p in group["params"])
            )

    def _line(self, frame: FrameType | None) -> tuple[str, str]:
        return self._wire.line(frame, ("torch",))

    def unlogged(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, whose operations are not logged."""

        @functools.wraps(function)
        def quiet(*args: Any, **kwargs: Any) -> Any:
            with _disable_current_modes():
                return function(*args, **kwargs)

        return quiet

    # ---- the operations ----------------------------------------------------------------------

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if not self._wire.on:
            return func(*args, **(kwargs or {}))
        name = func._schema.name
        if name == "aten::set_" or name.startswith(COLLECTIVES):
            # Data of another process, in the order of its arrival; what computes with it has it as input.
            result = func(*args, **(kwargs or {}))
            for tensor in tensors_of((args, kwargs, result)):  # a collective writes to them while we go on
                self._seen.forget(tensor)
            return result
        held = self._hold and self._hold & _names(str(func))
        if not held:
            return super().__torch_dispatch__(func, types, args, kwargs)
        self._wire.held(held)
        threads = torch.get_num_threads()
        self._set_threads(1)
        try:
            return super().__torch_dispatch__(func, types, args, kwargs)
        finally:
            self._set_threads(threads)

    def _log(self, op: str, inputs: list[TensorNote], outputs: list[Tensor]) -> None:
        super()._log(op, inputs, outputs)
        if len(self._made_by) > NODES:
            for node in list(self._made_by)[: NODES // 2]:
                del self._made_by[node]


def _names(op: str) -> set[str]:
    """`aten.mm.default`, `aten.mm` and `mm`"""
    packet = op.rpartition(".")[0]
    return {op, packet, packet.rpartition(".")[2]}
