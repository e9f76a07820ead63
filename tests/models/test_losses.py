import math

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_bert_d2l import WeightedCrossEntropy
from keras_bert_d2l.layers.kernels import fusion
from keras_bert_d2l.models.losses import WeightedBinaryCrossEntropy, cross_entropy

LOGITS = np.random.default_rng(0).normal(size=(2, 3, 5)).astype("float32")
LABELS = np.array([[0, 4, 2], [1, 1, 3]])
WEIGHTS = np.array([[1, 1, 0], [1, 0, 0]], "float32")


def cross_entropies(labels, logits):
    logits = logits.astype("float64")
    log_sum = np.log(np.exp(logits).sum(-1))
    return log_sum - np.take_along_axis(logits, labels[..., None], -1)[..., 0]


def test_the_loss_is_the_mean_over_real_predictions():
    losses, loss = cross_entropies(LABELS, LOGITS), WeightedCrossEntropy()
    got = loss(LABELS, LOGITS, sample_weight=WEIGHTS)
    assert float(got) == pytest.approx((losses * WEIGHTS).sum() / 3, rel=1e-6)
    assert float(loss(LABELS, LOGITS)) == pytest.approx(losses.mean(), rel=1e-6)
    assert float(loss(LABELS, LOGITS, sample_weight=0 * WEIGHTS)) == 0
    for weights in (np.array([1, 3]), np.array([[1], [3]])):  # of the rows
        got = loss(LABELS, LOGITS, sample_weight=weights)
        assert float(got) == pytest.approx((losses * [[1], [3]]).sum() / 12, rel=1e-6)


def test_the_fused_loss_of_a_label_without_a_logit_is_nan(monkeypatch):
    monkeypatch.setattr(fusion, "_MIN_SIZE", 1)
    losses = cross_entropy(np.array([4, 5]), tf.constant(LOGITS[0, :2]))
    assert np.isnan(losses).tolist() == [False, True]


def test_the_number_of_classes_may_be_unknown_in_a_graph():
    specs = tf.TensorSpec([None], tf.int64), tf.TensorSpec([None, None], tf.float32)
    losses = tf.function(cross_entropy, input_signature=specs, autograph=False)
    expected = cross_entropies(LABELS[0], LOGITS[0])
    np.testing.assert_allclose(losses(LABELS[0], LOGITS[0]), expected, rtol=1e-5)


def test_the_logits_of_padded_predictions_get_no_gradient():
    logits = tf.Variable(LOGITS)
    with tf.GradientTape() as tape:
        loss = WeightedCrossEntropy()(LABELS, logits, sample_weight=WEIGHTS)
    gradient = tape.gradient(loss, logits).numpy()
    assert (np.abs(gradient).sum(-1) > 0).tolist() == (WEIGHTS > 0).tolist()


def test_the_loss_of_half_precision_logits_is_computed_in_float32():
    # In bfloat16, the log-softmax of 1000 equal logits would be wrong in the third digit.
    loss = WeightedCrossEntropy()(np.array([0]), tf.zeros((1, 1000), tf.bfloat16))
    assert loss.dtype == tf.float32
    assert float(loss) == pytest.approx(math.log(1000), rel=1e-6)


@pytest.mark.parametrize("labels", [LABELS.T, LABELS.ravel(), np.eye(5)[LABELS]])
def test_labels_with_the_wrong_shape_raise(labels):
    with pytest.raises(ValueError, match=r"must have the shape \(2, 3\).*of shape"):
        WeightedCrossEntropy()(labels, LOGITS)
    with pytest.raises(ValueError, match=r"must have the shape \(2, 3, 5\).*of shape \(2, 3\)"):
        WeightedBinaryCrossEntropy()(LABELS, LOGITS)


def test_weights_with_the_wrong_shape_raise():
    with pytest.raises(ValueError, match=r"sample_weight.shape=\(3,\), labels' shape=\(2, 3\)"):
        WeightedCrossEntropy()(LABELS, LOGITS, sample_weight=np.ones(3))


@pytest.mark.parametrize("weights", [None, np.array([2.0, 1.0]), np.array([[2.0], [1.0]])])
@pytest.mark.parametrize("class_weights", [None, [1, 2, 1, 1, 3]])
def test_labels_may_have_or_omit_a_last_axis_of_size_1(weights, class_weights):
    loss = WeightedCrossEntropy(class_weights=class_weights)
    logits, labels = LOGITS[:, 0], LABELS[:, 1]
    flat = None if weights is None else weights.ravel()
    shares = (1 if flat is None else flat) * np.take(class_weights or np.ones(5), labels)
    expected = np.average(cross_entropies(labels, logits), weights=shares)
    assert float(loss(labels, logits, flat)) == pytest.approx(expected, rel=1e-6)
    assert float(loss(labels[:, None], logits, weights)) == pytest.approx(expected, rel=1e-6)
    logits, labels = LOGITS[:, 0, :1], np.array([1, 0])
    each = np.log1p(np.exp(logits[:, 0].astype("float64"))) - labels * logits[:, 0]
    for y_true in (labels, labels[:, None]):
        got = WeightedBinaryCrossEntropy()(y_true, logits, weights)
        assert float(got) == pytest.approx(np.average(each, weights=flat), rel=1e-6)


def test_loss_is_restored_from_its_config():
    config = keras.saving.serialize_keras_object(WeightedCrossEntropy(name="mlm"))
    loss = keras.saving.deserialize_keras_object(config)
    assert (type(loss), loss.name) == (WeightedCrossEntropy, "mlm")


@pytest.mark.parametrize(
    ("class_weights", "message"),
    [
        ({0: 5.0, 1: 1.0}, "a list of one weight per class"),
        ([1.0, -1.0], "finite number of at least 0"),
        ([1.0], "one weight for each of the 2 classes"),
    ],
)
def test_invalid_class_weights_are_rejected(class_weights, message):
    with pytest.raises(ValueError, match=message):
        WeightedCrossEntropy(class_weights=class_weights)(np.array([0, 1]), np.zeros((2, 2)))
