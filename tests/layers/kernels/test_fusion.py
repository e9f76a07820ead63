"""Fused functions and their gradients: those of TensorFlow and NumPy; dense layers; dropout."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops

from keras_bert_d2l import BERTAdamW, BERTConfig, BERTModel
from keras_bert_d2l.layers.base import gelu, gelu_tanh, unbiased_layer_normalization
from keras_bert_d2l.layers.kernels import fusion
from keras_bert_d2l.layers.kernels.fusion import (
    Dense,
    Dropout,
    add_bias,
    biased_activation,
    cross_entropy,
    dropped,
    dropped_added_normalized,
    fused,
    hits,
    is_fusible,
    random_bits,
)
from keras_bert_d2l.training.devices import make_strategy

SEED = np.array([7, 3], "int64")
WIDTH = 24
ADD_NORM = {"rate": 0.3, "epsilon": 1e-6}
FUNCTIONS = {
    "gelu": (biased_activation, [(3, 5, WIDTH), (WIDTH,)], {"activation": gelu}),
    "gelu_tanh": (biased_activation, [(3, 5, WIDTH), (WIDTH,)], {"activation": gelu_tanh}),
    "dropout": (dropped, [(3, 5, WIDTH), SEED], {"rate": 0.3}),
    "add_norm": (
        dropped_added_normalized,
        [(3, 5, WIDTH), (3, 5, WIDTH), (WIDTH,), (WIDTH,), SEED],
        {**ADD_NORM, "normalization": ops.layer_normalization},
    ),
    "unbiased_add_norm": (
        dropped_added_normalized,
        [(3, 5, WIDTH), (3, 5, WIDTH), (WIDTH,), (WIDTH,), SEED],
        {**ADD_NORM, "normalization": unbiased_layer_normalization},
    ),
}
TOLERANCES = {"float32": 2e-6, "bfloat16": 2**-7}  # relative to the largest value


def test_the_states_of_dropout_have_the_same_name_in_every_layer():
    """TensorFlow keeps memory for each new name, so loading a model again and again would grow."""
    first, second = Dropout(0.3), Dropout(0.3)
    assert {x.path for x in first.variables} == {x.path for x in second.variables}
    assert len(first.variables) == len(Dropout.from_config(first.get_config()).variables) == 1
    assert not Dropout(0.0).variables


def value_and_gradients(function, tensors, **constants):
    floats = [x for x in tensors if x.dtype.is_floating]
    with tf.GradientTape() as tape:
        tape.watch(floats)
        value = function(*tensors, **constants)
        weights = np.random.default_rng(1).normal(size=value.shape)
        total = tf.reduce_sum(tf.cast(value, "float32") * weights.astype("float32"))
    return [value, *tape.gradient(total, floats)]


def assert_close(actual, expected, dtype):
    for one, other in zip(actual, expected, strict=True):
        assert one.dtype == other.dtype
        one, other = (tf.cast(x, "float32").numpy() for x in (one, other))
        np.testing.assert_allclose(one, other, atol=TOLERANCES[dtype] * np.abs(other).max())


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_fused_function_has_the_values_and_gradients_of_the_plain_one(name, dtype):
    function, inputs, constants = FUNCTIONS[name]
    rng = np.random.default_rng(0)
    tensors = [
        tf.constant(x) if isinstance(x, np.ndarray) else tf.cast(rng.normal(size=x), dtype)
        for x in inputs
    ]
    actual = value_and_gradients(fused(function), tensors, **constants)
    assert_close(actual, value_and_gradients(function, tensors, **constants), dtype)


def test_large_tensors_of_known_shape_are_fused():
    assert is_fusible(tf.zeros((2**9, 2**9)))
    assert not is_fusible(tf.zeros((2**9, 2**8)))
    assert not is_fusible(keras.KerasTensor((2**9, 2**9)))

    @tf.function(input_signature=[tf.TensorSpec((None, 2**20))])
    def of_unknown_shape(x):
        return is_fusible(x)

    assert not of_unknown_shape(tf.zeros((1, 2**20)))


FUSED, PLAIN = 1, 10**9  # smallest tensors that are fused
FUSED_AND_PLAIN = pytest.mark.parametrize("min_size", [FUSED, PLAIN])


@FUSED_AND_PLAIN
def test_only_the_first_of_equal_logits_is_a_hit(min_size, monkeypatch):
    monkeypatch.setattr(fusion, "_MIN_SIZE", min_size)
    logits = tf.constant([[0.0, 3.0, 3.0], [0.0, 3.0, 3.0], [5.0, 3.0, 3.0]])
    assert hits(tf.constant([1, 2, 0]), logits).numpy().tolist() == [1, 0, 1]


def test_extreme_logits_have_finite_losses(fuse_small_tensors):
    logits = tf.constant([[1e4, 0.0], [1e4, 0.0], [-1e4, -1e4]])
    losses = cross_entropy(tf.constant([0, 1, 1]), logits)
    np.testing.assert_allclose(losses, [0, 1e4, np.log(2)], rtol=1e-6)


@FUSED_AND_PLAIN
def test_the_loss_and_its_gradient_equal_those_of_numpy(min_size, monkeypatch):
    monkeypatch.setattr(fusion, "_MIN_SIZE", min_size)
    rng = np.random.default_rng(0)
    logits, upstream, labels = rng.normal(2, 3, (4, 7)), rng.normal(size=4), np.array([0, 6, 3, 3])
    exponentials = np.exp(logits)
    totals = exponentials.sum(-1)
    softmax, one_hot, log_totals = exponentials / totals[:, None], np.eye(7)[labels], np.log(totals)
    variable = tf.Variable(logits, dtype=tf.float32)
    with tf.GradientTape() as tape:
        losses = cross_entropy(tf.constant(labels, tf.int32), variable)
        total = tf.reduce_sum(losses * tf.cast(upstream, tf.float32))
    expected = log_totals - logits[range(4), labels]
    np.testing.assert_allclose(losses, expected, rtol=1e-5)
    slope = (softmax - one_hot) * upstream[:, None]
    np.testing.assert_allclose(tape.gradient(total, variable), slope, atol=1e-5)


SHAPE = (256, 1024)


def masks(num_steps, rate=0.1):
    layer = Dropout(rate, seed=1)
    return [layer(tf.ones(SHAPE), training=True).numpy() for _ in range(num_steps)]


def test_the_rate_and_the_mean_are_kept():
    x = tf.ones(SHAPE)
    assert Dropout(0.1)(x, training=False) is x
    assert Dropout(0.0)(x, training=True) is x
    for rate in (0.1, 0.5):
        (x,) = masks(1, rate)
        np.testing.assert_allclose(np.unique(x), [0, 1 / (1 - rate)], rtol=1e-6)
        assert abs((x == 0).mean() - rate) < 4 * np.sqrt(rate * (1 - rate) / x.size)


def test_decisions_are_independent_of_those_of_neighbors_and_of_other_steps():
    first, second = (x > 0 for x in masks(2))
    standard_error = 1 / np.sqrt(first.size)
    for one, other in [
        (first, second),
        (first[:, :-1], first[:, 1:]),
        (first[:-1], first[1:]),
        (first[:, :-1], second[:, 1:]),
    ]:
        assert abs(np.corrcoef(one.ravel(), other.ravel())[0, 1]) < 4 * standard_error


def test_every_bit_is_set_half_of_the_time():
    bits = random_bits(SHAPE, np.array([5, 0])).numpy()
    shares = [((bits >> bit) & 1).mean() for bit in range(32)]
    np.testing.assert_allclose(shares, 0.5, atol=4 * 0.5 / np.sqrt(bits.size))
    assert len(np.unique(bits)) == bits.size  # the hash of an index is a bijection


def test_the_gradient_passes_where_the_value_does():
    layer, x = Dropout(0.3, seed=1), tf.ones(SHAPE)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = layer(x, training=True)
    np.testing.assert_array_equal(tape.gradient(y, x), y)


def test_small_tensors_use_keras():
    x = tf.ones((4, 8))
    own, of_keras = (layer(0.5, seed=1) for layer in (Dropout, keras.layers.Dropout))
    np.testing.assert_array_equal(own(x, training=True), of_keras(x, training=True))


def losses(monkeypatch, min_size, strategy=None, jit=False):
    """Train for 200 steps without dropout, and return the mean losses of 50 steps each."""
    monkeypatch.setattr(fusion, "_MIN_SIZE", min_size)
    keras.utils.set_random_seed(0)
    config = BERTConfig(50, 16, 32, 2, 1, 0.0, 12, activation="gelu", tie_embeddings=True)
    rng = np.random.default_rng(0)
    batch = {
        "tokens": rng.integers(0, 50, (4, 12)),
        "segments": rng.integers(0, 2, (4, 12)),
        "valid_lens": np.array([12, 7, 9, 10]),
        "pred_positions": np.tile([1, 4, 5], (4, 1)),
    }
    labels = {"mlm": rng.integers(0, 50, (4, 3)), "nsp": rng.integers(0, 2, 4)}
    with (strategy or tf.distribute.get_strategy()).scope():
        model = BERTModel.from_bert_config(config)
        model.compile(BERTAdamW(2e-4), jit_compile=jit)
    data = tf.data.Dataset.from_tensor_slices((batch, labels)).batch(4, drop_remainder=True)
    options = {"steps_per_epoch": 50, "epochs": 4, "shuffle": False, "verbose": 0}
    return model.fit(data.repeat(), **options).history["loss"]


@pytest.mark.long
def test_the_losses_equal_those_without_fusion(monkeypatch):
    plain = losses(monkeypatch, PLAIN)
    assert plain[-1] < plain[0] - 0.5
    for options in ({}, {"jit": True}, {"strategy": make_strategy("mirrored")}):
        found = losses(monkeypatch, FUSED, **options)
        np.testing.assert_allclose(found[0], plain[0], rtol=1e-5)
        np.testing.assert_allclose(found, plain, rtol=1e-4)  # rounding grows


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
