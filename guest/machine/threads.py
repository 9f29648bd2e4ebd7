"""Every thread setting of torch, TensorFlow, OpenMP, MKL, oneDNN and OpenBLAS.

Two halves, because two moments matter: `environment` is what must be set before the framework is
imported (libraries read it when they load), `apply` what must be called after. `in_force` reads back
what the libraries really use, and `mismatches` compares it with the request."""

from __future__ import annotations

import collections
import contextlib
import ctypes
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from guest.machine import tiers
from guest.records.run import Framework, Isa, RunSpec, ThreadSpec


class ThreadMismatchError(RuntimeError):
    """What is in force is not what was asked for: the run would measure something else."""


def environment(spec: RunSpec, *, cpu_vendor: str) -> dict[str, str]:
    """The environment variables of one run, complete: nothing else that steers threads is inherited.

    One warm worker serves all runs with an equal environment."""
    pools = tiers.pools(spec)
    threads = str(pools.intra_op)
    settings = {
        "OMP_NUM_THREADS": threads,
        "OMP_DYNAMIC": "FALSE",
        # OpenMP threads that wait for a core by spinning keep the one they wait for off it: with one
        # of two cores busy elsewhere a run took 27 s instead of 4.5 s, and on quiet cores a short
        # spin costs nothing. It changes no bits.
        "GOMP_SPINCOUNT": "1000",
        "MKL_NUM_THREADS": threads,
        "MKL_DYNAMIC": "FALSE",
        # OpenBLAS starts its threads when it is loaded, and a warm worker must have none when it
        # forks; `apply` sets the count in the run itself.
        "OPENBLAS_NUM_THREADS": "1",
        # So does pyarrow's allocator, and Keras imports pyarrow where it is installed.
        "JE_ARROW_MALLOC_CONF": "background_thread:false",
        "NUMEXPR_NUM_THREADS": threads,
        "NPROC": threads,  # of XLA's pool, which JAX computes in
        "TF_NUM_INTRAOP_THREADS": threads,
        "TF_NUM_INTEROP_THREADS": str(pools.inter_op),
        "TF_CPP_MIN_LOG_LEVEL": "2",
        "CUDA_VISIBLE_DEVICES": "-1",
        # Python's own hash order is one more source of randomness. Runs forked from one warm worker
        # share it, fixed or not.
        "PYTHONHASHSEED": "random" if spec.seeds.initialisation is None else str(spec.seeds.initialisation),
    }
    if spec.isa is Isa.PORTABLE:
        settings |= {
            "ATEN_CPU_CAPABILITY": "avx2",
            "ONEDNN_MAX_CPU_ISA": "AVX2",
            "MKL_CBWR": "COMPATIBLE",
            # TensorFlow uses oneDNN by itself only where the CPU has VNNI or more.
            "TF_ENABLE_ONEDNN_OPTS": "1",
        }
    if spec.variant.deterministic:
        settings["TF_DETERMINISTIC_OPS"] = "1"
        if cpu_vendor == tiers.INTEL:
            # Intel's strict conditional numerical reproducibility: gemm no longer depends on the
            # thread count. Together with oneDNN off (guest.workloads) torch trains the same bits.
            settings["MKL_CBWR"] = "AVX2,STRICT"
    framework = spec.workload.computes_with
    return settings if framework is None else settings | tiers.settings(spec.cure, framework)


def avx2_only() -> dict[str, str]:
    """Environment variables that cap torch, oneDNN, MKL, numpy, OpenBLAS and TensorFlow to AVX2."""
    return {
        "ATEN_CPU_CAPABILITY": "avx2",
        "ONEDNN_MAX_CPU_ISA": "AVX2",
        "MKL_ENABLE_INSTRUCTIONS": "AVX2",
        # Up to numpy 2.3, and since; it passes over the names that it does not know.
        "NPY_DISABLE_CPU_FEATURES": "AVX512F AVX512CD AVX512_SKX AVX512_CLX AVX512_CNL AVX512_ICL AVX512_SPR "
        "X86_V4",
        "OPENBLAS_CORETYPE": "Haswell",
        "XLA_FLAGS": f"{os.environ.get('XLA_FLAGS', '')} --xla_cpu_max_isa=AVX2".strip(),
        "VBSTUDY_EXACT_ISA": "avx2",
    }


