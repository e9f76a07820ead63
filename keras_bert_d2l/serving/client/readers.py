"""Convert the output arrays of a signature to the Python objects that `inference` returns.

B: texts in a batch, C: labels, M: maximum number of masks per text, W: maximum number of words
per text, k: predictions per mask.
"""

import dataclasses
from collections.abc import Callable, Iterable
from typing import Generic, NamedTuple, TypeVar

import numpy as np

from keras_bert_d2l.inference.heads import Prediction
from keras_bert_d2l.serving.protocol import Arrays
from keras_bert_d2l.tasks.choose.predictions import Choice
from keras_bert_d2l.tasks.classify.predictions import Classification
from keras_bert_d2l.tasks.regress.predictions import Regression
from keras_bert_d2l.tasks.tag.predictions import Tag

Row = TypeVar("Row")


@dataclasses.dataclass(frozen=True)
class ServedAnswer:
    """An answer extracted from a context.

    Attributes:
        text: `context[start:end]`, or `""` for no answer.
        score: Probability of the answer among the max(20, k) best answers.
        start: Index of the first character of the answer in its context.
        end: Index after its last character.
        null_score: Logit of "no answer" minus the logit of the best span of the context.
    """

    text: str
    score: float
    start: int
    end: int
    null_score: float


class Reader(NamedTuple, Generic[Row]):
    """Converter for the outputs of one kind of signature.

    Attributes:
        needs: The outputs to read.
        read: Converts the outputs for a batch to one object per row.
        one_of: The signature must also have one of these outputs, unless the tuple is empty.
        none_of: Outputs of other tasks whose signatures also have all outputs in `needs`.
    """

    needs: tuple[str, ...]
    read: Callable[[Arrays], list[Row]]
    one_of: tuple[str, ...] = ()
    none_of: tuple[str, ...] = ()

    def check(self, outputs: Iterable[str], signature: str) -> None:
        """Raise `ValueError` if a signature belongs to a different task.

        Args:
            outputs: Names of the outputs of the signature.
            signature: Name of the signature.
        """
        names = set(outputs)
        has_one = not self.one_of or not names.isdisjoint(self.one_of)
        if names.issuperset(self.needs) and has_one and names.isdisjoint(self.none_of):
            return
        one_of = f" and {' or '.join(self.one_of)}" if self.one_of else ""
        none_of = f" without {', '.join(self.none_of)}" if self.none_of else ""
        raise ValueError(
            f"The signature {signature!r} must return {', '.join(self.needs)}{one_of}{none_of}. "
            f"Received: a model whose signature returns {', '.join(sorted(names))}. Query a model "
            "for this task."
        )


def _vectors(answer: Arrays) -> list[np.ndarray]:
    return list(answer["embedding"])


def _next_sentence_scores(answer: Arrays) -> list[float]:
    return answer["nsp"][:, 1].tolist()  # column 1 means "is next"


def _masks(answer: Arrays) -> list[list[list[Prediction]]]:
    """Return k predictions for each text and each of its masks."""
    rows = zip(*(answer[name].tolist() for name in MASKS.needs), strict=True)
    return [
        # Rows are padded to M masks with position 0, which is [CLS].
        [
            [Prediction(*one) for one in zip(*mask, strict=True)]
            for place, *mask in zip(places, *masks, strict=True)
            if place
        ]
        for places, *masks in rows
    ]


def _classifications(answer: Arrays) -> list[Classification]:
    names, scores = answer["labels"].tolist(), answer["scores"].tolist()
    best = answer["scores"].argmax(axis=1).tolist()
    # Only multi-label models return `is_label`.
    chosen = answer["is_label"].tolist() if "is_label" in answer else [None] * len(best)
    return [
        Classification(
            label=row[top],
            score=of_row[top],
            scores=dict(zip(row, of_row, strict=True)),
            labels=(row[top],)
            if flags is None
            else tuple(name for name, flag in zip(row, flags, strict=True) if flag),
        )
        for row, of_row, top, flags in zip(names, scores, best, chosen, strict=True)
    ]


def _regressions(answer: Arrays) -> list[Regression]:
    rows = zip(answer["labels"].tolist(), answer["scores"].tolist(), strict=True)
    return [Regression(scores[0], dict(zip(names, scores, strict=True))) for names, scores in rows]


def _tags(answer: Arrays) -> list[list[Tag]]:
    """Return the tags of the words of each text."""
    rows = zip(*(answer[name].tolist() for name in TAGS.needs), strict=True)
    words = [[Tag(*word) for word in zip(*row, strict=True)] for row in rows]
    return [[tag for tag in row if tag.end] for row in words]  # rows are padded with zeros


def _choices(answer: Arrays) -> list[Choice]:
    rows = zip(*(answer[name].tolist() for name in CHOICES.needs), strict=True)
    return [Choice(index, choice, score, tuple(scores)) for index, choice, score, scores in rows]


def _answers(answer: Arrays) -> list[ServedAnswer]:
    rows = zip(*(answer[name].tolist() for name in ANSWERS.needs), strict=True)
    return [ServedAnswer(*row) for row in rows]


VECTORS = Reader(("embedding",), _vectors)
NEXT_SENTENCE_SCORES = Reader(("nsp",), _next_sentence_scores)
MASKS = Reader(("positions", "tokens", "ids", "scores"), _masks)
# Classifiers, regressors and taggers all return labels and scores.
CLASSIFICATIONS = Reader(("labels", "scores"), _classifications, one_of=("label", "is_label"))
REGRESSIONS = Reader(("labels", "scores"), _regressions, none_of=("label", "is_label", "words"))
TAGS = Reader(("words", "labels", "scores", "starts", "ends"), _tags)
CHOICES = Reader(("index", "choice", "score", "scores"), _choices)
ANSWERS = Reader(("answer", "score", "start", "end", "null_score"), _answers)
