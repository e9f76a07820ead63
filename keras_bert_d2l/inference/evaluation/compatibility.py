"""A task's model and examples in, an error out where the two do not go together."""

from typing import Any

from keras_bert_d2l.checkpoints.checks import check_vocabulary
from keras_bert_d2l.data.tasks.examples import (
    QuestionExamples,
    TaskExamples,
    TextExamples,
    WordExamples,
    how_many,
)
from keras_bert_d2l.data.tasks.labels import differ_in_capitals
from keras_bert_d2l.inference.evaluation.scores import check_libraries
from keras_bert_d2l.models.tasks import (
    QuestionAnswerer,
    SequenceClassifier,
    SequenceRegressor,
    TokenClassifier,
)
from keras_bert_d2l.models.tasks.task_model import TaskModel

TASK_MODELS: dict[str, type[TaskModel]] = {
    "classify": SequenceClassifier,
    "regress": SequenceRegressor,
    "tag": TokenClassifier,
    "answer": QuestionAnswerer,
}


def check_examples(model: Any, examples: TaskExamples) -> None:
    """Raises a `ValueError` for examples that a model can neither learn from nor be measured by.

    Args:
        model: The model of a task.
        examples: What `read_examples` returns.

    Raises:
        ImportError: A library that the scores of the task need is not installed.
    """
    if not isinstance(examples, TextExamples | WordExamples | QuestionExamples):
        raise ValueError(
            f"Examples must be what `read_examples` returns. Received: {type(examples).__name__}."
        )
    kind, where = TASK_MODELS[examples.task], examples.source or "The examples"
    if not isinstance(model, kind):
        raise ValueError(
            f"{where}: the task {examples.task!r} takes a {kind.__name__}. Received: a "
            f"{type(model).__name__}."
        )
    if not len(examples):
        dropped = "; ".join(examples.dropped_in_words()) or "It is empty."
        raise ValueError(f"{where}: there is no example. {dropped}")
    if not examples.has_labels:
        raise ValueError(f"{where}: it is not said what is right; name the column of the labels.")
    _check_labels(model, examples, where)
    check_vocabulary(model, model.tokenizer)
    check_libraries(examples.task)


def _check_labels(model: Any, examples: TaskExamples, where: str) -> None:
    several = isinstance(examples, TextExamples) and examples.multi_label
    if isinstance(model, SequenceClassifier) and model.multi_label != several:
        kinds = ("one label for each text", "any number of labels for each text")
        raise ValueError(
            f"{where}: the model gives {kinds[model.multi_label]}. Received: {kinds[several]}; "
            "make both with the same `multi_label`."
        )
    if isinstance(model, SequenceRegressor) and len(model.labels) != 1:
        raise ValueError(
            f"{where}: examples have one score each. Received: a model of the scores "
            f"{', '.join(model.labels)}."
        )
    known = getattr(model, "labels", ())
    unknown = {n: count for n, count in examples.label_counts().items() if n not in known}
    if unknown:
        named = ", ".join(
            f"{name!r} ({how_many(count, 'time')})" for name, count in unknown.items()
        )
        remedy = "take a model of all labels, or take these examples out"
        if differ_in_capitals(unknown, known):
            remedy = "they differ in capitals alone, write them alike in all files"
        raise ValueError(
            f"{where}: the model has the labels {', '.join(known)}. Received: {named:.200}; "
            f"{remedy}."
        )
