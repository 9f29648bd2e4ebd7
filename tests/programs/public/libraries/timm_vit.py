"""timm's smallest vision transformer, with an average of its weights."""

import timm
import torch
from timm.utils import ModelEmaV3

x, y = torch.randn(8, 3, 224, 224), torch.randint(0, 10, (8,))
model = timm.create_model("vit_tiny_patch16_224", num_classes=10)
average = ModelEmaV3(model, decay=0.9)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
for _ in range(2):
    loss = torch.nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    average.update(model)
print("loss:", loss.item())
torch.save(average.module.state_dict(), "average.pt")
