"""One device and two replicas take the same training steps, even with different mask counts."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_bert_d2l import BERTAdamW, BERTMuon, TokenClassifier
from keras_bert_d2l.training.devices import make_strategy
from tests.nightly import nightly_except

STEPS, BATCH = 2, 8
OPTIMIZERS = [BERTAdamW, BERTMuon]


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", nightly_except({BERTAdamW}, OPTIMIZERS))
@pytest.mark.parametrize("crf", [False, pytest.param(True, marks=pytest.mark.long)])
def test_training_on_two_replicas_matches_one_device(optimizer, crf, make_model, make_batch):
    batches = make_batch(STEPS * BATCH)
    counts = batches[2]["mlm"].sum(1)
    if crf:
        features, tokens = batches[0], batches[0]["tokens"]
        counts = features["valid_lens"]
        del features["pred_positions"]
        is_word = np.arange(tokens.shape[1]) < counts[:, None]
        batches = features, np.where(is_word, tokens % 3, -100)
    counts = counts.reshape(STEPS, 2, BATCH // 2).sum(-1)
    # With equal counts, all ways of averaging would give the same result.
    assert (counts[:, 0] != counts[:, 1]).all()
    data = tf.data.Dataset.from_tensor_slices(batches).batch(BATCH)
    weights, logs = [], []
    for strategy, options in (
        (tf.distribute.get_strategy(), {"run_eagerly": True}),
        (make_strategy("mirrored"), {"jit_compile": False}),
    ):
        keras.utils.set_random_seed(0)
        with strategy.scope():
            model = make_model()
            if crf:
                model = TokenClassifier(model, ["O", "B-X", "I-X"], crf=True)
            # Gradients are clipped in every step. Epsilon is large because the gradient of the key
            # biases is rounding noise, which Adam would otherwise scale up to full steps.
            model.compile(optimizer(1e-2, clip_norm=0.1, epsilon=1e-3), **options)
        history = model.fit(data, shuffle=False, verbose=0).history
        logs.append({name: values[0] for name, values in history.items()})
        weights.append([weight.numpy() for weight in model.weights])
    for one, two in zip(*weights, strict=True):
        np.testing.assert_allclose(two, one, atol=1e-6)
    assert logs[1] == pytest.approx(logs[0], abs=1e-5)
