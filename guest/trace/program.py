"""Inside a user's program: every operation of PyTorch's, in order, as a line to the tracer.

A line is what is compared, a tab, and where it was. The tracer reads the lines of two processes at the same
time; the pipe between holds back the faster one, so that neither side's memory grows."""

from __future__ import annotations

import atexit
import json
import linecache
import os
import socket
import sys
import weakref
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any, TypedDict

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from guest.records.trace import TensorNote
from guest.trace.source import line_outside
from guest.trace.torch_log import OperationLog, bits_of

NODES = 100_000  # of autograd, whose lines are remembered
KEPT_BYTES = 64 << 20  # of an operation's outputs, and of the weights after one step
GROWTH_OPERATIONS = 20_000  # after the kept one, where no step follows
END, LIMIT = b"end", b"limit"  # the last line: the program's end, or that of what is traced


class Settings(TypedDict):
    """`keep` is the number of the operation whose outputs are wanted, and `growth` the steps after it;
    operations named in `hold` run on one thread."""

    library: str
    folder: str  # outside the program's: socket, kept arrays
    root: str
    steps: int
    keep: int | None
    growth: int
    hold: list[str]


def start(settings: Settings, set_threads: Callable[[int], None]) -> None:
    """Logs what this thread does from now on. The first process that computes anything is the one."""
    log = ProgramLog(settings, set_threads)
    register_module_forward_pre_hook(log.enter)
    register_module_forward_hook(log.leave, always_call=True)
    register_optimizer_step_pre_hook(log.optimizer_begins)
    register_optimizer_step_post_hook(log.optimizer_ends)
    os.register_at_fork(after_in_child=log.abandon)
    log.__enter__()  # type: ignore[no-untyped-call]
    atexit.register(log.close, END)


