"""A task's model and examples in, its figures, predictions and worst mistakes out."""

import dataclasses
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from keras_bert_d2l.data.tasks.examples import (
    QuestionExamples,
    TaskExamples,
    TextExamples,
    WordExamples,
    how_many,
)
from keras_bert_d2l.inference.evaluation import scores
from keras_bert_d2l.inference.evaluation.compatibility import check_examples
from keras_bert_d2l.inference.tasks.answers import FoundAnswer, answer, fitting_questions
from keras_bert_d2l.inference.tasks.labels import classify, regress, tag
from keras_bert_d2l.models.tasks.task_model import TaskModel

NUM_MISTAKES = 20
_MOST_CHARACTERS = 300  # of the text of a mistake
_NOTHING = "(none)"  # in a table: no label, or no answer
_MOST_COLUMNS = 10  # of a table of confusions; more do not fit a terminal
_WORDS_AROUND = 8  # that a mistake in tagging is shown with, on either side


@dataclasses.dataclass(frozen=True)
class Mistake:
    """A prediction that is wrong, to be read.

    Attributes:
        id: The name of the example.
        text: Its text; of a pair both, of words those around the `[word]`, of a question it.
        gold: What is right.
        predicted: What was predicted.
        score: How sure the model was: the probability of what it predicted; of a regressor by how
            much it is wrong.
    """

    id: str
    text: str
    gold: str
    predicted: str
    score: float


@dataclasses.dataclass(frozen=True)
class Confusion:
    """How often each label was predicted for each.

    Attributes:
        labels: The names of the C labels.
        counts: int `(C, C)`, a row for each gold label, a column for each predicted one.
    """

    labels: tuple[str, ...]
    counts: np.ndarray

    @classmethod
    def of(
        cls, gold: Iterable[str], predicted: Iterable[str], labels: Sequence[str]
    ) -> "Confusion":
        """Counts the pairs of labels."""
        ids = {label: number for number, label in enumerate(labels)}
        counts = np.zeros((len(ids), len(ids)), "int64")
        pairs = [(ids[one], ids[other]) for one, other in zip(gold, predicted, strict=True)]
        if pairs:
            np.add.at(counts, tuple(np.array(pairs).T), 1)
        return cls(tuple(labels), counts)

    def most_frequent(self, number: int) -> list[tuple[str, str, int]]:
        """Returns the most frequent confusions: gold label, predicted label, how often."""
        wrong = self.counts - np.diag(np.diag(self.counts))
        order = np.argsort(-wrong, axis=None, kind="stable")[:number]
        pairs = zip(*np.unravel_index(order, wrong.shape), strict=True)
        return [
            (self.labels[gold], self.labels[predicted], int(wrong[gold, predicted]))
            for gold, predicted in pairs
            if wrong[gold, predicted]
        ]


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """How well a model does its task.

    Attributes:
        task: `"classify"`, `"regress"`, `"tag"` or `"answer"`.
        metrics: The figures, as `inference.scores` computes them for the task; of questions of
            which some have no answer also the `null_threshold`; and how many questions are too
            long to be read, `unread_questions`, which count as left without an answer.
        predictions: What `classify`, `regress` or `tag` returns for the examples, or the best
            answer to each question, a `FoundAnswer`.
        errors: The 20 mistakes of which the model was surest, the surest first; of a regressor
            the 20 largest.
        confusion: Of classes or tags; `None` where there are none, or several for a text.
        num_examples: How many examples there were.
    """

    task: str
    metrics: dict[str, float]
    predictions: list[Any]
    errors: list[Mistake]
    confusion: Confusion | None
    num_examples: int


def evaluate(
    model: TaskModel,
    examples: TaskExamples,
    *,
    batch_size: int = 32,
    max_len: int | None = None,
    overlap: int | None = None,
    max_answer_len: int = 30,
    null_threshold: float | None = None,
) -> Evaluation:
    """Compares a model's predictions with what is right.

    Args:
        model: The model of the examples' task, with its tokenizer.
        examples: What `read_examples` returns, with labels.
        batch_size: Number of rows that pass through the model at once.
        max_len: Most tokens of a row; `None`: as for `classify`, `regress`, `tag` or `answer`.
        overlap: Of the windows of long contexts; as for `answer`.
        max_answer_len: As for `answer`.
        null_threshold: As for `answer`, for questions of which some have no answer. `None`: the
            one that is best for these examples, as is done with development data.

    Raises:
        ImportError: scikit-learn or scipy is not installed.
        ValueError: The examples have no labels or are of another task than the model, there are
            none, or the model does not know one of their labels.

    Example:

    ```python
    evaluation = evaluate(classifier, read_examples("classify", "dev.tsv"))
    print(evaluation.metrics["accuracy"])
    print_evaluation(evaluation)
    ```
    """
    check_examples(model, examples)
    options: dict[str, Any] = {"batch_size": batch_size, "max_len": max_len}
    if isinstance(examples, QuestionExamples):
        options |= {"overlap": overlap, "max_answer_len": max_answer_len}
        return _evaluate_answers(model, examples, null_threshold, options)
    if isinstance(examples, WordExamples):
        return _evaluate_tags(model, examples, options)
    if isinstance(examples, TextExamples) and examples.task == "regress":
        return _evaluate_scores(model, examples, options)
    if isinstance(examples, TextExamples) and examples.multi_label:
        return _evaluate_label_sets(model, examples, options)
    return _evaluate_labels(model, examples, options)