@contextlib.contextmanager
def on_cores(cores: Iterable[int]) -> Iterator[None]:
    """Processes that are started within are held to these cores, with all their threads, from their first
    instruction: a child inherits the affinity of the thread that starts it. (Code between fork and exec
    would be unsafe with other threads running.)"""
    kept = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, kept)


def apply(framework: Framework, threads: ThreadSpec) -> None:
    """Sets the framework's own pools, and numpy's. To be called once, before the first operation."""
    set_openblas = _openblas("set_num_threads")
    if set_openblas is not None:
        set_openblas(threads.intra_op)
    if framework is Framework.TORCH:
        import torch

        torch.set_num_threads(threads.intra_op)
        if torch.get_num_interop_threads() != threads.inter_op:  # may be set only once a process
            torch.set_num_interop_threads(threads.inter_op)
    else:
        import tensorflow as tf

        tf.config.threading.set_intra_op_parallelism_threads(threads.intra_op)
        tf.config.threading.set_inter_op_parallelism_threads(threads.inter_op)


def in_force(framework: Framework) -> dict[str, Any]:
    """Thread counts as the libraries report them now. TensorFlow's pools stand only after its
    first operation."""
    seen: dict[str, Any] = {
        "visible_cpus": len(os.sched_getaffinity(0)),
        "online_cpus": os.cpu_count(),
        "os_threads": os_threads(),
    }
    get_openblas = _openblas("get_num_threads")
    if get_openblas is not None:
        seen["openblas"] = get_openblas()
    if framework is Framework.TORCH:
        import torch

        seen["intra_op"] = torch.get_num_threads()
        seen["inter_op"] = torch.get_num_interop_threads()
        library = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"))
        for name, symbol in (("mkl", "MKL_Get_Max_Threads"), ("openmp", "omp_get_max_threads")):
            if hasattr(library, symbol):  # other builds of torch carry other libraries
                seen[name] = int(getattr(library, symbol)())
    else:
        import tensorflow as tf

        seen["intra_op"] = tf.config.threading.get_intra_op_parallelism_threads()
        seen["inter_op"] = tf.config.threading.get_inter_op_parallelism_threads()
        pool = seen["os_threads"].get("tf_Compute")
        if pool:
            seen["tf_compute_pool"] = pool  # TensorFlow names its inter-op threads
    return seen


def mismatches(asked: ThreadSpec, visible_cpus: int, seen: dict[str, Any]) -> list[str]:
    """What differs between request and reality, one phrase each; empty when all is as asked."""
    wanted = {
        "visible_cpus": visible_cpus,
        "intra_op": asked.intra_op,
        "inter_op": asked.inter_op,
        "mkl": asked.intra_op,
        "openmp": asked.intra_op,
        "openblas": min(asked.intra_op, _openblas_most()),  # no framework computes with numpy's
        "tf_compute_pool": asked.inter_op,
    }
    return [
        f"{name} is {seen[name]}, {count} was asked for"
        for name, count in wanted.items()
        if name in seen and seen[name] != count
    ]


def os_threads() -> dict[str, int]:
    """This process's threads by name: the operating system's view."""
    names = []
    for task in Path("/proc/self/task").iterdir():
        try:
            names.append((task / "comm").read_text().strip())
        except FileNotFoundError:
            continue  # the thread ended meanwhile
    return dict(collections.Counter(names))


def _openblas_most() -> int:
    """The number of threads that numpy's OpenBLAS was built for."""
    get_config: Any = _openblas("get_config")
    if get_config is None:
        return sys.maxsize
    get_config.restype = ctypes.c_char_p
    _, _, most = get_config().decode().partition("MAX_THREADS=")
    return int(most.split()[0]) if most else sys.maxsize


def _openblas(verb: str) -> Callable[..., int] | None:
    """A function of numpy's OpenBLAS, `get_num_threads`, `set_num_threads` or `get_config`, where numpy has
    one."""
    numpy = sys.modules.get("numpy")
    if numpy is None or numpy.__file__ is None:
        return None
    package = Path(numpy.__file__).parent
    for file in sorted(
        [*(package.parent / "numpy.libs").glob("*openblas*"), *package.glob(".libs/*openblas*")]
    ):
        library = ctypes.CDLL(str(file))
        for symbol in (f"scipy_openblas_{verb}64_", f"openblas_{verb}64_", f"openblas_{verb}"):
            if hasattr(library, symbol):
                function: Callable[..., int] = getattr(library, symbol)
                return function
    return None
