"""The command `finetune`."""

import contextlib
from typing import Annotated

from cyclopts import Parameter

import keras_bert_d2l as kb
from keras_bert_d2l.checks import shown
from keras_bert_d2l.cli.arguments import (
    Config,
    Resume,
    RunDir,
    panel,
    run_folder,
    takes_options,
)
from keras_bert_d2l.contract.registry import task_named, tasks
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
        "Data": "train dev held_out text text_b choices negative mine_negatives label id header "
        "quotes multi_label long_texts separator max_len",
        "Training": "epochs batch_size micro_batches remat optimizer learning_rate schedule "
        "warmup_ratio weight_decay "
        "dropout pooling temperature monitor patience seed",
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
    - `keras-bert-d2l finetune --resume runs/reviews`

    Args:
        class_weight: Weight of a label in the loss, as LABEL=WEIGHT. Repeat the option for several
            labels. [default: 1 for each label]
    """
    if task is not None:
        options["task"] = task_named(task).name
    if class_weight:
        options["class_weights"] = _weights_by_label(class_weight)
    given = {**(TaskRunOptions.read_yaml(config) if config is not None else {}), **options}
    from keras_bert_d2l.training.devices import join

    join()
    kb.finetune_files(run_folder(run_dir, resume), resume=resume is not None, **given)


def _weights_by_label(pairs: tuple[str, ...]) -> dict[str, float]:
    weights = {}
    for pair in pairs:
        label, _, weight = pair.rpartition("=")
        with contextlib.suppress(ValueError):
            weights[label] = float(weight)
        if not label or label not in weights:
            raise ValueError(f"--class-weights must be LABEL=WEIGHT. Received: {shown(pair)}.")
    return weights
