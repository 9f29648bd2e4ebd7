"""What is seen of a user's program of PyTorch."""

import contextlib

import pytest
import torch
from torch import nn

from guest.trace.program_torch import ProgramLog


class Wire:
    """Keeps what would be sent."""

    def __init__(self):
        self.on = True
        self.settings = {"hold": []}
        self.operations = []
        self.steps = 0

    def operation(self, framework, op, phase, where, inputs, outputs, arrays):
        arrays()
        self.operations.append((op, inputs, outputs))

    def step(self, weights):
        weights()
        self.steps += 1

    def line(self, frame, packages):
        return "", ""


@contextlib.contextmanager
def program():
    """A user's program, within."""
    wire = Wire()
    log = ProgramLog(wire, torch.set_num_threads)
    hooks = log.hooks()
    try:
        with log:
            yield wire
    finally:
        for hook in hooks:
            hook.remove()


def sparse_embedding():
    model = nn.Embedding(10, 4, sparse=True)
    optimizer = torch.optim.SparseAdam(model.parameters())
    model(torch.tensor([1, 2, 2])).sum().backward()
    optimizer.step()


def sparse_product():
    matrix = torch.eye(3).to_sparse()
    torch.sparse.mm(matrix, matrix).to_dense()


def mkldnn_tensors():
    torch.ones(2, 8).to_mkldnn().relu().to_dense()


@pytest.mark.filterwarnings("ignore")  # what PyTorch says of its own beta features
@pytest.mark.parametrize("compute", [sparse_embedding, sparse_product, mkldnn_tensors])
def test_a_program_with_any_kind_of_tensors_runs_as_it_would(compute):
    with program() as wire:
        compute()
    assert wire.operations
