"""Handwritten digits (8x8, ten classes), split once and for all."""

import torch
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, TensorDataset

TEST = 400


def loaders(batch_size):
    images, labels = load_digits(return_X_y=True)
    x = torch.tensor(images, dtype=torch.float32).reshape(-1, 1, 8, 8) / 16
    y = torch.tensor(labels)
    train, test = TensorDataset(x[:-TEST], y[:-TEST]), TensorDataset(x[-TEST:], y[-TEST:])
    return DataLoader(train, batch_size=batch_size, shuffle=True), DataLoader(test, batch_size=200)
