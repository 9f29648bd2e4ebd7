"""Two models with an optimizer each."""

import torch
from torch import nn

real = torch.randn(256, 128)
generator = nn.Sequential(nn.Linear(32, 256), nn.ReLU(), nn.Linear(256, 128))
critic = nn.Sequential(nn.Linear(128, 256), nn.LeakyReLU(0.2), nn.Linear(256, 1))
of_generator = torch.optim.Adam(generator.parameters(), lr=1e-3)
of_critic = torch.optim.Adam(critic.parameters(), lr=1e-3)
judge = nn.functional.binary_cross_entropy_with_logits
for _ in range(3):
    made = generator(torch.randn(256, 32))
    loss = judge(critic(real), torch.ones(256, 1)) + judge(critic(made.detach()), torch.zeros(256, 1))
    of_critic.zero_grad()
    loss.backward()
    of_critic.step()
    loss = judge(critic(made), torch.ones(256, 1))
    of_generator.zero_grad()
    loss.backward()
    of_generator.step()
print("loss:", loss.item())
