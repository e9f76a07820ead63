"""Select the best answer spans of each window.

Written in TensorFlow ops so that exported models share this code with `answer`.

W: number of windows, T: tokens per window, L: maximum number of tokens in an answer,
n: maximum number of spans per window, N: number of spans of all windows.
"""

from collections.abc import Mapping

import tensorflow as tf

from keras_bert_d2l.types import Tensor

_NEVER = float("-inf")


def best_spans(
    windows: Mapping[str, Tensor],
    logits: Mapping[str, Tensor],
    *,
    max_answer_len: int,
    num_best: int,
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor]:
    """Return the spans of context tokens with the highest logits, in the order of the windows.

    The logit of a span is the sum of the start logit of its first token and the end logit of its
    last token.

    Args:
        windows: `segments`, `starts` and `ends`, int `(W, T)`, as `Tokenizer.windows` returns them.
            They may have more padding than the logits.
        logits: `start` and `end`, float `(W, T)`.
        max_answer_len: Maximum number of tokens in a span, L.
        num_best: Maximum number of spans per window, n.

    Returns: four tensors `(N,)`: the logits, and as int32 the indices of the windows, of the first
        tokens and of the last tokens.
    """
    length = tf.shape(logits["start"])[1]
    max_answer_len = tf.minimum(max_answer_len, length)
    segments, starts_at, ends_at = (
        windows[name][:, :length] for name in ("segments", "starts", "ends")
    )
    is_context = (segments == 1) & (ends_at > starts_at)
    never = tf.constant(_NEVER, logits["start"].dtype)
    starts, ends = (tf.where(is_context, logits[side], never) for side in ("start", "end"))
    # (W, T, L): the spans from each token to itself and to the following tokens.
    ends = tf.pad(ends, [[0, 0], [0, max_answer_len]], constant_values=never)
    to = tf.range(length)[:, tf.newaxis] + tf.range(max_answer_len)
    spans = starts[:, :, tf.newaxis] + tf.gather(ends, to, axis=1)
    flat = tf.reshape(spans, [tf.shape(spans)[0], length * max_answer_len])
    flat = tf.pad(flat, [[0, 0], [0, num_best]], constant_values=never)
    best, place = tf.math.top_k(flat, num_best)
    is_span = best > never
    window = tf.cast(tf.where(is_span)[:, 0], tf.int32)
    place = tf.boolean_mask(place, is_span)
    first = place // max_answer_len
    return tf.boolean_mask(best, is_span), window, first, first + place % max_answer_len
