"""The tiers of hardening: what can be done so that a training gives the same bits on any thread count, in
this order. Each is described here once: what is set before the framework is imported, with how many threads
it computes, where it does not apply, and the lines that a user pastes."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from guest.records.run import Framework, RunSpec, ThreadSpec, Tier, Variant
from vbstudy.exact import launch

INTEL = "GenuineIntel"
EXACT_TENSORFLOW_THREADS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class TierInfo:
    """One tier: its number, and what it is."""

    number: int
    title: str


TIERS: Mapping[Tier, TierInfo] = MappingProxyType(
    {
        Tier.SEEDS: TierInfo(number=0, title="seeds"),
        Tier.SWITCHES: TierInfo(number=1, title="the framework's determinism switches"),
        Tier.ENVIRONMENT: TierInfo(number=2, title="environment: MKL's strict mode, oneDNN off"),
        Tier.LOGICAL_THREADS: TierInfo(number=3, title="a fixed number of logical threads"),
        Tier.EXACT: TierInfo(number=4, title="exact mode"),
        Tier.ONE_THREAD: TierInfo(number=5, title="one thread"),
    }
)


def tier_text(tier: Tier) -> str:
    """`4 exact mode`."""
    return f"{TIERS[tier].number} {TIERS[tier].title}"


def not_applicable(tier: Tier, framework: Framework, cpu_vendor: str) -> str:
    """Why a tier cannot be had; empty where it can."""
    if tier is Tier.ENVIRONMENT and framework is Framework.TORCH and cpu_vendor != INTEL:
        return f"MKL's strict mode is for Intel CPUs, and this is {cpu_vendor or 'an unknown one'}"
    return ""


def threads_of(tier: Tier, framework: Framework, cpus: int, most: int) -> ThreadSpec:
    """The threads in a guest of `cpus`. `most` is the largest count that is compared: the fixed number."""
    if tier is Tier.LOGICAL_THREADS:
        return ThreadSpec(cpus=cpus, intra_op=most, inter_op=most)
    if tier is Tier.EXACT and framework is Framework.TENSORFLOW:
        return ThreadSpec(cpus=cpus, intra_op=EXACT_TENSORFLOW_THREADS, inter_op=1)
    if tier is Tier.ONE_THREAD:
        return ThreadSpec(cpus=cpus, intra_op=1, inter_op=1)
    return ThreadSpec(cpus=cpus, intra_op=cpus, inter_op=cpus)


def pools(spec: RunSpec) -> ThreadSpec:
    """The threads that a run computes with: as planned, but for TensorFlow in the variant `exact`, whose
    conditions are named by the CPUs that its fixed pools are served by."""
    framework = spec.workload.framework
    if spec.variant is Variant.EXACT and framework is Framework.TENSORFLOW:
        return threads_of(Tier.EXACT, framework, spec.threads.cpus, most=spec.threads.intra_op)
    return spec.threads


def settings(tier: Tier, framework: Framework) -> dict[str, str]:
    """Environment variables of the tier itself, beside those of its threads."""
    match tier, framework:
        case Tier.SWITCHES, Framework.TENSORFLOW:
            return {"TF_DETERMINISTIC_OPS": "1"}
        case Tier.ENVIRONMENT, Framework.TORCH:
            return {"MKL_CBWR": "AVX2,STRICT"}
        case Tier.ENVIRONMENT, Framework.TENSORFLOW:
            return {"TF_ENABLE_ONEDNN_OPTS": "0"}
        case Tier.LOGICAL_THREADS, Framework.TORCH:
            # More threads than cores: one that waits by spinning keeps the one it waits for off its core.
            return {"OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": "0"}
        case _:
            return {}


def fixed_pools(count: int) -> dict[str, str]:
    """Environment variables that give the libraries beside the framework, as numpy's, `count` threads."""
    return {**dict.fromkeys(launch.POOLS, str(count)), "OMP_DYNAMIC": "FALSE", "MKL_DYNAMIC": "FALSE"}


def settles_mkl(tier: Tier) -> bool:
    """Whether one thread makes MKL's first call (`vbstudy.exact.first_call`). Exact mode does so itself."""
    return tier in (Tier.SWITCHES, Tier.ENVIRONMENT, Tier.LOGICAL_THREADS)


def hook(tier: Tier) -> dict[str, bool]:
    """Settings of the start-up hook in a program: what `lines` has the user put at the top of the script."""
    found = {"settles_mkl": settles_mkl(tier)}
    match tier:
        case Tier.SWITCHES:
            return found | {"deterministic": True, "onednn": True}
        case Tier.ENVIRONMENT:
            return found | {"onednn": False}
        case _:
            return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Lines:
    """What a user pastes: into the shell, and at the top of the script."""

    shell: tuple[str, ...]
    python: tuple[str, ...]


def seeds(framework: Framework | None, seed: int, own: Collection[str] = ()) -> tuple[str, ...]:
    """An import and the calls that seed the generators, but for those that the program makes itself: `own`,
    by the names of the start-up hook. Nothing where it makes all."""
    calls = ["random.seed", "numpy.random.seed"]
    if framework is not None:
        calls.append("torch.manual_seed" if framework is Framework.TORCH else "tf.random.set_seed")
    calls = [call for call in calls if call not in own]
    if not calls:
        return ()
    if framework is Framework.TENSORFLOW:
        return "import keras", f"keras.utils.set_random_seed({seed})"
    libraries = dict.fromkeys(call.partition(".")[0] for call in calls)
    return f"import {', '.join(libraries)}", "; ".join(f"{call}({seed})" for call in calls)


def lines(tier: Tier, framework: Framework, seed: int, most: int, own: Collection[str] = ()) -> Lines:
    """The lines that do in a user's script what the tier did here. Seeds belong to every tier; `own` are
    those of the script, as of `seeds`."""
    exports = {"PYTHONHASHSEED": str(seed), **settings(tier, framework)}
    torch = framework is Framework.TORCH
    fixed = threads_of(tier, framework, most, most)
    fixes = tier in (Tier.LOGICAL_THREADS, Tier.ONE_THREAD) or (tier is Tier.EXACT and not torch)
    exports |= fixed_pools(fixed.intra_op) if fixes else {}
    python = ["import random, numpy, torch" if torch else "import keras, tensorflow as tf"]
    match tier:
        case Tier.SWITCHES:
            switch = "torch.use_deterministic_algorithms(True, warn_only=True)"
            python.append(switch if torch else "tf.config.experimental.enable_op_determinism()")
        case Tier.ENVIRONMENT if torch:
            python.append("torch.backends.mkldnn.enabled = False")
        case Tier.EXACT:
            call = "enable()" if torch else f"enable_tensorflow(intra_op={fixed.intra_op}, inter_op=1)"
            python.append(f"from vbstudy import exact; exact.{call}")
        case Tier.LOGICAL_THREADS | Tier.ONE_THREAD if torch:
            python.append(f"torch.set_num_threads({fixed.intra_op})")
            python.append(f"torch.set_num_interop_threads({fixed.inter_op})")
        case Tier.LOGICAL_THREADS | Tier.ONE_THREAD:
            python.append(f"tf.config.threading.set_intra_op_parallelism_threads({fixed.intra_op})")
            python.append(f"tf.config.threading.set_inter_op_parallelism_threads({fixed.inter_op})")
    if torch and settles_mkl(tier):
        python.append("torch.sqrt(torch.ones(1))  # one thread makes MKL's first call")
    python += seeds(framework, seed, own)[1:]  # the import is the first line
    return Lines(
        shell=tuple(f"export {name}={value}" for name, value in exports.items()), python=tuple(python)
    )
