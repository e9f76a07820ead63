"""The task `answer`: answers to questions, as spans of texts."""

from keras_bert_d2l.checks import IGNORED
from keras_bert_d2l.types import Tensor

WINDOW_LEN = 384  # tokens per window, as in google-research/bert, run_squad.py


def window_labels(spans: Tensor, rows: Tensor, starts: Tensor) -> dict[str, Tensor]:
    """Convert answer spans to the labels of windows.

    Args:
        spans: Positions of the answer's first and last token in each window, int32 `(W, 2)`; both
            0, the start token, if the window does not contain the complete answer.
        rows: Index of each window's question, int32 `(W,)`.
        starts: Index of each answer's first character, int32 `(B,)`; -1 for no answer.

    Returns: `{"start": (W,), "end": (W,)}`, int32. They are `IGNORED` if no window of the context
        contains the complete answer, because such windows say nothing about the answer.
    """
    import tensorflow as tf

    found = tf.math.unsorted_segment_max(spans[:, 0], rows, tf.size(starts))
    is_lost = tf.gather((starts >= 0) & (found < 1), rows)
    spans = tf.where(is_lost[:, tf.newaxis], IGNORED, spans)
    return {"start": spans[:, 0], "end": spans[:, 1]}
