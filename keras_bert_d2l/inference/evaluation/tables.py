"""`print_evaluation`: print an evaluation as tables in the terminal."""

import textwrap

from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from keras_bert_d2l.data.tasks.examples import how_many
from keras_bert_d2l.inference.evaluation.evaluation import Confusion, Evaluation
from keras_bert_d2l.tasks.task import task_named

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
        metrics.add_row(Text(_display_name(name, evaluation)), f"{value:.4f}")
    tables = [(f"{evaluation.task}: {how_many(evaluation.num_examples, 'example')}", metrics)]
    if evaluation.confusion is not None:
        tables.append(_confusion_table(evaluation.confusion))
    if evaluation.errors:
        tables.append(_mistakes_table(evaluation))
    for heading, table in tables:  # a table's own title would be wrapped to the table's width
        console.print(Text(heading, style="bold"), table, sep="\n")
    if evaluation.warning:
        console.print(Text(f"Warning: {evaluation.warning}"))


def _display_name(metric: str, evaluation: Evaluation) -> str:
    """Return the name of a metric. For two classes, the F1 names the class that it measures."""
    labels = None if evaluation.confusion is None else evaluation.confusion.labels
    return task_named(evaluation.task).metric_name(metric, labels)


def _mistakes_table(evaluation: Evaluation) -> tuple[str, Table]:
    heading, last = "Most confident errors", "score"
    if "pearson" in evaluation.metrics:
        heading, last = "Largest errors", "error"
    columns = [Column(name, overflow="fold") for name in ("id", "text", "gold", "predicted")]
    table = Table(*columns, Column(last, justify="right"), show_lines=True)
    for one in evaluation.errors:
        text = textwrap.shorten(one.text, _MAX_CHARACTERS, placeholder=" ...")
        # Use `Text`, because Rich would interpret brackets in a string as styles.
        cells = (one.id, text, one.gold or _NOTHING, one.predicted or _NOTHING, f"{one.score:.3f}")
        table.add_row(*map(Text, cells))
    return heading, table


def _confusion_table(confusion: Confusion) -> tuple[str, Table]:
    if len(confusion.labels) > _MAX_COLUMNS:
        table = Table("gold", "predicted", Column("count", justify="right"))
        for gold, predicted, count in confusion.most_frequent(_MAX_COLUMNS):
            table.add_row(Text(gold), Text(predicted), f"{count:,}")
        return "Most frequent confusions", table
    columns = [Column(Text(label), justify="right") for label in confusion.labels]
    table = Table("", *columns)
    for label, row in zip(confusion.labels, confusion.counts, strict=True):
        table.add_row(Text(label), *(f"{count:,}" for count in row))
    return "Confusion matrix: gold labels (rows), predicted labels (columns)", table
