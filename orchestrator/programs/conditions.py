"""What differs between the runs of a program that are compared: one factor, and its conditions."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from guest.machine import fingerprint, threads
from guest.records.printable import counted
from guest.records.run import ThreadSpec
from orchestrator.cores.leases import host_cores
from orchestrator.errors import UsageError

FACTORS = ("threads", "isa", "workers", "hash")
THREADS, INSTRUCTION_SET = "thread count", "instruction set"  # names of factors
WORKERS = (0, 2)
CURE_NEEDS_SEED = "a cure can be found once a seed fixes the random numbers"
HASH_SEEDS = (0, 1)
POOLS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS")
VARIABLE = re.compile(r"env:(?P<name>[A-Za-z_][A-Za-z0-9_]*)=(?P<values>.+)", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """One value of the factor. The program gets `threads` cores, as far as there are, and computes with
    `intra_op` threads; `hook` are further settings of the start-up hook. `exact`: with exact mode."""

    label: str
    threads: int
    intra_op: int = 0  # 0: as many as cores
    inter_op: int = 0
    env: Mapping[str, str] = field(default_factory=dict)
    hook: Mapping[str, Any] = field(default_factory=dict)
    exact: bool = False

    @property
    def asked(self) -> ThreadSpec:
        """The threads that the program is given."""
        return ThreadSpec(
            cpus=self.threads, intra_op=self.intra_op or self.threads, inter_op=self.inter_op or self.threads
        )

    def hook_settings(self, seed: int | None) -> dict[str, Any]:
        """Those of the start-up hook, as of `prepare.hook_settings`."""
        pools = {"intra_op": self.asked.intra_op, "inter_op": self.asked.inter_op}
        return {"seed": seed, **pools, "deterministic": False, **self.hook}


@dataclass(frozen=True, slots=True, kw_only=True)
class Factor:
    """What is varied, by its name in the report."""

    name: str
    conditions: tuple[Condition, ...]


def thread_counts(given: Sequence[int] | None) -> Sequence[int]:
    """Those of --cpus, or one and all cores. Raises UsageError for less than two."""
    counts = given or (1, max(2, len(host_cores())))
    if len(counts) < 2:
        raise UsageError(f"--cpus {counts[0]}: two thread counts are needed, as in --cpus 1,4")
    return counts


def given(counts: Sequence[int], seed: int | None, what: str = "threads") -> str:
    """The options of a command that is to repeat a program as it was run."""
    factor = f" --vary {shlex.quote(what)}" if what != "threads" else ""
    cpus = f" --cpus {','.join(map(str, counts))}" if counts else ""
    return factor + cpus + ("" if seed in (None, 1) else f" --seed {seed}")  # 1: the default of all commands


def oversubscribed(counts: Iterable[int]) -> tuple[int, ...]:
    """Those above the cores there are."""
    cores = len(host_cores())
    return tuple(sorted({count for count in counts if count > cores}))


def notes_of_gpus(conditions: Iterable[Condition]) -> tuple[str, ...]:
    """On GPUs that the user's own environment names, and runs hide (`threads.environment`)."""
    name = "CUDA_VISIBLE_DEVICES"
    own = os.environ.get(name, "")
    if own in ("", "-1") or any(name in condition.env for condition in conditions):
        return ()
    return (f"{name}={own} of your environment is replaced by -1: the program runs without a GPU",)


def vary(what: str, counts: Sequence[int] | None) -> Factor:
    """The factor of `--vary`; `counts` are those of --cpus: two or more thread counts, or the one at which
    another factor is varied. Raises UsageError."""
    if what == "threads":
        made = [Condition(label=counted(n, "thread"), threads=n) for n in thread_counts(counts)]
        return Factor(name=THREADS, conditions=tuple(made))
    if counts and len(counts) > 1:
        told = ",".join(map(str, counts))
        raise UsageError(f"--cpus {told}: --vary {what} needs one thread count, as in --cpus 2")
    count = counts[0] if counts else len(host_cores())
    if what == "isa":
        return _instruction_sets(count)
    if what == "workers":
        loaders = [Condition(label=counted(n, "worker"), threads=count, hook={"workers": n}) for n in WORKERS]
        return Factor(name="number of DataLoader workers", conditions=tuple(loaders))
    if what == "hash":
        return _variable("PYTHONHASHSEED", [str(seed) for seed in HASH_SEEDS], count)
    match = VARIABLE.fullmatch(what)
    if match is None:
        raise UsageError(f"--vary {what}: one of {', '.join(FACTORS)} or env:NAME=VALUE,VALUE")
    if match["name"] in POOLS:
        raise UsageError(
            f"--vary {what}: PyTorch and TensorFlow get their thread counts in each run; --vary threads "
            "varies them, and --which the pools"
        )
    values = match["values"].split(",")
    if len(set(values)) < 2:
        raise UsageError(f"--vary {what}: two values are needed, as in env:{match['name']}=a,b")
    return _variable(match["name"], list(dict.fromkeys(values)), count)


def _variable(name: str, values: Sequence[str], count: int) -> Factor:
    made = [Condition(label=f"{name}={value}", threads=count, env={name: value}) for value in values]
    return Factor(name=name, conditions=tuple(made))


def _instruction_sets(count: int) -> Factor:
    flags = fingerprint.cpu()["flags"]
    if "avx512f" not in flags:
        raise UsageError("--vary isa: this CPU has no AVX-512, which is what would be left out")
    capped = Condition(label="AVX2", threads=count, env=threads.avx2_only())
    return Factor(name=INSTRUCTION_SET, conditions=(Condition(label="AVX-512", threads=count), capped))
