"""Signatures of the models that label or score a text or a pair of texts.

B: texts in a batch, C: labels.
"""

import numpy as np
import tensorflow as tf

from keras_bert_d2l.models.tasks import SequenceClassifier
from keras_bert_d2l.serving.signatures.signature import (
    CLASSIFY,
    PREDICT,
    REGRESS,
    TEXT,
    TEXT_B,
    Answer,
    TextOptions,
)
from keras_bert_d2l.serving.signatures.texts import TextSignatures
from keras_bert_d2l.serving.signatures.token_ids import ServedModel
from keras_bert_d2l.text.tokenizer.tokenizer import Tokenizer

_LIKELY = 0.5  # minimum probability of a label in multi-label classification


class SequenceSignatures(TextSignatures):
    """Signatures of a `SequenceClassifier` or a `SequenceRegressor`.

    Args:
        run: The model.
        tokenizer: The model's tokenizer.
        options: With `pairs`, the inputs are pairs of texts.
    """

    def __init__(self, run: ServedModel, tokenizer: Tokenizer, options: TextOptions) -> None:
        super().__init__(run, tokenizer, options)
        self.model = run.model
        self.specs = (TEXT, TEXT_B) if options.pairs else (TEXT,)
        self._labels = np.array(self.model.labels, object)
        if isinstance(self.model, SequenceClassifier):
            self.method = CLASSIFY
        else:  # `Regress` supports only one score per text
            self.method = REGRESS if len(self._labels) == 1 else PREDICT

    def answer(self, *texts: tf.Tensor) -> Answer:
        """Return the labels or the scores of texts.

        Args:
            *texts: `text`, and for pairs `text_b`, strings `(B,)`.

        Returns: `labels`, strings `(B, C)` in the order of their ids; `scores`, float32 `(B, C)`;
            and `truncated`, bool `(B,)`. The scores of a classifier are probabilities. A
            multi-label classifier also returns `is_label`, bool `(B, C)`; other classifiers
            return the most likely `label` (string), its `score` (float32) and its `id` (int32),
            each `(B,)`.
        """
        batch, truncated = self.batches(*texts)
        logits = self.run(**batch)["logits"]
        labels = tf.tile(tf.constant(self._labels)[tf.newaxis], [tf.shape(logits)[0], 1])
        answer = {"labels": labels, "truncated": truncated}
        if not isinstance(self.model, SequenceClassifier):
            return {**answer, "scores": logits}
        if self.model.multi_label:
            scores = tf.sigmoid(logits)
            return {**answer, "scores": scores, "is_label": scores >= _LIKELY}
        scores = tf.nn.softmax(logits)
        best = tf.argmax(logits, axis=1, output_type=tf.int32)
        return {
            **answer,
            "scores": scores,
            "label": tf.gather(labels, best, batch_dims=1),
            "score": tf.gather(scores, best, batch_dims=1),
            "id": best,
        }

    def for_method(self, answer: Answer) -> Answer:
        if self.method == CLASSIFY:
            return {"classes": answer["labels"], "scores": answer["scores"]}
        if self.method == REGRESS:
            return {"outputs": answer["scores"][:, 0]}
        return answer
