from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence

from orchestrator.agent import archive as agent_archive
from vbstudy import caches, exact
from vbstudy.exact import compiled, selftest
from vbstudy.exact.errors import ExactError
from vbstudy.exact.registry import (
    COMPOSED,
    ELEMENTWISE,
    IN_ORDER,
    INVARIANT,
    ONE_THREAD,
    PIECES,
    SMALL,
    base,
    level,
)

X, Y = torch.randn(300, 400), torch.randn(400, 500)


@pytest.fixture(autouse=True)
def _off() -> Iterator[None]:
    yield
    exact.disable()


# On and off


def test_it_is_on_between_enable_and_disable() -> None:
    assert not exact.active()
    exact.enable()
    assert exact.active()
    exact.disable()
    assert not exact.active()


def test_enabling_and_disabling_twice_changes_nothing() -> None:
    exact.enable()
    once = torch.mm(X, Y)
    exact.enable()
    assert torch.equal(torch.mm(X, Y), once)
    exact.disable()
    exact.disable()
    assert not exact.active()


def test_torch_gets_its_own_operations_back() -> None:
    torch.set_num_threads(3)
    before = torch._C._dispatch_dump("aten::mm")
    own = torch.sigmoid(X.repeat(3, 1))
    with exact.mode():
        assert torch._C._dispatch_dump("aten::mm") != before
    assert torch._C._dispatch_dump("aten::mm") == before
    assert torch.equal(torch.sigmoid(X.repeat(3, 1)), own)


def test_a_block_restores_what_was_before() -> None:
    exact.enable()
    with exact.mode(strict=True):
        pass
    assert exact.active()
    torch.special.bessel_j0(X)  # not strict any more
    exact.disable()
    with pytest.raises(ZeroDivisionError), exact.mode():
        _ = 1 / 0
    assert not exact.active()


def test_it_stays_on_until_the_last_of_blocks_that_overlap_has_ended() -> None:
    first, second = exact.mode(), exact.mode(strict=True)
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert exact.active()
    with pytest.raises(ExactError, match="bessel_j0"):
        torch.special.bessel_j0(X)
    second.__exit__(None, None, None)
    assert not exact.active()
    torch.special.bessel_j0(X)


def test_blocks_of_threads_overlap() -> None:
    entered, leave = threading.Event(), threading.Event()

    def other() -> None:
        with exact.mode():
            entered.set()
            leave.wait()

    thread = threading.Thread(target=other)
    with exact.mode():
        thread.start()
        entered.wait()
    assert exact.active()
    leave.set()
    thread.join()
    assert not exact.active()


