"""Check that a model and the examples of a task are compatible, and import metrics."""

import importlib
import types
from collections.abc import Sequence
from typing import cast

import tensorflow as tf

from keras_bert_d2l.checkpoints.checks import check_kind, check_vocabulary
from keras_bert_d2l.checks import check_type
from keras_bert_d2l.data.tasks.examples import TaskExamples
from keras_bert_d2l.data.tasks.read_examples import read_examples
from keras_bert_d2l.data.tasks.readers.memory import InMemory
from keras_bert_d2l.models.tasks.task_model import TaskModel
from keras_bert_d2l.tasks.task import task_named


def as_examples(model: TaskModel, data: object, *, labeled: bool = True) -> object:
    """Read data of any form that `read_examples` takes for the task of a model.

    Examples, datasets of batches, functions and the data of unknown models are returned unchanged.
    """
    is_read = isinstance(data, TaskExamples | tf.data.Dataset) or callable(data)
    if is_read or not getattr(model, "task", ""):
        return data
    several = getattr(model, "multi_label", False)
    return read_examples(model.task, cast(InMemory, data), multi_label=several, labeled=labeled)


def check_examples(model: TaskModel, examples: TaskExamples) -> None:
    """Check that a model can be trained on the examples and evaluated with them.

    Args:
        model: The task model.
        examples: The examples that `read_examples` returns.

    Raises:
        ImportError: A library that the task's metrics need is not installed.
        ValueError: The model and the examples are not compatible.
    """
    check_type("examples", examples, TaskExamples, "Read a file with `read_examples`.")
    task = task_named(examples.task)
    where = examples.source or "The examples"
    remedy = f"use a model for the task of the examples, {examples.task!r}"
    check_kind(model, task.model, remedy=remedy)
    if not len(examples):
        dropped = "; ".join(examples.dropped_in_words()) or "It is empty."
        raise ValueError(f"{where}: there are no examples. {dropped}")
    if not examples.has_labels:
        raise ValueError(f"{where}: the examples have no labels. Specify the label column.")
    task.check_fit(model, examples, where)
    check_vocabulary(model, model.tokenizer)
    if task.library is not None:
        library(task.library)


def check_same_number(gold: Sequence[object], predicted: Sequence[object]) -> None:
    """Raise `ValueError` unless there are as many predictions as gold values, and at least one."""
    if not len(gold) or len(gold) != len(predicted):
        raise ValueError(
            "There must be the same number of predictions and gold values, and at least one. "
            f"Received: {len(gold)} gold values and {len(predicted)} predictions."
        )


def library(name: str) -> types.ModuleType:
    """Import a library of metrics on first use."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ImportError(
            "Task metrics require scikit-learn and scipy: "
            f'`pip install "keras-bert-d2l[tasks]"`. The import failed: {error}'
        ) from error
