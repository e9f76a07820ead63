"""Commands that distill a model into a smaller one."""

import os
from pathlib import Path
from typing import Any

import keras_bert_d2l as kb
from keras_bert_d2l.checkpoints.location import OWN_MODEL
from keras_bert_d2l.cli.arguments import (
    BatchSize,
    File,
    Flag,
    Integer,
    Model,
    OutFolder,
    PositiveInt,
    integers,
)
from keras_bert_d2l.cli.input_output import load, read_texts
from keras_bert_d2l.progress import stage


def distill(
    *,
    out: OutFolder,
    blocks: str,
    model: Model = OWN_MODEL,
    train: str | None = None,
    file: File = None,
    epochs: PositiveInt = 3,
    learning_rate: float = 5e-5,
    batch_size: BatchSize = 32,
    max_len: PositiveInt | None = None,
    temperature: float = 2.0,
    label_share: float = 0.0,
    outputs_only: Flag = False,
    seed: Integer = 0,
) -> None:
    """Distill a model into one with fewer blocks, which is smaller and faster.

    The student starts with some blocks of the model, and learns its outputs and hidden states. It
    needs unlabeled texts like those it will process. The result is a checkpoint like any other.

    For example:

    - `keras-bert-d2l distill --model runs/films --blocks 2,4,6 --train films.tsv --out small`
    - `keras-bert-d2l distill --model runs/films --blocks 2,4,6 --file lines.txt --out small`
    - `keras-bert-d2l distill --model runs/mine --blocks 1,3 --train "text/*.txt" --out small`

    Args:
        blocks: Numbers of the blocks to keep, from 1, separated by commas.
        train: Data that the student learns from: text, as for `pretrain`, or a file for the task of
            the model, as for `finetune`.
        epochs: Passes over the data.
        learning_rate: Peak learning rate.
        max_len: Maximum number of tokens per row. [default: 128 for text; for a task, as in
            `finetune`]
        temperature: Divisor of the logits. Larger values emphasize unlikely classes.
        label_share: Share of the true labels in the loss of the outputs, from 0 to 1.
        outputs_only: Learn only the outputs of the teacher, not its hidden states.
        seed: Random seed.
    """
    if (train is None) == (file is None):
        raise ValueError("Pass the data with --train FILE, or single texts with --file FILE.")
    numbers = integers("blocks", blocks, "2,4,6")
    _check_folders(out, model)
    teacher = load(model, as_embedder=None).model
    if file is not None and isinstance(teacher, kb.BERTModel):
        raise ValueError(
            f"--file has single texts, for a model with a task. Received: {model!r}, a BERT "
            "without a task, which learns from documents; pass them with --train."
        )
    data: Any = read_texts((), file) if train is None else train
    student = kb.distill(
        teacher,
        data,
        numbers,
        epochs=epochs,
        learning_rate=learning_rate,
        batch_size=batch_size,
        max_len=max_len,
        temperature=temperature,
        hidden_states=not outputs_only,
        label_share=label_share,
        seed=seed,
    )
    kb.save_pretrained(student, out)
    print(f"Written to {out}")


def distill_static(
    *,
    out: OutFolder,
    model: Model = OWN_MODEL,
    file: File = None,
    num_hiddens: PositiveInt | None = None,
    batch_size: BatchSize = 32,
) -> None:
    """Distill a text embedder into a table with one vector per token, which is much faster.

    The result is a TextEmbedder without an encoder, for `embed`, `similar`, `finetune embed`,
    `evaluate` and `export`. It is much better with --file: a few thousand unlabeled texts like
    those that it will process.

    For example: `keras-bert-d2l distill-static --model minilm --file lines.txt --out static`

    Args:
        num_hiddens: Width of the vectors. [default: 256, or that of the model if it is smaller]
    """
    _check_folders(out, model)
    texts = None if file is None else read_texts((), file)
    teacher = load(model, as_embedder=True).model
    with stage("Distilling"):
        student = kb.distill_static(teacher, texts, num_hiddens=num_hiddens, batch_size=batch_size)
    kb.save_pretrained(student, out)
    print(f"Written to {out}")


def _check_folders(out: Path, model: str) -> None:
    """Raise an error if the student cannot be saved, or would replace its teacher."""
    from keras_bert_d2l.checkpoints.saving import check_target

    check_target(out)
    if out.exists() and os.path.exists(model) and os.path.samefile(model, out):
        raise ValueError(
            f"`out` must not be the folder of the teacher, because it would be replaced. Received: "
            f"{str(out)!r}. Choose a different path."
        )