def test_it_is_switched_on_and_off_while_another_thread_computes() -> None:
    script = """
import threading, torch
from vbstudy import exact
ended = threading.Event()
def compute():
    norm = torch.nn.LayerNorm(64)
    while not ended.is_set():
        norm(torch.ones(32, 64)).sum().backward()
thread = threading.Thread(target=compute)
thread.start()
for i in range(100):
    exact.enable(level=["machine", "threads"][i % 2])
    exact.disable()
ended.set()
thread.join()
print("ended")
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "ended\n"), done.stderr


def test_it_is_not_disabled_within_a_block() -> None:
    with exact.mode():
        with pytest.raises(ExactError, match="leave that first"):
            exact.disable()
        assert exact.active()


def test_a_strict_block_that_another_thread_leaves_is_an_error_and_still_ends() -> None:
    block = exact.mode(strict=True)
    thread = threading.Thread(target=block.__enter__)
    thread.start()
    thread.join()
    with pytest.raises(ExactError, match="the thread that entered it"):
        block.__exit__(None, None, None)
    assert not exact.active()


def test_thread_settings_stay() -> None:
    torch.set_num_threads(3)
    with exact.mode():
        x = X.clone().requires_grad_()
        (x @ Y).sum().backward()
        assert torch.get_num_threads() == 3
    assert torch.get_num_threads() == 3
    seen: list[int] = []
    thread = threading.Thread(target=lambda: seen.append(torch.get_num_threads()))
    thread.start()
    thread.join()
    assert seen == [3]


def test_mistakes_raise_torchs_own_errors() -> None:
    with exact.mode():
        with pytest.raises(RuntimeError, match="mat1 and mat2 shapes cannot be multiplied"):
            torch.mm(X, X)
        with pytest.raises(RuntimeError, match="Given groups=1"):
            torch.nn.functional.conv2d(torch.ones(64, 3, 64, 64), torch.ones(64, 4, 3, 3))
        with pytest.raises(IndexError, match="Dimension out of range"):
            X.sum(5)


def test_inference_mode_and_other_threads_are_served() -> None:
    with exact.mode():
        torch.set_num_threads(1)
        once = torch.mm(X, Y)
        torch.set_num_threads(3)
        with torch.inference_mode():
            assert torch.equal(torch.mm(X, Y), once)
        found: list[torch.Tensor] = []
        thread = threading.Thread(target=lambda: found.append(torch.mm(X, Y)))
        thread.start()
        thread.join()
        assert torch.equal(found[0], once)


def test_memory_layouts_are_torchs() -> None:
    image = torch.randn(64, 16, 32, 32).contiguous(memory_format=torch.channels_last)
    kernel = torch.randn(16, 16, 3, 3)
    with exact.mode():
        convolved, transposed = torch.nn.functional.conv2d(image, kernel), torch.randn(300, 400).t().sigmoid()
    assert convolved.is_contiguous(memory_format=torch.channels_last)
    assert transposed.stride() == (1, 400)


def test_attention_lies_in_memory_as_torchs() -> None:
    packed = torch.randn(2, 6, 3, 4, 8)  # sample, place, (query, key, value), head, width
    layouts = (
        packed.permute(2, 0, 3, 1, 4)[0],
        packed[:, :, 0].transpose(1, 2),
        torch.randn(2, 4, 6, 8),
        torch.randn(2, 4, 6, 16)[..., 8:],
        torch.randn(1, 4, 6, 8).expand(2, 4, 6, 8),
        torch.randn(2, 4, 8, 6).mT,
    )
    for heads in layouts:
        of = [heads.detach().requires_grad_() for _ in range(3)]
        theirs = torch.nn.functional.scaled_dot_product_attention(*of)
        gradients = torch.autograd.grad(theirs.sum(), of)
        with exact.mode():
            ours = torch.nn.functional.scaled_dot_product_attention(*of)
            found = torch.autograd.grad(ours.sum(), of)
        torch.testing.assert_close([ours, *found], [theirs, *gradients], check_stride=True)


def test_subnormal_numbers_are_kept_on_every_thread_whoever_flushes_them() -> None:
    """torch.set_flush_denormal is of the thread that calls it."""
    flush, a, b = torch.set_flush_denormal, torch.full((512, 256), 1e-20), torch.full((256, 512), 1e-20)

    def zeros() -> int:
        return sum(
            int((t.view(torch.int32) == 0).sum()) for t in (a @ b, torch.full((200_000,), 1e-30) * 1e-10)
        )

    torch.set_num_threads(3)
    flush(True)
    assert zeros() > 0
    try:
        with exact.mode():
            assert zeros() == 0
            assert torch.set_flush_denormal(True) is False
            assert zeros() == 0
            flush(True)  # as an import of what was compiled with -ffast-math
            assert zeros() == 0
        assert torch.set_flush_denormal is flush
        assert zeros() == 0
    finally:
        flush(False)


# What it covers


def test_coverage_names_operations() -> None:
    found = exact.coverage()
    assert {"mm", "convolution_backward", "sigmoid", "add", "index_add"} <= set(found.machine)
    assert {"_fft_r2c", "linspace"} <= set(found.threads)
    assert (found.level, found.arithmetic) == ("machine", 1)
    with exact.mode():
        now = exact.coverage()
    counted = {"instructions": now.instructions, "computed": now.computed, "below": now.below}
    assert now == dataclasses.replace(found, **counted)
    with exact.mode(level="threads"):
        assert exact.coverage().machine == ()
        assert set(exact.coverage().threads) == {*found.machine, *found.threads}


def test_operations_are_counted_by_level() -> None:
    with exact.mode():
        torch.mm(X, Y)
        torch.ones(3, dtype=torch.long).sum()
        assert (exact.coverage().computed, exact.coverage().below) == (1, {})
        torch.lgamma(X)
        X.double().sum()
        torch.special.bessel_j0(X)
    assert exact.coverage().below == {"lgamma": 1, "sum": 1, "special_bessel_j0": 1}
    assert exact.coverage().facts()["below"] == ["lgamma", "special_bessel_j0", "sum"]
    with exact.mode():
        assert exact.coverage().below == {}


def test_no_operation_stands_in_two_lists() -> None:
    lists = [
        INVARIANT,
        COMPOSED,
        IN_ORDER,
        ONE_THREAD,
        ELEMENTWISE,
        {base(name) for name in PIECES} - {"sum"},
    ]
    assert sum(map(len, lists)) == len(frozenset().union(*lists))
    assert SMALL < INVARIANT


def test_every_name_of_the_lists_is_one_of_torchs() -> None:
    names = {base(name) for name in torch._C._dispatch_get_all_op_names() if name.startswith("aten::")}
    lists = INVARIANT | COMPOSED | IN_ORDER | ONE_THREAD | ELEMENTWISE | {base(name) for name in PIECES}
    assert lists - names <= {"cholesky"}  # of torch before 2.15


def test_overloads_and_operations_in_place_go_by_one_name() -> None:
    assert [base(name) for name in ("aten::add_.Tensor", "mm.out", "__and__.Scalar")] == [
        "add",
        "mm",
        "__and__",
    ]
    assert level("aten::add_.Tensor") == "machine"
    assert level("aten::special_bessel_j0") is None


# Strict mode


def test_an_unknown_operation_is_refused_with_its_name_and_line() -> None:
    with exact.mode(strict=True):
        torch.mm(X, Y)
        with pytest.raises(ExactError, match=r"j0 at .*test_exact\.py:\d+ is not known .* by one thread"):
            torch.special.bessel_j0(X)
        assert exact.coverage().unknown == ("aten::special_bessel_j0",)
    assert exact.coverage().unknown == ("aten::special_bessel_j0",)
    torch.special.bessel_j0(X)


@pytest.mark.filterwarnings("ignore:`torch.nn.utils.weight_norm` is deprecated")
def test_the_line_is_that_of_the_program_behind_decorators_and_the_standard_library() -> None:
    with exact.mode(strict=True):
        with pytest.raises(ExactError, match=r"aten::norm at \S*test_exact\.py:"):
            torch.nn.utils.weight_norm(torch.nn.Linear(3, 3))
        with pytest.raises(ExactError, match=r"j0 at \S*test_exact\.py:"):
            functools.singledispatch(torch.special.bessel_j0)(X)


def test_the_module_is_named_too() -> None:
    class Bessel(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.special.bessel_j0(x)

    network = torch.nn.Sequential(torch.nn.Linear(400, 3), Bessel())
    with exact.mode(strict=True), pytest.raises(ExactError, match=r"in module Sequential\.1"):
        network(X)


def test_modules_that_failed_are_forgotten() -> None:
    network = torch.nn.Sequential(torch.nn.Linear(3, 3))
    with exact.mode(strict=True):
        with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
            network(X)
        with pytest.raises(ExactError, match="bessel_j0 at "):
            torch.special.bessel_j0(X)


def test_strict_mode_may_be_switched_on_within_a_module() -> None:
    class Stricter(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            exact.enable(strict=True)
            return torch.mm(x, Y)

    network, seen = Stricter(), []
    network.register_forward_hook(lambda *_: seen.append(exact.active()))
    assert network(X).shape == (300, 500)
    assert seen == [True]


def test_a_row_that_is_repeated_is_multiplied_as_any_other() -> None:
    """The gradient of a sum: one number, with strides of zero."""
    for shape in ((8, 2), (40, 70), (40, 300)):
        repeated = torch.ones(1, 1).expand(shape)
        other = torch.randn(shape[1], 90)
        with exact.mode():
            assert torch.equal(repeated @ other, torch.ones(shape) @ other)
            assert torch.equal(other.t() @ repeated.t(), other.t() @ torch.ones(shape).t())


def test_a_product_in_bfloat16_is_that_of_float32_rounded_once() -> None:
    a, b, c = X.bfloat16(), Y.bfloat16(), torch.randn(500).bfloat16()
    with exact.mode(strict=True):
        found = torch.addmm(c, a, b)
        assert torch.equal(found, torch.addmm(c.float(), a.float(), b.float()).bfloat16())


def test_gradients_by_an_input_are_taken_in_strict_mode() -> None:
    x, network = torch.randn(8, 4, requires_grad=True), torch.nn.Linear(4, 2)
    with exact.mode(strict=True):
        (slope,) = torch.autograd.grad(network(x).sum(), [x])
    assert torch.allclose(slope, network.weight.sum(0).expand(8, 4))


def test_operations_that_add_within_are_taken_in_strict_mode() -> None:
    layer = torch.nn.ConvTranspose2d(3, 8, 3)
    optimizer = torch.optim.SGD(layer.parameters(), 0.1, momentum=0.9, foreach=True)
    with exact.mode(strict=True):
        for _ in range(2):
            layer(torch.randn(2, 3, 9, 9)).sum().backward()
            optimizer.step()


def test_an_operation_of_another_library_is_refused() -> None:
    with torch.library._scoped_library("vbstudy_test", "DEF") as library:
        library.define("twice(Tensor x) -> Tensor")
        library.impl("twice", lambda x: x + x, "CPU")
        with exact.mode(strict=True), pytest.raises(ExactError, match="vbstudy_test::twice"):
            torch.ops.vbstudy_test.twice(X)


def test_a_sparse_tensor_is_refused() -> None:
    sparse = torch.eye(3).to_sparse()
    with (
        exact.mode(strict=True),
        pytest.raises(ExactError, match=r"torch\.sparse_coo on cpu.* which leaves it to torch"),
    ):
        torch.mm(sparse, torch.ones(3, 3))


def _attends() -> Tensor:
    return nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)(torch.ones(2, 5, 16)).sum()


def _packs() -> Tensor:
    packed = pack_padded_sequence(torch.ones(3, 5, 4, requires_grad=True), torch.tensor([5, 3, 2]), True)
    return nn.LSTM(4, 6, batch_first=True)(packed)[0].data.sum()


@pytest.mark.parametrize("backward_in_exact_mode", [True, False])
@pytest.mark.parametrize("forward_in_exact_mode", [True, False])
def test_a_query_that_attends_to_nothing_has_gradients_of_zero(
    forward_in_exact_mode: bool, backward_in_exact_mode: bool
) -> None:
    q, k, v = (torch.randn(1, 2, 5, 8, requires_grad=True) for _ in "qkv")
    mask = torch.ones(5, 5, dtype=torch.bool)
    mask[2] = False
    with exact.mode() if forward_in_exact_mode else contextlib.nullcontext():
        y = nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)
    with exact.mode() if backward_in_exact_mode else contextlib.nullcontext():
        gradients = torch.autograd.grad(y.sum(), (q, k, v))
    assert not y[:, :, 2].any()
    assert not gradients[0][:, :, 2].any()
    assert all(gradient.isfinite().all() for gradient in gradients)


@pytest.mark.parametrize("compute", [_attends, _packs])
def test_dropout_in_attention_and_packed_sequences_pass_strict_mode(compute: Callable[[], Tensor]) -> None:
    with exact.mode(strict=True):
        compute().backward()


@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (nn.Linear(4, 3), (0, 4)),
        (nn.Conv2d(2, 3, 3), (0, 2, 5, 5)),
        (nn.LayerNorm(4), (0, 4)),
        (nn.GroupNorm(2, 4), (0, 4, 3)),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, nn.Module) else "",
)
def test_layers_without_a_row_pass_strict_mode(layer: nn.Module, shape: tuple[int, ...]) -> None:
    with exact.mode(strict=True):
        layer(torch.ones(shape, requires_grad=True)).sum().backward()
    assert exact.coverage().below == {}
    assert all(not p.grad.any() for p in layer.parameters() if p.grad is not None)


def test_windows_and_nearest_pixels_pass_strict_mode() -> None:
    with exact.mode(strict=True):
        for window in (torch.hann_window, torch.hamming_window, torch.blackman_window, torch.bartlett_window):
            window(400)
        for shape in ((2, 3, 9), (2, 3, 9, 9), (2, 3, 5, 5, 5)):
            x = torch.ones(shape, requires_grad=True)
            nn.functional.interpolate(x, scale_factor=1.7, mode="nearest-exact").sum().backward()
    assert exact.coverage().below == {}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's own, of what they import
def test_forward_derivatives_pass_strict_mode() -> None:
    x = torch.randn(3, 3)
    with exact.mode(strict=True):
        _, slope = torch.func.jvp(torch.tanh, (x,), (torch.ones(3, 3),))
        curvature = torch.func.hessian(lambda x: nn.functional.gelu(x @ x.mT).logsumexp(0).sum())(x)
        with pytest.raises(ExactError, match="aten::special_bessel_j0"):
            torch.ops.prims.bessel_j0(x)
    assert torch.allclose(slope, 1 - x.tanh() ** 2)
    assert curvature.shape == (3, 3, 3, 3)


def test_a_whole_training_step_passes_strict_mode() -> None:
    layers = [
        torch.nn.Conv2d(1, 8, 3),
        torch.nn.BatchNorm2d(8),
        torch.nn.ReLU(),
        torch.nn.Flatten(),
        torch.nn.Linear(288, 4),
    ]
    network = torch.nn.Sequential(*layers)
    optimizer = torch.optim.Adam(network.parameters())
    with exact.mode(strict=True):
        for _ in range(2):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(
                network(torch.randn(8, 1, 8, 8)), torch.arange(8) % 4
            ).backward()
            torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
            optimizer.step()
    assert exact.coverage().unknown == ()


# What it refuses


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's own, of what its compiler imports
def test_strict_mode_refuses_compilation_and_it_is_left_alone_afterwards() -> None:
    compile_ = torch.compile
    with exact.mode(strict=True), pytest.raises(ExactError, match=r"torch\.compile generates code"):
        torch.compile(torch.nn.Linear(2, 2))
    assert torch.compile is compile_
    network = torch.nn.Linear(2, 2)
    with exact.mode(strict=True):
        network.compile()
        network(torch.ones(1, 2))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's own, of what its compiler imports
def test_control_flow_runs_uncompiled_and_strict_mode_names_it() -> None:
    def chosen() -> Tensor:
        found: Tensor = torch.cond(X.sum() > X.sum() - 1, torch.sigmoid, torch.cos, (X,))
        return found

    with exact.mode():
        assert torch.equal(chosen(), X.sigmoid())
    with exact.mode(strict=True), pytest.raises(ExactError, match=r"^cond at .*test_exact\.py:\d+ runs "):
        chosen()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's own, of what its compiler imports
@pytest.mark.parametrize("way", ["compile", "before", "optimize"])
def test_what_is_compiled_has_the_bits_of_exact_mode(way: str) -> None:
    # Names that were there before exact mode; not at import, for torch's compiler takes seconds to import.
    before: Any = torch._dynamo.optimize("inductor") if way == "optimize" else torch.compile
    x = torch.randn(1001, 333, generator=torch.Generator().manual_seed(0))
    function = lambda x: x.sigmoid().sum() + (x @ x.t()).mean()  # noqa: E731
    found = set()
    with exact.mode():
        other = (torch.compile if way == "compile" else before)(function)
        for threads in (1, 3):
            torch.set_num_threads(threads)
            found |= {function(x).item(), other(x).item()}
    assert len(found) == 1


@pytest.mark.needs("studies")
def test_a_compiler_that_is_imported_later_compiles_nothing_either() -> None:
    program = """
