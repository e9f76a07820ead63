"""Training with fused functions, compared with training without them."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_bert_d2l import BERTAdamW, BERTConfig, BERTModel
from keras_bert_d2l.layers.kernels import fusion
from keras_bert_d2l.training.devices.distribution import make_strategy

FUSED, PLAIN = 1, 10**9  # smallest tensors that are fused


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