def _evaluate_labels(model: Any, examples: Any, options: dict[str, Any]) -> Evaluation:
    found = classify(model, examples.texts, examples.texts_b, **options)
    predicted = [one.label for one in found]
    mistakes = [
        Mistake(name, text, gold, one.label, one.score)
        for name, text, gold, one in _rows(examples, found)
        if one.label != gold
    ]
    return Evaluation(
        examples.task,
        scores.classification_scores(examples.labels, predicted, model.labels),
        found,
        _surest(mistakes),
        Confusion.of(examples.labels, predicted, model.labels),
        len(examples),
    )


def _evaluate_label_sets(model: Any, examples: Any, options: dict[str, Any]) -> Evaluation:
    found = classify(model, examples.texts, examples.texts_b, **options)
    mistakes = []
    for name, text, gold, one in _rows(examples, found):
        wrong = set(gold) ^ set(one.labels)
        if wrong:
            sure = (one.scores[x] if x in one.labels else 1 - one.scores[x] for x in wrong)
            both = [", ".join(sorted(labels)) for labels in (gold, one.labels)]
            mistakes.append(Mistake(name, text, both[0], both[1], max(sure)))
    predicted = [one.labels for one in found]
    metrics = scores.multi_label_scores(examples.labels, predicted, model.labels)
    return Evaluation(examples.task, metrics, found, _surest(mistakes), None, len(examples))


def _evaluate_scores(model: Any, examples: Any, options: dict[str, Any]) -> Evaluation:
    found = regress(model, examples.texts, examples.texts_b, **options)
    mistakes = [
        Mistake(name, text, f"{gold:g}", f"{one.score:.4g}", abs(one.score - gold))
        for name, text, gold, one in _rows(examples, found)
        if one.score != gold
    ]
    metrics = scores.regression_scores(examples.labels, [one.score for one in found])
    return Evaluation(examples.task, metrics, found, _surest(mistakes), None, len(examples))


def _evaluate_tags(model: Any, examples: WordExamples, options: dict[str, Any]) -> Evaluation:
    found = tag(model, examples.words, **options)
    gold, predicted = examples.labels or (), [[one.label for one in tags] for tags in found]
    mistakes = [
        Mistake(name, _in_its_place(words, place), label, one.label, one.score)
        for name, words, labels, tags in zip(examples.ids, examples.words, gold, found, strict=True)
        for place, (label, one) in enumerate(zip(labels, tags, strict=True))
        if one.label != label
    ]
    of_words = (label for labels in gold for label in labels)
    return Evaluation(
        examples.task,
        scores.tagging_scores(gold, predicted, model.labels),
        found,
        _surest(mistakes),
        Confusion.of(of_words, (x for tags in predicted for x in tags), model.labels),
        len(examples),
    )


def _evaluate_answers(
    model: Any,
    examples: QuestionExamples,
    null_threshold: float | None,
    options: dict[str, Any],
) -> Evaluation:
    gold = [[one.text for one in answers] for answers in examples.answers or ()]
    sizes = options["max_len"], options["overlap"]
    fits = fitting_questions(model, examples.questions, *sizes)
    # Without any that fits, `answer` says why.
    read = np.flatnonzero(fits) if fits.any() else np.arange(len(examples))
    answered, threshold = _answers(
        model, examples.subset(read), [gold[row] for row in read], null_threshold, options
    )
    found = [FoundAnswer("", 0.0, 0, 0, 0.0, 0.0)] * len(examples)
    for row, one in zip(read.tolist(), answered, strict=True):
        found[row] = one
    mistakes = [
        Mistake(name, question, " | ".join(dict.fromkeys(answers)), one.text, one.score)
        for name, question, answers, one in zip(
            examples.ids, examples.questions, gold, found, strict=True
        )
        if not scores.exact_match(answers, one.text)
    ]
    metrics = scores.answer_scores(gold, [one.text for one in found])
    if threshold is not None:
        metrics["null_threshold"] = threshold
    if len(read) < len(examples):
        metrics["unread_questions"] = float(len(examples) - len(read))
    return Evaluation(examples.task, metrics, found, _surest(mistakes), None, len(examples))


