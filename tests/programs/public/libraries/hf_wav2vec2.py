"""wav2vec 2.0 on noise: convolutions in one dimension, CTC loss."""

import torch
from transformers import Wav2Vec2Config, Wav2Vec2ForCTC

sound, labels = torch.randn(2, 8000), torch.randint(1, 20, (2, 6))
config = Wav2Vec2Config(
    vocab_size=20, hidden_size=48, num_hidden_layers=1, num_attention_heads=4, intermediate_size=64,
    conv_dim=(32, 32, 32, 32, 32, 32, 32), num_conv_pos_embeddings=16, num_conv_pos_embedding_groups=4,
    ctc_loss_reduction="mean",
)  # fmt: skip
model = Wav2Vec2ForCTC(config)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(2):
    loss = model(sound, labels=labels).loss
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print("loss:", loss.item())
torch.save(model.state_dict(), "wav2vec2.pt")
