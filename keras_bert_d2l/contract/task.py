"""`Task`: what a task must define, and the tasks by name: of this package and of other ones.

Everything else asks this record, and never the task's name.

A task is a folder with its examples, its model, its predictions, its evaluation and its signature.
`task.py` of the folder defines the record, which imports TensorFlow only when a method runs.
"""

import abc
import os
import pathlib
import pkgutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NamedTuple, TypeAlias, TypeVar

from keras_bert_d2l.checks import check_choice, check_that, shown
from keras_bert_d2l.types import Say

if TYPE_CHECKING:
    from keras_bert_d2l.data.tasks.examples import TaskExamples
    from keras_bert_d2l.data.tasks.readers.columns import ReadingOptions
    from keras_bert_d2l.data.tasks.readers.text_file import TextFile
    from keras_bert_d2l.data.tasks.rows import Fields
    from keras_bert_d2l.inference.evaluation import Evaluation
    from keras_bert_d2l.models.losses import Loss
    from keras_bert_d2l.models.tasks.task_model import TaskModel
    from keras_bert_d2l.signatures.signature import TextSignatures
    from keras_bert_d2l.text.tokenizer.tokenizer import Tokenizer

Examples = TypeVar("Examples", bound="TaskExamples")
Model = TypeVar("Model", bound="TaskModel")
Found = TypeVar("Found")  # a prediction
AnyTask: TypeAlias = "Task[Any, Any, Any]"
Options: TypeAlias = Mapping[str, Any]
"""Keyword arguments of the function that predicts, or of `evaluate`, or options of the loss."""

BUILT_IN = ("classify", "regress", "tag", "answer", "choose", "embed", "rerank")
_ENTRY_POINTS = "keras_bert_d2l.tasks"  # the group in which an installed package lists its tasks
_TASKS: dict[str, AnyTask] = {}
_OF_ALL = ("devices", "micro_batches", "dropout")  # options of training that most tasks have


class _Lazy:
    def __init__(self, place: str) -> None:
        self._place = place

    def __get__(self, task: object, kind: type) -> object:
        return self if task is None else pkgutil.resolve_name(self._place)


def lazy(place: str) -> Any:
    """Return an attribute of a task that is imported on first use, as what needs TensorFlow is.

    Args:
        place: The module and the name, such as `"keras_bert_d2l.tasks.tag.model:TokenClassifier"`.
    """
    return _Lazy(place)


class HuggingFace(NamedTuple):
    """What transformers calls a model for the task.

    Attributes:
        architecture: The class.
        head: The name of the head; empty if it has no weights.
        pipeline: The task on the Hub.
        problems: The values of `problem_type` for models with a single label or score, and with
            any number of labels.
    """

    architecture: str
    head: str
    pipeline: str
    problems: tuple[str, ...] = ()


class Sample(NamedTuple):
    """A prediction for an example, as evaluations and the report of a run show it.

    Attributes:
        text: The text of the example.
        gold: The right answer; `None` if it is unknown.
        predicted: What the model predicts.
        score: The confidence of the model.
        is_right: Whether the prediction is right; `None` if it is only near or far.

    Example:

    ```python
    import keras_bert_d2l as kb

    kb.Sample("a good film", gold="good", predicted="bad", score=0.7, is_right=False)
    ```
    """

    text: str
    gold: str | None
    predicted: str
    score: float | None = None
    is_right: bool | None = None


class EncodingOptions(NamedTuple):
    """The arguments of `TaskRows.encode` besides the examples and the tokenizer."""

    labels: Sequence[str] | None
    max_len: int
    overlap: int | None
    model: Any = None