def _answers(
    model: Any,
    examples: QuestionExamples,
    gold: list[list[str]],
    null_threshold: float | None,
    options: dict[str, Any],
) -> tuple[list[FoundAnswer], float | None]:
    """Returns the answer to each question, and the threshold of no answer where there is one."""
    texts = (examples.questions, examples.contexts)
    if null_threshold is None and all(gold):
        return [best for [best] in answer(model, *texts, **options)], None
    # No answer first, whatever its score, and then the best answer.
    pairs = answer(model, *texts, top_k=2, null_threshold=-np.inf, **options)
    margins = [best.null_margin for _, best in pairs]
    if null_threshold is None:
        null_threshold = scores.best_null_threshold(gold, [best.text for _, best in pairs], margins)
    found = [
        nothing if margin > null_threshold else best
        for (nothing, best), margin in zip(pairs, margins, strict=True)
    ]
    return found, null_threshold


def _rows(examples: TextExamples, found: Sequence[Any]) -> Iterator[tuple[str, str, Any, Any]]:
    """Yields name, text or both texts, what is right and what was found."""
    texts = examples.texts
    if examples.texts_b is not None:
        texts = tuple(map(" | ".join, zip(texts, examples.texts_b, strict=True)))
    return zip(examples.ids, texts, examples.labels or (), found, strict=True)


def _in_its_place(words: Sequence[str], place: int) -> str:
    before, after = words[max(0, place - _WORDS_AROUND) : place], words[place + 1 :]
    return " ".join([*before, f"[{words[place]}]", *after[:_WORDS_AROUND]])


def _surest(mistakes: list[Mistake]) -> list[Mistake]:
    return sorted(mistakes, key=lambda mistake: -mistake.score)[:NUM_MISTAKES]


def print_evaluation(evaluation: Evaluation, console: Console | None = None) -> None:
    """Prints the figures, what was taken for what, and the mistakes, as tables.

    Args:
        evaluation: What `evaluate` returned.
        console: Where to; `None`: the terminal.
    """
    console = console or Console()
    figures = Table("figure", Column("value", justify="right"))
    for name, value in evaluation.metrics.items():
        figures.add_row(Text(_named(name, evaluation)), f"{value:.4f}")
    tables = [(f"{evaluation.task}: {how_many(evaluation.num_examples, 'example')}", figures)]
    if evaluation.confusion is not None:
        tables.append(_confusion_table(evaluation.confusion))
    if evaluation.errors:
        tables.append(_mistakes(evaluation))
    for heading, table in tables:  # a table's own title would be broken to its width
        console.print(Text(heading, style="bold"), table, sep="\n")


def _named(figure: str, evaluation: Evaluation) -> str:
    """The name of a figure; F1 of one of two labels is told by its label."""
    if figure == "f1" and evaluation.task == "classify" and evaluation.confusion is not None:
        return f"f1 of {evaluation.confusion.labels[1]}"
    return figure


def _mistakes(evaluation: Evaluation) -> tuple[str, Table]:
    heading, last = "The mistakes of which the model was surest", "score"
    if evaluation.task == "regress":
        heading, last = "The largest errors", "error"
    columns = [Column(name, overflow="fold") for name in ("id", "text", "gold", "predicted")]
    table = Table(*columns, Column(last, justify="right"), show_lines=True)
    for one in evaluation.errors:
        text = textwrap.shorten(one.text, _MOST_CHARACTERS, placeholder=" ...")
        # As `Text`, which does not take the brackets of texts for styles.
        cells = (one.id, text, one.gold or _NOTHING, one.predicted or _NOTHING, f"{one.score:.3f}")
        table.add_row(*map(Text, cells))
    return heading, table


def _confusion_table(confusion: Confusion) -> tuple[str, Table]:
    if len(confusion.labels) > _MOST_COLUMNS:
        table = Table("gold", "predicted", Column("times", justify="right"))
        for gold, predicted, times in confusion.most_frequent(_MOST_COLUMNS):
            table.add_row(Text(gold), Text(predicted), f"{times:,}")
        return "The most frequent confusions", table
    columns = [Column(Text(label), justify="right") for label in confusion.labels]
    table = Table("", *columns)
    for label, row in zip(confusion.labels, confusion.counts, strict=True):
        table.add_row(Text(label), *(f"{count:,}" for count in row))
    return "Gold labels (rows) and predicted ones (columns)", table
