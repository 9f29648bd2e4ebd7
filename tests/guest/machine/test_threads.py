import dataclasses
import json
import os
import subprocess
import sys

import pytest

from guest.machine import threads, tiers
from guest.records.run import Framework, Isa, Seeds, ThreadSpec, Variant
from tests import factories


def environment(vendor="GenuineIntel", **changes):
    return threads.environment(factories.spec(cpus=4, **changes), cpu_vendor=vendor)


def test_every_library_is_given_the_thread_count():
    env = environment(threads=ThreadSpec(cpus=4, intra_op=3, inter_op=2))
    for setting in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "TF_NUM_INTRAOP_THREADS"):
        assert env[setting] == "3"
    assert env["TF_NUM_INTEROP_THREADS"] == "2"


def test_waiting_threads_do_not_spin_for_long():
    assert int(environment()["GOMP_SPINCOUNT"]) <= 1000


@pytest.mark.parametrize("variant", Variant)
def test_strict_mkl_is_asked_for_by_deterministic_variants_on_intel_only(variant):
    assert (environment(variant=variant).get("MKL_CBWR") == "AVX2,STRICT") == variant.deterministic
    assert "MKL_CBWR" not in environment("AuthenticAMD", variant=variant)


def test_a_portable_study_caps_the_instruction_sets():
    env = environment(isa=Isa.PORTABLE)
    assert env["ATEN_CPU_CAPABILITY"] == "avx2"
    assert env["ONEDNN_MAX_CPU_ISA"] == "AVX2"
    assert env["MKL_CBWR"] == "COMPATIBLE"
    assert env["TF_ENABLE_ONEDNN_OPTS"] == "1"


def test_the_hash_seed_is_fixed_where_seeds_are():
    assert environment()["PYTHONHASHSEED"] == "1"
    assert environment(variant=Variant.DEFAULT, seeds=Seeds())["PYTHONHASHSEED"] == "random"


def test_a_free_initialisation_leaves_the_hash_seed_free():
    assert environment(seeds=Seeds(data_order=1))["PYTHONHASHSEED"] == "random"


def test_tensorflow_has_fixed_pools_in_the_variant_exact_and_torch_as_many_threads_as_ever():
    made = {
        name: factories.spec(
            variant=Variant.EXACT,
            threads=ThreadSpec(cpus=2, intra_op=2, inter_op=2),
            workload=dataclasses.replace(factories.spec().workload, framework=name),
        )
        for name in Framework
    }
    assert tiers.pools(made[Framework.TORCH]) == ThreadSpec(cpus=2, intra_op=2, inter_op=2)
    assert tiers.pools(made[Framework.TENSORFLOW]) == ThreadSpec(cpus=2, intra_op=8, inter_op=1)
    env = threads.environment(made[Framework.TENSORFLOW], cpu_vendor="GenuineIntel")
    assert (env["TF_NUM_INTRAOP_THREADS"], env["TF_NUM_INTEROP_THREADS"]) == ("8", "1")
    assert made[Framework.TENSORFLOW].set_id.endswith("/exact/cpus-2")


def test_a_mismatch_names_what_was_asked_and_what_is():
    asked = ThreadSpec(cpus=4, intra_op=4, inter_op=2)
    seen = {"visible_cpus": 2, "intra_op": 4, "inter_op": 2, "mkl": 1, "os_threads": {"python": 9}}
    assert threads.mismatches(asked, 4, seen) == [
        "visible_cpus is 2, 4 was asked for",
        "mkl is 1, 4 was asked for",
    ]


def test_no_mismatch_is_found_where_all_is_as_asked():
    asked = ThreadSpec(cpus=2, intra_op=2, inter_op=2)
    seen = {"visible_cpus": 2, "intra_op": 2, "inter_op": 2, "mkl": 2, "openmp": 2, "tf_compute_pool": 2}
    assert threads.mismatches(asked, 2, seen) == []


def test_the_operating_system_counts_at_least_this_thread():
    assert sum(threads.os_threads().values()) >= 1


def printed_by(code: str, asked: ThreadSpec) -> list:
    """Of a Python process that is started with these threads, as that of a run is."""
    own = {**os.environ, **environment(threads=asked)}
    done = subprocess.run([sys.executable, "-c", code], env=own, capture_output=True, check=True)
    return json.loads(done.stdout)


@pytest.mark.needs("studies")
def test_numpys_own_threads_are_set_in_the_run_and_read_back():
    code = (
        "import numpy, json; from guest.machine import threads\n"
        "from guest.records.run import Framework, ThreadSpec\n"
        "before = sum(threads.os_threads().values())\n"
        "threads.apply(Framework.TORCH, ThreadSpec(cpus=3, intra_op=3, inter_op=2))\n"
        "print(json.dumps([before, threads.in_force(Framework.TORCH)]))"
    )
    before, seen = printed_by(code, ThreadSpec(cpus=3, intra_op=3, inter_op=2))
    assert before == 1
    assert (seen["openblas"], seen["openmp"], seen["intra_op"], seen["inter_op"]) == (3, 3, 3, 2)


@pytest.mark.needs("studies")
def test_more_threads_than_numpys_openblas_was_built_for_are_no_mismatch():
    code = (
        "import numpy, json; from guest.machine import threads\n"
        "from guest.records.run import Framework, ThreadSpec\n"
        "asked = ThreadSpec(cpus=65, intra_op=65, inter_op=1)\n"
        "threads.apply(Framework.TORCH, asked)\n"
        "seen = threads.in_force(Framework.TORCH)\n"
        "right = threads.mismatches(asked, seen['visible_cpus'], seen)\n"
        "print(json.dumps([right, threads.mismatches(asked, seen['visible_cpus'], seen | {'openblas': 1})]))"
    )
    right, wrong = printed_by(code, ThreadSpec(cpus=65, intra_op=65, inter_op=1))
    assert right == []
    assert len(wrong) == 1
    assert wrong[0].startswith("openblas is 1, ")
