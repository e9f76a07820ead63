"""Hugging Face: `Trainer` with dynamic padding, on BertForSequenceClassification in PyTorch.

By default, batches contain random rows and are padded to their longest row. `--grouped` batches
rows of similar length, as this project does.
"""

import tempfile

import torch
from transformers import (
    AutoTokenizer,
    BertForSequenceClassification,
    DataCollatorWithPadding,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)

from benchmarks.tasks.contestants import turns as contest

options = contest.arguments()
tokenizer = AutoTokenizer.from_pretrained(options.checkpoint)
model = BertForSequenceClassification.from_pretrained(options.checkpoint)


class Rows(torch.utils.data.Dataset):
    """Token ids and labels, tokenized once."""

    def __init__(self, path: object) -> None:
        texts, self.labels = contest.read_tsv(path)
        self.ids = tokenizer(texts, truncation=True, max_length=options.max_len)["input_ids"]

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> dict[str, object]:
        return {"input_ids": self.ids[index], "labels": self.labels[index]}


class Waiting(TrainerCallback):
    def on_step_end(self, args: object, state: object, control: object, **kwargs: object) -> None:
        turns.step_done()


with tempfile.TemporaryDirectory() as folder:
    trainer = Trainer(
        model,
        TrainingArguments(
            folder,
            use_cpu=True,
            bf16=options.precision == "bfloat16",
            per_device_train_batch_size=options.batch_size,
            max_steps=options.steps,
            learning_rate=contest.LEARNING_RATE,
            warmup_steps=contest.warmup_steps(options.steps),
            weight_decay=contest.WEIGHT_DECAY,
            max_grad_norm=contest.CLIP_NORM,
            seed=0,
            train_sampling_strategy="group_by_length" if options.grouped else "random",
            logging_strategy="no",
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
        ),
        train_dataset=Rows(options.train),
        data_collator=DataCollatorWithPadding(tokenizer),
        callbacks=[Waiting()],
    )
    turns = contest.Turns(options)
    trainer.train()
    found = trainer.predict(Rows(options.dev))
turns.answer(accuracy=float((found.predictions.argmax(-1) == found.label_ids).mean()))
