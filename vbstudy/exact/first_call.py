"""MKL's vector functions compute torch's `sqrt`, `exp`, `tanh` and the like on x86. They look for the CPU's
kernels when the first of them is called. Where several threads make that call at once, one of them may
compute its part with a kernel of few correct bits (oneMKL before 2025.0: PyTorch's issue 188792)."""

from __future__ import annotations


def settle() -> None:
    """Makes the first call, by one thread: to be called before torch computes."""
    import torch

    for dtype in (torch.float32, torch.float64):
        torch.sqrt(torch.ones(1, dtype=dtype, device="cpu"))
