"""MKL's vector functions compute torch's `sqrt`, `exp`, `tanh` and the like on x86. They look for the CPU's
type when the first of them is called, and choose kernels by it. Where several threads make that call at once,
one of them may read the type before it is final, and compute its part with a kernel of few correct bits
(oneMKL before 2025.0; docs/why-and-cure.md)."""

from __future__ import annotations


def settle() -> None:
    """Makes the first call, by one thread: to be called before torch computes."""
    import torch

    torch.sqrt(torch.ones(1, dtype=torch.float32, device="cpu"))
