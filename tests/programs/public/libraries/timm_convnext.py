"""timm's ConvNeXt with its own optimizer, loss and schedule."""

import timm
import torch
from timm.loss import LabelSmoothingCrossEntropy
from timm.optim import create_optimizer_v2

x, y = torch.randn(4, 3, 64, 64), torch.randint(0, 10, (4,))
model = timm.create_model("convnext_atto", num_classes=10, drop_path_rate=0.1)
optimizer = create_optimizer_v2(model, opt="adamw", lr=1e-3, weight_decay=0.05)
criterion = LabelSmoothingCrossEntropy(0.1)
for _ in range(2):
    loss = criterion(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print("loss:", loss.item())
torch.save(model.state_dict(), "convnext.pt")
