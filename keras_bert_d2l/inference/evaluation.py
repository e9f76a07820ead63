"""Evaluate a model on labeled examples: metrics, predictions and most confident errors, printed."""

import collections
import dataclasses
import importlib
import textwrap
import types
from collections.abc import Iterable, Sequence
from typing import Any, cast

import numpy as np
from rich.console import Console
from rich.table import Column, Table

from keras_bert_d2l.checkpoints.checks import check_kind, check_vocabulary
from keras_bert_d2l.checks import check_type
from keras_bert_d2l.contract.task import Options, task_named
from keras_bert_d2l.data.tasks.examples import TaskExamples, how_many
from keras_bert_d2l.data.tasks.read_examples import read_examples
from keras_bert_d2l.data.tasks.readers.text_file import InMemory
from keras_bert_d2l.inference.decisions import Decisions
from keras_bert_d2l.inference.prediction import model_at
from keras_bert_d2l.models.tasks.task_model import TaskModel
from keras_bert_d2l.printing import cell
from keras_bert_d2l.types import PathLike

NUM_MISTAKES = 20
_ADVICE = (  # the warning of `finetune` depends on the curve instead
    "If its training loss still fell at the end, train for more epochs. If not, try a learning "
    "rate three times higher or lower, or class weights that balance the labels."
)


@dataclasses.dataclass(frozen=True)
class Mistake:
    """A wrong prediction.

    Attributes:
        id: The id of the example.
        text: The text of the example: both texts of a pair, an incorrectly tagged `[word]` with its
            context, or the question.
        gold: The correct label, score, tag, answer or second text of a pair.
        predicted: The predicted label, score, tag or answer, the cosine of a pair with a score, or
            the most similar text.
        score: The confidence: the probability of the prediction, or the cosine of the most similar
            text. For a regressor, the absolute error. For pairs with scores, the distance of their
            cosine from the score, after scores outside [-1, 1] are mapped to [0, 1].
        word: For a tagger, the index of the word.
    """

    id: str
    text: str
    gold: str
    predicted: str
    score: float
    word: int | None = None


@dataclasses.dataclass(frozen=True)
class Confusion:
    """Confusion matrix: how often each label was predicted for each gold label.

    Attributes:
        labels: The names of the C labels.
        counts: int `(C, C)`, with a row per gold label and a column per predicted label.
    """

    labels: tuple[str, ...]
    counts: np.ndarray

    @classmethod
    def of(
        cls, gold: Iterable[str], predicted: Iterable[str], labels: Sequence[str]
    ) -> "Confusion":
        """Count the pairs of gold and predicted labels."""
        pairs = collections.Counter(zip(gold, predicted, strict=True))
        counts = np.array([[pairs[one, other] for other in labels] for one in labels], int)
        return cls(tuple(labels), counts.reshape(len(labels), len(labels)))

    def most_frequent(self, number: int) -> list[tuple[str, str, int]]:
        """Return the most frequent confusions: gold label, predicted label and count."""
        wrong = self.counts - np.diag(np.diag(self.counts))
        order = np.argsort(-wrong, axis=None, kind="stable")[:number]
        pairs = zip(*np.unravel_index(order, wrong.shape), strict=True)
        return [
            (self.labels[gold], self.labels[predicted], int(wrong[gold, predicted]))
            for gold, predicted in pairs
            if wrong[gold, predicted]
        ]


