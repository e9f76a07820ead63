"""Signatures of the models that label words.

B: texts in a batch, W: maximum number of words per text, N: words of all texts, C: labels.
"""

import numpy as np
import tensorflow as tf

from keras_bert_d2l.serving.signatures.signature import Answer, ServedModel, TextOptions
from keras_bert_d2l.serving.signatures.texts import Characters, TextSignatures
from keras_bert_d2l.tasks.tag.rows import continue_words, windows_of
from keras_bert_d2l.text.tokenizer.tokenizer import Tokenizer


class TaggerSignatures(TextSignatures):
    """Signatures of a `TokenClassifier`.

    The outputs match `keras_bert_d2l.tag`: a text of any length is read in windows that overlap by
    half. Words are those of the tokenizer: texts are split at whitespace and, with WordPiece,
    around punctuation. The first token of a word determines its label.

    Args:
        run: The model.
        tokenizer: The model's tokenizer.
        options: None apply.
    """

    def __init__(self, run: ServedModel, tokenizer: Tokenizer, options: TextOptions) -> None:
        super().__init__(run, tokenizer, options)
        self._labels = np.array(run.model.labels, object)

    def answer(self, *texts: tf.Tensor) -> Answer:
        """Return the words of texts and their labels.

        Args:
            *texts: `text`, strings `(B,)`.

        Returns: each `(B, W)`, padded with empty strings and zeros: `words`, strings; `labels`,
            strings, the most likely label of each word; `scores`, float32, the probabilities of
            the labels; `ids`, int32, the ids of the labels; `starts` and `ends`, int32, the index
            of the word's first character in the text and the index after its last one. Also
            `truncated`, bool `(B,)`, which is always false.
        """
        tokens, starts, ends = self.batches.pieces(*texts)
        windows = windows_of(tokens, self.batches.room)
        batch, _ = self.batches.of_pieces(windows.tokens)
        logits = self.in_steps(batch, "logits")["logits"]
        first, last = self._words(tokens, starts, ends)
        rows = first.value_rowids()
        row_starts = tf.gather(tokens.row_starts(), rows)
        starts = tf.gather(starts.values, row_starts + first.values)
        ends = tf.gather(ends.values, row_starts + last.values)
        characters = Characters(*texts)
        starts, ends = characters.whole(rows, starts, ends, self.vocab.kind)
        if self.vocab.kind != "wordpiece":  # a token may be a space alone
            is_word = starts < ends
            first = tf.ragged.boolean_mask(first, first.with_values(is_word))
            rows, starts, ends = (tf.boolean_mask(x, is_word) for x in (rows, starts, ends))

        places = tf.stack(windows.places(rows, first.values), axis=1)
        scores = tf.nn.softmax(tf.gather_nd(logits, places))  # (N, C)
        ids = tf.argmax(scores, axis=1, output_type=tf.int32)
        columns = {
            "words": characters.spans(rows, starts, ends),
            "labels": tf.gather(tf.constant(self._labels), ids),
            "scores": tf.reduce_max(scores, axis=1),
            "ids": ids,
            "starts": starts,
            "ends": ends,
        }
        dense = {name: first.with_values(column).to_tensor() for name, column in columns.items()}
        return {**dense, "truncated": tf.zeros(tokens.nrows(), tf.bool)}

    def _words(
        self, tokens: tf.RaggedTensor, starts: tf.RaggedTensor, ends: tf.RaggedTensor
    ) -> tuple[tf.RaggedTensor, tf.RaggedTensor]:
        """Return the positions of the first and last token of each word, ragged `(B, None)`."""
        places = tf.ragged.range(tokens.row_lengths())
        is_continued = continue_words(tokens.values, starts.values, ends.values, self.vocab)
        is_continued &= places.values > 0
        is_last = tf.roll(~is_continued, -1, axis=0)  # the next token starts a word or a text
        first = tf.ragged.boolean_mask(places, places.with_values(~is_continued))
        return first, tf.ragged.boolean_mask(places, places.with_values(is_last))
