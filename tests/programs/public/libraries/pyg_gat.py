"""PyTorch Geometric: a graph attention network on a random graph."""

import torch
from torch_geometric.nn import GATConv

nodes, edges = torch.randn(400, 32), torch.randint(0, 400, (2, 3000))
labels = torch.randint(0, 4, (400,))
layers = torch.nn.ModuleList([GATConv(32, 16, heads=4), GATConv(64, 4, heads=1)])
optimizer = torch.optim.Adam(layers.parameters(), lr=0.01)
for _ in range(3):
    logits = layers[1](layers[0](nodes, edges).relu(), edges)
    loss = torch.nn.functional.cross_entropy(logits, labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print("loss:", loss.item())
torch.save(layers.state_dict(), "gat.pt")
