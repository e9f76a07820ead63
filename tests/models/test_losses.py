import math

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_bert_d2l import WeightedCrossEntropy

LOGITS = np.random.default_rng(0).normal(size=(2, 3, 5)).astype("float32")
LABELS = np.array([[0, 4, 2], [1, 1, 3]])
WEIGHTS = np.array([[1, 1, 0], [1, 0, 0]], "float32")


def cross_entropies(labels, logits):
    logits = logits.astype("float64")
    log_sum = np.log(np.exp(logits).sum(-1))
    return log_sum - np.take_along_axis(logits, labels[..., None], -1)[..., 0]


def test_the_loss_is_the_mean_over_real_predictions():
    expected = (cross_entropies(LABELS, LOGITS) * WEIGHTS).sum() / 3
    got = WeightedCrossEntropy()(LABELS, LOGITS, sample_weight=WEIGHTS)
    assert float(got) == pytest.approx(expected, rel=1e-6)


def test_without_weights_every_prediction_counts():
    got = WeightedCrossEntropy()(LABELS, LOGITS)
    assert float(got) == pytest.approx(cross_entropies(LABELS, LOGITS).mean(), rel=1e-6)


def test_a_batch_without_a_prediction_has_the_loss_zero():
    assert float(WeightedCrossEntropy()(LABELS, LOGITS, sample_weight=0 * WEIGHTS)) == 0


def test_the_logits_of_padded_predictions_get_no_gradient():
    logits = tf.Variable(LOGITS)
    with tf.GradientTape() as tape:
        loss = WeightedCrossEntropy()(LABELS, logits, sample_weight=WEIGHTS)
    gradient = tape.gradient(loss, logits).numpy()
    assert (np.abs(gradient).sum(-1) > 0).tolist() == (WEIGHTS > 0).tolist()


def test_half_precision_logits_are_summed_in_float32():
    # In bfloat16 the log of 1000 equal exponents would be off in the third digit.
    loss = WeightedCrossEntropy()(np.array([0]), tf.zeros((1, 1000), tf.bfloat16))
    assert loss.dtype == tf.float32
    assert float(loss) == pytest.approx(math.log(1000), rel=1e-6)


def test_weights_of_another_shape_are_refused():
    with pytest.raises(ValueError, match=r"sample_weight.shape=\(2,\), labels' shape=\(2, 3\)"):
        WeightedCrossEntropy()(LABELS, LOGITS, sample_weight=np.ones(2))


def test_loss_survives_its_config():
    loss = keras.saving.deserialize_keras_object(
        keras.saving.serialize_keras_object(WeightedCrossEntropy(name="mlm"))
    )
    assert isinstance(loss, WeightedCrossEntropy)
    assert loss.name == "mlm"