import sys, torch
from vbstudy import exact
with exact.mode():
    assert "torch._dynamo" not in sys.modules, "its import takes seconds"
    import torch._dynamo
    from torch._dynamo import eval_frame
    assert eval_frame._stance.stance == "force_eager"
    with exact.mode():
        pass
assert eval_frame._stance.stance == "default"
with exact.mode():
    assert eval_frame._stance.stance == "force_eager"
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("stance", ["default", "eager_on_recompile"])
def test_the_compilers_stance_is_what_it_was_before(stance: str) -> None:
    from torch._dynamo import eval_frame  # seconds, for all who load this file

    torch.compiler.set_stance(stance)
    try:
        with exact.mode():
            assert eval_frame._stance.stance == "force_eager"
        assert eval_frame._stance.stance == stance
    finally:
        torch.compiler.set_stance("default")


def test_with_an_old_torch_the_error_states_which_version_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(torch.library, "get_kernel")
    with pytest.raises(ExactError, match=r"needs torch 2\.9 or newer, and this is"):
        exact.enable()


def test_without_numpy_the_error_states_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "numpy", None)
    with pytest.raises(ExactError, match=r"needs numpy, .*: install it beside torch"):
        exact.enable()


# The self-test


def test_the_self_test_passes_whatever_the_programs_defaults_are() -> None:
    with exact.mode():
        torch.set_default_dtype(torch.float64)
        torch.set_default_device("meta")
        try:
            with torch.autocast("cpu"), torch.no_grad():
                assert selftest.hashes() == selftest.EXPECTED
        finally:
            torch.set_default_device(None)
            torch.set_default_dtype(torch.float32)


