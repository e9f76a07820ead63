"""The arrays that a served model answers in, Python objects out: those of `inference`.

B texts in a batch, C labels, M (most) masks and W (most) words in a text, k predictions.
"""

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from keras_bert_d2l.inference.pretraining.fill_mask import Prediction
from keras_bert_d2l.inference.tasks.labels import Classification, Regression, Tag

Arrays = Mapping[str, np.ndarray]


@dataclasses.dataclass(frozen=True)
class ServedAnswer:
    """A part of a text that answers a question.

    Attributes:
        text: `context[start:end]`; `""` where the context has nothing to answer with.
        score: Its probability among the best answers, 20 or k if that is more.
        start: The answer's first character in its context.
        end: Its last character plus one.
        null_score: By how much the logits of no answer are above its own.
    """

    text: str
    score: float
    start: int
    end: int
    null_score: float


class Reader(NamedTuple):
    """How the answers of a signature are read.

    Attributes:
        needs: The outputs that are read.
        read: A batch of them in, an object for each row out.
        one_of: Outputs of which it needs one more; empty: none.
        none_of: Outputs that tell of another task, which has those of `needs` as well.
    """

    needs: tuple[str, ...]
    read: Callable[[Arrays], list[Any]]
    one_of: tuple[str, ...] = ()
    none_of: tuple[str, ...] = ()

    def check(self, outputs: Iterable[str], signature: str) -> None:
        """Refuses a signature of another task.

        Args:
            outputs: What the signature returns.
            signature: Its name.

        Raises:
            ValueError: These are not the outputs that are read.
        """
        names = set(outputs)
        has_one = not self.one_of or not names.isdisjoint(self.one_of)
        if names.issuperset(self.needs) and has_one and names.isdisjoint(self.none_of):
            return
        one_of = f" and {' or '.join(self.one_of)}" if self.one_of else ""
        none_of = f" without {', '.join(self.none_of)}" if self.none_of else ""
        raise ValueError(
            f"A model whose signature {signature!r} returns {', '.join(self.needs)}{one_of}"
            f"{none_of} is expected. Received: one that returns {', '.join(sorted(names))}."
        )


def _vectors(answer: Arrays) -> list[np.ndarray]:
    return list(answer["embedding"])


def _next_sentence_scores(answer: Arrays) -> list[float]:
    return answer["nsp"][:, 1].tolist()  # column 1 is "is next"


def _masks(answer: Arrays) -> list[list[list[Prediction]]]:
    """For each text, and each of its masks, the k predictions."""
    rows = zip(*(answer[name].tolist() for name in MASKS.needs), strict=True)
    return [
        # A row has as many places as the batch's text with the most masks; 0 is [CLS].
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
    # A text can have any number of labels, or one.
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
    """For each text the tags of its words."""
    rows = zip(*(answer[name].tolist() for name in TAGS.needs), strict=True)
    words = [[Tag(*word) for word in zip(*row, strict=True)] for row in rows]
    return [[tag for tag in row if tag.end] for row in words]  # behind the last word are zeros


def _answers(answer: Arrays) -> list[ServedAnswer]:
    rows = zip(*(answer[name].tolist() for name in ANSWERS.needs), strict=True)
    return [ServedAnswer(*row) for row in rows]


VECTORS = Reader(("embedding",), _vectors)
NEXT_SENTENCE_SCORES = Reader(("nsp",), _next_sentence_scores)
MASKS = Reader(("positions", "tokens", "ids", "scores"), _masks)
# A classifier, a regressor and a tagger all return labels and scores.
CLASSIFICATIONS = Reader(("labels", "scores"), _classifications, one_of=("label", "is_label"))
REGRESSIONS = Reader(("labels", "scores"), _regressions, none_of=("label", "is_label", "words"))
TAGS = Reader(("words", "labels", "scores", "starts", "ends"), _tags)
ANSWERS = Reader(("answer", "score", "start", "end", "null_score"), _answers)
