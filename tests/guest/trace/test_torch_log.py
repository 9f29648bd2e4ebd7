"""What is seen of PyTorch at work."""

import dataclasses

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from guest.records.trace import NOT_COMPARED, Outcome, Phase
from guest.trace.torch_log import Notes, bits_of, watch_model
from orchestrator.experiments.trace_compare import compare


@pytest.fixture
def model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(1, 6, 5), nn.BatchNorm2d(6), nn.ReLU(), nn.Flatten(), nn.Linear(864, 3))


@pytest.fixture(autouse=True)
def own_threads():
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def step(model, threads=1, keep=frozenset()):
    torch.set_num_threads(threads)
    state = {name: value.clone() for name, value in model.state_dict().items()}
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x = torch.from_numpy(np.random.default_rng(0).standard_normal((32, 1, 16, 16)).astype(np.float32))
    with watch_model(model, keep) as log:
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
    model.load_state_dict(state)
    return log


def test_every_operation_has_its_phase_module_and_line(model):
    notes = step(model).notes
    places = {(n.phase, n.op.split(".")[1], n.module) for n in notes}
    assert {
        (Phase.FORWARD, "convolution", "0"),
        (Phase.FORWARD, "native_batch_norm", "1"),
        (Phase.FORWARD, "addmm", "4"),
        (Phase.BACKWARD, "mm", "4"),
        (Phase.BACKWARD, "native_batch_norm_backward", "1"),
        (Phase.BACKWARD, "convolution_backward", "0"),
        (Phase.OPTIMIZER, "add_", ""),
    } <= places
    forward = next(n for n in notes if n.module == "0")
    backward = next(n for n in notes if "convolution_backward" in n.op)
    assert forward.text == "loss = model(x).square().mean()"
    assert "test_torch_log.py" in forward.source
    assert (backward.source, backward.text) == (forward.source, forward.text)


def test_parameters_and_their_gradients_are_named(model):
    notes = step(model).notes
    assert [t.name for t in notes[0].inputs if t.dtype != "numbers"] == ["", "0.weight", "0.bias"]
    update = next(n for n in notes if n.phase is Phase.OPTIMIZER)
    assert [t.name for t in update.inputs if t.dtype != "numbers"] == ["0.weight", "0.weight.grad"]


def test_what_is_changed_in_place_is_hashed_before_and_after(model):
    update = next(n for n in step(model).notes if n.phase is Phase.OPTIMIZER)
    before = update.inputs[0]
    (after,) = update.outputs
    assert (before.name, after.name) == ("0.weight", "0.weight")
    assert before.hash != after.hash


def test_running_statistics_are_outputs_though_their_schema_says_nothing(model):
    norm = next(n for n in step(model).notes if "batch_norm." in n.op)
    assert {"1.running_mean", "1.running_var"} <= {t.name for t in norm.outputs}


def test_the_same_thread_count_gives_the_same_log(model):
    assert step(model).notes == step(model).notes


def test_thread_counts_part_at_the_weight_gradient_of_the_convolution(model):
    found = compare(step(model, 1).notes, (other := step(model, 4)).notes)
    assert found.outcome is Outcome.OPERATION
    assert "aten.convolution_backward.default" in {other.notes[i].op for i in found.origins}


def test_kept_outputs_are_those_that_were_hashed(model):
    plain = step(model)
    kept = step(model, keep=frozenset({0})).kept
    assert list(kept) == ["0/0"]
    assert kept["0/0"].size == np.prod(plain.notes[0].outputs[0].shape)


def test_memory_that_nothing_was_written_to_is_no_result():
    with watch_model(nn.Identity()) as log:
        torch.empty(1000).fill_(1)
    (fill,) = log.notes
    assert (fill.op, [t.dtype for t in fill.inputs]) == ("aten.fill_.Scalar", ["numbers"])


def test_a_hash_is_not_kept_beyond_a_change_nor_beyond_its_memory():
    notes, seen = Notes(), set()
    for value in range(50):  # freed memory is given out again
        seen.add(notes.of(torch.full((1000,), float(value)), "").hash)
    assert len(seen) == 50
    tensor = torch.zeros(10)
    before = notes.of(tensor, "")
    tensor.add_(1)
    assert notes.of(tensor, "").hash != before.hash


def test_what_numpy_writes_into_a_tensor_is_seen():
    notes, array, own = Notes(), np.zeros(4, np.float32), torch.zeros(4)
    for tensor, shared in ((torch.from_numpy(array), array), (own, own.numpy())):
        before = notes.of(tensor, "").hash
        shared[:] = 1
        assert notes.of(tensor, "").hash != before


def test_a_tensor_that_was_hashed_can_still_be_resized():
    tensor = torch.zeros(3)
    Notes().of(tensor, "")
    assert tensor.resize_(10).shape == (10,)


