"""A small language model of two transformer layers."""

import torch
from torch import nn

torch.manual_seed(0)
vocabulary, width, length = 128, 64, 48
embed, position = nn.Embedding(vocabulary, width), nn.Parameter(torch.zeros(length, width))
layer = nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0.1, batch_first=True, norm_first=True)
encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
head = nn.Linear(width, vocabulary)
weights = [*embed.parameters(), position, *encoder.parameters(), *head.parameters()]
optimizer = torch.optim.AdamW(weights, lr=3e-4)
mask = nn.Transformer.generate_square_subsequent_mask(length)
for _ in range(3):
    text = torch.randint(0, vocabulary, (16, length + 1))
    logits = head(encoder(embed(text[:, :-1]) + position, mask=mask, is_causal=True))
    loss = nn.functional.cross_entropy(logits.flatten(0, 1), text[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print("loss:", loss.item())
