"""torchvision's MobileNetV3 in channels_last, RMSprop."""

import torch
import torchvision

x = torch.randn(8, 3, 64, 64).to(memory_format=torch.channels_last)
y = torch.randint(0, 10, (8,))
model = torchvision.models.mobilenet_v3_small(num_classes=10).to(memory_format=torch.channels_last)
optimizer = torch.optim.RMSprop(model.parameters(), lr=0.001)
for _ in range(3):
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(model(x), y, label_smoothing=0.1)
    loss.backward()
    optimizer.step()
print("loss =", loss.item())
torch.save({"model": model.state_dict()}, "checkpoint.pth")