@dataclasses.dataclass(frozen=True, repr=False)
class Evaluation:
    """The results of an evaluation.

    Attributes:
        task: The name of the task.
        metrics: The metrics of the task, by name. If some questions have no answer, this includes
            `null_threshold`. If some questions are too long for the model, this includes their
            number, `unread_questions`; they count as unanswered.
        predictions: The results of `classify`, `regress`, `tag` or `choose` for the examples, the
            best `FoundAnswer` to each question, or the cosine of each pair of texts.
        errors: The 20 most confident errors, in descending order of confidence; for scores, the
            20 largest errors.
        confusion: The confusion matrix of classes or tags. `None` for other tasks, or if a text can
            have several labels.
        num_examples: Number of examples.
        decisions: The probabilities of labels or choices, and which of them are right. `None` for
            other tasks.

    Example:

    ```python
    import keras_bert_d2l as kb

    evaluation = kb.Evaluation("regress", {"pearson": 0.9}, [], [], None, num_examples=2)
    evaluation.metrics["pearson"]
    ```
    """

    task: str
    metrics: dict[str, float]
    predictions: Sequence[Any]
    errors: list[Mistake]
    confusion: Confusion | None
    num_examples: int
    decisions: Decisions | None = None

    def __repr__(self) -> str:
        metrics = ", ".join(f"{name}={value:.4g}" for name, value in self.metrics.items())
        return f"Evaluation({self.task!r}, {how_many(self.num_examples, 'example')}, {metrics})"

    @property
    def warning(self) -> str | None:
        """A warning if all predictions are the same label, although the gold labels differ."""
        if self.confusion is None:
            return None
        counts = self.confusion.counts
        gold, predicted = (np.flatnonzero(counts.sum(axis)) for axis in (1, 0))
        if len(predicted) > 1 or len(gold) < 2:
            return None
        return (
            f"The model predicts {self.confusion.labels[predicted[0]]!r} in all "
            f"{counts.sum():,} cases, although there are {len(gold)} different labels."
        )


def evaluate(
    model: TaskModel | PathLike,
    examples: TaskExamples | PathLike | InMemory,
    *,
    batch_size: int = 32,
    max_len: int | None = None,
    overlap: int | None = None,
    max_answer_len: int = 30,
    null_threshold: float | None = None,
) -> Evaluation:
    """Evaluate a model on labeled examples.

    Models for labels and choices also get the metric `expected_calibration_error`. It says how far
    the probabilities of their decisions are from how often these are right; see `Decisions`.

    Args:
        model: The model for the task of the examples, with its tokenizer; or its run, its folder,
            or its name on the Hugging Face Hub.
        examples: The examples that `read_examples` returns, with labels, or the path, `DataFrame`,
            `Dataset` or lists that it reads.
        batch_size: Rows per batch.
        max_len: Maximum number of tokens in a row. `None` has the same meaning as for `classify`,
            `regress`, `tag`, `answer` or `choose`. A `TextEmbedder` reads up to its own maximum.
        overlap: Overlap of the windows of long contexts, as for `answer`.
        max_answer_len: As for `answer`.
        null_threshold: As for `answer`, if some questions have no answer. `None` means the best
            threshold for these examples, which is appropriate for development data.

    Raises:
        FileNotFoundError: There is no checkpoint of this name, or no file.
        ImportError: scikit-learn or scipy is not installed.
        ValueError: There are no examples, they have no labels or belong to a different task, or
            the model lacks one of their labels.

    Example:

    ```python
    import keras_bert_d2l as kb

    tokenizer = kb.Tokenizer(kb.Vocab("[PAD] [UNK] [CLS] [SEP] [MASK] a good bad film".split()))
    bert = kb.BERTModel(9, 16, 32, num_heads=2, num_blks=1, dropout=0.1, max_len=16)
    classifier = kb.SequenceClassifier(bert, ["bad", "good"], tokenizer=tokenizer)
    examples = kb.TextExamples(texts=["a good film", "a bad film"], labels=["good", "bad"])
    evaluation = kb.evaluate(classifier, examples)
    print(evaluation.metrics["accuracy"])
    kb.print_evaluation(evaluation)
    ```
    """
    model = cast(TaskModel, model_at(model))
    examples = cast(TaskExamples, as_examples(model, examples))
    check_examples(model, examples)
    options: Options = {
        "batch_size": batch_size,
        "max_len": max_len,
        "overlap": overlap,
        "max_answer_len": max_answer_len,
        "null_threshold": null_threshold,
    }
    found: Evaluation = task_named(examples.task).evaluate(model, examples, options)
    return found


def row_options(options: Options) -> dict[str, Any]:
    """Return the options of an evaluation for a function that predicts from rows of texts."""
    return {"batch_size": options["batch_size"], "max_len": options["max_len"]}


def evaluation_of(
    examples: TaskExamples,
    metrics: dict[str, float],
    predictions: Sequence[object],
    mistakes: Sequence[Mistake] | None = None,
    confusion: Confusion | None = None,
    decisions: Iterable[tuple[float, bool]] | None = None,
) -> Evaluation:
    """Return an evaluation with the most confident mistakes; `None`: the wrong predictions."""
    decided = None if decisions is None else Decisions.of(decisions)
    if decided is not None:
        metrics = {**metrics, "expected_calibration_error": decided.calibration_error}
    if mistakes is None:
        samples = task_named(examples.task).samples(examples, predictions)
        mistakes = [
            Mistake(name, one.text, one.gold or "", one.predicted, one.score or 0.0)
            for name, one in zip(examples.ids, samples, strict=True)
            if one.is_right is False
        ]
    worst = sorted(mistakes, key=lambda mistake: -mistake.score)[:NUM_MISTAKES]
    return Evaluation(examples.task, metrics, predictions, worst, confusion, len(examples), decided)


