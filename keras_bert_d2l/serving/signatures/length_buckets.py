"""Strings in, batches of a few fixed lengths out, inside the graph of a served model.

B texts in a batch, T tokens.
"""

import tensorflow as tf

from keras_bert_d2l.serving.signatures.requests import TEXT
from keras_bert_d2l.text.tokenizer.framing import ADDED_TO_ONE, ADDED_TO_PAIR, frame, require
from keras_bert_d2l.text.tokenizer.tokenizer import Tokenizer
from keras_bert_d2l.text.tokenizer.wordpiece import Pieces

_SHORTEST = 16


def padded_lengths(max_len: int) -> tuple[int, ...]:
    """Returns the lengths T that rows are padded to: 16, 24, 32, 48, 64, 96, ... and `max_len`.

    A row is at most half as long again as its text, and what a server prepares for each shape
    (kernels, memory) it prepares a few times and not for every length.
    """
    lengths, step = [], _SHORTEST
    while step < max_len:
        lengths += [step, step + step // 2]
        step *= 2
    return (*(length for length in lengths if length < max_len), max_len)


class TextBatches:
    """Makes batches for a model of texts, or of pairs of texts.

    Rows are as long as the longest needs, rounded up to the next of `padded_lengths(max_len)`.
    Longer texts lose their ends, of a pair the longer text first.

    Args:
        tokenizer: The `Tokenizer`.
        max_len: Most tokens in a row, special tokens included.

    Call arguments:
        text: Strings `(B,)`.
        text_b: The second text of each pair, strings `(B,)`; `None` for single texts.

    Returns: a dictionary of the int32 tensors `tokens` and `segments` `(B, T)` and `valid_lens`
        `(B,)`; and bool `(B,)`, whether a text was too long.
    """

    def __init__(self, tokenizer: Tokenizer, max_len: int) -> None:
        self.tokenizer = tokenizer
        self.max_len = max_len
        self.room = max_len - ADDED_TO_ONE  # for the tokens of a single text
        self._lengths = tf.constant(padded_lengths(max_len))
        # A function of its own is traced and stored once for all signatures.
        self._tokenize = tf.function(tokenizer.tokenize, input_signature=(TEXT,), autograph=False)
        self._with_offsets = tf.function(
            tokenizer.with_offsets, input_signature=(TEXT,), autograph=False
        )
        self._single = tf.function(self._of_one, input_signature=(TEXT,), autograph=False)

    def __call__(
        self, text: tf.Tensor, text_b: tf.Tensor | None = None
    ) -> tuple[dict[str, tf.Tensor], tf.Tensor]:
        return self._single(text) if text_b is None else self._of_pair(text, text_b)

    def pieces(self, text: tf.Tensor) -> Pieces:
        """Returns the token ids of texts and the first and last-plus-one character of each token.

        Args:
            text: Strings `(B,)`.

        Returns: three ragged int32 `(B, None)`, as `Tokenizer.with_offsets`.
        """
        pieces = self._with_offsets(text)
        return pieces["tokens"], pieces["starts"], pieces["ends"]

    def of_pieces(self, pieces: tf.RaggedTensor) -> tuple[dict[str, tf.Tensor], tf.Tensor]:
        """Makes a batch of texts that are token ids, ragged int32 `(B, None)`, already."""
        batch = frame(pieces, vocab=self.tokenizer.vocab, max_len=self.max_len)
        return self.cut(batch), pieces.row_lengths() > self.room

    def cut(self, batch: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """Cuts what is `(B, T)` in a batch to the shortest of the fixed lengths that is enough."""
        # 1 stands for a batch without any text.
        longest = tf.reduce_max(tf.concat([batch["valid_lens"], [1]], axis=0), keepdims=True)
        length = tf.gather(self._lengths, tf.searchsorted(self._lengths, longest))[0]
        return {name: x[:, :length] if x.shape.rank == 2 else x for name, x in batch.items()}

    def equally_many(self, text: tf.Tensor, text_b: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the texts of pairs; fails where one is missing."""
        message = "The two texts must be equally many, one pair a row."
        with tf.control_dependencies(require(tf.shape(text) == tf.shape(text_b), message)):
            return tf.identity(text), tf.identity(text_b)

    def _of_one(self, text: tf.Tensor) -> tuple[dict[str, tf.Tensor], tf.Tensor]:
        return self.of_pieces(self._tokenize(text))

    def _of_pair(
        self, text: tf.Tensor, text_b: tf.Tensor
    ) -> tuple[dict[str, tf.Tensor], tf.Tensor]:
        text, text_b = self.equally_many(text, text_b)
        pieces, pieces_b = self._tokenize(text), self._tokenize(text_b)
        batch = frame(pieces, pieces_b, vocab=self.tokenizer.vocab, max_len=self.max_len)
        num_tokens = pieces.row_lengths() + pieces_b.row_lengths() + ADDED_TO_PAIR
        return self.cut(batch), num_tokens > self.max_len
