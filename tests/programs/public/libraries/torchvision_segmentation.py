"""torchvision's LR-ASPP: a label for each pixel."""

import torch
from torchvision.models.segmentation import lraspp_mobilenet_v3_large

x, y = torch.randn(4, 3, 96, 96), torch.randint(0, 5, (4, 96, 96))
model = lraspp_mobilenet_v3_large(weights=None, weights_backbone=None, num_classes=5)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for _ in range(2):
    loss = torch.nn.functional.cross_entropy(model(x)["out"], y)
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
print({"train_loss": loss.item()})
torch.save(model.state_dict(), "model.pt")
