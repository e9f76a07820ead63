"""Signatures of the models that score a text or a pair of texts.

B: texts in a batch, C: scores.
"""

import tensorflow as tf

from keras_bert_d2l.serving.signatures.signature import PREDICT, REGRESS, Answer, TextOptions
from keras_bert_d2l.serving.signatures.token_ids import ServedModel
from keras_bert_d2l.tasks.classify.signature import LabeledSignatures
from keras_bert_d2l.text.tokenizer.tokenizer import Tokenizer


class RegressorSignatures(LabeledSignatures):
    """Signatures of a `SequenceRegressor`; arguments as for `LabeledSignatures`."""

    def __init__(self, run: ServedModel, tokenizer: Tokenizer, options: TextOptions) -> None:
        super().__init__(run, tokenizer, options)
        # `Regress` supports only one score per text.
        self.method = REGRESS if len(run.model.labels) == 1 else PREDICT

    def answer(self, *texts: tf.Tensor) -> Answer:
        """Return the scores of texts.

        Args:
            *texts: `text`, and for pairs `text_b`, strings `(B,)`.

        Returns: `labels`, strings `(B, C)`, the names of the scores; `scores`, float32 `(B, C)`;
            and `truncated`, bool `(B,)`.
        """
        answer, logits = self.labels_and_logits(*texts)
        return {**answer, "scores": logits}

    def for_method(self, answer: Answer) -> Answer:
        return answer if self.method == PREDICT else {"outputs": answer["scores"][:, 0]}
