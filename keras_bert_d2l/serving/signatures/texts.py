"""What the models that have one answer for a text answer: its label or labels, scores, a vector.

B texts in a batch, C labels, D hidden width.
"""

import tensorflow as tf

from keras_bert_d2l.serving.signatures.length_buckets import TextBatches
from keras_bert_d2l.serving.signatures.requests import CLASSIFY, PREDICT, REGRESS, TEXT, TEXT_B
from keras_bert_d2l.serving.signatures.task import TaskTokenSignatures, repeated

_LIKELY = 0.5  # a text has the labels that are at least so probable, of those that may be several


class LabelAnswers:
    """The labels of texts, by a `SequenceClassifier`.

    Args:
        of_tokens: The answers to token ids.
        batches: Makes batches of texts.
        pairs: Whether a text is a pair of texts.

    Call arguments:
        *texts: Strings `(B,)`: `text`, for pairs `text` and `text_b`.

    Returns: `labels`, strings, and `scores`, float32 probabilities, both `(B, C)` in the order of
        the labels' ids; `label` (string), `score` (float32) and `id` (int32), each `(B,)`, the
        likeliest label; for any number of labels instead of these `is_label`, bool `(B, C)`,
        which are as probable as not; and `truncated`, bool `(B,)`.
    """

    method = CLASSIFY

    def __init__(self, of_tokens: TaskTokenSignatures, batches: TextBatches, pairs: bool) -> None:
        self.specs = (TEXT, TEXT_B) if pairs else (TEXT,)
        self._of_tokens = of_tokens
        self._batches = batches
        self._labels = of_tokens.model.labels
        self._multi_label = of_tokens.model.multi_label

    def __call__(self, *texts: tf.Tensor) -> dict[str, tf.Tensor]:
        batch, truncated = self._batches(*texts)
        logits = self._of_tokens(**batch)
        names = repeated(self._labels, tf.shape(logits)[0])
        if self._multi_label:
            scores = tf.sigmoid(logits)
            chosen = {"is_label": scores >= _LIKELY}
        else:
            scores = tf.nn.softmax(logits)
            best = tf.argmax(logits, axis=1, output_type=tf.int32)
            chosen = {
                "label": tf.gather(names, best, batch_dims=1),
                "score": tf.gather(scores, best, batch_dims=1),
                "id": best,
            }
        return {**chosen, "labels": names, "scores": scores, "truncated": truncated}


class ScoreAnswers:
    """The scores of texts, by a `SequenceRegressor`.

    Args:
        of_tokens: The answers to token ids.
        batches: Makes batches of texts.
        pairs: Whether a text is a pair of texts.

    Call arguments:
        *texts: Strings `(B,)`: `text`, for pairs `text` and `text_b`.

    Returns: `labels`, the names of the scores, strings, and `scores`, float32, both `(B, C)`; and
        `truncated`, bool `(B,)`.
    """

    def __init__(self, of_tokens: TaskTokenSignatures, batches: TextBatches, pairs: bool) -> None:
        self.specs = (TEXT, TEXT_B) if pairs else (TEXT,)
        self._of_tokens = of_tokens
        self._batches = batches
        self._labels = of_tokens.model.labels
        # The server's method knows one score for a text.
        self.method = REGRESS if len(self._labels) == 1 else PREDICT

    def __call__(self, *texts: tf.Tensor) -> dict[str, tf.Tensor]:
        batch, truncated = self._batches(*texts)
        scores = self._of_tokens(**batch)
        names = repeated(self._labels, tf.shape(scores)[0])
        return {"labels": names, "scores": scores, "truncated": truncated}


class VectorAnswers:
    """The vectors of texts, by a `TextEmbedder`.

    Args:
        of_tokens: The answers to token ids.
        batches: Makes batches of texts.

    Call arguments:
        text: Strings `(B,)`.

    Returns: `embedding`, float32 `(B, D)`, and `truncated`, bool `(B,)`.
    """

    method = PREDICT
    specs = (TEXT,)

    def __init__(self, of_tokens: TaskTokenSignatures, batches: TextBatches) -> None:
        self._of_tokens = of_tokens
        self._batches = batches

    def __call__(self, *texts: tf.Tensor) -> dict[str, tf.Tensor]:
        batch, truncated = self._batches(*texts)
        return {"embedding": self._of_tokens(**batch), "truncated": truncated}
