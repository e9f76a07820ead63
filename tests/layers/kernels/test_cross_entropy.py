"""Accuracy of labels, fused and plain."""

import numpy as np
import pytest
import tensorflow as tf

from keras_bert_d2l.layers.kernels import fusion
from keras_bert_d2l.layers.kernels.fusion import cross_entropy, hits

FUSED_AND_PLAIN = pytest.mark.parametrize("min_size", [1, 10**9])


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
