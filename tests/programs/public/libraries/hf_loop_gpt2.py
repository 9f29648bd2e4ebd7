"""A small GPT-2, in a loop written by hand."""

import torch
from transformers import GPT2Config, GPT2LMHeadModel

torch.manual_seed(5)
words = torch.randint(0, 800, (4, 64))
model = GPT2LMHeadModel(GPT2Config(vocab_size=800, n_positions=64, n_embd=96, n_layer=2, n_head=4))
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
for i in range(3):
    out = model(words, labels=words)
    optimizer.zero_grad(set_to_none=True)
    out.loss.backward()
    optimizer.step()
    print(f"iter {i}: loss {out.loss.item():.7f}, lr {optimizer.param_groups[0]['lr']}")
model.save_pretrained("gpt2")
