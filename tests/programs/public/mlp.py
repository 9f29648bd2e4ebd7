"""A classifier of two layers, trained with Adam; sets no seed."""

import torch
from torch import nn

x, y = torch.randn(512, 300), torch.randint(0, 10, (512,))
model = nn.Sequential(nn.Linear(300, 256), nn.LayerNorm(256), nn.ReLU(), nn.Dropout(0.1), nn.Linear(256, 10))
optimizer = torch.optim.Adam(model.parameters())
for _ in range(3):
    loss = nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print("loss:", loss.item())
