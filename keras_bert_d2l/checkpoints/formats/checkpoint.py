"""The contents of a checkpoint, in the same form for every format, and its task as plain fields."""

from collections.abc import Sequence
from typing import Any, NamedTuple, TypedDict, cast

from keras_bert_d2l.checkpoints.array_files import NamedArrays
from keras_bert_d2l.checkpoints.weights import BERT_PARTS, Row
from keras_bert_d2l.checks import check_that, shown, wrong
from keras_bert_d2l.config import BERTConfig
from keras_bert_d2l.models.bert import BERTModel
from keras_bert_d2l.models.tasks.task_model import TaskModel
from keras_bert_d2l.tasks.embed.model import TextEmbedder
from keras_bert_d2l.tasks.task import task_kinds
from keras_bert_d2l.text.normalization import TokenizerOptions
from keras_bert_d2l.text.vocab import Vocab


class TaskArguments(TypedDict, total=False):
    """The arguments of the task classes other than `bert`. Each class accepts some of them."""

    labels: Sequence[str]
    multi_label: bool
    dropout: float
    pooling: str
    normalize: bool
    long_texts: str


class TaskFields(TaskArguments, total=False):
    """The name of a task class, from `task_kinds`, and its arguments other than `bert`."""

    kind: str


class Checkpoint(NamedTuple):
    """Everything in a checkpoint except the values of its weights.

    Attributes:
        description: The format and the kind of model, for summaries.
        config: The architecture.
        table: A row for every weight of that architecture.
        arrays: The weights, which are read on demand.
        vocab: The vocabulary, or `None` if the folder has none.
        tokenizer_options: The options of the tokenizer that uses the vocabulary.
        task: The task of the model, or `None` for a `BERTModel`.
        unsupported: What the tokenizer of the folder has that ours does not support.
        embedding: How the folder defines the embedding of a text, or `None`.
        name: The path of the checkpoint or its name on the Hub, for messages.
    """

    description: str
    config: BERTConfig
    table: Sequence[Row]
    arrays: NamedArrays
    vocab: Vocab | None
    tokenizer_options: TokenizerOptions
    task: TaskFields | None = None
    unsupported: str = ""
    embedding: TaskArguments | None = None
    name: str = ""


_OPTIONAL = {"long_texts"}  # folders of this package that were written before it lack it


def task_fields(model: BERTModel | TaskModel) -> TaskFields | None:
    """Return the fields of a task model, or `None` for a `BERTModel`."""
    if not isinstance(model, TaskModel):
        return None
    return cast(TaskFields, {"kind": type(model).__name__, **model.task_config()})


def embedding_fields(model: BERTModel | TaskModel) -> TaskArguments | None:
    """Return how `embed` pools the tokens of a model; `None` for models that do not embed."""
    if isinstance(model, BERTModel):
        model = TextEmbedder(model)
    return None if model.has_head else cast(TaskArguments, model.task_config())


def check_task_fields(fields: object) -> TaskFields:
    """Validate the task fields of a file and return them; raise `ValueError` if they are invalid.

    Only the names of the fields and of the labels are checked here. The task class checks the rest.
    """
    kind = fields.get("kind") if isinstance(fields, dict) else None
    kinds = task_kinds()
    if not isinstance(fields, dict) or not isinstance(kind, str) or kind not in kinds:
        raise wrong("task", f'an object whose "kind" is one of {tuple(kinds)}', fields)
    expected = {"kind", *kinds[kind].fields}
    if fields.keys() | (_OPTIONAL & expected) != expected:
        raise ValueError(
            f"The task of a {kind} must have the fields {sorted(expected)}. Received: "
            f"{shown(sorted(fields))}."
        )
    labels = fields.get("labels", [])
    are_strings = isinstance(labels, list) and all(isinstance(label, str) for label in labels)
    check_that(are_strings, "labels", "a list of strings", labels)
    return cast(TaskFields, fields)


def make_task(bert: BERTModel, fields: TaskFields) -> TaskModel:
    """Create a task model on top of a BERT.

    Raises:
        ValueError: A field is out of range, or the BERT does not support the task.
    """
    options: Any = {name: value for name, value in fields.items() if name != "kind"}
    return task_kinds()[fields["kind"]](bert, **options)


def parts_of(task: TaskFields | None) -> tuple[str, ...]:
    """Return the possible parts (from `PARTS`) of a task model, or of a `BERTModel` for `None`."""
    if task is None:
        return BERT_PARTS
    kind = task_kinds()[task["kind"]]
    reads_pooler = kind.pools and task["pooling"] == "cls"
    has = {"encoder": True, "hidden": reads_pooler, "head": kind.has_head}
    return tuple(part for part, is_there in has.items() if is_there)


def describe_task(task: TaskFields) -> str:
    """Return a short description of a task, for messages."""
    parts = []
    if "labels" in task:
        several = "; any number per text" if task.get("multi_label") else ""
        parts.append(f"labels: {', '.join(task['labels'])}{several}")
    if "pooling" in task and (not task_kinds()[task["kind"]].has_head or task["pooling"] != "cls"):
        parts.append(f"pooling: {task['pooling']}")
    return f"{task['kind']} ({'; '.join(parts)})" if parts else task["kind"]
