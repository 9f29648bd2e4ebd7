"""A plain PyTorch training loop, as most people write it."""

import argparse
from pathlib import Path

import numpy as np
import torch
from data import loaders
from model import small_cnn
from torch.nn import functional


def train(model, batches, optimizer):
    model.train()
    total = 0.0
    for x, y in batches:
        optimizer.zero_grad()
        loss = functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        total += loss.item()
    return total / len(batches)


def test(model, batches):
    model.eval()
    with torch.no_grad():
        logits = torch.cat([model(x) for x, _ in batches])
    labels = torch.cat([y for _, y in batches])
    return logits, (logits.argmax(1) == labels).float().mean().item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--lr", type=float, default=0.05)
    args = parser.parse_args()

    train_batches, test_batches = loaders(batch_size=64)
    model = small_cnn()
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)
    for epoch in range(1, args.epochs + 1):
        loss = train(model, train_batches, optimizer)
        logits, accuracy = test(model, test_batches)
        print(f"Epoch {epoch}: train loss {loss:.6f}, test acc: {accuracy:.4f}")

    Path("out").mkdir(exist_ok=True)
    torch.save(model.state_dict(), "out/model.pt")
    np.save("out/preds.npy", logits.numpy())


if __name__ == "__main__":
    main()
