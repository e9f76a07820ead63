"""The transposition and its form in exports."""

import numpy as np
import pytest
import tensorflow as tf

from keras_bert_d2l.layers.attention import MultiHeadAttention
from keras_bert_d2l.layers.kernels.attention import exported, transpose

AXES = (0, 2, 1, 3)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int32"])
def test_an_export_transposes_the_same_values(dtype):
    x = tf.cast(np.random.default_rng(0).normal(size=(2, 3, 4, 5)), dtype)
    with exported():
        y = transpose(x, AXES)
    assert y.dtype == x.dtype
    np.testing.assert_array_equal(y, tf.transpose(x, AXES))


def test_an_exported_attention_splits_and_merges_heads_as_integers():
    attention = MultiHeadAttention(8, 2, dropout=0.0)
    attention.build((None, None, 8))

    def run(x):
        with exported():
            return attention(x, x, x)

    spec = tf.TensorSpec((None, None, 8))
    nodes = tf.function(run, autograph=False).get_concrete_function(spec).graph.as_graph_def().node
    dtypes = [node.attr["T"].type for node in nodes if node.op == "Transpose"]
    # Queries, keys, values and the output; TensorFlow merges the other one with the product.
    assert dtypes.count(tf.int32.as_datatype_enum) == 4
    assert len(dtypes) == 5
