"""The task of a model as plain fields, which a checkpoint stores."""

from collections.abc import Sequence
from typing import Any, TypedDict, cast

from keras_bert_d2l.checkpoints.weights.tables import BERT_PARTS
from keras_bert_d2l.models.bert import BERTModel
from keras_bert_d2l.models.tasks import TASKS
from keras_bert_d2l.models.tasks.task_model import TaskModel


class TaskArguments(TypedDict, total=False):
    """The arguments of the task classes other than `bert`. Each class takes some of them."""

    labels: Sequence[str]
    multi_label: bool
    dropout: float
    pooling: str
    normalize: bool


class TaskFields(TaskArguments, total=False):
    """The name of a task class, from `TASKS`, and its arguments other than `bert`."""

    kind: str


_TYPES: dict[str, tuple[type, ...]] = {
    "labels": (list,),
    "multi_label": (bool,),
    "dropout": (float, int),
    "pooling": (str,),
    "normalize": (bool,),
}


def task_fields(model: BERTModel | TaskModel) -> TaskFields | None:
    """Return the fields of a task model, or `None` for a `BERTModel`."""
    if not isinstance(model, TaskModel):
        return None
    return cast(TaskFields, {"kind": type(model).__name__, **model.task_config()})


def check_task_fields(fields: object) -> TaskFields:
    """Return the fields of a file, or raise a `ValueError` if they are not those of a task.

    Only their names and types are checked. The task class checks their values.
    """
    kind = fields.get("kind") if isinstance(fields, dict) else None
    if not isinstance(fields, dict) or not isinstance(kind, str) or kind not in TASKS:
        raise ValueError(
            f'`task` must be an object whose "kind" is one of {tuple(TASKS)}. Received: '
            f"{fields!r:.120}."
        )
    expected = {"kind", *TASKS[kind].fields}
    if fields.keys() != expected:
        raise ValueError(
            f"The task of a {kind} must have the fields {sorted(expected)}. Received: "
            f"{sorted(fields)}."
        )
    for name in TASKS[kind].fields:
        value, types = fields[name], _TYPES[name]
        if not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
            raise ValueError(
                f"`{name}` of a task must be a {types[0].__name__}. Received: {value!r:.120}."
            )
    return cast(TaskFields, fields)


def make_task(bert: BERTModel, fields: TaskFields) -> TaskModel:
    """Return a task model on a BERT.

    Raises:
        ValueError: A field is out of its range, or the BERT does not suit the task.
    """
    options: Any = {name: value for name, value in fields.items() if name != "kind"}
    return TASKS[fields["kind"]](bert, **options)


def parts_of(task: TaskFields | None) -> tuple[str, ...]:
    """Return the parts, from `PARTS`, that a task model may have, or a `BERTModel` for `None`."""
    if task is None:
        return BERT_PARTS
    kind = TASKS[task["kind"]]
    has = {"encoder": True, "hidden": kind.has_pooler, "head": kind.has_head}
    return tuple(part for part, is_there in has.items() if is_there)


def describe_task(task: TaskFields) -> str:
    """Return a task in a few words, for messages."""
    if "labels" in task:
        several = " (any number of them)" if task.get("multi_label") else ""
        return f"{task['kind']} of {', '.join(task['labels'])}{several}"
    if "pooling" in task:
        return f"{task['kind']} by {task['pooling']}"
    return task["kind"]