@pytest.fixture
def _another_cpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """On which the self-test has not passed."""
    monkeypatch.setattr(selftest, "_cpu", lambda: str(tmp_path))


def test_a_self_test_that_failed_names_the_library_to_remove(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selftest, "EXPECTED", selftest.EXPECTED | {"sums": "another"})
    with pytest.raises(ExactError, match=r"in sums: .* Remove \S+/arithmetic-\w+-\w+\.so and name another"):
        exact.enable()
    assert not exact.active()


@pytest.mark.usefixtures("_another_cpu")
def test_a_self_test_that_is_not_of_this_torch_is_run_again(monkeypatch: pytest.MonkeyPatch) -> None:
    library, ran = compiled.load(), []
    monkeypatch.setattr(selftest, "hashes", lambda: ran.append(torch.__version__) or selftest.EXPECTED)
    for version in ("98.0", "98.0", "99.0"):
        monkeypatch.setattr(torch, "__version__", version)
        selftest.once(library)
    assert ran == ["98.0", "99.0"]


@pytest.mark.usefixtures("_another_cpu")
def test_a_self_test_that_is_interrupted_leaves_exact_mode_off(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    usual = torch._C._dispatch_dump("aten::mm")
    monkeypatch.setattr(selftest, "hashes", interrupted)
    with pytest.raises(KeyboardInterrupt):
        exact.enable()
    assert not exact.active()
    assert torch._C._dispatch_dump("aten::mm") == usual


@pytest.mark.usefixtures("_another_cpu")
def test_a_self_test_that_cannot_be_noted_has_passed(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: Path) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(Path, "touch", full)
    with exact.mode():
        assert exact.active()


# The library, and machines without a compiler


def test_a_compiler_that_fails_is_quoted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("CXX", "false")
    with pytest.raises(ExactError, match="false failed with 1"):
        exact.enable()
    assert not exact.active()


def test_processes_that_need_a_library_at_the_same_time_compile_it_once(tmp_path: Path) -> None:
    ready = compiled.arithmetic("neon" if platform.machine() == "aarch64" else "avx2")
    compiler = tmp_path / "compiler"  # its last argument is the library to make
    compiler.write_text(f"""#!/bin/sh
echo started >> {tmp_path}/started
until [ $(wc -l < {tmp_path}/asking) = 4 ]; do sleep 0.01; done
for target; do :; done
cp {ready} "$target"
""")
    compiler.chmod(0o700)
    killed = tmp_path / "vbstudy" / "exact" / f"{caches.PREFIX}killed"
    killed.mkdir(parents=True)
    program = f"""
from vbstudy.exact import compiled
with open({str(tmp_path / "asking")!r}, "a") as file: file.write("asking\\n")
print(compiled.arithmetic({ready.name.split("-")[1]!r}).name)
"""
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path), "CXX": str(compiler)}
    command = [sys.executable, "-c", program]
    asking = [
        subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(4)
    ]
    assert [each.communicate() for each in asking] == [(f"{ready.name}\n", "")] * 4
    assert (tmp_path / "started").read_text() == "started\n"
    assert not killed.exists()


