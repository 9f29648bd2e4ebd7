"""LSTM layers, which are computed above autograd."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.func import functional_call, grad

from tests.vbstudy.exact.test_plans import everywhere, one_answer
from vbstudy import exact
from vbstudy.exact.registry import Level

BATCH = 64
X = torch.randn(BATCH, 18, 32)


@pytest.fixture
def layer() -> torch.nn.LSTM:
    return torch.nn.LSTM(32, 64, batch_first=True)


def gradients(layer: torch.nn.LSTM, x: torch.Tensor) -> list[torch.Tensor]:
    x = x.clone().requires_grad_()
    output, (hidden, cells) = layer(x)
    loss = output.square().sum() + hidden.sum() - cells.sum()
    return [output.detach(), *torch.autograd.grad(loss, [x, *layer.parameters()])]


def near(ours: list[torch.Tensor], usual: list[torch.Tensor]) -> bool:
    return all(torch.allclose(a, b, rtol=1e-4, atol=1e-4) for a, b in zip(ours, usual, strict=True))


@settings(max_examples=15, deadline=None)
@given(
    batch=st.sampled_from((1, 32, 48, 64, 65, 96, 128)),
    steps=st.integers(1, 40),
    size=st.integers(1, 150),
    layers=st.integers(1, 2),
    bias=st.booleans(),
    batch_first=st.booleans(),
    bidirectional=st.booleans(),
)
def test_a_layer_of_any_size_has_one_answer_and_a_right_one(
    batch: int, steps: int, size: int, layers: int, bias: bool, batch_first: bool, bidirectional: bool
) -> None:
    layer = torch.nn.LSTM(40, size, layers, bias=bias, batch_first=batch_first, bidirectional=bidirectional)
    x = torch.randn(batch, steps, 40) if batch_first else torch.randn(steps, batch, 40)
    found = everywhere(lambda: gradients(layer, x))
    assert one_answer(found)
    assert near(found[0], gradients(layer, x))


@pytest.mark.parametrize("how", [torch.no_grad, torch.inference_mode])
def test_a_layer_that_is_not_differentiated_has_one_answer(
    layer: torch.nn.LSTM, how: Callable[[], contextlib.AbstractContextManager[object]]
) -> None:
    with how():
        found = everywhere(lambda: [layer(X)[0], *layer(X)[1]])
        assert one_answer(found)
        assert near(found[0], [layer(X)[0], *layer(X)[1]])


def test_sequences_of_unequal_lengths_are_computed_whole(layer: torch.nn.LSTM) -> None:
    packed = torch.nn.utils.rnn.pack_padded_sequence(X, [18] * 32 + [7] * 32, batch_first=True)
    with exact.mode():
        ours = layer(packed)[0].data
    assert near([ours], [layer(packed)[0].data])


def test_what_exact_mode_recorded_is_differentiated_after_it_too_and_the_other_way_round(
    layer: torch.nn.LSTM,
) -> None:
    def of(recorded: Level | None, differentiated: Level | None) -> list[torch.Tensor]:
        with exact.mode(level=recorded) if recorded else contextlib.nullcontext():
            loss = layer(X)[0].square().sum()
        with exact.mode(level=differentiated) if differentiated else contextlib.nullcontext():
            return list(torch.autograd.grad(loss, list(layer.parameters())))

    usual = of(None, None)
    levels: tuple[Level | None, ...] = (None, "machine", "threads")
    for recorded, differentiated in itertools.product(levels, levels):
        assert near(of(recorded, differentiated), usual)


@pytest.mark.parametrize("bias", [True, False])
def test_a_layer_that_is_differentiated_twice_has_one_answer(bias: bool) -> None:
    layer = torch.nn.LSTM(32, 64, bias=bias, batch_first=True)

    def penalty() -> list[torch.Tensor]:
        x = X.clone().requires_grad_()
        (slope,) = torch.autograd.grad(layer(x)[0].square().sum(), x, create_graph=True)
        return list(torch.autograd.grad(slope.square().mean(), list(layer.parameters())))

    found = everywhere(penalty)
    assert one_answer(found)
    with exact.mode():
        found.append(penalty())
    assert near(found[0], penalty())
    assert near(found[-1], penalty())


def test_many_gradients_at_once_are_those_of_one_at_a_time(layer: torch.nn.LSTM) -> None:
    x = X.clone().requires_grad_()
    directions = torch.randn(3, BATCH, 18, 64)
    with exact.mode():
        output, by = layer(x)[0], [x, *layer.parameters()]
        found = torch.autograd.grad(output, by, directions, retain_graph=True, is_grads_batched=True)
        single = [torch.autograd.grad(output, by, one, retain_graph=True) for one in directions]
    assert not any(gradient.requires_grad for gradient in found)
    assert near(list(found), [torch.stack(gradients) for gradients in zip(*single, strict=True)])


def test_tensors_that_are_several_arguments_have_each_ones_gradient_when_differentiated_twice() -> None:
    layer = torch.nn.LSTM(64, 64)
    layer.bias_hh_l0 = layer.bias_ih_l0
    layer.weight_hh_l0 = layer.weight_ih_l0
    states = torch.randn(1, 3, 64).requires_grad_()
    steps = torch.randn(5, 3, 64)

    def gradients(create_graph: bool) -> list[torch.Tensor]:
        output = layer(steps * states, (states, states))[0]
        by = [states, layer.get_parameter("bias_ih_l0"), layer.get_parameter("weight_ih_l0")]
        found = torch.autograd.grad(output.square().sum(), by, create_graph=create_graph)
        return [one.detach() for one in found]

    usual = gradients(False)
    with exact.mode():
        assert near(gradients(False), usual)
        assert near(gradients(True), usual)


def test_a_layer_is_transformed_by_torch_func(layer: torch.nn.LSTM) -> None:
    def loss(parameters: dict[str, torch.Tensor]) -> torch.Tensor:
        output: torch.Tensor = functional_call(layer, parameters, (X,))[0]
        return output.square().sum()

    parameters = {name: p.detach() for name, p in layer.named_parameters()}
    with exact.mode():
        ours = grad(loss)(parameters)
    assert near(list(ours.values()), list(grad(loss)(parameters).values()))


def test_parameters_that_are_frozen_get_no_gradient(layer: torch.nn.LSTM) -> None:
    layer.get_parameter("weight_hh_l0").requires_grad_(False)
    with exact.mode():
        layer(X)[0].sum().backward()
    assert {name for name, p in layer.named_parameters() if p.grad is not None} == {
        "weight_ih_l0",
        "bias_ih_l0",
        "bias_hh_l0",
    }


def test_biases_of_a_wrong_size_are_torchs_error(layer: torch.nn.LSTM) -> None:
    layer.bias_ih_l0 = torch.nn.Parameter(torch.zeros(64))  # of four times as many
    with exact.mode(), pytest.raises(RuntimeError, match="size"):
        layer(X)


def test_torch_gets_its_own_layer_back(layer: torch.nn.LSTM) -> None:
    before = torch._C._dispatch_dump("aten::mkldnn_rnn_layer")
    with exact.mode():
        assert torch._C._dispatch_dump("aten::mkldnn_rnn_layer") != before
    assert torch._C._dispatch_dump("aten::mkldnn_rnn_layer") == before


def test_a_layer_passes_strict_mode(layer: torch.nn.LSTM) -> None:
    found = []
    for strict in (False, True):
        with exact.mode(strict=strict):
            layer.zero_grad()
            layer(X)[0].square().sum().backward()
        found.append([p.grad for p in layer.parameters() if p.grad is not None])
    assert len(found[0]) == 4
    assert one_answer(found)


def test_a_layer_in_inference_is_that_of_training_and_passes_strict_mode(layer: torch.nn.LSTM) -> None:
    with exact.mode():
        trained = layer(X)[0].detach()
        before = exact.coverage().computed
    with exact.mode(strict=True), torch.inference_mode():
        assert torch.equal(layer(X)[0], trained)
        assert exact.coverage().below == {}
    assert before > 0
