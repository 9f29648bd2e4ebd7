"""Lightning's Trainer, with its CSV logger and its checkpoint."""

import lightning
import torch
from lightning.pytorch.loggers import CSVLogger
from torch import nn


class Digits(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Conv2d(1, 16, 3), nn.ReLU(), nn.Flatten(), nn.Linear(16 * 26 * 26, 10))

    def training_step(self, batch, _):
        loss = nn.functional.cross_entropy(self.net(batch[0]), batch[1])
        self.log("train_loss", loss)
        return loss

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-3)


lightning.seed_everything(9)
data = torch.utils.data.TensorDataset(torch.randn(64, 1, 28, 28), torch.randint(0, 10, (64,)))
loader = torch.utils.data.DataLoader(data, batch_size=16, shuffle=True)
trainer = lightning.Trainer(
    max_epochs=1, accelerator="cpu", logger=CSVLogger("logs"), log_every_n_steps=1, enable_progress_bar=False
)
trainer.fit(Digits(), loader)
