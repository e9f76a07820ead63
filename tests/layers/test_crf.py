import itertools

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops

from keras_bert_d2l.layers.crf import CRF
from keras_bert_d2l.tasks.tag.entities import allowed_moves

L = 3
LABELS = ["O", "B", "I"]
TAGS = np.array([[0, 1, -100, 2, 0], [-100, 1, -100, -100, -100], [-100] * 5, [2, 2, 1, 0, 1]])


@pytest.fixture(scope="module")
def crf():
    layer, rng = CRF(L), np.random.default_rng(0)
    for weight in layer.weights:
        weight.assign(rng.normal(size=weight.shape))
    return layer


@pytest.fixture(scope="module")
def emissions():
    return np.random.default_rng(1).normal(0, 2, (*TAGS.shape, L)).astype("float32")


def moves_of(crf):
    """Return the scores of moves; the last row and column are the start and the end."""
    of_labels, start, end = map(ops.convert_to_numpy, (crf.transitions, crf.start, crf.end))
    return np.block([[of_labels, end[:, None]], [start, np.zeros(1)]])


def all_paths(crf, emissions, allowed=None):
    """Return all sequences of labels for a text, and their scores."""
    moves = moves_of(crf)
    paths = [(L, *path, L) for path in itertools.product(range(L), repeat=len(emissions))]
    if allowed is not None:
        paths = [path for path in paths if all(allowed[pair] for pair in itertools.pairwise(path))]
    scores = [
        sum(moves[pair] for pair in itertools.pairwise(path))
        + sum(logits[label] for logits, label in zip(emissions, path[1:-1], strict=True))
        for path in paths
    ]
    return [path[1:-1] for path in paths], np.array(scores)


def test_the_likelihood_of_tags_is_their_share_of_the_sum_over_all_sequences(crf, emissions):
    found = ops.convert_to_numpy(crf.log_likelihood(emissions, TAGS))
    for logits, tags, value in zip(emissions, TAGS, found, strict=True):
        is_word = tags >= 0
        paths, scores = all_paths(crf, logits[is_word])
        right = scores[paths.index(tuple(tags[is_word]))]
        assert value == pytest.approx(right - np.logaddexp.reduce(scores), abs=2e-6)


@pytest.mark.parametrize("allowed", [None, allowed_moves(LABELS)])
def test_the_best_sequence_and_the_marginals_are_those_of_all_sequences(crf, emissions, allowed):
    lens = [5, 1, 0, 3]
    mask = np.arange(5) < np.array(lens)[:, None]
    best = ops.convert_to_numpy(crf.viterbi(emissions, mask, allowed))
    marginals = ops.convert_to_numpy(crf.marginals(emissions, mask, allowed))
    for row, size in enumerate(lens):
        paths, scores = all_paths(crf, emissions[row, :size], allowed)
        assert tuple(best[row]) == paths[scores.argmax()] + (0,) * (5 - size)
        shares = np.exp(scores - np.logaddexp.reduce(scores))
        sums = np.einsum(
            "p,pwl->wl", shares, np.eye(L)[np.array(paths, int).reshape(len(paths), size)]
        )
        np.testing.assert_allclose(marginals[row, :size], sums, atol=1e-6)


def test_a_temperature_divides_all_scores(crf, emissions):
    colder = CRF(L)
    for weight, other in zip(colder.weights, crf.weights, strict=True):
        weight.assign(other / 2)
    expected = ops.convert_to_numpy(colder.marginals(emissions / 2))
    np.testing.assert_allclose(crf.marginals(emissions, temperature=2.0), expected, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("jit", [False, True])
def test_gradients_are_labels_minus_marginals_with_and_without_xla(crf, emissions, jit):
    @tf.function(jit_compile=jit)
    def gradients(emissions):
        with tf.GradientTape() as tape:
            tape.watch(emissions)
            value = ops.sum(crf.log_likelihood(emissions, TAGS[3:]))
        return tape.gradient(value, [emissions, crf.start.value, crf.end.value])

    labels = np.eye(L)[TAGS[3]] - ops.convert_to_numpy(crf.marginals(emissions[3:]))[0]
    found = [x.numpy() for x in gradients(tf.constant(emissions[3:]))]
    for gradient, expected in zip(found, (labels[None], labels[0], labels[-1]), strict=True):
        np.testing.assert_allclose(gradient, expected, atol=3e-6)


@pytest.mark.slow
def test_long_texts_keep_their_precision(crf):
    emissions = np.random.default_rng(2).normal(0, 5, (2000, L))
    messages = []
    for logits, moves in ((emissions, moves_of(crf)), (emissions[::-1], moves_of(crf).T)):
        found = [moves[L, :L] + logits[0]]
        for x in logits[1:]:
            found.append(np.logaddexp.reduce(found[-1][:, None] + moves[:L, :L]) + x)
        messages.append(np.array(found))
    sums = messages[0] + messages[1][::-1] - emissions
    expected = np.exp(sums - np.logaddexp.reduce(sums, axis=1, keepdims=True))
    found = tf.function(crf.marginals)(emissions[None].astype("float32"))[0]
    np.testing.assert_allclose(found, expected, atol=1e-5)


@pytest.mark.slow
def test_a_model_of_keras_saves_the_layer(tmp_path, crf, emissions):
    inputs = keras.Input((None, L))
    model = keras.Model(inputs, crf(inputs))
    model.save(tmp_path / "crf.keras")
    loaded = keras.saving.load_model(tmp_path / "crf.keras")
    np.testing.assert_array_equal(loaded(emissions), crf.viterbi(emissions))