@pytest.mark.parametrize(
    "operation",
    [
        lambda number: torch.ones(3) * number,
        lambda number: torch.full((3,), number),
        lambda number: torch.constant_pad_nd(torch.ones(3), [1, 1], value=number),
        lambda number: torch._foreach_mul([torch.ones(3), torch.ones(3)], [2.0, number]),
    ],
)
def test_numbers_of_python_are_inputs_that_are_compared(operation):
    def log(number):
        with watch_model(nn.Identity()) as step:
            operation(number)
        return step.notes

    assert log(0.5) == log(0.5)
    assert compare(log(0.5), log(0.25)).outcome is Outcome.UNLOCATED


def test_a_name_that_comes_later_is_noted_with_the_same_hash():
    notes, tensor = Notes(), torch.ones(3)
    before, named = notes.of(tensor, ""), notes.of(tensor, "out.weight.grad")
    assert named == dataclasses.replace(before, name="out.weight.grad")


@pytest.mark.parametrize(
    "tensor",
    [
        torch.zeros(()),
        torch.zeros(0),
        torch.ones(3).expand(4, 3),
        torch.ones(1, 1).expand(1, 1),
        torch.arange(6.0).reshape(2, 3).t(),
        torch.zeros(2, 3, 4, 4).contiguous(memory_format=torch.channels_last),
        torch.zeros(3, dtype=torch.bfloat16),
        torch.zeros(3, dtype=torch.bool),
        torch.zeros(3, dtype=torch.complex64),
        torch.arange(10.0)[::3],
    ],
)
def test_all_kinds_of_tensors_have_bits(tensor):
    assert bits_of(tensor).dtype.kind == "u"
    copy = tensor.clone(memory_format=torch.preserve_format)
    assert Notes().of(tensor, "").hash == Notes().of(copy, "").hash


def test_sparse_tensors_are_not_compared():
    assert Notes().of(torch.eye(3).to_sparse(), "").hash == NOT_COMPARED


def noted(compute, model=None):
    """(phase, module, the line's comment) of each operation by its name, in order."""
    with watch_model(model or nn.Identity()) as log:
        compute()
    return [(n.op.split(".")[1], n.phase, n.module, n.text.partition("# ")[2]) for n in log.notes]


def test_what_a_closure_computes_is_none_of_the_optimizers():
    model = nn.Sequential(nn.Linear(4, 3), nn.Tanh())
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=1)

    def closure():
        optimizer.zero_grad()
        loss = model(torch.ones(2, 4)).sum()  # forward
        loss.backward()
        return loss

    seen = noted(lambda: optimizer.step(closure), model)
    assert ("addmm", Phase.FORWARD, "0", "forward") in seen
    assert ("mm", Phase.BACKWARD, "0", "forward") in seen
    assert ("tanh_backward", Phase.BACKWARD, "1", "forward") in seen
    assert {phase for op, phase, *_ in seen if op == "dot"} == {Phase.OPTIMIZER}


def test_an_optimizer_whose_step_failed_is_left():
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters())

    def closure():
        raise ValueError

    def compute():
        with pytest.raises(ValueError, match="^$"):
            optimizer.step(closure)
        optimizer.step()
        model(torch.ones(2, 4))

    assert noted(compute, model)[-1][:2] == ("addmm", Phase.FORWARD)


def test_the_gradient_of_a_view_has_the_line_of_the_view():
    def compute():
        weight = torch.ones(4, requires_grad=True)
        wide = weight.expand(8, 4)  # the view
        index = torch.arange(8)  # another line
        (wide * index[:, None]).sum().backward()

    (line,) = {line for op, phase, _, line in noted(compute) if (op, phase) == ("sum", Phase.BACKWARD)}
    assert line == "the view"


@pytest.mark.parametrize("reentrant", [True, False])
def test_what_checkpointing_computes_again_is_of_its_own_module(reentrant):
    layers = nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 2))
    x = torch.ones(2, 4, requires_grad=True)

    def compute():
        checkpoint(layers, x, use_reentrant=reentrant).sum().backward()  # training

    seen = [(op, module) for op, phase, module, line in noted(compute, layers) if phase is Phase.BACKWARD]
    assert seen.count(("addmm", "0")) == 1
    assert {("tanh", "1"), ("tanh_backward", "1"), ("mm", "0"), ("mm", "2")} <= set(seen)


def test_the_backward_function_of_a_program_has_its_own_lines():
    class Product(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, weight):
            ctx.save_for_backward(x, weight)
            return x.mm(weight)  # in forward

        @staticmethod
        def backward(ctx, gradient):
            x, weight = ctx.saved_tensors
            return gradient.mm(weight.t()), x.t().mm(gradient)  # in backward

    x = torch.ones(2, 3, requires_grad=True)
    seen = noted(lambda: Product.apply(x, torch.ones(3, 4, requires_grad=True)).sum().backward())
    lines = [line for op, phase, _, line in seen if (op, phase) == ("mm", Phase.BACKWARD)]
    assert lines == ["in backward"] * 2
