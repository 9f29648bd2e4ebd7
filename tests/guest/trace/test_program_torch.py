"""What is seen of a user's program of PyTorch."""

import contextlib
import threading

import numpy as np
import pytest
import torch
from torch import distributed, nn
from torch.func import functional_call, grad, vmap
from torch.utils._python_dispatch import _disable_current_modes

from guest.records.trace import NOT_COMPARED
from guest.trace.program_torch import ProgramLog


class Wire:
    """Keeps what would be sent."""

    def __init__(self):
        self.on = True
        self.settings = {"hold": []}
        self.operations = []
        self.steps = 0
        self.unseen_threads = 0

    def operation(self, framework, op, phase, where, inputs, outputs, arrays):
        arrays()
        self.operations.append((op, inputs, outputs))

    def step(self, weights):
        weights()
        self.steps += 1

    def unseen_thread(self):
        self.unseen_threads += 1

    def line(self, frame, packages):
        return "", ""


@contextlib.contextmanager
def program():
    """A user's program, within."""
    wire = Wire()
    log = ProgramLog(wire, torch.set_num_threads, wire.unseen_thread)
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


def lazy_parameters():
    model = nn.Sequential(nn.LazyLinear(3), nn.ReLU()).double()
    model(torch.ones(2, 4, dtype=torch.float64)).sum().backward()


def gradients_of_samples():
    model = nn.Linear(4, 1)
    parameters = {name: each.detach() for name, each in model.named_parameters()}

    def loss(parameters, x):
        return functional_call(model, parameters, (x[None],)).sum()

    vmap(grad(loss), (None, 0))(parameters, torch.ones(3, 4))


def exported_model():
    batch = torch.export.Dim("batch")
    torch.export.export(nn.Linear(4, 1), (torch.ones(2, 4),), dynamic_shapes=({0: batch},))


def padded_sequences():
    layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
    padded = torch.tensor([[False, False, False], [False, False, True]])
    with torch.no_grad():
        nn.TransformerEncoder(layer, 1).eval()(torch.ones(2, 3, 16), src_key_padding_mask=padded)


def jagged_sequences():
    rows = [torch.ones(2, 3), torch.ones(4, 3)]
    torch.nested.nested_tensor(rows, layout=torch.jagged).mul(2).values().sum()
    torch.nested.nested_tensor(rows).mul_(2)


@pytest.mark.filterwarnings("ignore")  # what PyTorch says of its own beta features
@pytest.mark.parametrize(
    "compute",
    [
        sparse_embedding,
        sparse_product,
        mkldnn_tensors,
        lazy_parameters,
        gradients_of_samples,
        exported_model,
        padded_sequences,
        jagged_sequences,
    ],
)
def test_a_program_with_any_kind_of_tensors_runs_as_it_would(compute):
    with program() as wire:
        compute()
    assert wire.operations


def test_lazy_parameters_are_named_once_they_have_a_shape():
    model = nn.Sequential(nn.LazyLinear(3), nn.ReLU())
    with program() as wire:
        for _ in range(2):
            model(torch.ones(2, 4))
    assert [note.name for note in wire.operations[-2][1]][:1] == ["0.bias"]


def test_steps_of_another_thread_are_not_counted_but_told():
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters())

    def train():
        for _ in range(3):
            model(torch.ones(2, 4)).sum().backward()
            optimizer.step()

    with program() as wire:
        train()
        assert (wire.steps, wire.unseen_threads) == (3, 0)
        seen = len(wire.operations)
        thread = threading.Thread(target=train)
        thread.start()
        thread.join()
    assert (wire.steps, wire.unseen_threads, len(wire.operations)) == (3, 1, seen)


def written_in_parts():
    x = torch.arange(6.0)
    out = torch.empty_like(x)
    out[x > 2] = 1.0
    out[x <= 2] = 2.0


def unequal_lengths():
    torch.manual_seed(1)
    scores = torch.randn(50, 4, 20, requires_grad=True).log_softmax(2)
    targets, lengths = torch.ones(4, 12, dtype=torch.int64), torch.tensor([50, 30, 40, 20])
    nn.functional.ctc_loss(scores, targets, lengths, torch.tensor([12, 5, 8, 3])).backward()


def quantized():
    torch._empty_affine_quantized([1000], scale=1.0, zero_point=0, dtype=torch.qint8).dequantize()


def overwritten():
    torch.manual_seed(1)
    torch.ones(0).resize_(1000).geometric_(0.5)
    torch.ones(0).resize_(1000).cauchy_()
    torch._foreach_copy_([torch.ones(0).resize_(1000)], [torch.ones(1000)])


def rectified():
    nn.functional.rrelu(torch.ones(1000, requires_grad=True), training=False)


@pytest.mark.filterwarnings("ignore")  # that quantized tensors are deprecated
@pytest.mark.parametrize("compute", [written_in_parts, unequal_lengths, quantized, overwritten, rectified])
def test_what_was_in_memory_before_is_not_compared(compute):
    logs = []
    for before in (1.5, -7.25):
        with program() as wire:
            with _disable_current_modes():
                for size in (6, 250, 1000, 4000, 20000, 100000):
                    used = [torch.full((size,), before) for _ in range(8)]
                    del used
            compute()
        logs.append([(op, *([n.hash for n in notes] for notes in both)) for op, *both in wire.operations])
    assert logs[0] == logs[1]
    assert NOT_COMPARED not in str(logs)  # or no later operation could be the origin


def test_data_of_a_subclass_are_compared_as_any():
    class Own(torch.Tensor):
        pass

    with program() as wire:
        for value in (1.0, 2.0):
            data = torch.from_numpy(np.full((2, 2), value, np.float32)).as_subclass(Own)
            data @ torch.ones(2, 2)
    one, other = (inputs[0].hash for op, inputs, _ in wire.operations if op.startswith("aten.mm"))
    assert one != other


def test_what_a_collective_writes_to_is_read_again():
    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    try:
        with program() as wire:
            x, y = torch.ones(3), torch.zeros(3)
            y + x
            distributed.all_gather([y], x)
            y + x
    finally:
        distributed.destroy_process_group()
    before, after = (inputs for op, inputs, _ in wire.operations if op.startswith("aten.add"))
    assert before[0].hash != after[0].hash == after[1].hash


def test_memory_that_is_given_out_again_has_no_name_of_a_model_that_is_gone():
    with program() as wire:
        for _ in range(20):
            nn.Linear(64, 64)(torch.ones(2, 64))
            torch.ones(64, 64).mul(2)
    notes = [note for op, *both in wire.operations if "mul" in op for each in both for note in each]
    assert {note.name for note in notes} == {""}


def test_an_optimizer_that_calls_another_makes_one_step():
    class Outer(torch.optim.Optimizer):
        def __init__(self, inner):
            self.inner = inner
            super().__init__(inner.param_groups, {})

        def step(self, closure=None):
            self.inner.step(closure)

    model = nn.Linear(4, 1)
    optimizer = Outer(torch.optim.SGD(model.parameters()))
    with program() as wire:
        for _ in range(3):
            model(torch.ones(2, 4)).sum().backward()
            optimizer.step()
    assert wire.steps == 3
