"""Looks at PyTorch at work: every ATen operation of a step, below autograd, through a dispatch mode."""

from __future__ import annotations

import ctypes
import dataclasses
import functools
import hashlib
import sys
import weakref
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.autograd.function import BackwardCFunction
from torch.multiprocessing.reductions import StorageWeakRef
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.nn.parameter import is_lazy
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
from torch.utils._python_dispatch import TorchDispatchMode

from guest.records.trace import NOT_COMPARED, Phase, TensorNote
from guest.trace.hash import UNSIGNED, hash_bytes
from guest.trace.log import Receiver, StepLog, Where
from guest.trace.source import line_outside

if TYPE_CHECKING:
    from guest.workloads import Backend
    from guest.workloads.torch_backend import TorchBackend

AS_WRITTEN = True

# What these give is memory that nothing has been written to yet.
_UNWRITTEN = frozenset(
    {
        "empty",
        "empty_like",
        "empty_permuted",
        "empty_strided",
        "new_empty",
        "new_empty_strided",
        "_empty_affine_quantized",
        "_empty_per_channel_affine_quantized",
    }
)
_ZEROED = 32 << 20  # bytes; memory of more comes from the kernel, as zeros
# These overwrite the tensor they are called on: what was in it does not matter.
_OVERWRITES = frozenset(
    {
        "copy_",
        "fill_",
        "zero_",
        "_foreach_copy_",
        "normal_",
        "uniform_",
        "bernoulli_",
        "random_",
        "exponential_",
        "log_normal_",
        "geometric_",
        "cauchy_",
    }
)
# These change arguments that their schema calls constant: BatchNorm's running statistics.
_CHANGES_SILENTLY = {"native_batch_norm": (3, 4), "cudnn_batch_norm": (3, 4)}
# Outputs with room that is never written: a library's notes to itself.
_WORKSPACES = {"mkldnn_rnn_layer": (3,), "_ctc_loss": (1,)}
WORKSPACE = "workspace"  # in place of a hash: made from what was compared
_USUAL = frozenset({torch.float32, torch.float64, torch.int64})


def gradients(backend: Backend) -> dict[str, np.ndarray]:
    """See `guest.trace.tasks.Eye`."""
    model = cast("TorchBackend", backend).model
    return {name: p.grad.numpy() for name, p in model.named_parameters() if p.grad is not None}


def optimizer_state(backend: Backend) -> dict[str, np.ndarray]:
    """See `guest.trace.tasks.Eye`."""
    state = cast("TorchBackend", backend).optimizer.state_dict()["state"]
    return {
        f"{parameter}/{key}": value.numpy()
        for parameter, values in state.items()
        for key, value in values.items()
        if isinstance(value, Tensor)
    }


def watch(backend: Backend, keep: frozenset[int]) -> AbstractContextManager[StepLog]:
    """See `guest.trace.tasks.Eye`."""
    return watch_model(cast("TorchBackend", backend).model, keep)


@contextmanager
def watch_model(model: nn.Module, keep: frozenset[int] = frozenset()) -> Iterator[StepLog]:
    """Logs what happens within, of any model and any optimizer of torch's."""
    step = StepLog(keep)
    operations = OperationLog(model, step.add)
    hooks = operations.hooks()
    try:
        with operations:
            yield step
    finally:
        for hook in hooks:
            hook.remove()


