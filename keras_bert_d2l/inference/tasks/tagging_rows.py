"""Split texts into words and into rows for a tagger, and put the outputs of the rows together.

T: tokens per row, C: number of labels. A long text has several rows.
"""

import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
import tensorflow as tf

from keras_bert_d2l.checks import shown
from keras_bert_d2l.data.tasks.word_windows import windows, word_tokens
from keras_bert_d2l.text.tokenizer.framing import ADDED_TO_ONE, frame
from keras_bert_d2l.text.tokenizer.offsets import behind_accents
from keras_bert_d2l.text.tokenizer.tokenizer import Tokenizer
from keras_bert_d2l.text.vocab.vocab import Vocab
from keras_bert_d2l.types import Tensor

_CONTINUED = "##"


@dataclasses.dataclass(frozen=True)
class Word:
    """A word, and its character range if it was found in a text."""

    text: str
    start: int | None = None
    end: int | None = None


@dataclasses.dataclass(frozen=True)
class SplitWords:
    """The words and the tokens of texts.

    Attributes:
        words: The words of each text.
        tokens: The token ids of each text, int32 `(tokens,)`.
        firsts: For each text, the index of each word's first token, int `(words,)`.
    """

    words: list[list[Word]]
    tokens: list[np.ndarray]
    firsts: list[np.ndarray]


def split_texts(
    texts: Sequence[str], tokenizer: Tokenizer, *, into_tokens: bool = False
) -> SplitWords:
    """Split texts into words as the tokenizer does, with the character range of each word.

    With `into_tokens`, every token counts as a word.
    """
    pieces = tokenizer.with_offsets(list(texts))
    splits = pieces["tokens"].row_splits.numpy()
    tokens, starts, ends = (
        pieces[name].flat_values.numpy() for name in ("tokens", "starts", "ends")
    )
    continues = np.array(
        [token.startswith(_CONTINUED) and token != _CONTINUED for token in tokenizer.vocab.tokens]
    )
    is_first = ~continues[tokens] | into_tokens
    words, firsts = [], []
    for text, begin, end in zip(texts, splits[:-1], splits[1:], strict=True):
        first = np.flatnonzero(is_first[begin:end])
        last = np.append(first, end - begin)[1:] - 1
        places = zip(starts[begin:end][first].tolist(), ends[begin:end][last].tolist(), strict=True)
        words.append([_word(text, *place) for place in places])
        firsts.append(first)
    return SplitWords(words, np.split(tokens, splits[1:-1]), firsts)


def split_words(words: Sequence[Sequence[str]], tokenizer: Tokenizer) -> SplitWords:
    """Tokenize texts that are already split into words.

    Raises:
        ValueError: The words are not lists of strings.
    """
    for number, row in enumerate(words):
        if not isinstance(row, list | tuple) or not all(isinstance(word, str) for word in row):
            raise ValueError(
                "Texts must all be strings, or all be lists of words. Received: "
                f"{shown(row)} as text {number}."
            )
    values, lengths = word_tokens([word for row in words for word in row], tokenizer)
    starts = np.append([0], np.cumsum(lengths))
    of_texts = np.cumsum([0, *map(len, words)])
    places = list(itertools.pairwise(of_texts))
    return SplitWords(
        [[Word(word) for word in row] for row in words],
        [values[starts[begin] : starts[end]] for begin, end in places],
        [starts[begin:end] - starts[begin] for begin, end in places],
    )


class TaggingRows:
    """The rows of texts for a tagger. A long text has several rows, which overlap by half.

    If a token is in two rows, the output from the row with more of its context is used.

    Args:
        split: The words and tokens of the texts.
        vocab: The vocabulary, for its special tokens.
        max_len: Maximum number of tokens in a row, T, including special tokens.
    """

    def __init__(self, split: SplitWords, vocab: Vocab, max_len: int) -> None:
        self._vocab = vocab
        room = max_len - ADDED_TO_ONE
        self._windows = [windows(len(tokens), room) for tokens in split.tokens]
        self._rows = [
            tokens[window.start : window.end]
            for tokens, of_text in zip(split.tokens, self._windows, strict=True)
            for window in of_text
        ]

    def __len__(self) -> int:
        return len(self._rows)

    def batch(self, start: int, stop: int) -> Mapping[str, Tensor]:
        """Return the rows from `start` to `stop` as inputs of the model."""
        rows = self._rows[start:stop]
        tokens = tf.RaggedTensor.from_row_lengths(np.concatenate(rows), list(map(len, rows)))
        return frame(tokens, vocab=self._vocab)

    def token_outputs(self, outputs: Iterable[np.ndarray]) -> Iterator[np.ndarray]:
        """Yield the outputs for the tokens of each text, `(tokens, C)`.

        Args:
            outputs: The outputs for the tokens of each row, `(T, C)`, in the order of the rows.
        """
        of_rows = iter(outputs)
        for of_text in self._windows:
            kept = [
                next(of_rows)[begin - start + 1 : stop - start + 1]  # + 1: rows start with [CLS]
                for start, _, begin, stop in of_text
            ]
            yield np.concatenate(kept)


def _word(text: str, start: int, end: int) -> Word:
    end = behind_accents(text, end)
    return Word(text[start:end], start, end)
