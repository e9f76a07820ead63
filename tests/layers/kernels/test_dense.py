"""The dense layer and its bias."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_bert_d2l.layers.kernels.dense import Dense, add_bias
from keras_bert_d2l.layers.variants import gelu


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_the_gradient_of_a_bias_in_half_precision_is_summed_in_float32(dtype):
    rng = np.random.default_rng(0)
    bias, upstream = tf.zeros(8, dtype), tf.cast(rng.normal(size=(64, 64, 8)), dtype)
    with tf.GradientTape() as tape:
        tape.watch(bias)
        total = tf.reduce_sum(add_bias(tf.zeros((64, 64, 8), dtype), bias) * upstream)
    expected = np.sum(upstream.numpy().astype("float64"), axis=(0, 1))
    actual = tape.gradient(total, bias).numpy().astype("float64")
    # Rounded once to 8 bits, or 11; products on a CPU without bfloat16 are truncated.
    np.testing.assert_allclose(actual, expected, rtol=2**-7)


@pytest.mark.parametrize("activation", [None, "relu", gelu])
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("use_bias", [False, True])
def test_the_layer_equals_that_of_keras(activation, training, use_bias, fuse_small_tensors):
    x = np.random.default_rng(0).normal(size=(2, 3, 4)).astype("float32")
    own, of_keras = (
        layer(5, activation, use_bias, bias_initializer="normal")
        for layer in (Dense, keras.layers.Dense)
    )
    expected = of_keras(x)
    own.build(x.shape)
    own.set_weights(of_keras.get_weights())
    np.testing.assert_allclose(own(x, training=training), expected, atol=1e-6)


def test_in_a_session_the_product_bias_and_activation_are_one_operation(tmp_path):
    layer = Dense(5, activation=gelu, bias_initializer="normal")
    layer.build((None, None, 4))
    saved = tf.Module()
    saved.kernel, saved.bias = (weight.value for weight in layer.weights)
    run = tf.function(lambda x: {"y": layer(x)}, autograph=False)
    run = run.get_concrete_function(tf.TensorSpec((None, None, 4), name="x"))
    tf.saved_model.save(saved, str(tmp_path), signatures={"run": run})
    x = np.random.default_rng(0).normal(size=(2, 3, 4)).astype("float32")
    y, nodes = in_session(tmp_path, x)
    np.testing.assert_allclose(y, layer(x), atol=1e-6)
    assert [node.op for node in nodes if node.op == "BiasAdd"] == []
    (fused,) = (node.attr["fused_ops"] for node in nodes if "FusedMatMul" in node.op)
    # Only with oneDNN does TensorFlow fuse gelu on a CPU.
    assert fused.list.s[:] in ([b"BiasAdd"], [b"BiasAdd", b"GeluExact"])


def in_session(folder, x):
    """Return the output of a SavedModel in a session, and the nodes of the optimized graph."""
    v1 = tf.compat.v1
    options, found = v1.RunOptions(output_partition_graphs=True), v1.RunMetadata()
    with tf.Graph().as_default(), v1.Session() as session:
        loaded = v1.saved_model.loader.load(session, ["serve"], str(folder))
        run = loaded.signature_def["run"]
        y = session.run(run.outputs["y"].name, {run.inputs["x"].name: x}, options, found)
    return y, [node for graph in found.partition_graphs for node in graph.node]
