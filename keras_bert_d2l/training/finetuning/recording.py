"""What a run records for its report: predictions for some examples, errors and confusions."""

import dataclasses
import textwrap
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, cast

from keras_bert_d2l.data.tasks.examples import (
    ChoiceExamples,
    PairExamples,
    QuestionExamples,
    TaskExamples,
    TextExamples,
    WordExamples,
    names_of,
)
from keras_bert_d2l.inference.evaluation.evaluation import Confusion, Evaluation, shown_texts
from keras_bert_d2l.inference.evaluation.scores import exact_match
from keras_bert_d2l.training.report.run import spread

_NUM_SAMPLES, _NUM_CONFUSIONS = 10, 20
_MAX_CHARACTERS = 300  # of a text
_MAX_LABELS = 12  # of a confusion matrix that fits on a page
_OUTSIDE = "O"  # the label of words that belong to no entity


class _Sample(NamedTuple):
    """A prediction for an example; see `training/report/page/report.html.jinja`."""

    text: str
    gold: str | None
    predicted: str
    score: float | None = None
    is_right: bool | None = None


def record_of(evaluation: Evaluation, examples: TaskExamples) -> dict[str, object]:
    """Return the record of an evaluation on these examples."""
    samples = []
    for place in _places(examples):
        one = _sample(examples.subset([place]), evaluation.predictions[place])
        samples.append(
            {
                "text": _short(one.text),
                "gold": one.gold,
                "answers": [(one.predicted, one.score)],
                "is_right": one.is_right,
            }
        )
    errors = [dataclasses.asdict(error) for error in evaluation.errors]
    return {
        "samples": samples,
        "errors": [{**error, "text": _short(error["text"])} for error in errors],
        "confusion": _confusion(evaluation.confusion),
    }


def _places(examples: TaskExamples) -> list[int]:
    """Return the places of examples that are evenly spread over the labels or scores, if any."""
    order = list(range(len(examples)))
    if isinstance(examples, TextExamples) and examples.labels is not None:
        order.sort(key=cast(tuple[str, ...], examples.labels).__getitem__)
    return spread(order, _NUM_SAMPLES)


def _sample(example: TaskExamples, found: Any) -> _Sample:
    """Return the prediction for the only one of the examples."""
    if isinstance(example, WordExamples):
        [words], [labels] = example.words, example.labels or ()
        predicted = [one.label for one in found]
        tags = _tags(words, labels), _tags(words, predicted)
        return _Sample(" ".join(words), *tags, is_right=predicted == list(labels))
    if isinstance(example, QuestionExamples):
        [text], [answers] = example.questions, example.answers or ()
        gold = [answer.text for answer in answers]
        is_right = bool(exact_match(gold, found.text))
        listed = " | ".join(dict.fromkeys(gold))
        return _Sample(text, listed, found.text, found.score, is_right)
    if isinstance(example, ChoiceExamples):
        [text], [choices], [place] = example.texts, example.choices, example.labels or ()
        return _Sample(text, choices[place], found.choice, found.score, found.index == place)
    example = cast(TextExamples, example)
    [text], label = shown_texts(example), (example.labels or (None,))[0]
    if example.task == "classify":
        names = names_of(cast(str, label))
        is_right = set(names) == set(found.labels)
        return _Sample(text, ", ".join(names), ", ".join(found.labels), found.score, is_right)
    score = found if isinstance(example, PairExamples) else found.score
    return _Sample(text, None if label is None else f"{label:g}", f"{score:.3f}")


def _confusion(confusion: Confusion | None) -> dict[str, object] | None:
    """Return the matrix or, if there are many labels, the most frequent confusions."""
    if confusion is None:
        return None
    if len(confusion.labels) > _MAX_LABELS:
        return {"most_frequent": confusion.most_frequent(_NUM_CONFUSIONS)}
    return {"labels": confusion.labels, "counts": confusion.counts.tolist()}


def _tags(words: Sequence[str], labels: Iterable[str]) -> str:
    tags = zip(words, labels, strict=True)
    return _short(", ".join(f"{word} {label}" for word, label in tags if label != _OUTSIDE))


def _short(text: str) -> str:
    return textwrap.shorten(text, _MAX_CHARACTERS, placeholder=" ...")
