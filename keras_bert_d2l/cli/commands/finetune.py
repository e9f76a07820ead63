"""Commands that train a model further: `finetune` and `distill`."""

import contextlib
import os
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

import keras_bert_d2l as kb
from keras_bert_d2l.checkpoints.location import OWN_MODEL
from keras_bert_d2l.checks import shown, wrong
from keras_bert_d2l.cli.arguments import (
    BatchSize,
    Config,
    File,
    Flag,
    Integer,
    Model,
    OutFolder,
    PositiveInt,
    Resume,
    RunDir,
    given,
    panel,
    refuse,
    run_folder,
    takes_options,
)
from keras_bert_d2l.cli.input_output import load, read_texts
from keras_bert_d2l.contract.task import task_named, tasks
from keras_bert_d2l.progress import stage
from keras_bert_d2l.training.finetuning.options import TaskRunOptions
from keras_bert_d2l.types import Option


def _tasks_in_words() -> str:
    """Return what the known tasks learn, also those of installed packages."""
    named = []
    for one in tasks().values():
        first_line = (type(one).__doc__ or "").partition("\n")[0].rstrip(".")
        learned = first_line[:1].lower() + first_line[1:]
        named.append(f"{one.name} ({learned})" if learned else one.name)
    return f"What to learn: {', '.join(named)}."


@takes_options(
    TaskRunOptions,
    {
        "Run": "model",
        "Data": "train dev held_out text text_b choices negative mine_negatives embedder label id "
        "header quotes multi_label label_names long_texts separator max_len",
        "Training": "epochs batch_size micro_batches remat optimizer learning_rate schedule "
        "warmup_ratio weight_decay "
        "dropout pooling crf valid_tags loss temperature matryoshka monitor patience seed",
        "Trainable weights": "layer_decay freeze_encoder freeze_blocks lora lora_alpha lora_layers",
        "Devices": "precision jit devices",
    },
)
def finetune(
    task: Annotated[str | None, Parameter(help=_tasks_in_words())] = None,
    /,
    *,
    run_dir: RunDir = None,
    resume: Resume = None,
    config: Config = None,
    class_weight: Annotated[
        tuple[str, ...],
        Parameter(name="--class-weights", negative="", show_default=False, group=panel("Training")),
    ] = (),
    **options: Option,
) -> None:
    """Fine-tune a model on examples.

    The run keeps the best epoch on the development data. The run folder contains `run.yaml` (the
    options), `best/` (the model, for `evaluate` and `predict`), `last/`, `report.html` (curves,
    predictions and errors, to open in a browser), `metrics.json` and TensorBoard logs. Ctrl-C saves
    the run and prints the command that resumes it.

    For example:

    - `keras-bert-d2l finetune classify --train reviews.tsv --model minilm --run-dir runs/reviews`
    - `keras-bert-d2l finetune tag --train train.conllu --dev dev.conllu --label UPOS --model minilm
      --run-dir runs/pos`
    - `keras-bert-d2l finetune answer --train train-v1.1.json --model runs/mine --run-dir runs/qa`
    - `keras-bert-d2l finetune choose --train swag.csv --model minilm --run-dir runs/swag`
    - `keras-bert-d2l finetune embed --train pairs.tsv --dev sts.tsv --model minilm
      --run-dir runs/search`
    - `keras-bert-d2l finetune rerank --train queries.jsonl --model minilm --run-dir runs/rerank`
    - `keras-bert-d2l finetune --resume runs/reviews`

    Args:
        class_weight: Weight of a label in the loss, as LABEL=WEIGHT. Repeat the option for several
            labels. [default: 1 for each label]
    """
    if task is not None:
        options["task"] = task_named(task).name
    if class_weight:
        options["class_weights"] = _weights_by_label(class_weight)
    if config is not None:
        options = {**TaskRunOptions.read_yaml(config), **options}
    from keras_bert_d2l.training.devices import join

    join()
    kb.finetune_files(run_folder(run_dir, resume), resume=resume is not None, **options)


def _weights_by_label(pairs: tuple[str, ...]) -> dict[str, float]:
    weights = {}
    for pair in pairs:
        label, _, weight = pair.rpartition("=")
        with contextlib.suppress(ValueError):
            weights[label] = float(weight)
        if not label or label not in weights:
            raise ValueError(f"--class-weights must be LABEL=WEIGHT. Received: {shown(pair)}.")
    return weights


