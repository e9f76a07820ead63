"""The labels of words and the entities of taggers in ONNX folders.

B: texts, N: maximum number of words or entities per text.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import onnxruntime

from keras_bert_d2l.serving.protocol import Arrays
from keras_bert_d2l.serving.server.onnx_texts import NumPyPreprocessor, Word
from keras_bert_d2l.tasks.tag.entities import spans, tags_of
from keras_bert_d2l.text.unspaced import spaced

_ENTITIES = {"texts": "O", "labels": "O", "scores": "f4", "starts": "i4", "ends": "i4"}
_WORDS = {"words": "O", "labels": "O", "scores": "f4", "starts": "i4", "ends": "i4", "ids": "i4"}
_PADDING = (b"", b"", 0, 0, 0, 0)

_Split = tuple[str, Sequence[int], list[Word]]
"""A text, the ids of its tokens, and its words."""


class Tagger(NamedTuple):
    """Answers the signatures of a `TokenClassifier` as its SavedModel does.

    Attributes:
        rows: Converts texts to rows.
        run: Returns the outputs of the file for each row of a batch, for `"tags"` or `"crf"`.
        labels: The labels of the model.
        crf: The decoder of a model with a CRF.
    """

    rows: NumPyPreprocessor
    run: Callable[[str, Arrays], dict[str, list]]
    labels: Sequence[str]
    crf: onnxruntime.InferenceSession | None

    def ask(self, texts: np.ndarray, joins: bool) -> Arrays:
        """Return the labels of words or, if it `joins` them, the entities.

        Args:
            texts: The texts `(B,)`, or their words `(B, W)`, which may end with empty strings.
            joins: Whether to join words.
        """
        splits = [*map(self.rows.of_words, texts)] if texts.ndim > 1 else self._split(texts)
        tags, rows = [*tags_of(self.labels).values()], list[list[tuple]]()
        for (text, _, words), ids, scores in zip(splits, *self._tags(splits), strict=True):
            ids = ids[: len(words)]
            of_words = [(self.labels[x], n, n + 1) for n, x in enumerate(ids)]
            rows.append([])
            for label, first, stop in spans([tags[x] for x in ids]) if joins else of_words:
                start, end = words[first].start, words[stop - 1].end
                score, part = scores[first:stop].mean(), text[start:end].encode()
                rows[-1].append((part, label.encode(), score, start, end, ids[first]))
        shape = len(rows), max(map(len, rows))
        padded = [one for row in rows for one in row + [_PADDING] * (shape[1] - len(row))]
        columns = {
            name: np.array([one[n] for one in padded], kind).reshape(shape)
            for n, (name, kind) in enumerate((_ENTITIES if joins else _WORDS).items())
        }
        return {**columns, "truncated": np.zeros(len(rows), bool)}

    def _split(self, texts: np.ndarray) -> list[_Split]:
        """Return texts `(B,)`, with words as those of the tokenizer."""
        strings = [text.decode("utf-8", "replace") for text in texts]
        parts, places = zip(*map(spaced, strings), strict=True)
        encodings = self.rows.encode(np.array([part.encode() for part in parts], object))
        return [
            (string, encoding.ids, self.rows.words(encoding, string, of_parts))
            for string, of_parts, encoding in zip(strings, places, encodings, strict=True)
        ]

    def _tags(self, splits: Sequence[_Split]) -> tuple[np.ndarray, np.ndarray]:
        """Return the label ids of words and their scores, `(B, N + 1)`, from windows of texts."""
        rows, places = list[list[Sequence[int]]](), []
        for _, ids, words in splits:
            starts, begins = _halves(len(ids), self.rows.room)
            tokens = np.array([word.token for word in words], "int32")
            window = np.searchsorted(begins, tokens, side="right") - 1
            places.append([*zip(len(rows) + window, 1 + tokens - starts[window], strict=True)])
            rows += [[ids[start : start + self.rows.room]] for start in starts]
        outputs = self.run("crf" if self.crf else "tags", self.rows.framed(rows))
        numbers = np.array([*map(len, places)])
        shape = len(splits), max(numbers) + 1  # the loop of a CRF needs a step
        found = {name: np.zeros(shape + x[0].shape[1:], x[0].dtype) for name, x in outputs.items()}
        for row, of_text in enumerate(places):
            for n, (window, place) in enumerate(of_text):
                for name, x in outputs.items():
                    found[name][row, n] = x[window][place]
        if self.crf:
            return tuple(self.crf.run(("id", "score"), {**found, "num_words": numbers}))
        return found["id"], found["score"]


def _halves(size: int, room: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the windows of at most `room` tokens over `size` tokens, which overlap by half.

    Returns: the index of the first token of each, and of the first one that counts in it.
    """
    step, last = max(1, room // 2), max(size - room, 0)
    starts = np.minimum(np.arange(-(-last // step) + 1) * step, last)
    ends = np.minimum(starts + room, size)
    return starts, np.append(0, (starts[1:] + ends[:-1]) // 2)