def as_examples(model: TaskModel, data: object, *, labeled: bool = True) -> object:
    """Read data of any form that `read_examples` takes for the task of a model.

    Examples and the data of unknown models are returned unchanged.
    """
    if isinstance(data, TaskExamples) or not getattr(model, "task", ""):
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
    check_kind(model, task.model)
    if not len(examples):
        dropped = "; ".join(examples.dropped_in_words()) or "It is empty."
        raise ValueError(f"{where}: there are no examples. {dropped}")
    if not examples.has_labels:
        raise ValueError(f"{where}: the examples have no labels. Specify the label column.")
    task.check_fit(model, examples, where)
    check_vocabulary(model, model.tokenizer)
    if task.library is not None:
        library(task.library)


def library(name: str) -> types.ModuleType:
    """Import a library of metrics on first use."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ImportError(
            "Task metrics require scikit-learn and scipy: "
            f'`pip install "keras-bert-d2l[tasks]"`. The import failed: {error}'
        ) from error


_MAX_CHARACTERS = 300  # maximum number of displayed characters of an error's text
_NOTHING = "(none)"  # displayed if there is no label or no answer
_MAX_COLUMNS = 10  # maximum size of a confusion matrix that fits in a terminal


def print_evaluation(evaluation: Evaluation, console: Console | None = None) -> None:
    """Print the metrics, the confusion matrix and the errors as tables.

    Args:
        evaluation: The result of `evaluate`.
        console: The console to print to. `None` means the terminal.

    Example:

    ```python
    import keras_bert_d2l as kb

    kb.print_evaluation(kb.Evaluation("regress", {"pearson": 0.9}, [], [], None, num_examples=2))
    ```
    """
    console = console or Console()
    metrics = Table("metric", Column("value", justify="right"))
    for name, value in evaluation.metrics.items():
        metrics.add_row(cell(name), f"{value:.4f}")
    tables = [(f"{evaluation.task}: {how_many(evaluation.num_examples, 'example')}", metrics)]
    if evaluation.confusion is not None:
        tables.append(_confusion_table(evaluation.confusion))
    if evaluation.errors:
        tables.append(_mistakes_table(evaluation))
    for heading, table in tables:  # a table's own title would be wrapped to the table's width
        console.print(cell(heading, "bold"), table, sep="\n")
    if evaluation.warning:
        console.print(cell(f"Warning: {evaluation.warning} {_ADVICE}"))


def _mistakes_table(evaluation: Evaluation) -> tuple[str, Table]:
    heading, last = "Most confident errors", "score"
    if "pearson" in evaluation.metrics:
        heading, last = "Largest errors", "error"
    columns = [Column(name, overflow="fold") for name in ("id", "text", "gold", "predicted")]
    table = Table(*columns, Column(last, justify="right"), show_lines=True)
    for one in evaluation.errors:
        text = textwrap.shorten(one.text, _MAX_CHARACTERS, placeholder=" ...")
        cells = (one.id, text, one.gold or _NOTHING, one.predicted or _NOTHING, f"{one.score:.3f}")
        table.add_row(*map(cell, cells))
    return heading, table


def _confusion_table(confusion: Confusion) -> tuple[str, Table]:
    if len(confusion.labels) > _MAX_COLUMNS:
        table = Table("gold", "predicted", Column("count", justify="right"))
        for gold, predicted, count in confusion.most_frequent(_MAX_COLUMNS):
            table.add_row(cell(gold), cell(predicted), f"{count:,}")
        return "Most frequent confusions", table
    columns = [Column(cell(label), justify="right") for label in confusion.labels]
    table = Table("", *columns)
    for label, row in zip(confusion.labels, confusion.counts, strict=True):
        table.add_row(cell(label), *(f"{count:,}" for count in row))
    return "Confusion matrix: gold labels (rows), predicted labels (columns)", table
