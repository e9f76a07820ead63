import math

import keras
import numpy as np
import pytest

from keras_bert_d2l import BERTConfig, BERTModel, DoctorCallback, SequenceClassifier

CONFIG = BERTConfig(20, 8, 12, num_heads=2, num_blks=1, dropout=0.0, max_len=8)
CHANCE = math.log(2)


@pytest.fixture
def model():
    model = SequenceClassifier(BERTModel.from_bert_config(CONFIG), ["low", "high"])
    model.compile(keras.optimizers.SGD(), run_eagerly=True)
    return model


def report_after(losses, model, epoch=150):
    """Return the names of the faults that the callback reports for the losses of all steps."""
    callback = DoctorCallback()
    callback.set_model(model)
    callback.on_train_begin()
    for start in range(0, len(losses), epoch):
        callback.on_epoch_begin(start // epoch)
        of_epoch = losses[start : start + epoch]
        means = np.cumsum(of_epoch) / np.arange(1, len(of_epoch) + 1)  # as Keras reports them
        for step, mean in enumerate(means):
            callback.on_train_batch_end(step, {"loss": float(mean)})
    return [fault.name for fault in callback.faults]


def test_losses_that_fall_are_no_fault(model):
    assert report_after(np.linspace(CHANCE, 0.3, 600), model) == []


def test_a_first_loss_far_above_chance_is_reported_at_once(model):
    assert report_after([5 * CHANCE], model) == ["initial loss"]


def test_a_loss_that_is_not_finite_is_reported_once(model, capsys):
    assert report_after([CHANCE, math.nan, math.nan], model) == ["rising loss"]
    printed = capsys.readouterr().out
    assert printed.count("Doctor: rising loss: last training loss / lowest training loss nan") == 1
    assert "Lower the learning rate" in printed


def test_losses_that_rise_or_stay_are_reported(model):
    assert report_after([*np.linspace(CHANCE, 0.4, 200), *[0.6] * 100], model) == ["rising loss"]
    assert report_after([CHANCE] * 600, model) == ["flat loss"]


@pytest.mark.long
def test_a_fit_that_diverges_is_reported(model):
    tokens = np.random.default_rng(0).integers(0, 20, (8, 6))
    features = {"tokens": tokens, "segments": 0 * tokens, "valid_lens": np.full(8, 6)}
    model.compile(keras.optimizers.SGD(1e20), run_eagerly=True)
    callback = DoctorCallback()
    model.fit(features, tokens[:, 1] % 2, 2, epochs=3, verbose=0, callbacks=[callback])
    assert [fault.name for fault in callback.faults] == ["rising loss"]
