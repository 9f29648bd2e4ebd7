"""Data from worker processes, shuffled and augmented; sets no seed."""

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Noisy(Dataset):
    def __init__(self):
        self.x = np.random.randn(256, 200).astype(np.float32)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return torch.from_numpy(self.x[i]) + 0.1 * torch.randn(200), i % 5


model = nn.Sequential(nn.Linear(200, 128), nn.Tanh(), nn.Linear(128, 5))
optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3)
for x, y in DataLoader(Noisy(), batch_size=128, shuffle=True, num_workers=2):
    loss = nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print("loss:", loss.item())
