"""Checks of the values in a dataset, which run as a part of its pipeline.

B: rows, T: tokens per row.
"""

import contextlib
import re
from collections.abc import Iterator, Mapping
from typing import Any

import tensorflow as tf

from keras_bert_d2l.config import BERTConfig

IGNORED = -100  # the label of a token or a row that the loss ignores


def require_range(
    name: str, values: tf.Tensor, least: int, most: tf.Tensor, ignored: int | None = None
) -> None:
    """Assert that all values are from `least` to `most`, or equal to `ignored`.

    The message has the name, the limits and the first wrong value.
    """
    values = tf.reshape(values, [-1])
    is_right = (values >= least) & (values <= tf.cast(most, values.dtype))
    if ignored is not None:
        is_right |= values == ignored

    def fail() -> tf.Operation:
        wrong = tf.boolean_mask(values, ~is_right)[0]
        message = f"`{name}` must be from {least} to {{}}. Received: {{}}."
        return tf.debugging.Assert(False, [tf.strings.format(message, (most, wrong))])

    tf.cond(tf.reduce_all(is_right), tf.no_op, fail)


def checked(
    batches: tf.data.Dataset, config: BERTConfig, num_labels: int | None = None
) -> tf.data.Dataset:
    """Return the batches of a fine-tuning task, with their values checked for a model.

    Args:
        batches: Batches of features, `(features, labels)` or `(features, labels, weights)`. Texts
            and label names are not checked.
        config: The architecture of the model.
        num_labels: The number of label ids; None if labels are not ids.
    """

    @tf.autograph.experimental.do_not_convert  # nothing to convert
    def check(*batch: Any) -> Any:
        features = batch[0]
        if isinstance(features, Mapping) and "tokens" in features:
            _check_features(features, config)
            if len(batch) > 1 and isinstance(batch[1], Mapping):  # the positions of answers
                for name, positions in batch[1].items():
                    require_range(name, positions, 0, tf.shape(features["tokens"])[1] - 1, IGNORED)
        if len(batch) > 1 and num_labels is not None:
            labels = batch[1].flat_values if isinstance(batch[1], tf.RaggedTensor) else batch[1]
            if labels.dtype != tf.string:
                require_range("labels", labels, 0, num_labels - 1, IGNORED)
        return batch if len(batch) > 1 else features

    return batches.map(check, tf.data.AUTOTUNE, deterministic=True)


def _check_features(features: Mapping[str, tf.Tensor], config: BERTConfig) -> None:
    num_tokens = tf.shape(features["tokens"])[1]
    require_range("tokens.shape[1]", num_tokens, 1, config.max_len)
    limits = {
        "tokens": (0, config.vocab_size - 1),
        "segments": (0, config.num_segments - config.first_segment_id - 1),
        "valid_lens": (1, num_tokens),
        "pred_positions": (0, num_tokens - 1),
        "position_ids": (0, config.max_len - 1),
    }
    for name, (least, most) in limits.items():
        if name in features:
            require_range(name, features[name], least, most)


@contextlib.contextmanager
def value_errors() -> Iterator[None]:
    """Convert a failed `require_range` of a pipeline to a `ValueError` with only its message."""
    try:
        yield
    except tf.errors.InvalidArgumentError as error:
        found = re.search(r"`[^`]+` must be from \S+ to \S+\. Received: \S+\.", error.message)
        if not found:
            raise
        raise ValueError(found[0]) from error
