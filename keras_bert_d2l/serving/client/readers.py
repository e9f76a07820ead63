"""Convert the output arrays of a signature to the Python objects that `inference` returns.

M: maximum number of masks per text.
"""

import dataclasses
from collections.abc import Callable, Iterable
from typing import Generic, NamedTuple, TypeVar

import numpy as np

from keras_bert_d2l.checks import shown
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
        convert: Converts the outputs for one text, as lists, to an object.
        one_of: The signature must also have one of these outputs, unless the tuple is empty. It is
            read as well.
        none_of: Outputs of other tasks whose signatures also have all outputs in `needs`.
    """

    needs: tuple[str, ...]
    convert: Callable[..., Row]
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
            f"The signature {shown(signature)} must return "
            f"{', '.join(self.needs)}{one_of}{none_of}. Received: a model whose signature returns "
            f"{', '.join(sorted(names)):.200}. Query a model for this task."
        )

    def read(self, answer: Arrays) -> list[Row]:
        """Return one object per text."""
        names = (*self.needs, *(name for name in self.one_of if name in answer))
        rows = zip(*(answer[name].tolist() for name in names), strict=True)
        return [self.convert(*row) for row in rows]


def _masks(places: list[int], *outputs: list) -> list[list[Prediction]]:
    # Rows are padded to M masks with position 0, which is [CLS].
    return [
        [Prediction(*one) for one in zip(*mask, strict=True)]
        for place, *mask in zip(places, *outputs, strict=True)
        if place
    ]


def _tags(*outputs: list) -> list[Tag]:
    words = (Tag(*word) for word in zip(*outputs, strict=True))
    return [tag for tag in words if tag.end]  # rows are padded with zeros


VECTORS = Reader(("embedding",), lambda vector: np.array(vector, np.float32))
NEXT_SENTENCE_SCORES = Reader(("nsp",), lambda scores: float(scores[1]))  # 1 means "is next"
MASKS = Reader(("positions", "tokens", "ids", "scores"), _masks)
# Classifiers, regressors and taggers all return labels and scores.
CLASSIFICATIONS = Reader(("labels", "scores"), Classification.of, one_of=("label", "is_label"))
REGRESSIONS = Reader(("labels", "scores"), Regression.of, none_of=("label", "is_label", "words"))
TAGS = Reader(("words", "labels", "scores", "starts", "ends"), _tags)
CHOICES = Reader(
    ("index", "choice", "score", "scores"),
    lambda index, choice, score, scores: Choice(index, choice, score, tuple(scores)),
)
ANSWERS = Reader(("answer", "score", "start", "end", "null_score"), ServedAnswer)