def without_compiler(archive: Path, home: Path) -> subprocess.CompletedProcess[str]:
    """A process with an empty PATH that has the agent's archive and its home alone; it prints the hash of a
    network that it trained for two steps, or the error."""
    program = (
        "import torch, hashlib\n"
        "from vbstudy import exact\n"
        "try: exact.enable()\n"
        "except exact.ExactError as error: raise SystemExit(str(error))\n"
    ) + TRAINING
    environment = {"PYTHONPATH": str(archive), "PATH": "", "HOME": str(home)}
    command = [sys.executable, "-c", program]
    return subprocess.run(command, env=environment, cwd=home, capture_output=True, text=True, check=False)


TRAINING = """
torch.manual_seed(0)
layers = torch.nn.Conv2d(1, 16, 5), torch.nn.Sigmoid(), torch.nn.Flatten(), torch.nn.Linear(16 * 24 * 24, 10)
network = torch.nn.Sequential(*layers)
optimizer = torch.optim.Adam(network.parameters())
x, y = torch.randn(64, 1, 28, 28), torch.arange(64) % 10
for _ in range(2):
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(network(x), y).backward()
    optimizer.step()
weights = b"".join(p.detach().numpy().tobytes() for p in network.parameters())
print(hashlib.sha256(weights).hexdigest())
"""


