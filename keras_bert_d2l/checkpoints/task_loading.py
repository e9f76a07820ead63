"""The model of a task from a checkpoint: of the same task, or of a BERT, with a new head."""

import os
from typing import Any

from keras_bert_d2l.checkpoints.pretrained import Pretrained, load_pretrained
from keras_bert_d2l.checkpoints.task_fields import describe_task, task_fields
from keras_bert_d2l.models.tasks.task_model import TaskModel


def load_task(
    kind: type[TaskModel], path: str | os.PathLike[str], *, verbose: bool = True, **options: Any
) -> Pretrained:
    """Returns the model of a task with the weights of a checkpoint of any known format.

    A checkpoint of the task is loaded with its head. That of a BERT without a task lends its
    encoder (and its pooler, where the task has one), and the head begins anew, which is printed.

    Args:
        kind: The task, for instance `SequenceClassifier`.
        path: The checkpoint, as for `load_pretrained`.
        verbose: As for `load_pretrained`.
        **options: The arguments of the task's class beside `bert`, for instance `labels`. Of a
            checkpoint of the task they may be left out, and must be what it has.

    Returns: the model, which has the tokenizer, the tokenizer and the configuration.

    Raises:
        FileNotFoundError: There is no checkpoint, or one of its files is missing.
        ValueError: The checkpoint is of another task, has other labels or is damaged, or it is a
            BERT that is not fit for the task.

    Example:

    ```python
    classifier, tokenizer, _ = load_task(SequenceClassifier, "minilm", labels=["bad", "good"])
    ```
    """
    model, tokenizer, config = load_pretrained(path, heads=heads_of(kind), verbose=verbose)
    if not isinstance(model, TaskModel):
        model = kind(model, tokenizer=tokenizer, **options)
        if kind.has_head:
            print(f"{os.fspath(path)}: {describe_task(task_fields(model) or {})}, with a new head")
        return Pretrained(model, tokenizer, config)
    stored = task_fields(model) or {}
    if not isinstance(model, kind):
        raise ValueError(
            f"{os.fspath(path)!r} is a checkpoint of another task, {describe_task(stored)}, and no "
            f"{kind.__name__}. Take it for what it is, or begin with the BERT that it was made of."
        )
    for name, value in options.items():
        given = list(value) if isinstance(value, tuple) else value
        if name not in stored or given != stored[name]:
            raise ValueError(
                f"`{name}` must be that of the checkpoint {os.fspath(path)!r}, "
                f"{stored.get(name)!r}, or left out. Received: {name}={value!r:.120}. A new head "
                "begins with a BERT without a task."
            )
    return Pretrained(model, tokenizer, config)


def heads_of(kind: type[TaskModel]) -> tuple[str, ...]:
    """Returns those heads of a BERT, as `load_pretrained` names them, that a task stands on."""
    return ("pooler",) if kind.has_pooler else ()
