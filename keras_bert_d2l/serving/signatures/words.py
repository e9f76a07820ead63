"""What the model that labels words answers.

B texts in a batch, W (most) words in a text, N words of all texts.
"""

import numpy as np
import tensorflow as tf

from keras_bert_d2l.serving.signatures.characters import Characters
from keras_bert_d2l.serving.signatures.length_buckets import TextBatches
from keras_bert_d2l.serving.signatures.requests import PREDICT, TEXT
from keras_bert_d2l.serving.signatures.task import TaskTokenSignatures

_CONTINUED = "##"


class WordAnswers:
    """The labels of the words of texts, by a `TokenClassifier`.

    They are those of `tag` for texts that the model can read as a whole; of longer ones the words
    behind the last that it reads are left out. A text is split as the tokenizer does it: at white
    space and around punctuation. A word's label is that of its first token.

    Args:
        of_tokens: The answers to token ids.
        batches: Makes batches of texts.

    Call arguments:
        text: Strings `(B,)`.

    Returns: all `(B, W)`, with empty strings and zeros behind the last word of a text: `words`,
        strings; `labels`, strings, the likeliest of each word; `scores`, float32, their
        probabilities; `ids`, int32, the labels' ids; `starts` and `ends`, int32, the first
        character of the word in the text and the last one plus one; and `truncated`, bool
        `(B,)`.
    """

    method = PREDICT
    specs = (TEXT,)

    def __init__(self, of_tokens: TaskTokenSignatures, batches: TextBatches) -> None:
        self._of_tokens = of_tokens
        self._batches = batches
        self._labels = np.array(of_tokens.model.labels, object)
        tokens = batches.tokenizer.vocab.tokens
        self._goes_on = np.array(
            [one.startswith(_CONTINUED) and one != _CONTINUED for one in tokens]
        )

    def __call__(self, *texts: tf.Tensor) -> dict[str, tf.Tensor]:
        tokens, starts, ends = self._batches.pieces(*texts)
        batch, truncated = self._batches.of_pieces(tokens)
        first, last = self._words(tokens)  # of each text, ragged places of tokens
        is_read = first < tf.cast(self._batches.room, first.dtype)
        first, last = (tf.ragged.boolean_mask(places, is_read) for places in (first, last))

        rows = first.value_rowids()
        row_starts = tf.gather(tokens.row_starts(), rows)
        starts = tf.gather(starts.values, row_starts + first.values)
        ends = tf.gather(ends.values, row_starts + last.values)
        characters = Characters(*texts)
        ends = characters.behind_accents(rows, ends)

        # Before the text's tokens stands the start token.
        places = tf.stack([rows, first.values + 1], axis=1)
        scores = tf.nn.softmax(tf.gather_nd(self._of_tokens(**batch), places))  # (N, C)
        ids = tf.argmax(scores, axis=1, output_type=tf.int32)
        columns = {
            "words": characters.stretches(rows, starts, ends),
            "labels": tf.gather(tf.constant(self._labels), ids),
            "scores": tf.reduce_max(scores, axis=1),
            "ids": ids,
            "starts": starts,
            "ends": ends,
        }
        dense = {name: first.with_values(column).to_tensor() for name, column in columns.items()}
        return {**dense, "truncated": truncated}

    def _words(self, tokens: tf.RaggedTensor) -> tuple[tf.RaggedTensor, tf.RaggedTensor]:
        """The places of the first and of the last token of each word, ragged int64 `(B, None)`."""
        places = tf.ragged.range(tokens.row_lengths())
        goes_on = tf.gather(self._goes_on, tokens.values) & (places.values > 0)
        is_last = tf.roll(~goes_on, -1, axis=0)  # the next token begins a word, or a text
        first = tf.ragged.boolean_mask(places, places.with_values(~goes_on))
        return first, tf.ragged.boolean_mask(places, places.with_values(is_last))
