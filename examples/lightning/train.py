"""A LightningModule that reports its metrics to vbstudy; outside of vbstudy the callback does nothing."""

import sys

import lightning as L
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

from vbstudy import report

EPOCHS = int(sys.argv[1]) if len(sys.argv) > 1 else 3


class Digits(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10))

    def training_step(self, batch):
        x, y = batch
        loss = functional.cross_entropy(self.net(x), y)
        self.log("train_loss", loss, on_epoch=True, on_step=False)
        return loss

    def validation_step(self, batch):
        x, y = batch
        self.log("accuracy", (self.net(x).argmax(1) == y).float().mean())

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=2e-3)


images, labels = load_digits(return_X_y=True)
x, y = torch.tensor(images, dtype=torch.float32) / 16, torch.tensor(labels)
module = Digits()
trainer = L.Trainer(
    max_epochs=EPOCHS,
    accelerator="cpu",
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
    callbacks=[report.lightning_callback()] if report.active() else [],
)
trainer.fit(
    module,
    DataLoader(TensorDataset(x[:-400], y[:-400]), batch_size=64, shuffle=True),
    DataLoader(TensorDataset(x[-400:], y[-400:]), batch_size=400),
)
with torch.no_grad():
    report.predictions(module.net(x[-400:]), y[-400:])
