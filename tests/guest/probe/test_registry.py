"""The registry of operations: complete, computable, and true about what it runs."""

import dataclasses
import importlib
import tomllib
from importlib import resources

import pytest

from guest.probe import tasks
from guest.probe.registry import base_name, operations, setting_of
from guest.records.probe import Case, Part, ProbeRequest
from guest.records.run import Framework
from guest.trace import torch_log

REGISTRY = resources.files("guest.probe") / "registry.toml"
LISTED = """conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d bmm gather scatter
scatter_reduce index_add index_copy index_put index_select put histc bincount kthvalue median cumsum
max_pool2d max_pool3d avg_pool1d avg_pool2d avg_pool3d adaptive_avg_pool2d max_unpool1d max_unpool2d
max_unpool3d pad_constant pad_reflect pad_replicate"""  # Shanmugavelu et al. 2024


def computed(operation, framework, kept=None):
    engine = importlib.import_module(f"guest.probe.{framework}_engine")
    case = Case(operation=operation.name, size=operation.sizes[0], dtype="float32")
    request = ProbeRequest(framework=framework, cases=(case,), runs=2, keep=kept is not None)
    return tasks.probe(engine, request, operation, case, {} if kept is None else kept)


def test_the_operations_of_the_reference_study_are_in_it():
    assert set(LISTED.split()) <= {operation.name for operation in operations()}


def test_names_are_given_once():
    names = [operation.name for operation in operations()]
    assert len(names) == len(set(names)) >= 35


def test_every_operation_is_computed_in_torch_and_runs_what_it_says():
    import torch.nn as nn

    for operation in operations():
        with torch_log.watch_model(nn.Identity()) as log:
            result = computed(operation, Framework.TORCH)
        assert not result.refused, (operation.name, result.refused)
        assert [part.part for part in result.parts] == list(Part)[: 1 + operation.backward], operation.name
        ran = {base_name(note.op) for note in log.notes}
        assert set(operation.aten) <= ran, (operation.name, ran)


@pytest.mark.needs("studies", long=True)
def test_every_operation_is_computed_in_tensorflow_or_said_not_to_be_and_runs_what_it_says():
    from tensorflow.python.framework import op_callbacks

    ran = set()

    def called(op_type, *_, **__):
        ran.add(op_type.decode() if isinstance(op_type, bytes) else op_type)

    for operation in operations():
        ran.clear()
        op_callbacks.add_op_callback(called)
        try:
            result = computed(operation, Framework.TENSORFLOW)
        finally:
            op_callbacks.remove_op_callback(called)
        assert set(operation.tf) <= ran, (operation.name, ran)
        assert bool(result.refused) == (not operation.tensorflow), (operation.name, result.refused)


def test_the_same_inputs_are_drawn_everywhere():
    a, b = ([operation.draw(tasks.Draw(operation.name, 8), 8) for operation in operations()] for _ in "ab")
    assert all((x == other[k]).all() for one, other in zip(a, b, strict=True) for k, x in one.items())


def test_kept_outputs_are_named_by_case_and_part():
    operation = next(o for o in operations() if o.name == "mm")
    kept = {}
    computed(operation, Framework.TORCH, kept)
    assert sorted(kept) == ["mm/8/float32/backward/0", "mm/8/float32/backward/1", "mm/8/float32/forward/0"]


def test_an_error_without_text_is_a_result_of_its_case_alone():
    operation = next(o for o in operations() if o.name == "mm")
    result = computed(dataclasses.replace(operation, torch="exec('assert False')"), Framework.TORCH)
    assert result.refused == "AssertionError: without a reason"


@pytest.mark.parametrize(
    ("op", "name"),
    [
        ("aten.add_.Tensor", "add"),
        ("aten.mm.default", "mm"),
        ("MatMul", "MatMul"),
        ("aten._softmax.default", "_softmax"),
    ],
)
def test_overloads_and_in_place_forms_are_one_operation(op, name):
    assert base_name(op) == name


def test_an_operation_that_the_registry_does_not_know_has_no_setting():
    assert setting_of(Framework.TORCH, "aten.a_new_one.default") is None
    assert setting_of(Framework.TENSORFLOW, "ANewOne") is None
    assert "oneDNN" in setting_of(Framework.TORCH, "aten.convolution_backward.default")
    assert "use_deterministic_algorithms" in setting_of(Framework.TORCH, "aten.index_put.default")
    for operation in operations():
        for name in operation.aten:
            assert setting_of(Framework.TORCH, name)
        for name in operation.tf:
            assert setting_of(Framework.TENSORFLOW, name)


@pytest.mark.parametrize(
    ("framework", "op", "setting"),
    [
        (Framework.TORCH, "aten.sum.default", "parallel sums"),
        (Framework.TORCH, "aten.mul.Tensor", "every element is computed by itself"),
        (Framework.TORCH, "aten.add_.Tensor", "every element is computed by itself"),
        (Framework.TORCH, "aten.exp.default", "every element is computed by itself"),
        (Framework.TORCH, "aten.tanh_backward.default", "every element is computed by itself"),
        (Framework.TORCH, "aten._unsafe_view.default", "nothing"),
        (Framework.TENSORFLOW, "Sum", "parallel sums"),
        (Framework.TENSORFLOW, "Mul", "parallel loops"),
        (Framework.TENSORFLOW, "MatMul", "gemm"),
        (Framework.TENSORFLOW, "ExpandDims", "nothing"),
    ],
)
def test_an_operation_that_several_entries_run_has_its_own_setting(framework, op, setting):
    assert setting in setting_of(framework, op)


@pytest.mark.parametrize("framework", Framework)
def test_entries_of_other_settings_leave_none_to_their_order(framework):
    settings = {}
    for operation in operations():
        for name in operation.aten if framework is Framework.TORCH else operation.tf:
            settings.setdefault(name, set()).add(operation.setting)
    own = tomllib.loads(REGISTRY.read_text("utf-8"))["settings_of"][framework]
    names = [name for names in own.values() for name in names]
    assert len(names) == len(set(names))
    assert {name for name, found in settings.items() if len(found) > 1} <= set(names) <= set(settings)


@pytest.mark.parametrize(
    ("framework", "op", "dtype", "setting"),
    [
        (Framework.TORCH, "aten.convolution.default", "float64", "BLAS library's gemm, MKL"),
        (Framework.TORCH, "aten.convolution.default", "bfloat16", "oneDNN's primitives"),
        (Framework.TORCH, "aten.mm.default", "bfloat16", "oneDNN's or the BLAS library's gemm"),
        (Framework.TORCH, "aten.mm.default", "float64", "BLAS library's gemm, MKL"),
        (Framework.TENSORFLOW, "Conv2D", "float64", "Eigen's gemm"),
        (Framework.TENSORFLOW, "MatMul", "bfloat16", "Eigen's gemm"),
    ],
)
def test_what_governs_depends_on_the_type(framework, op, dtype, setting):
    assert setting in setting_of(framework, op, dtype)
