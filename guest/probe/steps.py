"""What entries of the registry need that is more than one expression. `T` is the framework's module."""

# ruff: noqa: N803

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def step(T: Any, parameter: Any, gradient: Any, kind: Any, **settings: Any) -> Any:
    """A parameter after two steps of a torch optimizer: the second one finds the first one's state."""
    trained = T.nn.Parameter(parameter.detach().clone())
    trained.grad = gradient.detach().clone()
    optimizer = kind([trained], **settings)
    optimizer.step()
    optimizer.step()
    return trained.detach()


def clipped(T: Any, a: Any, b: Any) -> Any:
    """Gradients scaled to a norm of 1."""
    parameters = [T.nn.Parameter(T.zeros_like(x)) for x in (a, b)]
    for parameter, gradient in zip(parameters, (a, b), strict=True):
        parameter.grad = gradient.detach().clone()
    T.nn.utils.clip_grad_norm_(parameters, 1.0)
    return parameters[0].grad


def keras_step(T: Any, parameter: Any, gradient: Any, optimizer: Any) -> Any:
    """As `step`, of a Keras optimizer."""
    trained = T.keras.Variable(parameter, dtype=parameter.dtype)
    optimizer.build([trained])
    optimizer.apply([gradient], [trained])
    optimizer.apply([gradient], [trained])
    return T.identity(trained.value)


def recurrent(T: Any, x: Any, w: Any, u: Any, b: Any, cell: Callable[..., Any]) -> Any:
    """The outputs (n, tokens, units) of a recurrent layer that is written out, in TensorFlow."""
    h = c = T.zeros_like(x[:, 0])
    outputs = []
    for token in range(x.shape[1]):
        h, c = cell(T, x[:, token], h, c, w, u, b)
        outputs.append(h)
    return T.stack(outputs, 1)


def lstm_cell(T: Any, x: Any, h: Any, c: Any, w: Any, u: Any, b: Any) -> tuple[Any, Any]:
    gates = T.matmul(x, w, transpose_b=True) + T.matmul(h, u, transpose_b=True) + b
    i, f, g, o = T.split(gates, 4, 1)
    c = T.sigmoid(f) * c + T.sigmoid(i) * T.tanh(g)
    return T.sigmoid(o) * T.tanh(c), c


def gru_cell(T: Any, x: Any, h: Any, c: Any, w: Any, u: Any, b: Any) -> tuple[Any, Any]:
    r1, z1, n1 = T.split(T.matmul(x, w, transpose_b=True) + b, 3, 1)
    r2, z2, n2 = T.split(T.matmul(h, u, transpose_b=True) + b, 3, 1)
    z = T.sigmoid(z1 + z2)
    h = (1 - z) * T.tanh(n1 + T.sigmoid(r1 + r2) * n2) + z * h
    return h, c
