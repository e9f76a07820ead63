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
def test_gradients_are_the_numbers_of_labels_and_moves_minus_those_expected(crf, emissions, jit):
    @tf.function(jit_compile=jit)
    def gradients(emissions):
        with tf.GradientTape() as tape:
            tape.watch(emissions)
            value = ops.sum(crf.log_likelihood(emissions, TAGS))
        return tape.gradient(value, [emissions, *(x.value for x in crf.weights)])

    of_logits, *of_weights = (x.numpy() for x in gradients(tf.constant(emissions)))
    expected = np.zeros_like(of_logits)
    of_moves = np.zeros((L + 1, L + 1))
    for row, tags in enumerate(TAGS):
        is_word = tags >= 0
        paths, scores = all_paths(crf, emissions[row, is_word])
        shares = -np.exp(scores - np.logaddexp.reduce(scores))
        shares[paths.index(tuple(tags[is_word]))] += 1
        for path, share in zip(paths, shares, strict=True):
            expected[row, np.flatnonzero(is_word), path] += share
            for pair in itertools.pairwise((L, *path, L)):
                of_moves[pair] += share
    np.testing.assert_allclose(of_logits, expected, atol=3e-6)
    for found, right in zip(
        of_weights, (of_moves[:L, :L], of_moves[L, :L], of_moves[:L, L]), strict=True
    ):
        np.testing.assert_allclose(found, right, atol=3e-6)


@pytest.mark.slow
def test_long_texts_keep_their_precision(crf):
    emissions = np.random.default_rng(2).normal(0, 5, (1, 2000, L)).astype("float32")
    moves, forward, backward = moves_of(crf), [], []
    for found, logits, scores in (
        (forward, emissions[0], moves),
        (backward, emissions[0, ::-1], moves.T),
    ):
        state = scores[L, :L]
        for x in logits.astype("float64"):
            found.append(state + x)
            state = np.logaddexp.reduce(found[-1][:, None] + scores[:L, :L])
    sums = np.array(forward) + np.array(backward)[::-1] - emissions[0]
    expected = np.exp(sums - np.logaddexp.reduce(sums, axis=1, keepdims=True))
    np.testing.assert_allclose(crf.marginals(emissions)[0], expected, atol=1e-5)


@pytest.mark.slow
def test_a_model_of_keras_saves_the_layer(tmp_path, crf, emissions):
    inputs = keras.Input((None, L))
    model = keras.Model(inputs, crf(inputs))
    model.save(tmp_path / "crf.keras")
    loaded = keras.saving.load_model(tmp_path / "crf.keras")
    np.testing.assert_array_equal(loaded(emissions), crf.viterbi(emissions))
