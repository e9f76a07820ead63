"""The tasks by name: those of this package, of installed packages, and of `register_task`."""

from typing import TYPE_CHECKING, Any

from keras_bert_d2l.checks import check_choice, check_that, shown
from keras_bert_d2l.contract.task import AnyTask

if TYPE_CHECKING:
    from keras_bert_d2l.data.tasks.examples import TaskExamples
    from keras_bert_d2l.models.tasks.task_model import TaskModel

BUILT_IN = ("classify", "regress", "tag", "answer", "choose", "embed")
_ENTRY_POINTS = "keras_bert_d2l.tasks"  # the group in which an installed package lists its tasks
_TASKS: dict[str, AnyTask] = {}
_OF_ALL = ("devices", "micro_batches", "dropout")  # options of training that most tasks have


def register_task(task: AnyTask) -> None:
    """Make a task known by its name.

    Args:
        task: The task. An installed package can also list it as an entry point of the group
            `keras_bert_d2l.tasks`; the command `keras-bert-d2l` then finds it.

    Raises:
        ValueError: Another task has this name.

    Example:

    ```python
    import keras_bert_d2l as kb

    class Topic(kb.TextTask):
        name, columns = "topic", {"text": "text", "label": "topic"}
        model = kb.SequenceClassifier

    kb.register_task(Topic())
    ```
    """
    known = _TASKS.get(task.name)
    if known is not None and type(known) is not type(task):
        raise ValueError(
            f"`task` must have a new name. Received: {shown(task.name)}, which is taken."
        )
    _TASKS[task.name] = task


def tasks() -> dict[str, AnyTask]:
    """Return all tasks by name: those of this package first."""
    if not _TASKS.keys() >= set(BUILT_IN):
        import importlib.metadata  # takes longer to import than the tasks

        others = dict(_TASKS)
        _TASKS.clear()
        for name in BUILT_IN:
            register_task(importlib.import_module(f"keras_bert_d2l.tasks.{name}.task").TASK)
        for entry in importlib.metadata.entry_points(group=_ENTRY_POINTS):
            register_task(entry.load())
        _TASKS.update(others)
    return dict(_TASKS)


def task_named(name: object) -> AnyTask:
    """Return the task with a name.

    Raises:
        ValueError: There is none. The message lists the names.
    """
    known = tasks()
    check_choice("task", name, tuple(known))
    return known[str(name)]


def embedder() -> Any:
    """Return the class of the models that give one vector per text, as a BERT without a task does.

    It needs no further weights.
    """
    return next(task.model for task in tasks().values() if not task.model.has_head)


def task_kinds() -> "dict[str, type[TaskModel]]":
    """Return the model classes of all tasks by their names, which checkpoints store."""
    return {task.model.__name__: task.model for task in tasks().values()}


def task_of_kind(kind: str) -> AnyTask:
    """Return the task whose model class has a name."""
    return next(task for task in tasks().values() if task.model.__name__ == kind)


def tasks_with(option: str) -> list[AnyTask]:
    """Return the tasks that have an option."""
    return [task for task in tasks().values() if option in task.options or option in task.columns]


def check_task(examples: "TaskExamples") -> None:
    """Raise `ValueError` if examples name a task that does not have examples of their class."""
    known = [name for name, task in tasks().items() if type(examples) in task.examples]
    check_choice("task", examples.task, known)


def check_option(name: str, option: str, value: object) -> None:
    """Raise `ValueError` if a task does not have an option.

    Args:
        name: The name of the task.
        option: The name of the option.
        value: The value that it got.
    """
    task = task_named(name)
    is_right = task in tasks_with(option) or option in _OF_ALL
    expected = f"omitted for the task {name!r}"
    check_that(is_right and option not in task.refused, option, expected, value)