class Task(abc.ABC, Generic[Examples, Model, Found]):
    """What a task must define: its data, its model, its predictions and how they are shown.

    Attributes:
        name: Its name for `read_examples` and `finetune`. The first line of the docstring says in
            the help of `keras-bert-d2l finetune` what a model learns.
        examples: The classes of its examples. `read` returns the first one.
        columns: Common names of the columns of a table by role, separated by spaces, the most
            common first. The roles are `text`, `text_b`, `negative`, `choices` and `label`. A role
            that is missing is rejected as an option.
        labels: What the labels are called in messages.
        needs_text_b: Whether every example has a second text.
        finds_pairs: Whether two columns are found by common names of pairs, such as
            `premise` and `hypothesis`.
        has_scores: Whether the labels are numbers.
        one_word_per_row: Whether the rows of a table may be single words.
        batch_size: Rows per batch of training, by default.
        most_tokens: Maximum number of tokens in a row. `None`: that of the model.
        options: Options that not every task has: `multi_label`, `long_texts`, `pooling`,
            `mine_negatives`, `temperature`, `matryoshka`, `crf` and `valid_tags` of training,
            `aggregate`, `context`, `null_threshold`, `min_confidence`, `truncate` and `explain` of
            predictions, and `pairs` of exports.
        losses: The values of the option `loss`, if the task has several losses.
        refused: Options of training that every other task has.
        monitors: Metrics that select the best epoch, the first that is reported.
        library: The library that the metrics need, if any.
        huggingface: What transformers calls a model for the task; `None` if it has none.

    Example:

    ```python
    import keras_bert_d2l as kb

    class Topic(kb.Task):
        name = "topic"
    ```
    """

    name: ClassVar[str]
    examples: ClassVar[tuple[type["TaskExamples"], ...]] = ()
    columns: ClassVar[Mapping[str, str]]
    labels: ClassVar[str] = "labels"
    needs_text_b: ClassVar[bool] = False
    finds_pairs: ClassVar[bool] = False
    has_scores: ClassVar[bool] = False
    one_word_per_row: ClassVar[bool] = False
    batch_size: ClassVar[int] = 32
    most_tokens: ClassVar[int | None] = None
    options: ClassVar[frozenset[str]] = frozenset()
    losses: ClassVar[tuple[str, ...]] = ()
    refused: ClassVar[frozenset[str]] = frozenset()
    monitors: ClassVar[tuple[str, ...]] = ()
    library: ClassVar[str | None] = None
    huggingface: ClassVar[HuggingFace | None] = None

    # Reading.

    @abc.abstractmethod
    def read(self, file: "TextFile", options: "ReadingOptions") -> Examples:
        """Read the examples of a file; see `data/tasks/readers`."""

    def read_folder(self, folder: pathlib.Path, options: "ReadingOptions") -> Examples:
        """Read a folder of text files; raise `ValueError` if the task has no such folders."""
        raise ValueError(
            f"{os.fspath(folder)!r} is a folder. The task {self.name!r} reads files. Pass one of "
            "its files."
        )

    def is_table(self, file: "TextFile", labels: Sequence[str]) -> bool:
        """Return whether a file of lines is a table: all lines have the same number of tabs.

        Args:
            file: The file.
            labels: The labels of the model.
        """
        tabs = {line.count("\t") for line in file.lines() if line.strip()}
        return len(tabs) == 1 and tabs != {0}

    def from_lines(self, texts: tuple[str, ...], context: str | None) -> "TaskExamples":
        """Return one example for each line of text, without labels.

        Args:
            texts: The lines.
            context: The text that they are all about, if there is one.
        """
        raise ValueError(
            f"The task {self.name!r} needs several texts for each example. Received: one text per "
            "line. Provide them as JSONL, CSV or TSV."
        )

    def from_arguments(self, texts: tuple[str, ...], context: str | None) -> "TaskExamples":
        """Return the examples for the texts of a command line, without labels.

        Args:
            texts: The texts, at least one.
            context: As for `from_lines`.
        """
        return self.from_lines(texts, context)

    # Rows.

    @abc.abstractmethod
    def encode(
        self, examples: Examples, tokenizer: "Tokenizer", options: EncodingOptions
    ) -> "Fields":
        """Return token ids and label ids, as the fields of `TaskRows`; arguments as there."""

    # The model, and what it learns from.

    @property
    @abc.abstractmethod
    def model(self) -> type[Model]:
        """The class of the models."""

    def model_fields(self, train: Examples, dev: Examples, say: Say) -> Options:
        """Return the arguments of a new model that come from the data."""
        return {}

    def check_fit(self, model: Model, examples: Examples, where: str) -> None:
        """Raise `ValueError` if a model of the task cannot learn from some examples.

        Args:
            model: The model.
            examples: The examples.
            where: The source of the examples, for messages.
        """

    def with_negatives(
        self, model: "TaskModel", train: Examples, dev: Examples, batch_size: int, say: Say
    ) -> tuple[Examples, Examples]:
        """Return training and development data with mined negatives.

        Args:
            model: The text embedder that mines them, or the model to train.
            train: The training data.
            dev: The development data.
            batch_size: Texts per batch.
            say: Called with each message to print.
        """
        raise ValueError(f"The task {self.name!r} has no negatives to mine.")

    def loss(self, train: Examples, options: Options) -> "Loss | None":
        """Return the loss that suits the data; `None`: the default of the model.

        Args:
            train: The training data.
            options: The options of the run about the loss, or `None`: `loss`, `temperature` and
                `matryoshka`; and `width`, that of the vectors of the model, if it has any.

        Raises:
            ValueError: An option does not fit the data or another option.
        """
        return None

    def for_loss(self, train: Examples, dev: Examples, options: Options) -> Examples:
        """Return the development data for the loss; the arguments are as for `loss`."""
        return dev

    # Predictions.

    @abc.abstractmethod
    def records(
        self, model: Model, examples: Examples, options: Options
    ) -> Iterable[dict[str, object]]:
        """Return what `keras-bert-d2l predict` writes for each example.

        Args:
            model: The model.
            examples: Those of `read` or of `from_lines`.
            options: `batch_size`, `max_len`, and those of the options of the task.
        """

    @abc.abstractmethod
    def evaluate(self, model: Model, examples: Examples, options: Options) -> "Evaluation":
        """Compare the predictions of a model with the labels.

        Args:
            model: The model.
            examples: The examples, with labels.
            options: The options of `keras_bert_d2l.evaluate`.
        """

    @abc.abstractmethod
    def samples(self, examples: Examples, found: Iterable[Found]) -> Iterator[Sample]:
        """Yield the predictions for the errors of an evaluation and for the report of a run.

        Args:
            examples: The examples.
            found: What `predictions` of an evaluation has for each.
        """

    # Serving.

    @property
    @abc.abstractmethod
    def signatures(self) -> "type[TextSignatures]":
        """The class of the signatures that take strings."""


def register_task(task: AnyTask) -> None:
    """Make a task known by its name.

    Args:
        task: The task. An installed package can also list it as an entry point of the group
            `keras_bert_d2l.tasks`; the command `keras-bert-d2l` then finds it.

    Raises:
        ValueError: Another task has this name.

    Example:

    ```python
    import keras
    import keras_bert_d2l as kb

    @keras.saving.register_keras_serializable("my_tasks")
    class TopicClassifier(kb.LabeledTask):
        task, pools, fields = "topic", True, ("labels", "dropout", "pooling")

    class Topic(kb.TextTask):
        name, columns = "topic", {"text": "text", "label": "topic"}
        model = TopicClassifier

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