class OperationLog(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Gives operations to a receiver. Views are left out: they compute nothing."""

    def __init__(self, model: nn.Module, to: Receiver) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._to = to
        self._model = model
        self._paths = {id(module): path for path, module in model.named_modules()}
        self._stack: list[tuple[str, bool]] = []  # modules, and whether they compute again for a gradient
        self._optimizers: list[int] = []  # at work, the outer ones first
        self._names: dict[int, tuple[weakref.ref[Tensor], str]] = {}
        for name, tensor in (*model.named_parameters(), *model.named_buffers()):
            if tensor.numel():
                self._call(tensor, name)
        self._made_by: dict[int, Where] = {}  # by the sequence number of autograd's node
        self._seen = Notes()

    # ---- where the program is ----------------------------------------------------------------

    def hooks(self) -> list[Any]:
        return [
            register_module_forward_pre_hook(self.enter),
            register_module_forward_hook(self.leave, always_call=True),
            register_optimizer_step_pre_hook(self.optimizer_begins),
            register_optimizer_step_post_hook(self.optimizer_ends),
        ]

    def enter(self, module: nn.Module, inputs: Any) -> None:  # noqa: ARG002
        self._push(self._paths.get(id(module), type(module).__name__))

    def leave(self, module: nn.Module, inputs: Any, output: Any) -> None:  # noqa: ARG002
        self._stack.pop()

    def _push(self, path: str) -> None:
        self._stack.append((path, torch._C._current_autograd_node() is not None))

    def optimizer_begins(self, optimizer: Any, args: Any, kwargs: Any) -> tuple[Any, Any]:
        """What a closure computes is none of the optimizer's."""
        self._optimizer_left(optimizer)  # where its last step ended with an error
        self._optimizers.append(id(optimizer))
        for name, parameter in self._model.named_parameters():
            if parameter.grad is not None:
                self._call(parameter.grad, f"{name}.grad")
        closures = {key: self._closure(value) for key, value in kwargs.items()}
        return (args[0], *map(self._closure, args[1:])), closures

    def optimizer_ends(self, optimizer: Any, args: Any, kwargs: Any) -> None:  # noqa: ARG002
        self._optimizer_left(optimizer)

    def _optimizer_left(self, optimizer: Any) -> None:
        if id(optimizer) in self._optimizers:
            del self._optimizers[self._optimizers.index(id(optimizer)) :]

    def _closure(self, value: Any) -> Any:
        if not callable(value):
            return value

        @functools.wraps(value)
        def closure(*args: Any, **kwargs: Any) -> Any:
            before, self._optimizers = self._optimizers, []
            try:
                return value(*args, **kwargs)
            finally:
                self._optimizers = before

        return closure

    def _line(self, frame: FrameType | None) -> tuple[str, str]:
        return line_outside(frame, ("torch",))

    def _where(self) -> tuple[Phase, Where]:
        node = torch._C._current_autograd_node()
        module, again = self._stack[-1] if self._stack else ("", False)
        if node is None or again:  # checkpointing computes again what it did not keep
            here = (module, *self._line(sys._getframe(2)))
            if self._optimizers and node is None:
                return Phase.OPTIMIZER, here
            # The node of this operation, if it has one, was made just before the operation is run.
            self._made_by.setdefault(torch._C._autograd._get_sequence_nr() - 1, here)
            return Phase.BACKWARD if again else Phase.FORWARD, here
        parameter = getattr(node, "variable", None)  # a gradient is added to what is there
        if parameter is not None:
            return Phase.BACKWARD, (self._called(parameter), "", "")
        made = self._made_by.get(node._sequence_nr())
        if made is None or isinstance(node, BackwardCFunction):  # where backward was called, or is written
            return Phase.BACKWARD, (made[0] if made else "", *self._line(sys._getframe(2)))
        return Phase.BACKWARD, made

    def _call(self, tensor: Tensor, name: str) -> None:
        self._names[tensor.data_ptr()] = weakref.ref(tensor), name

    def _called(self, tensor: Tensor) -> str:
        """Its name; memory that is given out again has that of no tensor which is gone."""
        address = tensor.data_ptr()
        owner, name = self._names.get(address, (lambda: None, ""))
        named = owner()
        return name if named is not None and named.data_ptr() == address else ""

    # ---- the operations ----------------------------------------------------------------------

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        traits = _traits(func)
        name = traits.name
        if name in _UNWRITTEN and "out" not in kwargs:
            return _zeroed(func(*args, **kwargs))
        if name in _UNWRITTEN or name == "resize_" or traits.view:
            result = func(*args, **kwargs)
            if traits.view and torch._C._autograd._get_sequence_nr() - 1 not in self._made_by:
                self._where()  # its gradient computes
            return result
        written = traits.written(args, kwargs)
        overwritten = written if name in _OVERWRITES else [v for k, v in kwargs.items() if k == "out"]
        skipped = {id(t) for t in tensors_of(overwritten)}
        given = tensors_of((args, kwargs)) if kwargs else tensors_of(args)
        inputs = [self._note(t) for t in given if id(t) not in skipped]
        if numbers := _collect((args, kwargs), int | float | complex):
            inputs.append(_note_of_numbers(numbers))
        result = func(*args, **kwargs)
        outputs = tensors_of(written)
        for tensor in outputs:
            self._seen.forget(tensor)
        known = {id(t) for t in outputs}
        workspaces = _WORKSPACES.get(name, ())
        for place, t in enumerate(tensors_of(result)):
            if id(t) not in known:
                if place in workspaces:
                    self._seen.ignore(t)
                else:
                    outputs.append(t)
        if outputs:
            self._log(str(func), inputs, outputs)
        return result

    def _log(self, op: str, inputs: list[TensorNote], outputs: list[Tensor]) -> None:
        phase, where = self._where()
        self._to(op, phase, where, inputs, list(map(self._note, outputs)), lambda: typed_bits(outputs))

    def _note(self, tensor: Tensor) -> TensorNote:
        named = readable(tensor) and tensor.numel()
        return self._seen.of(tensor, self._called(tensor) if named else "")


class Notes:
    """Notes of tensors with their hashes, each made once while the tensor's bytes stay what they are. A weak
    reference to the storage keeps its address from being given to another."""

    def __init__(self) -> None:
        self._known: dict[tuple[Any, ...], tuple[int, TensorNote]] = {}
        self._storages: dict[int, tuple[StorageWeakRef, set[tuple[Any, ...]]]] = {}
        self._ignored: set[int] = set()
        self._purge_at = 1 << 14  # storages

    def of(self, tensor: Tensor, name: str) -> TensorNote:
        if not readable(tensor):
            return _unread(tensor)
        storage = tensor.untyped_storage()
        address = storage._cdata
        if address in self._ignored:
            return _noted(tensor, WORKSPACE, name)
        key = (address, tensor.storage_offset(), tensor.shape, tensor.stride(), tensor.dtype)
        # Storages that are not resizable are numpy's as well, which writes to them without a new version.
        version = -1 if tensor.is_inference() or not storage.resizable() else tensor._version
        known = self._known.get(key)
        if known is not None and known[0] == version >= 0:
            note = known[1]
            if note.name != name:  # gradients get theirs when the optimizer begins
                note = dataclasses.replace(note, name=name)
            return note
        note = _noted(tensor, f"{hash_bytes(bits_of(tensor)):016x}", name)
        if address not in self._storages:
            self._purge()
            self._storages[address] = (_weak(storage), set())
        self._storages[address][1].add(key)
        self._known[key] = (version, note)
        return note

    def _purge(self) -> None:
        """Forgets storages that are gone, now and then: a long program has billions of them."""
        if len(self._storages) < self._purge_at:
            return
        for address in [a for a, (reference, _) in self._storages.items() if reference.expired()]:  # type: ignore[no-untyped-call]
            for key in self._storages.pop(address)[1]:
                del self._known[key]
            self._ignored.discard(address)
        self._purge_at = max(1 << 14, 2 * len(self._storages))

    def forget(self, tensor: Tensor) -> None:
        """Its bytes have changed, and those of all that share them."""
        if tensor.layout is not torch.strided:
            return
        address = tensor.untyped_storage()._cdata
        if address in self._storages:
            for key in self._storages.pop(address)[1]:
                del self._known[key]

    def ignore(self, tensor: Tensor) -> None:
        storage = tensor.untyped_storage()
        self._storages[storage._cdata] = (_weak(storage), set())
        self._ignored.add(storage._cdata)


def _noted(tensor: Tensor, text: str, name: str) -> TensorNote:
    return TensorNote(
        shape=tuple(tensor.shape), dtype=_dtype(tensor.dtype), hash=text, name=name, layout=_layout(tensor)
    )


def readable(tensor: Tensor) -> bool:
    """Whether it is nothing but numbers in this machine's memory."""
    kind = type(tensor)
    return (
        (kind in (Tensor, nn.Parameter) or kind.__torch_dispatch__ is Tensor.__torch_dispatch__)
        and not is_lazy(tensor)
        and tensor.device.type == "cpu"
        and tensor.layout is torch.strided
        and not tensor.is_nested
    )


def _zeroed(new: Tensor) -> Tensor:
    """What a program writes in parts is read as a whole here."""
    if readable(new) and new.untyped_storage().nbytes() <= _ZEROED:
        new.untyped_storage().fill_(0)  # type: ignore[attr-defined]
    return new


def _unread(tensor: Tensor) -> TensorNote:
    """Nested tensors have no shape, lazy parameters none yet; some have sizes that are not known."""
    try:
        shape = tuple(size for size in tensor.shape if isinstance(size, int))
    except RuntimeError:
        shape = ()
    layout = "" if tensor.layout is torch.strided else str(tensor.layout).removeprefix("torch.")
    return TensorNote(shape=shape, dtype=_dtype(tensor.dtype), hash=NOT_COMPARED, layout=layout)


@functools.cache
def _dtype(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _weak(storage: torch.UntypedStorage) -> StorageWeakRef:
    return StorageWeakRef(storage)  # type: ignore[no-untyped-call]


@dataclass(frozen=True, slots=True)
class Traits:
    """What the schema of an operation says, read once."""

    name: str
    places: tuple[tuple[int, str], ...]  # of the arguments that it changes in place
    view: bool  # nothing is computed

    def written(self, args: Any, kwargs: Any) -> list[Any]:
        return [args[i] if i < len(args) else kwargs.get(name) for i, name in self.places]


@functools.cache
def _traits(func: Any) -> Traits:
    schema = func._schema
    name = schema.name.partition("::")[2]
    places = [(i, "") for i in _CHANGES_SILENTLY.get(name, ())]
    for i, argument in enumerate(schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            places.append((i, argument.name))
    aliases = [r.alias_info for r in schema.returns]
    view = bool(aliases) and not places and all(a is not None and not a.is_write for a in aliases)
    return Traits(name, tuple(places), view)


def tensors_of(value: Any) -> list[Tensor]:
    return _collect([value], Tensor)


def _collect(values: Iterable[Any], kind: Any) -> list[Any]:
    """Those of a kind in nested lists, tuples and dictionaries, in order."""
    found: list[Any] = []
    for value in values:
        if isinstance(value, kind):
            found.append(value)
        elif isinstance(value, dict):
            found += _collect(value.values(), kind)
        elif isinstance(value, (list, tuple)):
            found += _collect(value, kind)
    return found


def _note_of_numbers(numbers: list[Any]) -> TensorNote:
    """Of the numbers of Python's that an operation gets beside its tensors."""
    digest = hashlib.blake2b(repr(numbers).encode(), digest_size=8).hexdigest()
    return TensorNote(shape=(len(numbers),), dtype="numbers", hash=digest)


def _layout(tensor: Tensor) -> str:
    if tensor.is_contiguous():
        return ""
    for name in ("channels_last", "channels_last_3d"):
        if tensor.dim() == (5 if name.endswith("3d") else 4) and tensor.is_contiguous(
            memory_format=getattr(torch, name)
        ):
            return name
    return "strided"


def bits_of(tensor: Tensor) -> np.ndarray:
    """The elements as unsigned integers of their size, one-dimensional, in the order of memory."""
    if tensor.dtype in _USUAL and tensor.is_contiguous() and not tensor.is_neg():
        return _memory(tensor)  # in one step
    t = tensor.detach().resolve_neg()
    if not t.is_contiguous():
        t = t.permute(*sorted(range(t.dim()), key=t.stride, reverse=True)).contiguous()
    if t.is_complex():
        t = torch.view_as_real(t.resolve_conj())
    flat = t.reshape(-1)
    if flat.stride(0) != 1:  # of a single element it can be anything
        flat = flat.clone(memory_format=torch.contiguous_format)
    return _memory(flat)


def _memory(tensor: Tensor) -> np.ndarray:
    """A contiguous tensor's. Its `numpy()` would make the program's storage one that cannot be resized."""
    size = tensor.element_size()
    buffer: Any = (ctypes.c_uint8 * (tensor.numel() * size)).from_address(tensor.data_ptr())
    buffer.tensor = tensor  # lives as long as the array
    return np.ndarray((tensor.numel(),), UNSIGNED[size], buffer)


def typed_bits(tensors: Iterable[Tensor]) -> list[tuple[str, np.ndarray]]:
    """Types and bits of those that can be read."""
    return [(_dtype(tensor.dtype), bits_of(tensor)) for tensor in tensors if readable(tensor)]
