"""`finetune_files`: fine-tune a checkpoint on data files."""

import dataclasses
from collections.abc import Sequence
from typing import cast

import keras

from keras_bert_d2l.data.tasks.examples import TaskExamples
from keras_bert_d2l.files import write_checksums
from keras_bert_d2l.inference.evaluation.checks import check_examples
from keras_bert_d2l.models.tasks.task_model import TaskModel
from keras_bert_d2l.progress import showing_stages
from keras_bert_d2l.tasks.embed.examples import PairExamples
from keras_bert_d2l.tasks.embed.model import TextEmbedder
from keras_bert_d2l.tasks.embed.retrieval import mine_negatives
from keras_bert_d2l.tasks.task import check_option
from keras_bert_d2l.training.devices.distribution import check_architecture, distributed
from keras_bert_d2l.training.devices.processes import is_first, process
from keras_bert_d2l.training.finetuning.data import prepare
from keras_bert_d2l.training.finetuning.finetune import FinetuningResult, train_run
from keras_bert_d2l.training.finetuning.options import (
    FinetuningOptions,
    TaskRunOptions,
)
from keras_bert_d2l.training.finetuning.start import load_model, read_data, with_precision
from keras_bert_d2l.training.finetuning.trainer import Trainer
from keras_bert_d2l.training.run.run_folder import RunFolder, opened_run
from keras_bert_d2l.training.run.verbosity import Printer, Verbose
from keras_bert_d2l.types import Option, PathLike


def finetune_files(
    run_dir: PathLike,
    *,
    resume: bool = False,
    callbacks: Sequence[keras.callbacks.Callback] = (),
    verbose: Verbose = "auto",
    **options: Option,
) -> FinetuningResult:
    """Fine-tune a checkpoint on data files.

    Reads the data and the checkpoint, then calls `finetune`. A checkpoint of the same task keeps
    its head and its labels. A plain BERT gets a new head for the labels of the training data. In
    addition to the files of `finetune`, the run folder contains `run.yaml` with the options, so
    that an interrupted run can resume.

    Args:
        run_dir: The run folder, or its URL in an object store. It must be new or empty, unless
            `resume` is set.
        resume: Continue the run in `run_dir` with its own options, or start it if there is none
            yet. With all options, the same call therefore works at any time.
        callbacks: Additional Keras callbacks.
        verbose: As for `finetune`.
        **options: The fields of `TaskRunOptions`. `task`, `model` and `train` are required, except
            with `resume`.

    Returns: the model with the weights of the best epoch, and the metrics.

    Raises:
        ValueError: An option is unknown, out of range or contradicts another option, the data does
            not fit the task or the model, or the options or the data differ from those of the run
            to resume.
        FileExistsError: `run_dir` is not empty, and `resume` is not set.
        FileNotFoundError: The data, the checkpoint or the run is missing.
        FloatingPointError: The loss is not finite.
        BlockingIOError: Another process is using the run.
        RuntimeError: The Keras backend does not support `devices`.
        TrainingInterrupted: Ctrl-C, SIGTERM or SIGHUP was received. It is a `KeyboardInterrupt`.

    Example:

    ```python
    import csv

    import keras_bert_d2l as kb

    words = "[PAD] [UNK] [CLS] [SEP] [MASK] a good film what bore".split()
    bert = kb.BERTModel(len(words), 16, 32, num_heads=2, num_blks=1, dropout=0.1, max_len=16)
    kb.save_pretrained(bert, "bert", tokenizer=kb.Tokenizer(kb.Vocab(words)))
    with open("films.csv", "w", newline="") as file:
        rows = [("text", "label"), *[("a good film", "good"), ("what a bore", "bad")] * 8]
        csv.writer(file).writerows(rows)
    kb.finetune_files(
        "runs/films", task="classify", model="bert", train="films.csv", dev="films.csv", epochs=1
    )
    ```
    """
    run, say = RunFolder(run_dir), Printer(verbose if is_first() else 0)
    opened = opened_run(
        run, TaskRunOptions, options, resume=resume, is_complete=bool(options), say=say
    )
    with (
        opened as (run, settings, is_resumed),
        distributed(settings.devices),
        showing_stages(bool(verbose) and is_first()),
    ):
        if process()[1] > 1:
            check_option(settings.task, "devices", f"{process()[1]} processes")
        settings, model, train, dev = load_run(settings, say)
        if not is_resumed:
            settings.to_yaml(run.options_file)
            write_checksums(run.path)
        return train_run(run, model, train, dev, own_options(settings), say, is_resumed, callbacks)


def load_run(
    settings: TaskRunOptions, say: Printer
) -> tuple[TaskRunOptions, TaskModel, TaskExamples, TaskExamples]:
    """Load what a run trains.

    Returns: the options with the chosen precision, the model, and the training and development
        data.
    """
    train, dev = read_data(settings, say)
    settings = with_precision(settings, say)
    model = load_model(settings, train, dev, say)
    check_architecture(model.bert_config)
    for examples in (train, dev):
        check_examples(model, examples)
    if settings.mine_negatives:
        say("Mining negatives: the most similar text of the other pairs, for each pair.")
        train = mine_negatives(
            cast(TextEmbedder, model), cast(PairExamples, train), batch_size=settings.batch_size
        )
    return settings, model, train, dev


def own_options(settings: TaskRunOptions) -> FinetuningOptions:
    """Return those options of a run on files that do not concern the files."""
    fields = dataclasses.fields(FinetuningOptions)
    return FinetuningOptions(**{field.name: getattr(settings, field.name) for field in fields})


def make_trainer(run: RunFolder, settings: TaskRunOptions, say: Printer) -> Trainer:
    """Load the model and the data of a run. Nothing is written to its folder."""
    settings, model, train, dev = load_run(settings, say)
    own = own_options(settings)
    return Trainer(run, own, model, prepare(model, train, dev, own, say), {}, say)
