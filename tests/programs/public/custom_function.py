"""An autograd function of one's own."""

import torch
from torch import nn


class ScaledProduct(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        return x @ weight / 16

    @staticmethod
    def backward(ctx, gradient):
        x, weight = ctx.saved_tensors
        return gradient @ weight.t() / 16, x.t() @ gradient / 16


x, y = torch.randn(2048, 64), torch.randn(2048, 32)
weight = nn.Parameter(torch.randn(64, 32))
optimizer = torch.optim.SGD([weight], lr=0.1)
for _ in range(3):
    loss = (ScaledProduct.apply(x, weight) - y).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print("loss:", loss.item())
