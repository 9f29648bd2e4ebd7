"""torchvision's ResNet-18 on noise, SGD with momentum."""

import torch
import torchvision

torch.manual_seed(3)
x, y = torch.randn(8, 3, 64, 64), torch.randint(0, 10, (8,))
model = torchvision.models.resnet18(num_classes=10)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)
for step in range(3):
    loss = torch.nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"step {step}: loss {loss.item():.9f}")
torch.save(model.state_dict(), "model.pt")
