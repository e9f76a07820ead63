"""Dropout with hashed decisions."""

import keras
import numpy as np
import tensorflow as tf

from keras_bert_d2l.layers.kernels.fusion import Dropout, random_bits

SHAPE = (256, 1024)


def masks(num_steps, rate=0.1):
    layer = Dropout(rate, seed=1)
    return [layer(tf.ones(SHAPE), training=True).numpy() for _ in range(num_steps)]


def test_the_rate_and_the_mean_are_kept():
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


def test_without_training_and_at_rate_0_nothing_is_dropped():
    x = tf.ones(SHAPE)
    assert Dropout(0.1)(x, training=False) is x
    assert Dropout(0.0)(x, training=True) is x


def test_small_tensors_use_keras():
    x = tf.ones((4, 8))
    own, of_keras = (layer(0.5, seed=1) for layer in (Dropout, keras.layers.Dropout))
    np.testing.assert_array_equal(own(x, training=True), of_keras(x, training=True))
