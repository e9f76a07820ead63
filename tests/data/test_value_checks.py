"""value_checks: an error names the argument, the limits and the first wrong value."""

import re

import numpy as np
import pytest
import tensorflow as tf

from keras_bert_d2l.config import BERTConfig
from keras_bert_d2l.data.value_checks import checked, value_errors

CONFIG = BERTConfig(vocab_size=10, num_hiddens=8, ffn_num_hiddens=8, num_heads=2, num_blks=1,
                    dropout=0.1, max_len=6)  # fmt: skip
FEATURES = {
    "tokens": np.ones((2, 4), np.int32),
    "segments": np.ones((2, 4), np.int32),
    "valid_lens": np.array([1, 4], np.float32),
    "position_ids": np.full((2, 4), 5),
}


def check(labels, num_labels=3, **features):
    dataset = tf.data.Dataset.from_tensors(({**FEATURES, **features}, labels))
    with value_errors():
        return list(checked(dataset, CONFIG, num_labels))


@pytest.mark.parametrize(
    "labels",
    [
        np.array([0, 2]),
        np.array([[0, 1, 1], [0, 0, 0]]),
        np.array([[-100, 2, 1, 0], [-100, 0, 0, -100]]),
        np.array([b"a", b"b"]),
        tf.ragged.constant([[0], [2, 1]]),
        {"start": np.array([0, 3]), "end": np.array([-100, 3])},
    ],
)
def test_right_values_pass_unchanged(labels):
    num_labels = None if isinstance(labels, dict) else 3
    ((features, found),) = check(labels, num_labels)
    tf.nest.map_structure(np.testing.assert_array_equal, dict(features), FEATURES)
    if not isinstance(labels, tf.RaggedTensor):
        tf.nest.map_structure(np.testing.assert_array_equal, found, labels)


@pytest.mark.parametrize(
    ("features", "message"),
    [
        ({"tokens": np.full((2, 4), 10)}, "`tokens` must be from 0 to 9. Received: 10."),
        ({"tokens": np.full((2, 4), -1)}, "`tokens` must be from 0 to 9. Received: -1."),
        ({"segments": np.full((2, 4), 2)}, "`segments` must be from 0 to 1. Received: 2."),
        ({"valid_lens": np.array([0, 4])}, "`valid_lens` must be from 1 to 4. Received: 0."),
        ({"valid_lens": np.array([4, 5])}, "`valid_lens` must be from 1 to 4. Received: 5."),
        ({"valid_lens": np.array([1, np.nan])}, "`valid_lens` must be from 1 to 4. Received: nan."),
        ({"pred_positions": np.array([[4]])}, "`pred_positions` must be from 0 to 3. Received: 4."),
        ({"position_ids": np.full((2, 4), 6)}, "`position_ids` must be from 0 to 5. Received: 6."),
        ({"tokens": np.ones((2, 7), int)}, "`tokens.shape[1]` must be from 1 to 6. Received: 7."),
    ],
)
def test_features_out_of_range_are_named(features, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        check(np.array([0, 1]), **features)


def test_labels_out_of_range_are_named():
    with pytest.raises(ValueError, match="`labels` must be from 0 to 2. Received: 3"):
        check(np.array([0, 3]))
    with pytest.raises(ValueError, match="`labels` must be from 0 to 2. Received: -1"):
        check(np.array([0, -1]))
    with pytest.raises(ValueError, match="`end` must be from 0 to 3. Received: 4"):
        check({"start": np.array([0, 3]), "end": np.array([0, 4])}, None)


def test_other_errors_of_a_pipeline_are_not_converted():
    with pytest.raises(tf.errors.InvalidArgumentError), value_errors():
        tf.debugging.assert_equal(1, 2)
