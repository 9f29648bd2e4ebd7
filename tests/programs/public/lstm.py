"""A recurrent network over sequences of words."""

import torch
from torch import nn


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(200, 48)
        self.memory = nn.LSTM(48, 96, num_layers=2, batch_first=True)
        self.tags = nn.Linear(96, 12)

    def forward(self, sentence):
        return self.tags(self.memory(self.words(sentence))[0])


words, tags = torch.randint(0, 200, (32, 20)), torch.randint(0, 12, (32, 20))
model = Tagger()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for _ in range(3):
    loss = nn.functional.cross_entropy(model(words).flatten(0, 1), tags.flatten())
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
print("loss:", loss.item())
