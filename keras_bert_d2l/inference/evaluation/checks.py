"""Check that a model and the examples of a task are compatible."""

from typing import cast

import tensorflow as tf

from keras_bert_d2l.checkpoints.checks import check_kind, check_vocabulary
from keras_bert_d2l.data.tasks.examples import (
    ChoiceExamples,
    QuestionExamples,
    TaskExamples,
    TextExamples,
    WordExamples,
)
from keras_bert_d2l.data.tasks.labels import check_label_names
from keras_bert_d2l.data.tasks.read_examples import read_examples
from keras_bert_d2l.data.tasks.readers.memory import InMemory
from keras_bert_d2l.inference.evaluation.scores import check_libraries
from keras_bert_d2l.models.tasks import (
    TASKS,
    SequenceClassifier,
    SequenceRegressor,
    TokenClassifier,
)
from keras_bert_d2l.models.tasks.task_model import TaskModel

TASK_MODELS = {kind.task: kind for kind in TASKS.values()}


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
    if not isinstance(examples, TextExamples | WordExamples | QuestionExamples | ChoiceExamples):
        raise ValueError(
            "`examples` must be TextExamples, WordExamples, QuestionExamples, ChoiceExamples or "
            f"PairExamples, for example from `read_examples`. Received: {type(examples).__name__}."
        )
    where = examples.source or "The examples"
    remedy = f"use a model for the task of the examples, {examples.task!r}"
    check_kind(model, TASK_MODELS[examples.task], remedy=remedy)
    if not len(examples):
        dropped = "; ".join(examples.dropped_in_words()) or "It is empty."
        raise ValueError(f"{where}: there are no examples. {dropped}")
    if not examples.has_labels:
        raise ValueError(f"{where}: the examples have no labels. Specify the label column.")
    _check_labels(model, examples, where)
    check_vocabulary(model, model.tokenizer)
    check_libraries(examples.task)


def _check_labels(model: TaskModel, examples: TaskExamples, where: str) -> None:
    several = isinstance(examples, TextExamples) and examples.multi_label
    if isinstance(model, SequenceClassifier) and model.multi_label != several:
        kinds = ("one label per text", "any number of labels per text")
        raise ValueError(
            f"{where}: the model predicts {kinds[model.multi_label]}. Received: examples with "
            f"{kinds[several]}; create both with the same `multi_label`."
        )
    if isinstance(model, SequenceRegressor) and len(model.labels) != 1:
        raise ValueError(
            f"{where}: examples have one score each. Received: a model with the scores "
            f"{', '.join(model.labels)}."
        )
    if isinstance(model, SequenceClassifier | TokenClassifier):
        check_label_names(cast(TextExamples | WordExamples, examples), model.labels, at_least=1)
