"""The callbacks of `vbstudy.report`, in the trainers that they are for."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
KERAS = """\
import keras, numpy as np
from vbstudy import report
x, y = np.random.rand(32, 4).astype("float32"), np.arange(32) % 3
model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(3)])
loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
model.compile("sgd", loss, metrics=["accuracy"])
model.fit(x, y, epochs=2, verbose=0, callbacks=[report.keras_callback(x, y)])
"""
# Each epoch's values are its number: what is logged late, or seldom, is that of its epoch all the same.
LIGHTNING = """\
import lightning as L, torch
from vbstudy import report
class Model(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Linear(2, 1)
        self.validations = 0
    def training_step(self, batch, index):
        self.log("train_loss", float(self.current_epoch), on_epoch=True, on_step=False)
        return self.net(batch).sum()
    def on_train_epoch_end(self):
        self.log("late", float(self.current_epoch))
    def validation_step(self, batch, index):
        self.log("accuracy", float(self.current_epoch))
        self.log("validations", float(self.validations))
    def on_validation_epoch_end(self):
        self.log("late_accuracy", float(self.current_epoch))
        self.validations += 1
    def test_step(self, batch, index):
        self.log("test_accuracy", 7.0)
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)
data = torch.utils.data.DataLoader(torch.ones(4, 2))
trainer = L.Trainer(max_epochs=3, check_val_every_n_epoch=2, val_check_interval=0.5, accelerator="cpu",
                    logger=False, enable_checkpointing=False, enable_progress_bar=False,
                    callbacks=[report.lightning_callback()])
trainer.fit(model := Model(), data, data)
trainer.validate(model, data)
trainer.test(model, data)
"""
pytestmark = pytest.mark.needs("trainers")


def run(tmp_path: Path, script: str) -> list[dict]:
    """What the script reported of metrics."""
    (tmp_path / "train.py").write_text(script)
    env = os.environ | {"VBSTUDY_REPORT": str(tmp_path), "PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, "train.py"], cwd=tmp_path, env=env, check=True, capture_output=True)
    return [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]


def arrays(path: Path) -> dict[str, np.ndarray]:
    with np.load(path) as file:
        return {name: file[name] for name in file.files}


def test_keras_reports_every_epoch_the_weights_and_the_predictions(tmp_path):
    metrics = run(tmp_path, KERAS)
    assert [(m["name"], m["epoch"]) for m in metrics if m["name"] == "accuracy"] == [
        ("accuracy", 1),
        ("accuracy", 2),
    ]
    assert [a.shape for a in arrays(tmp_path / "weights.npz").values()] == [(4, 3), (3,)]
    predictions = arrays(tmp_path / "predictions.npz")
    assert (predictions["predictions"].shape, predictions["y_true"].shape) == ((32, 3), (32,))


def test_lightning_reports_what_each_epoch_validate_and_test_have_logged_and_the_weights(tmp_path):
    if importlib.util.find_spec("lightning") is None:
        pytest.skip("lightning is not installed")
    found: dict[str, list] = {}
    for each in run(tmp_path, LIGHTNING):
        found.setdefault(each["name"], []).append((each["value"], each["epoch"]))
    assert found == {
        "train_loss": [(0, 1), (1, 2), (2, 3)],
        "late": [(0, 1), (1, 2), (2, 3)],
        "accuracy": [(1, 2), (3, None)],
        "late_accuracy": [(1, 2), (3, None)],
        "validations": [(2, 2), (3, None)],  # the first one is the sanity check
        "test_accuracy": [(7, None)],
    }
    assert list(arrays(tmp_path / "weights.npz")) == ["net.weight", "net.bias"]


def test_the_hugging_face_trainer_reports_what_it_evaluates_and_its_weights(tmp_path):
    if importlib.util.find_spec("transformers") is None:
        pytest.skip("transformers is not installed")
    script = (ROOT / "examples" / "hf-trainer" / "train.py").read_text()
    script = "from vbstudy import report\n" + script.replace(
        "    compute_metrics=accuracy,\n",
        "    compute_metrics=accuracy,\n    callbacks=[report.huggingface_callback()],\n",
    ).replace("num_train_epochs=EPOCHS", "num_train_epochs=1")
    metrics = run(tmp_path, script)
    assert [m["name"] for m in metrics].count("eval_accuracy") == 1
    assert "bert.embeddings.word_embeddings.weight" in arrays(tmp_path / "weights.npz")
