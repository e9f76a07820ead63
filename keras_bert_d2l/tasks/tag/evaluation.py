"""Evaluate a tagger: metrics of words and spans, confusion matrix and most confident errors."""

import itertools
from collections.abc import Sequence

from keras_bert_d2l.inference.evaluation.checks import check_same_number, library
from keras_bert_d2l.inference.evaluation.evaluation import (
    Confusion,
    Evaluation,
    Mistake,
    evaluation_of,
)
from keras_bert_d2l.tasks.tag.entities import has_scheme, span_scores
from keras_bert_d2l.tasks.tag.examples import WordExamples
from keras_bert_d2l.tasks.tag.model import TokenClassifier
from keras_bert_d2l.tasks.tag.predictions import tag
from keras_bert_d2l.tasks.task import EvaluationOptions

_WORDS_AROUND = 8  # words of context on each side of an incorrectly tagged word


def tagging_scores(
    gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]], labels: Sequence[str]
) -> dict[str, float]:
    """Return the metrics for texts with tagged words.

    Args:
        gold: The correct tags of each text's words.
        predicted: The predicted tags, with the same lengths.
        labels: The labels of the model. They determine whether tags mark spans (`B-PER`, `I-PER`,
            `O`) or single words (`NOUN`).

    Returns: `accuracy` over all words; if tags mark spans, also `precision`, `recall` and `f1` of
        the spans, as seqeval computes them by default.

    Raises:
        ImportError: scikit-learn is not installed.
        ValueError: The sequences are empty or differ in length.
    """
    check_same_number(gold, predicted)
    for number, (wanted, found) in enumerate(zip(gold, predicted, strict=True)):
        if len(wanted) != len(found):
            raise ValueError(
                f"Every word must have one tag. Received: {len(wanted)} gold and {len(found)} "
                f"predicted tags for text {number}."
            )
    of_gold, of_predicted = ([tag for tags in texts for tag in tags] for texts in (gold, predicted))
    if not of_gold:
        raise ValueError("There must be at least one word. Received: texts without words.")
    scores = {"accuracy": float(library("sklearn.metrics").accuracy_score(of_gold, of_predicted))}
    return {**scores, **span_scores(gold, predicted)} if has_scheme(labels) else scores


def evaluate_tags(
    model: TokenClassifier, examples: WordExamples, options: EvaluationOptions
) -> Evaluation:
    """Evaluate the labels of words."""
    found = tag(model, examples.words, batch_size=options["batch_size"], max_len=options["max_len"])
    gold, predicted = examples.labels or (), [[one.label for one in tags] for tags in found]
    mistakes = [
        Mistake(name, _in_context(words, place), label, one.label, one.score)
        for name, words, labels, tags in zip(examples.ids, examples.words, gold, found, strict=True)
        for place, (label, one) in enumerate(zip(labels, tags, strict=True))
        if one.label != label
    ]
    metrics = tagging_scores(gold, predicted, model.labels)
    of_words = itertools.chain.from_iterable
    confusion = Confusion.of(of_words(gold), of_words(predicted), model.labels)
    return evaluation_of(examples, metrics, found, mistakes, confusion)


def _in_context(words: Sequence[str], place: int) -> str:
    before, after = words[max(0, place - _WORDS_AROUND) : place], words[place + 1 :]
    return " ".join([*before, f"[{words[place]}]", *after[:_WORDS_AROUND]])