def distill(
    *,
    out: OutFolder,
    model: Model = OWN_MODEL,
    blocks: str | None = None,
    static: Flag = False,
    train: str | None = None,
    file: File = None,
    epochs: PositiveInt | None = None,
    learning_rate: float | None = None,
    batch_size: BatchSize = 32,
    max_len: PositiveInt | None = None,
    num_hiddens: PositiveInt | None = None,
    seed: Integer | None = None,
) -> None:
    """Distill a model into a smaller and faster one.

    With --blocks, the student starts with some blocks of the model, and learns its outputs and
    hidden states. It needs unlabeled texts like those it will process.

    With --static, the student of a text embedder is a table with one vector per token: a
    TextEmbedder without an encoder, which is much faster. It is much better with --file: a few
    thousand unlabeled texts like those it will process.

    The result is a checkpoint like any other.

    For example:

    - `keras-bert-d2l distill --model runs/films --blocks 2,4,6 --train films.tsv --out small`
    - `keras-bert-d2l distill --model runs/films --blocks 2,4,6 --file lines.txt --out small`
    - `keras-bert-d2l distill --model runs/mine --blocks 1,3 --train "text/*.txt" --out small`
    - `keras-bert-d2l distill --model minilm --static --file lines.txt --out static`

    Args:
        blocks: Numbers of the blocks to keep, from 1, separated by commas.
        static: Distill a text embedder into a table of token vectors.
        train: Data that the student learns from: text, as for `pretrain`, or a file for the task of
            the model, as for `finetune`.
        epochs: Passes over the data. [default: 3]
        learning_rate: Peak learning rate. [default: 5e-05]
        max_len: Maximum number of tokens per row. [default: 128 for text; for a task, as in
            `finetune`]
        num_hiddens: With --static, width of the vectors. [default: 256, or that of the model if it
            is smaller]
        seed: Random seed. [default: 0]
    """
    if static == (blocks is not None):
        raise ValueError("Pass --blocks for a model with fewer blocks, or --static for a table.")
    _check_folders(out, model)
    training = {"epochs": epochs, "learning_rate": learning_rate, "max_len": max_len, "seed": seed}
    if blocks is None:
        refuse("--blocks", train=train, **training)
        texts = None if file is None else read_texts((), file)
        teacher = load(model, as_embedder=True).model
        with stage("Distilling"):
            student: Any = kb.distill_static(
                teacher, texts, num_hiddens=num_hiddens, batch_size=batch_size
            )
    else:
        refuse("--static", num_hiddens=num_hiddens)
        numbers = _numbers(blocks)
        teacher, data = _teacher_and_data(model, train, file)
        student = kb.distill(teacher, data, numbers, batch_size=batch_size, **given(**training))
    kb.save_pretrained(student, out)
    print(f"Written to {out}")


def _numbers(blocks: str) -> list[int]:
    try:
        return [int(number) for number in blocks.split(",")]
    except ValueError:
        expected = "numbers separated by commas, such as 2,4,6"
        raise wrong("blocks", expected, blocks) from None


def _teacher_and_data(model: str, train: str | None, file: Path | None) -> tuple[Any, Any]:
    if (train is None) == (file is None):
        raise ValueError("Pass the data with --train FILE, or single texts with --file FILE.")
    teacher = load(model, as_embedder=None).model
    if file is not None and isinstance(teacher, kb.BERTModel):
        raise ValueError(
            f"--file has single texts, for a model with a task. Received: {model!r}, a BERT "
            "without a task, which learns from documents; pass them with --train."
        )
    return teacher, read_texts((), file) if train is None else train


def _check_folders(out: Path, model: str) -> None:
    """Raise an error if the student cannot be saved, or would replace its teacher."""
    from keras_bert_d2l.checkpoints.saving import check_target

    check_target(out)
    if out.exists() and os.path.exists(model) and os.path.samefile(model, out):
        raise ValueError(
            f"`out` must not be the folder of the teacher, because it would be replaced. Received: "
            f"{str(out)!r}. Choose a different path."
        )
