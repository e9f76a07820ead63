"""The model of a task as plain fields, which a checkpoint keeps, and back.

The fields are `kind`, a name of `TASKS`, and the arguments of that class beside `bert`.
"""

from collections.abc import Mapping
from typing import Any

from keras_bert_d2l.checkpoints.weights.transfer import PARTS
from keras_bert_d2l.models.bert import BERTModel
from keras_bert_d2l.models.tasks.heads import TASKS
from keras_bert_d2l.models.tasks.task_model import TaskModel

_TYPES: dict[str, type] = {
    "labels": list,
    "multi_label": bool,
    "dropout": float,
    "pooling": str,
    "normalize": bool,
}


def task_fields(model: BERTModel | TaskModel) -> dict[str, Any] | None:
    """Returns the fields of a task's model; `None` for a `BERTModel`."""
    if not isinstance(model, TaskModel):
        return None
    return {"kind": type(model).__name__, **model.task_config()}


def check_task_fields(fields: Any) -> None:
    """Raises a `ValueError` where the fields of a file are not those of a task.

    The values are checked by the task's class.
    """
    kind = fields.get("kind") if isinstance(fields, dict) else None
    if not isinstance(kind, str) or kind not in TASKS:
        raise ValueError(
            f'`task` must be an object with a "kind" out of {tuple(TASKS)}. Received: '
            f"{fields!r:.120}."
        )
    expected = {"kind", *TASKS[kind].fields}
    if fields.keys() != expected:
        raise ValueError(
            f"The task of a {kind} has the fields {sorted(expected)}. Received: {sorted(fields)}."
        )
    for name in TASKS[kind].fields:
        value, kind_of_value = fields[name], _TYPES[name]
        if kind_of_value is float and isinstance(value, int) and not isinstance(value, bool):
            continue
        if not isinstance(value, kind_of_value):
            raise ValueError(
                f"`{name}` of a task must be a {kind_of_value.__name__}. Received: {value!r:.120}."
            )


def make_task(bert: BERTModel, fields: Mapping[str, Any]) -> TaskModel:
    """Returns the model of a task over a BERT.

    Raises:
        ValueError: A field is out of its range, or the BERT is not fit for the task.
    """
    arguments = {name: value for name, value in fields.items() if name != "kind"}
    return TASKS[fields["kind"]](bert, **arguments)


def parts_of(task: Mapping[str, Any] | None) -> tuple[str, ...]:
    """Returns the parts, of `PARTS`, that a model may have; of a `BERTModel` for `None`."""
    if task is None:
        return tuple(part for part in PARTS if part != "head")
    kind = TASKS[task["kind"]]
    has = {"encoder": True, "hidden": kind.has_pooler, "head": kind.has_head}
    return tuple(part for part, is_there in has.items() if is_there)


def describe_task(task: Mapping[str, Any]) -> str:
    """Returns a task in a few words, for people."""
    if "labels" in task:
        several = " (any number of them)" if task.get("multi_label") else ""
        return f"{task['kind']} of {', '.join(task['labels'])}{several}"
    if "pooling" in task:
        return f"{task['kind']} by {task['pooling']}"
    return str(task["kind"])