class ProgramLog(OperationLog):  # type: ignore[no-untyped-call]
    """The log of a program whose models are not known before they compute."""

    def __init__(self, settings: Settings, set_threads: Callable[[int], None]) -> None:
        super().__init__(nn.Module(), frozenset())
        self._settings = settings
        self._set_threads = set_threads
        self._hold = frozenset(settings["hold"])
        self._modules: weakref.WeakKeyDictionary[nn.Module, str] = weakref.WeakKeyDictionary()
        self._to: socket.socket | None = None
        self._lines: list[bytes] = []
        self._waiting = 0  # bytes in these lines
        self._on = True
        self._index = 0
        self._steps = 0
        self._kept_at: int | None = None  # the number of steps then

    def abandon(self) -> None:
        """In a forked process: what it computes is its own."""
        self._on = False

    # ---- where the program is ----------------------------------------------------------------

    def enter(self, module: nn.Module, inputs: Any) -> None:  # noqa: ARG002
        if module not in self._modules and not self._stack:
            for path, each in module.named_modules():
                self._modules.setdefault(each, ".".join(filter(None, (type(module).__name__, path))))
            for name, tensor in (*module.named_parameters(), *module.named_buffers()):
                if tensor.numel() and tensor.device.type == "cpu":
                    self._names[tensor.data_ptr()] = name
        self._stack.append(self._modules.get(module, type(module).__name__))

    def leave(self, module: nn.Module, inputs: Any, output: Any) -> None:  # noqa: ARG002
        if self._stack:
            self._stack.pop()

    def optimizer_begins(self, optimizer: Any, args: Any, kwargs: Any) -> None:  # noqa: ARG002
        self._in_optimizer = True

    def optimizer_ends(self, optimizer: Any, args: Any, kwargs: Any) -> None:  # noqa: ARG002
        self._in_optimizer = False
        self._steps += 1
        if not self._on:
            return
        if self._kept_at is not None:
            weights = [p for group in optimizer.param_groups for p in group["params"]]
            self._write(f"weights-{self._steps}", weights)
            if self._steps >= self._kept_at + self._settings["growth"]:
                self._finish()
        elif self._steps >= self._settings["steps"]:
            self._finish()

    def _line(self, frame: FrameType | None) -> tuple[str, str]:
        """The innermost line of the user's own files; without one, the innermost outside PyTorch."""
        root, own = self._settings["root"] + os.sep, frame
        while own is not None:
            file = own.f_code.co_filename
            if file.startswith(root) and "/site-packages/" not in file:
                text = linecache.getline(file, own.f_lineno, own.f_globals).strip()
                return f"{file[len(root) :]}:{own.f_lineno} in {own.f_code.co_name}", text
            own = own.f_back
        return line_outside(frame, ("torch",))

    # ---- the operations ----------------------------------------------------------------------

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if not self._on:
            return func(*args, **(kwargs or {}))
        if func._schema.name == "aten::set_":
            # Data of another process, in the order of its arrival; what computes with it has it as input.
            result = func(*args, **(kwargs or {}))
            self._seen.forget(args[0])
            return result
        if str(func) not in self._hold:
            return super().__torch_dispatch__(func, types, args, kwargs)
        threads = torch.get_num_threads()
        self._set_threads(1)
        try:
            return super().__torch_dispatch__(func, types, args, kwargs)
        finally:
            self._set_threads(threads)

    def _log(self, op: str, inputs: list[TensorNote], outputs: list[Tensor]) -> None:
        phase, where = self._where()
        results = [self._note(tensor) for tensor in outputs]
        compared = [op, phase, [_compared(n) for n in inputs], [_compared(n) for n in results]]
        names = [[note.name for note in inputs], [note.name for note in results]]
        self._send(_bytes(compared) + b"\t" + _bytes([self._steps, *where, *names]))
        if len(self._made_by) > NODES:
            for node in list(self._made_by)[: NODES // 2]:
                del self._made_by[node]
        if self._index == self._settings["keep"]:
            self._write("outputs", outputs)
            self._kept_at = self._steps
        if self._kept_at is not None and self._index >= (self._settings["keep"] or 0) + GROWTH_OPERATIONS:
            self._finish()
        self._index += 1

    def _note(self, tensor: Tensor) -> TensorNote:
        if tensor.device.type != "cpu" or type(tensor) not in (Tensor, nn.Parameter):
            return TensorNote(shape=tuple(tensor.shape), dtype=str(tensor.dtype), hash="not compared")
        return super()._note(tensor)

    def _write(self, name: str, tensors: list[Tensor]) -> None:
        """Their bits, as far as there is room; complete once the file has its name."""
        arrays, left = {}, KEPT_BYTES
        for i, tensor in enumerate(tensors):
            if tensor.device.type == "cpu" and tensor.layout is torch.strided:
                bits = bits_of(tensor)
                bits = bits[: left // bits.itemsize]
                left -= bits.nbytes
                arrays[f"{i} {str(tensor.dtype).removeprefix('torch.')}"] = bits
        path = Path(self._settings["folder"]) / f"{name}.npz"
        with path.with_suffix(".part").open("wb") as file:
            np.savez(file, allow_pickle=False, **arrays)
        path.with_suffix(".part").rename(path)

    # ---- the line to the tracer ------------------------------------------------------------

    def _send(self, line: bytes) -> None:
        if self._to is None:
            self._to = socket.socket(socket.AF_UNIX)
            try:
                self._to.connect(str(Path(self._settings["folder"]) / "socket"))
            except OSError:  # another process of the program was first
                self._on = False
                return
            self._lines.append(_bytes({"torch": torch.__version__, "argv": sys.orig_argv}))
        self._lines.append(line)
        self._waiting += len(line)
        if self._waiting > 1 << 15:
            self._flush()

    def _flush(self) -> None:
        lines, self._lines, self._waiting = b"".join(line + b"\n" for line in self._lines), [], 0
        try:
            if self._to is not None:
                self._to.sendall(lines)
        except OSError:  # the tracer is gone: this run has no other purpose
            os._exit(1)

    def close(self, why: bytes) -> None:
        if self._on and self._to is not None:
            self._lines.append(why + b" %d" % self._steps)
            self._flush()

    def _finish(self) -> None:
        """Waits to be ended."""
        self.close(LIMIT)
        if self._to is not None:
            self._to.recv(1)
        os._exit(0)


def _compared(note: TensorNote) -> list[Any]:
    return [note.dtype, note.shape, note.layout, note.hash]


def _bytes(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
