"""The Hugging Face Trainer with a small BERT, evaluation and a checkpoint."""

import torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments


class Sentences(torch.utils.data.Dataset):
    def __init__(self, seed):
        generator = torch.Generator().manual_seed(seed)
        self.words = torch.randint(5, 500, (48, 24), generator=generator)

    def __len__(self):
        return len(self.words)

    def __getitem__(self, i):
        words = self.words[i]
        return {"input_ids": words, "attention_mask": torch.ones_like(words), "labels": int(words[0]) % 2}


config = BertConfig(
    vocab_size=500, hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=128
)
arguments = TrainingArguments(
    "out", num_train_epochs=1, per_device_train_batch_size=8, logging_steps=1, report_to=[], use_cpu=True,
    eval_strategy="epoch", save_strategy="epoch", seed=11,
)  # fmt: skip
trainer = Trainer(
    BertForSequenceClassification(config), arguments, train_dataset=Sentences(1), eval_dataset=Sentences(2)
)
trainer.train()
trainer.save_model("final")
