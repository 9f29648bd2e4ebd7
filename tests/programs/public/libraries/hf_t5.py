"""A small T5: encoder, decoder, relative positions, Adafactor."""

import torch
from transformers import T5Config, T5ForConditionalGeneration
from transformers.optimization import Adafactor

source, target = torch.randint(1, 300, (4, 32)), torch.randint(1, 300, (4, 16))
config = T5Config(
    vocab_size=300, d_model=64, d_ff=128, num_layers=2, num_heads=4, d_kv=16, decoder_start_token_id=0
)
model = T5ForConditionalGeneration(config)
optimizer = Adafactor(model.parameters(), lr=1e-3, relative_step=False, scale_parameter=False)
for _ in range(3):
    loss = model(input_ids=source, labels=target).loss
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print("loss:", loss.item())
torch.save(model.state_dict(), "t5.pt")
