"""Signatures of the models that label words.

B: texts in a batch, W: maximum number of words per text, N: words of all texts, C: labels.
"""

from typing import cast

import numpy as np
import tensorflow as tf

from keras_bert_d2l.signatures.signature import Answer, ExportedModel, TextOptions
from keras_bert_d2l.signatures.texts import Characters, TextSignatures
from keras_bert_d2l.tasks.tag.model import TokenClassifier
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

    def __init__(self, run: ExportedModel, tokenizer: Tokenizer, options: TextOptions) -> None:
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
        rows = self.preprocess.rows(*texts)
        logits = self.in_steps(self.padded(rows), "logits")["logits"]
        _, firsts, starts, ends = rows["split"]
        numbers = firsts.value_rowids()
        places = tf.stack(rows["windows"].places(numbers, firsts.values), axis=1)
        found = cast(TokenClassifier, self.run.model).answer(tf.gather_nd(logits, places))
        columns = {
            "words": Characters(*texts).spans(numbers, starts.values, ends.values),
            "labels": tf.gather(tf.constant(self._labels), found["id"]),
            "scores": found["score"],
            "ids": found["id"],
            "starts": starts.values,
            "ends": ends.values,
        }
        dense = {name: firsts.with_values(column).to_tensor() for name, column in columns.items()}
        return {**dense, "truncated": tf.zeros(tf.shape(*texts), tf.bool)}
