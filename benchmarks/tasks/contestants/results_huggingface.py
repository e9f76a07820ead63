"""Hugging Face: a plain PyTorch training loop on batches written by `benchmarks.tasks.results`.

The loop follows Hugging Face's examples: AdamW without weight decay for biases and normalization
layers, linear warmup and decay of the learning rate, and gradient clipping. Saves a checkpoint.
"""

import argparse
import contextlib
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import torch
from sentence_transformers.losses import MultipleNegativesRankingLoss
from transformers import (
    BertForQuestionAnswering,
    BertForSequenceClassification,
    BertModel,
    get_linear_schedule_with_warmup,
    set_seed,
)

EPSILON, CLIP_NORM = 1e-6, 1.0  # as in BERTAdamW
CHECKSUMS = "SHA256SUMS"  # of the model before the training
NOT_DECAYED = ("bias", "LayerNorm.weight")


def inputs(batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Convert a batch of this project to Hugging Face's input names."""
    length = batch["tokens"].shape[1]
    found = {
        "input_ids": batch["tokens"],
        "token_type_ids": batch["segments"],
        "attention_mask": (torch.arange(length) < batch["valid_lens"][:, None]).long(),
    }
    if "label" in batch:
        return {**found, "labels": batch["label"]}
    sides = {f"{side}_positions": batch[side] for side in ("start", "end")}
    # Hugging Face ignores positions beyond the row; this project ignores negative ones.
    return {**found, **{k: torch.where(x < 0, length, x) for k, x in sides.items()}}


class Embedder(BertModel):
    """A BERT with mean pooling and the in-batch negatives of sentence-transformers."""

    def forward(self, labels: torch.Tensor, **features: torch.Tensor) -> SimpleNamespace:
        encoded = super().forward(**features).last_hidden_state
        mask = features["attention_mask"][:, :, None]
        vectors = (encoded * mask).sum(1) / mask.sum(1)
        number = 3 if (labels < 0).any() else 2  # texts per example
        texts = [vectors[first::number] for first in range(number)]
        loss = MultipleNegativesRankingLoss(None).compute_loss_from_embeddings(texts, None)
        return SimpleNamespace(loss=loss)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--task", choices=("classify", "answer", "embed"), required=True)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--batches", type=Path, required=True, help="an .npz file")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--learning-rate", type=float, required=True)
    parser.add_argument("--warmup-steps", type=int, required=True)
    parser.add_argument("--weight-decay", type=float, required=True)
    parser.add_argument("--bfloat16", action="store_true")
    parser.add_argument("--seed", type=int, required=True)
    options = parser.parse_args()

    set_seed(options.seed)
    classes = {
        "classify": BertForSequenceClassification,
        "answer": BertForQuestionAnswering,
        "embed": Embedder,
    }
    model = classes[options.task].from_pretrained(options.model).train()
    with np.load(options.batches) as file:
        names = file.files
        steps = 1 + max(int(name.split("/")[0]) for name in names)
        decayed, others = [], []
        for name, parameter in model.named_parameters():
            (others if name.endswith(NOT_DECAYED) else decayed).append(parameter)
        optimizer = torch.optim.AdamW(
            [
                {"params": decayed, "weight_decay": options.weight_decay},
                {"params": others, "weight_decay": 0.0},
            ],
            lr=options.learning_rate,
            eps=EPSILON,
        )
        schedule = get_linear_schedule_with_warmup(optimizer, options.warmup_steps, steps)
        keys = [name.split("/")[1] for name in names if name.startswith("0/")]
        for step in range(steps):
            batch = {key: torch.as_tensor(file[f"{step}/{key}"]).long() for key in keys}
            half = torch.autocast("cpu", torch.bfloat16)
            with half if options.bfloat16 else contextlib.nullcontext():
                loss = model(**inputs(batch)).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP_NORM)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad(set_to_none=True)
            if step % 100 == 0:
                print(f"step {step}/{steps} loss {loss.item():.4f}", file=sys.stderr, flush=True)
    model.save_pretrained(options.out)
    for file in options.model.iterdir():  # the tokenizer's files
        if not (options.out / file.name).exists() and file.name != CHECKSUMS:
            shutil.copy(file, options.out)


if __name__ == "__main__":
    main()
