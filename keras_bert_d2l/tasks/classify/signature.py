"""Signatures of the models that label a text or a pair of texts.

B: texts in a batch, C: labels.
"""

import numpy as np
import tensorflow as tf

from keras_bert_d2l.serving.signatures.signature import (
    CLASSIFY,
    TEXT,
    TEXT_B,
    Answer,
    TextOptions,
)
from keras_bert_d2l.serving.signatures.texts import TextSignatures
from keras_bert_d2l.serving.signatures.token_ids import ServedModel
from keras_bert_d2l.text.tokenizer.tokenizer import Tokenizer

_LIKELY = 0.5  # minimum probability of a label in multi-label classification


class LabeledSignatures(TextSignatures):
    """Base class of the signatures of models with one output per label.

    Args:
        run: The model.
        tokenizer: The model's tokenizer.
        options: With `pairs`, the inputs are pairs of texts.
    """

    def __init__(self, run: ServedModel, tokenizer: Tokenizer, options: TextOptions) -> None:
        super().__init__(run, tokenizer, options)
        self.specs = (TEXT, TEXT_B) if options.pairs else (TEXT,)
        self._labels = np.array(run.model.labels, object)

    def labels_and_logits(self, *texts: tf.Tensor) -> tuple[Answer, tf.Tensor]:
        """Return `labels`, strings `(B, C)`, and `truncated`, bool `(B,)`; and logits `(B, C)`."""
        batch, truncated = self.batches(*texts)
        logits = self.run(**batch)["logits"]
        labels = tf.tile(tf.constant(self._labels)[tf.newaxis], [tf.shape(logits)[0], 1])
        return {"labels": labels, "truncated": truncated}, logits


class ClassifierSignatures(LabeledSignatures):
    """Signatures of a `SequenceClassifier`; arguments as for `LabeledSignatures`."""

    method = CLASSIFY

    def answer(self, *texts: tf.Tensor) -> Answer:
        """Return the labels of texts.

        Args:
            *texts: `text`, and for pairs `text_b`, strings `(B,)`.

        Returns: `labels`, strings `(B, C)` in the order of their ids; `scores`, float32 `(B, C)`,
            their probabilities; and `truncated`, bool `(B,)`. A multi-label classifier also
            returns `is_label`, bool `(B, C)`; other classifiers return the most likely `label`
            (string), its `score` (float32) and its `id` (int32), each `(B,)`.
        """
        answer, logits = self.labels_and_logits(*texts)
        if self.run.model.multi_label:
            scores = tf.sigmoid(logits)
            return {**answer, "scores": scores, "is_label": scores >= _LIKELY}
        scores = tf.nn.softmax(logits)
        best = tf.argmax(logits, axis=1, output_type=tf.int32)
        return {
            **answer,
            "scores": scores,
            "label": tf.gather(answer["labels"], best, batch_dims=1),
            "score": tf.gather(scores, best, batch_dims=1),
            "id": best,
        }

    def for_method(self, answer: Answer) -> Answer:
        return {"classes": answer["labels"], "scores": answer["scores"]}
