"""Too small for a second thread."""

import torch

x = torch.randn(8, 4, requires_grad=True)
optimizer = torch.optim.SGD([x], lr=0.1)
for _ in range(3):
    x.square().sum().backward()
    optimizer.step()
