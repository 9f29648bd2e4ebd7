"""Blocks that are computed again in the backward pass."""

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


def layer():
    return nn.Sequential(nn.LayerNorm(256), nn.Linear(256, 256), nn.ReLU(), nn.Dropout(0.1))


x, y = torch.randn(512, 256), torch.randn(512, 256)
blocks = nn.ModuleList([layer() for _ in range(3)])
optimizer = torch.optim.Adam(blocks.parameters())
for _ in range(3):
    z = x
    for block in blocks:
        z = checkpoint(block, z, use_reentrant=False)
    loss = nn.functional.mse_loss(z, y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print("loss:", loss.item())
