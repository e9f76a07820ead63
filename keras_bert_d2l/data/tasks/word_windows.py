"""Tokenize words, and divide long texts into overlapping rows for a tagger.

Training and prediction use the same rows, and count each word in the same one of them.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from keras_bert_d2l.text.tokenizer.tokenizer import Tokenizer


class Window(NamedTuple):
    """The part of a text in one row, as indices of its tokens.

    Attributes:
        start: The first token.
        end: The index after the last token.
        begin: The first token that counts in this row. Others have more context in another row.
        stop: The index after the last token that counts.
    """

    start: int
    end: int
    begin: int
    stop: int


def word_tokens(words: Sequence[str], tokenizer: Tokenizer) -> tuple[np.ndarray, np.ndarray]:
    """Return the token ids of all words, concatenated, and the number of tokens of each word.

    A word without tokens, such as an invisible character, is replaced by the unknown token.
    """
    ids = tokenizer.tokenize(list(words))
    values, lengths = ids.flat_values.numpy(), ids.row_lengths().numpy()
    values = np.insert(values, ids.row_starts().numpy()[lengths == 0], tokenizer.vocab.unk_id)
    return values, np.maximum(lengths, 1)


def windows(num_tokens: int, room: int) -> list[Window]:
    """Divide a text into windows of at most `room` tokens, which overlap by half if it is longer.

    The middle of an overlap separates the tokens that count in one window and in the next.
    """
    last = max(0, num_tokens - room)
    starts = [*range(0, last, max(1, room // 2)), last]
    ends = [min(start + room, num_tokens) for start in starts]
    middles = [(start + end) // 2 for start, end in zip(starts[1:], ends[:-1], strict=True)]
    begins, stops = [0, *middles], [*middles, num_tokens]
    return list(map(Window, starts, ends, begins, stops))
