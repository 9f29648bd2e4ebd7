"""Training in bfloat16 by autocast."""

import torch
from torch import nn

x, y = torch.randn(256, 512), torch.randn(256, 1)
model = nn.Sequential(nn.Linear(512, 256), nn.GELU(), nn.LayerNorm(256), nn.Linear(256, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
for _ in range(3):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = nn.functional.mse_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print("loss:", loss.item())
