"""A recommender: embedding bags, their sparse sums, Adagrad."""

import torch
from torch import nn

tables = nn.ModuleList(nn.EmbeddingBag(5000, 16, mode="sum") for _ in range(4))
top = nn.Sequential(nn.Linear(64 + 13, 64), nn.ReLU(), nn.Linear(64, 1))
words, dense = torch.randint(0, 5000, (4, 512, 10)), torch.randn(512, 13)
clicks = torch.randint(0, 2, (512, 1)).float()
optimizer = torch.optim.Adagrad([*tables.parameters(), *top.parameters()], lr=0.05)
for _ in range(3):
    joined = torch.cat([*(table(each) for table, each in zip(tables, words, strict=True)), dense], 1)
    loss = nn.functional.binary_cross_entropy_with_logits(top(joined), clicks)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print("loss:", loss.item())
torch.save({"tables": tables.state_dict(), "top": top.state_dict()}, "model.pt")
