"""`finetune_files`: fine-tune a checkpoint on data files."""

import dataclasses
import os
from collections.abc import Sequence
from typing import Any, Unpack

import keras

from keras_bert_d2l.inference.evaluation.checks import check_examples
from keras_bert_d2l.training.finetuning.finetune import FinetuningResult, finetune
from keras_bert_d2l.training.finetuning.options import (
    FinetuningOptions,
    TaskRunArguments,
    TaskRunOptions,
)
from keras_bert_d2l.training.finetuning.start import load_model, read_data
from keras_bert_d2l.training.finetuning.trainer import CURVES
from keras_bert_d2l.training.run_folder import RunFolder
from keras_bert_d2l.training.verbosity import Verbose, printer
from keras_bert_d2l.types import PathLike


def finetune_files(
    run_dir: PathLike,
    *,
    resume: bool = False,
    callbacks: Sequence[keras.callbacks.Callback] = (),
    verbose: Verbose = "auto",
    **options: Unpack[TaskRunArguments],
) -> FinetuningResult:
    """Fine-tune a checkpoint on data files.

    Reads the data and the checkpoint, then calls `finetune`. A checkpoint of the same task keeps
    its head and its labels. A plain BERT gets a new head for the labels of the training data. In
    addition to the files of `finetune`, the run folder contains `run.yaml` with the options, so
    that an interrupted run can resume.

    Args:
        run_dir: The run folder. It must be new or empty, unless `resume` is set.
        resume: Continue the run in `run_dir` with its own options.
        callbacks: Additional Keras callbacks.
        verbose: As in `keras.Model.fit`.
        **options: The fields of `TaskRunOptions`. `task`, `model` and `train` are required, except
            with `resume`.

    Returns: the model with the weights of the best epoch, and the metrics.

    Raises:
        ValueError: An option is unknown, out of range or contradicts another option, the data does
            not fit the task or the model, or the options or the data differ from those of the run
            to resume.
        FileExistsError: `run_dir` is not empty, and `resume` is not set.
        FileNotFoundError: The data, the checkpoint or the run is missing.
        TrainingInterrupted: Ctrl-C was pressed. It is a `KeyboardInterrupt`.

    Example:

    ```python
    import csv

    import keras_bert_d2l as kb

    words = "[PAD] [UNK] [CLS] [SEP] [MASK] a good film what bore".split()
    bert = kb.BERTModel(len(words), 16, 32, num_heads=2, num_blks=1, dropout=0.1, max_len=16)
    kb.save_pretrained(bert, "bert", kb.Tokenizer(kb.Vocab(words)))
    with open("films.csv", "w", newline="") as file:
        rows = [("text", "label"), *[("a good film", "good"), ("what a bore", "bad")] * 8]
        csv.writer(file).writerows(rows)
    kb.finetune_files(
        "runs/films", task="classify", model="bert", train="films.csv", dev="films.csv", epochs=1
    )
    ```
    """
    run, say = RunFolder(run_dir), printer(verbose)
    if resume:
        settings = _options_of(run, dict(options))
    else:
        run.check_new()
        settings = TaskRunOptions.from_dict(options)
    train, dev = read_data(settings, say)
    model = load_model(settings, train, dev, say)
    for examples in (train, dev):
        check_examples(model, examples)
    if resume:
        run.repair()
    else:
        run.make()
        settings.to_yaml(run.options_file)
    fields = dataclasses.fields(FinetuningOptions)
    result = finetune(
        model,
        train,
        dev,
        run,
        resume=resume and run.state_file.is_file(),
        callbacks=callbacks,
        verbose=verbose,
        **{field.name: getattr(settings, field.name) for field in fields},
    )
    epoch, monitor = result.metrics["best_epoch"], result.metrics["monitor"]
    say(
        f"Best epoch: {epoch}, {monitor.removeprefix('val_')} "
        f"{result.metrics['best'][monitor]:.4f} on the development data. The model is in "
        f"{run.best}, its learning curves in {run.path / CURVES}."
    )
    return result


def _options_of(run: RunFolder, given: dict[str, Any]) -> TaskRunOptions:
    """Return the options of the run to resume, which must equal the given ones."""
    name = os.fspath(run)
    if not run.options_file.is_file():
        raise FileNotFoundError(
            f"{name!r} does not contain a run to resume: {run.options_file.name} is missing."
        )
    if run.is_pretraining():
        raise ValueError(
            f"{name!r} is a pretraining run. Resume it with `keras-bert-d2l pretrain --resume "
            f"{name}`, or fine-tune its model with --model {name} --run-dir FOLDER."
        )
    return TaskRunOptions.of_run(run.options_file, given)
