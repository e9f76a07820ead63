"""Batches of token ids from strings, padded to a few fixed lengths, inside the graph.

B: texts in a batch, T: tokens in a row.
"""

import tensorflow as tf

from keras_bert_d2l.serving.signatures.signature import TEXT, traced_once
from keras_bert_d2l.text.tokenizer.framing import ADDED_TO_ONE, ADDED_TO_PAIR, frame, require
from keras_bert_d2l.text.tokenizer.tokenizer import Tokenizer
from keras_bert_d2l.text.tokenizer.wordpiece import Pieces

_SHORTEST = 16

Batch = dict[str, tf.Tensor]
"""`tokens` and `segments`, int32 `(B, T)`, and `valid_lens`, int32 `(B,)`."""


def padded_lengths(max_len: int) -> tuple[int, ...]:
    """Return the lengths T that rows are padded to: 16, 24, 32, 48, 64, 96, ... and `max_len`.

    A row is at most half as long again as its text. A server prepares kernels and memory per
    shape, so a few lengths spare it from preparing them for every length.
    """
    lengths, step = [], _SHORTEST
    while step < max_len:
        lengths += [step, step + step // 2]
        step *= 2
    return (*(length for length in lengths if length < max_len), max_len)


class TextBatches:
    """Tokenizes texts, or pairs of texts, into batches for a model.

    Rows are as long as the longest text needs, rounded up to the next of
    `padded_lengths(max_len)`. Longer texts are truncated at the end; of a pair, the longer text
    first.

    Args:
        tokenizer: The `Tokenizer`.
        max_len: Maximum number of tokens in a row, special tokens included.

    Call arguments:
        text: Strings `(B,)`.
        text_b: Second text of each pair, strings `(B,)`. `None` for single texts.

    Returns: a batch, and whether each text was truncated, bool `(B,)`.
    """

    def __init__(self, tokenizer: Tokenizer, max_len: int) -> None:
        self.vocab = tokenizer.vocab
        self.max_len = max_len
        self.room = max_len - ADDED_TO_ONE  # for the tokens of a single text
        self._lengths = tf.constant(padded_lengths(max_len))

        self._tokenize = traced_once(tokenizer.tokenize, (TEXT,))
        self._with_offsets = traced_once(tokenizer.with_offsets, (TEXT,))
        self._single = traced_once(self._of_one, (TEXT,))

    def __call__(self, text: tf.Tensor, text_b: tf.Tensor | None = None) -> tuple[Batch, tf.Tensor]:
        return self._single(text) if text_b is None else self._of_pair(text, text_b)

    def pieces(self, text: tf.Tensor) -> Pieces:
        """Return the token ids of texts, and the characters at which each token starts and ends.

        Args:
            text: Strings `(B,)`.

        Returns: three ragged int32 tensors `(B, None)`, as `Tokenizer.with_offsets` returns them.
        """
        pieces = self._with_offsets(text)
        return pieces["tokens"], pieces["starts"], pieces["ends"]

    def of_pieces(self, tokens: tf.RaggedTensor) -> tuple[Batch, tf.Tensor]:
        """Return what a call returns, for token ids of texts, ragged int32 `(B, None)`."""
        batch = frame(tokens, vocab=self.vocab, max_len=self.max_len)
        return self.trim(batch), tokens.row_lengths() > self.room

    def trim(self, batch: Batch) -> Batch:
        """Trim the `(B, T)` tensors of a batch to the shortest fixed length that is enough."""
        # The 1 stands in for the lengths of an empty batch.
        longest = tf.reduce_max(tf.concat([batch["valid_lens"], [1]], axis=0), keepdims=True)
        length = tf.gather(self._lengths, tf.searchsorted(self._lengths, longest))[0]
        return {name: x[:, :length] if x.shape.rank == 2 else x for name, x in batch.items()}

    def _of_one(self, text: tf.Tensor) -> tuple[Batch, tf.Tensor]:
        return self.of_pieces(self._tokenize(text))

    def _of_pair(self, text: tf.Tensor, text_b: tf.Tensor) -> tuple[Batch, tf.Tensor]:
        text, text_b = checked_pairs(text, text_b)
        pieces, pieces_b = self._tokenize(text), self._tokenize(text_b)
        batch = frame(pieces, pieces_b, vocab=self.vocab, max_len=self.max_len)
        num_tokens = pieces.row_lengths() + pieces_b.row_lengths() + ADDED_TO_PAIR
        return self.trim(batch), num_tokens > self.max_len


def checked_pairs(text: tf.Tensor, text_b: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the texts of pairs. The graph fails where one is missing."""
    message = "The two texts must be equally many, one pair per row."
    with tf.control_dependencies(require(tf.shape(text) == tf.shape(text_b), message)):
        return tf.identity(text), tf.identity(text_b)
