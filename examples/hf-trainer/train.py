"""Hugging Face's Trainer with a tiny BERT, configured from scratch: no model and no data is downloaded."""

import json
import sys

import numpy as np
import torch
from torch.utils.data import Dataset
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

EPOCHS = int(sys.argv[1]) if len(sys.argv) > 1 else 3
WORDS, LENGTH = 40, 8


class FirstWords(Dataset):
    """Sequences of words, numbered; the class says whether the first two add up to more than WORDS."""

    def __init__(self, count, seed):
        words = np.random.RandomState(seed).randint(1, WORDS, (count, LENGTH))
        self.words = torch.tensor(words)
        self.labels = torch.tensor(words[:, 0] + words[:, 1] > WORDS).long()

    def __len__(self):
        return len(self.words)

    def __getitem__(self, i):
        return {"input_ids": self.words[i], "labels": self.labels[i]}


def accuracy(outputs):
    return {"accuracy": float((outputs.predictions.argmax(-1) == outputs.label_ids).mean())}


config = BertConfig(
    vocab_size=WORDS,
    hidden_size=32,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=64,
    max_position_embeddings=LENGTH,
    hidden_dropout_prob=0.0,
    num_labels=2,
)
trainer = Trainer(
    model=BertForSequenceClassification(config),
    args=TrainingArguments(
        output_dir="out",
        num_train_epochs=EPOCHS,
        per_device_train_batch_size=32,
        learning_rate=2e-3,
        eval_strategy="epoch",
        logging_strategy="epoch",
        save_strategy="no",
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
    ),
    train_dataset=FirstWords(1280, seed=0),
    eval_dataset=FirstWords(320, seed=1),
    compute_metrics=accuracy,
)
trainer.train()
trainer.save_model("out")
trainer.save_state()
predicted = trainer.predict(FirstWords(320, seed=1))
np.savez("out/predictions.npz", predictions=predicted.predictions, y_true=predicted.label_ids)
with open("out/results.json", "w") as file:
    json.dump({"eval": {"accuracy": predicted.metrics["test_accuracy"]}}, file)
