"""A program of somebody's, in PyTorch: sets no seed. `train_torch.py THREADS MODEL...` trains one after the
other and prints the SHA-256 of the weights of each."""

import hashlib
import random
import sys

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812
from torch.utils.data import DataLoader, TensorDataset


def lenet5():
    return nn.Sequential(
        nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(64, 120), nn.ReLU(), nn.Dropout(0.2),
        nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10),
    )  # fmt: skip


class Block(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.stride, self.more = stride, outputs - inputs
        self.first = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.second = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.norms = nn.ModuleList([nn.BatchNorm2d(outputs), nn.BatchNorm2d(outputs)])

    def forward(self, x):
        y = self.norms[1](self.second(F.relu(self.norms[0](self.first(x)))))
        return F.relu(y + F.pad(x[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, 0, self.more)))


def resnet20():
    layers, inputs = [nn.Conv2d(1, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU()], 16
    for outputs in (16, 32, 64):
        for i in range(3):
            layers.append(Block(inputs, outputs, 2 if i == 0 and outputs > 16 else 1))
            inputs = outputs
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))


class Lstm(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(50, 32)
        self.lstm = nn.LSTM(32, 64, batch_first=True)
        self.out = nn.Sequential(nn.Dropout(0.2), nn.Linear(64, 10))

    def forward(self, x):
        return self.out(self.lstm(self.words(x))[0][:, -1])


def train(name):
    model = {"lenet5": lenet5, "resnet20": resnet20, "lstm": Lstm}[name]()
    x = torch.randint(50, (128, 12)) if name == "lstm" else torch.rand(128, 1, 16, 16)
    y = torch.tensor([random.randrange(10) for _ in range(128)])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for _ in range(2):
        for images, labels in DataLoader(TensorDataset(x, y), batch_size=32, shuffle=True):
            optimizer.zero_grad()
            F.cross_entropy(model(images), labels).backward()
            optimizer.step()
    total = hashlib.sha256()
    for value in model.state_dict().values():
        total.update(value.numpy().tobytes())
    return total.hexdigest()


if __name__ == "__main__":
    torch.set_num_threads(int(sys.argv[1]))
    for name in sys.argv[2:]:
        print(name, train(name), flush=True)
