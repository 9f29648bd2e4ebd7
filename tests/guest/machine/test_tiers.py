import os
import subprocess
import sys

import pytest

from guest.machine import threads, tiers
from guest.records.run import Framework, ThreadSpec, Tier
from tests import factories
from vbstudy.exact import launch

EVERY = [(tier, framework) for tier in tiers.TIERS for framework in Framework]


def environment(tier, framework, cpus=2, vendor=tiers.INTEL):
    spec = factories.spec(
        cpus,
        workload=factories.workload(framework=framework),
        threads=tiers.threads_of(tier, framework, cpus, 4),
        tier=tier,
    )
    return threads.environment(spec, cpu_vendor=vendor)


def test_every_tier_is_described_once_in_order_of_its_number():
    assert [info.number for info in tiers.TIERS.values()] == list(range(6))
    assert set(tiers.TIERS) == set(Tier) - {Tier.NONE}


def test_a_fixed_number_of_threads_does_not_depend_on_the_guest():
    for framework in Framework:
        for tier, count in ((Tier.LOGICAL_THREADS, 4), (Tier.ONE_THREAD, 1)):
            found = {tiers.threads_of(tier, framework, cpus, 4).intra_op for cpus in (1, 2, 4)}
            assert found == {count}
    assert tiers.threads_of(Tier.SEEDS, Framework.TORCH, 2, 4) == ThreadSpec(cpus=2, intra_op=2, inter_op=2)


def test_the_environment_of_a_tier_is_that_of_the_default_but_for_what_the_tier_sets():
    plain = environment(Tier.SEEDS, Framework.TORCH)
    assert environment(Tier.EXACT, Framework.TORCH) == plain
    assert environment(Tier.ENVIRONMENT, Framework.TORCH) == plain | {"MKL_CBWR": "AVX2,STRICT"}
    logical = environment(Tier.LOGICAL_THREADS, Framework.TORCH)
    assert (logical["OMP_NUM_THREADS"], logical["OMP_WAIT_POLICY"]) == ("4", "PASSIVE")
    assert environment(Tier.ENVIRONMENT, Framework.TENSORFLOW)["TF_ENABLE_ONEDNN_OPTS"] == "0"
    assert environment(Tier.SWITCHES, Framework.TENSORFLOW)["TF_DETERMINISTIC_OPS"] == "1"


def test_mkls_strict_mode_is_refused_where_it_is_not_promised():
    assert "Intel" in tiers.not_applicable(Tier.ENVIRONMENT, Framework.TORCH, "AuthenticAMD")
    assert tiers.not_applicable(Tier.ENVIRONMENT, Framework.TORCH, tiers.INTEL) == ""
    assert not any(tiers.not_applicable(tier, Framework.TENSORFLOW, "AuthenticAMD") for tier in tiers.TIERS)


@pytest.mark.parametrize(("tier", "framework"), EVERY)
def test_the_lines_to_paste_are_python_and_set_what_was_measured(tier, framework):
    lines = tiers.lines(tier, framework, 7, 4)
    compile("\n".join(lines.python), "pasted", "exec")
    pasted = dict(line.removeprefix("export ").split("=", 1) for line in lines.shell)
    measured = environment(tier, framework, cpus=4)
    # `threads.apply` sets OpenBLAS's in the run.
    measured["OPENBLAS_NUM_THREADS"] = str(tiers.threads_of(tier, framework, 4, 4).intra_op)
    assert pasted.pop("PYTHONHASHSEED") == "7"
    assert pasted.items() <= measured.items()
    assert set(tiers.settings(tier, framework)) <= set(pasted)


@pytest.mark.parametrize(
    ("tier", "framework", "count"),
    [
        *[(Tier.LOGICAL_THREADS, framework, "4") for framework in Framework],
        *[(Tier.ONE_THREAD, framework, "1") for framework in Framework],
        (Tier.EXACT, Framework.TENSORFLOW, str(tiers.EXACT_TENSORFLOW_THREADS)),
    ],
)
def test_the_lines_of_fixed_threads_fix_those_of_numpys_libraries_too(tier, framework, count):
    shell = tiers.lines(tier, framework, 7, 4).shell
    assert {f"export {name}={count}" for name in launch.POOLS} <= set(shell)


def test_one_thread_makes_mkls_first_call_in_every_tier_of_several_threads_that_is_more_than_seeds():
    settled = {tier for tier in tiers.TIERS if tiers.hook(tier)["settles_mkl"]}
    assert settled == set(tiers.TIERS) - {Tier.SEEDS, Tier.EXACT, Tier.ONE_THREAD}
    for tier in tiers.TIERS:
        assert ("torch.sqrt" in str(tiers.lines(tier, Framework.TORCH, 7, 4))) == (tier in settled)
        assert "torch" not in str(tiers.lines(tier, Framework.TENSORFLOW, 7, 4))


@pytest.mark.needs("studies")
def test_the_lines_of_fixed_threads_run_and_fix_them():
    lines = tiers.lines(Tier.LOGICAL_THREADS, Framework.TORCH, 7, 3)
    exports = dict(line.removeprefix("export ").split("=", 1) for line in lines.shell)
    code = "\n".join([*lines.python, "print(torch.get_num_threads(), torch.initial_seed())"])
    env = os.environ | exports
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["3", "7"]


def test_the_switches_do_not_end_a_program_with_an_operation_that_has_no_deterministic_kernel():
    code = "\n".join(
        [
            *tiers.lines(Tier.SWITCHES, Framework.TORCH, 7, 4).python,
            "x, at = torch.nn.functional.max_pool2d(torch.rand(1, 1, 4, 4), 2, return_indices=True)",
            "print(torch.nn.functional.max_unpool2d(x, at, 2).shape)",
        ]
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
