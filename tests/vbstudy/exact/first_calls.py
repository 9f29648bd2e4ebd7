"""What MKL's first call does: python -m tests.vbstudy.exact.first_calls PROCESSES THREADS FUNCTION

prints how often the bits of each result came, of processes that begin with the call of one of torch's
functions (`sqrt`, `exp`, ...; with `.float64` of that type), or train a network for 20 steps (`adam`).
With --settled `first_call.settle` comes before."""

from __future__ import annotations

import argparse
import hashlib
import os
import sys
from collections import Counter

import torch
import torch._dynamo  # which optimizers import at their first use
import torch.optim
from torch import nn

from vbstudy.exact import first_call

ELEMENTS = 40_000  # more than torch gives to one thread


def called(function: str) -> list[torch.Tensor]:
    name, _, dtype = function.partition(".")
    x = torch.linspace(0.001, 0.999, ELEMENTS, dtype=getattr(torch, dtype or "float32"))
    return [getattr(torch, name)(x)]


def trained() -> list[torch.Tensor]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 10))
    optimizer = torch.optim.Adam(model.parameters())
    x, y = torch.randn(64, 784), torch.randint(0, 10, (64,))
    for _ in range(20):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
    return [p.detach() for p in model.parameters()]


def results(processes: int, threads: int, function: str, settled: bool) -> list[int]:
    """How many processes gave each result, the most frequent first."""
    torch.set_num_threads(1)  # threads of this process would be missing in a fork
    found: Counter[bytes] = Counter()
    for _ in range(processes):
        reading, writing = os.pipe()
        process = os.fork()
        if not process:
            torch.set_num_threads(threads)
            if settled:
                first_call.settle()
            tensors = trained() if function == "adam" else called(function)
            os.write(writing, hashlib.sha256(b"".join(t.numpy().tobytes() for t in tensors)).digest())
            os._exit(0)
        os.close(writing)
        found[os.read(reading, 64)] += 1
        os.close(reading)
        os.waitpid(process, 0)
    return sorted(found.values(), reverse=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("processes", type=int)
    parser.add_argument("threads", type=int)
    parser.add_argument("function")
    parser.add_argument("--settled", action="store_true")
    sys.stdout.write(f"{' '.join(map(str, results(**vars(parser.parse_args()))))}\n")