@pytest.mark.needs("studies")
def test_a_cache_that_cannot_be_written_is_named_with_what_to_do(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(ExactError, match="Not a directory; let XDG_CACHE_HOME name a folder"):
        compiled.library()


@pytest.mark.needs("studies")
def test_a_machine_without_a_compiler_trains_the_same_bits_by_the_library_of_another(tmp_path: Path) -> None:
    archive = agent_archive.build().write(tmp_path)
    cache = tmp_path / ".cache" / "vbstudy" / "exact"
    refused = without_compiler(archive, tmp_path)
    library = compiled.library()
    assert refused.returncode == 1
    assert f"(`apt install g++`), name one in CXX, or copy {library.name} from a machine" in refused.stderr
    assert f"into {cache}" in refused.stderr
    cache.mkdir(parents=True, exist_ok=True)
    for built in compiled.libraries():
        shutil.copy(built, cache)
    trained = without_compiler(archive, tmp_path)
    assert trained.returncode == 0, trained.stderr
    here: dict[str, object] = {"torch": torch, "hashlib": hashlib, "print": lambda text: found.append(text)}
    found: list[str] = []
    with exact.mode():
        exec(TRAINING, here)
    assert trained.stdout.split() == found


@pytest.mark.needs("exact")
def test_a_library_that_does_not_load_is_compiled_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    names = [path.name for path in compiled.libraries()]
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    cache = tmp_path / "vbstudy" / "exact"
    cache.mkdir(parents=True)
    for name in names:
        (cache / name).write_text("not a library")
    with monkeypatch.context() as patched:
        patched.setenv("CXX", "false")
        with pytest.raises(ExactError, match=r"cannot be loaded .* or compiled again: false failed with 1"):
            exact.enable()
    with exact.mode():
        assert torch.mm(X, Y).shape == (300, 500)


@pytest.mark.needs("studies")
@pytest.mark.parametrize(("mode", "threads"), [("exact.mode()", 1), ("nullcontext()", 2)])
def test_what_is_small_wakes_no_other_thread(mode: str, threads: int) -> None:
    """torch starts its threads when it first spreads something over them."""
    program = f"""
import os, torch
from contextlib import nullcontext
from vbstudy import exact
from torch.nn import functional as F
torch.set_num_threads(2)
x, labels = torch.randn(64, 10, requires_grad=True), torch.zeros(64, dtype=torch.long)
image = torch.randn(2, 6, 14, 14, requires_grad=True)
before = len(os.listdir("/proc/self/task"))
with {mode}, torch.autograd.set_multithreading_enabled(False):
    F.cross_entropy(F.layer_norm(x, (10,)), labels).backward()
    x.softmax(1).sqrt()
    F.adaptive_avg_pool2d(F.avg_pool2d(F.max_pool2d(F.group_norm(image, 2), 2), 2), 1).sum().backward()
    F.batch_norm(image, None, None, training=True)
print(len(os.listdir("/proc/self/task")) - before + 1)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stdout.strip()) == (0, str(threads)), done.stderr


def test_importing_it_imports_no_framework() -> None:
    program = (
        "import sys; from vbstudy import exact\n"
        "sys.exit('torch' in sys.modules or 'tensorflow' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0


@pytest.mark.parametrize("which", ["machine", "threads"])
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_traced_convolution_computes_what_the_module_does(which: Literal["machine", "threads"]) -> None:
    with exact.mode(level=which):
        module = torch.nn.Sequential(torch.nn.Conv2d(3, 16, 3), torch.nn.ReLU(), torch.nn.Flatten()).eval()
        traced = torch.jit.trace(module, torch.randn(16, 3, 48, 48))
        x = torch.randn(5, 3, 48, 48)
        assert torch.equal(traced(x), module(x))
