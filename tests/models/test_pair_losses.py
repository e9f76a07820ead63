import numpy as np
import pytest
import tensorflow as tf

from keras_bert_d2l.checks import value_errors
from keras_bert_d2l.models.pair_losses import CoSENTLoss, CosineLoss, TripletLoss


def make_vectors(size=8, width=5):
    return np.random.default_rng(0).normal(size=(size, width)).astype("float32")


def test_the_cosine_loss_compares_successive_vectors():
    vectors, cosines = make_vectors(6), np.repeat([0.9, -0.2, 0.0], 2)
    weights = np.repeat([1.0, 0.0, 3.0], 2)
    units = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    squares = (np.sum(units[::2] * units[1::2], axis=1) - cosines[::2]) ** 2
    assert float(CosineLoss()(cosines, vectors)) == pytest.approx(squares.mean(), rel=1e-5)
    expected = (squares[0] + 3 * squares[2]) / 4
    assert float(CosineLoss()(cosines, vectors, weights)) == pytest.approx(expected, rel=1e-5)
    assert CosineLoss.from_config(CosineLoss(name="c").get_config()).name == "c"


@pytest.mark.parametrize(
    ("loss", "size", "message"),
    [
        (CosineLoss(), 3, "even for CosineLoss.* an odd number"),
        (CoSENTLoss(), 5, "even for CoSENTLoss.* an odd number"),
        (TripletLoss(), 4, "a multiple of 3 for TripletLoss.* the 3 texts .* another number"),
    ],
)
def test_losses_of_examples_reject_an_incomplete_one(loss, size, message):
    vectors, cosines = make_vectors(size), np.zeros(size, "float32")
    with pytest.raises(ValueError, match=f"`batch_size` must be {message}"):
        loss(cosines, vectors)
    specs = [tf.TensorSpec([None]), tf.TensorSpec([None, 5])]
    in_graph = tf.function(loss.__call__, specs, autograph=False)
    with (
        pytest.raises(ValueError, match=f"`batch_size` must be {message} of texts.$"),
        value_errors(),
    ):
        in_graph(tf.constant(cosines), tf.constant(vectors))


def test_the_order_of_scores_is_learned_by_all_pairs_with_different_scores():
    vectors, scores = make_vectors(), [0.3, 2.0, 0.3, 1.0]
    weights = [1.0, 2.0, 0.0, 0.5]
    units = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    cosines = np.sum(units[::2] * units[1::2], axis=1).astype("float64")

    def expected(weights):
        total = 1.0
        for k, m in np.ndindex(4, 4):
            if scores[k] < scores[m]:
                total += weights[k] * weights[m] * np.exp((cosines[k] - cosines[m]) / 0.1)
        return np.log(total)

    labels, loss = np.repeat(scores, 2), CoSENTLoss(0.1)
    assert float(loss(labels, vectors)) == pytest.approx(expected([1.0] * 4), rel=1e-5)
    found = loss(labels, vectors, np.repeat(weights, 2))
    assert float(found) == pytest.approx(expected(weights), rel=1e-5)
    assert float(loss(np.ones(8), vectors)) == 0  # no score is higher than another
    assert CoSENTLoss.from_config(loss.get_config()).temperature == 0.1


def test_triplets_keep_a_margin():
    vectors, loss = make_vectors(12), TripletLoss(margin=0.5)
    triplets = vectors.reshape(4, 3, 5)
    distances = np.linalg.norm(triplets[:, :1] - triplets[:, 1:], axis=-1)
    losses = np.maximum(distances[:, 0] - distances[:, 1] + 0.5, 0)
    assert float(loss(np.zeros(12), vectors)) == pytest.approx(np.mean(losses), rel=1e-5)
    weights = [2.0, 0.0, 1.0, 1.0]
    found = loss(np.zeros(12), vectors, np.repeat(weights, 3))
    assert float(found) == pytest.approx(np.average(losses, weights=weights), rel=1e-5)
    assert TripletLoss.from_config(loss.get_config()).get_config() == loss.get_config()


def test_equal_texts_of_a_triplet_have_a_gradient():
    vectors = tf.constant(make_vectors(3)[[0, 0, 1]])
    with tf.GradientTape() as tape:
        tape.watch(vectors)
        loss = TripletLoss()(tf.zeros(3), vectors)
    gradient = tape.gradient(loss, vectors).numpy()
    assert np.isfinite(gradient).all()
    np.testing.assert_allclose(np.linalg.norm(gradient[2]), 1, rtol=1e-6)


def test_unknown_options_of_losses_are_rejected():
    with pytest.raises(ValueError, match="margin=-1"):
        TripletLoss(margin=-1)
    with pytest.raises(ValueError, match="temperature=0"):
        CoSENTLoss(0)
