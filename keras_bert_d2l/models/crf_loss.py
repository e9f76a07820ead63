"""The loss of sequences of tags under a conditional random field.

B rows, T tokens, L labels.
"""

from typing import Any

import keras
from keras import ops

from keras_bert_d2l.checks import check_that
from keras_bert_d2l.models.losses import GlobalMeanLoss, label_weights, labels_of
from keras_bert_d2l.types import ConfigDict, Tensor


@keras.saving.register_keras_serializable("keras_bert_d2l")
class CRFLoss(GlobalMeanLoss):
    """Negative log-likelihood of the tags of each row, as a mean over all words of the batch.

    As with cross entropy, the scale does not depend on the number of words in a row.

    Args:
        crf: The layer. `None` in a saved model, which replaces the loss when it is compiled.
        name: Name of the loss.

    Call arguments:
        y_true: Labels, int `(B, T)`; -100 where no word begins.
        y_pred: Logits, `(B, T, L)`.
        sample_weight: One weight per row, `(B,)`. `None`: ones.

    Raises:
        ValueError: `sample_weight` has one weight per token.
    """

    def __init__(self, crf: Any = None, name: str = "crf_loss") -> None:
        super().__init__(name=name)
        self.crf = crf

    def call(self, y_true: Tensor, y_pred: Tensor) -> Tensor:
        """Return the mean loss of the words of a row, for each of its words, `(B, T)`."""
        labels = labels_of(ops.cast(y_true, "int32"), y_pred.shape[:-1])
        is_word = ops.cast(labels >= 0, "float32")
        num_words = ops.maximum(ops.sum(is_word, axis=1), 1.0)
        losses = -ops.cast(self.crf.log_likelihood(y_pred, labels), "float32") / num_words
        return losses[:, None] * is_word

    def weights(self, y_true: Tensor, sample_weight: Tensor | None) -> Tensor:
        shape = tuple(getattr(sample_weight, "shape", ()))[1:]
        expected = "one weight per text, (B,), because a CRF scores the tags of a text together"
        check_that(shape in ((), (1,)), "sample_weight", expected, sample_weight)
        return label_weights(y_true, sample_weight)

    def get_config(self) -> ConfigDict:
        return {"name": self.name}
