"""Accuracy of labels, fused and plain."""

import numpy as np
import pytest
import tensorflow as tf

from keras_bert_d2l.layers.kernels import fusion
from keras_bert_d2l.layers.kernels.cross_entropy import cross_entropy, hits


@pytest.mark.parametrize("min_size", [1, 10**9])
def test_only_the_first_of_equal_logits_is_a_hit(min_size, monkeypatch):
    monkeypatch.setattr(fusion, "_MIN_SIZE", min_size)
    logits = tf.constant([[0.0, 3.0, 3.0], [0.0, 3.0, 3.0], [5.0, 3.0, 3.0]])
    assert hits(tf.constant([1, 2, 0]), logits).numpy().tolist() == [1, 0, 1]


def test_extreme_logits_have_finite_losses(fuse_small_tensors):
    logits = tf.constant([[1e4, 0.0], [1e4, 0.0], [-1e4, -1e4]])
    losses = cross_entropy(tf.constant([0, 1, 1]), logits)
    np.testing.assert_allclose(losses, [0, 1e4, np.log(2)], rtol=1e-6)
