"""Signature of the models that find the choice that fits a text best.

B: texts in a batch, N: choices per text.
"""

import numpy as np
import tensorflow as tf

from keras_bert_d2l.serving.signatures.signature import (
    CHOICES,
    TEXT,
    Answer,
    Signature,
    traced_once,
)
from keras_bert_d2l.serving.signatures.texts import TextSignatures
from keras_bert_d2l.text.tokenizer.framing import require


class ChoiceSignatures(TextSignatures):
    """Signature of a `MultipleChoice` model. The answers match `keras_bert_d2l.choose`."""

    specs = (TEXT, CHOICES)

    def answer(self, *texts: tf.Tensor) -> Answer:
        """Return the best choices.

        Args:
            *texts: `text`, strings `(B,)`, and `choices`, strings `(B, N)`. If texts have different
                numbers of choices, pad with empty strings, whose scores are 0.

        Returns: `choice`, strings, `index`, int32, and `score`, float32, each `(B,)`; `scores`,
            float32 `(B, N)`; and `truncated`, bool `(B,)`, whether the text or a choice was.
        """
        text, choices = texts
        shape = tf.shape(choices)
        message = "`choices` must have one row per text, each with at least one choice."
        is_right = (tf.size(text) == shape[0]) & (shape[1] > 0)
        with tf.control_dependencies(require(is_right, message)):
            first, second = tf.repeat(text, shape[1]), tf.reshape(choices, [-1])
        batch, truncated = self.batches(first, second)
        is_choice = choices != ""
        logits = tf.reshape(self.run(**batch)["logits"], shape)
        scores = tf.nn.softmax(tf.where(is_choice, logits, logits.dtype.min))
        best = tf.argmax(scores, axis=1, output_type=tf.int32)
        return {
            "choice": tf.gather(choices, best, batch_dims=1),
            "index": best,
            "score": tf.gather(scores, best, batch_dims=1),
            "scores": scores,
            "truncated": tf.reduce_any(tf.reshape(truncated, shape) & is_choice, axis=1),
        }

    def signatures(self) -> dict[str, Signature]:
        answer = traced_once(self.answer, self.specs)
        text = np.array([self._example], object)
        example = (text, np.tile(text, (1, 2)))
        return {"serving_default": Signature(answer, self.specs, example)}
