"""Poolings over the tokens of a text, and the steps that follow them."""

import keras
import numpy as np
import pytest

from keras_bert_d2l.layers.pooling import POOLINGS, Pooling

BATCH, LENGTH, WIDTH = 3, 6, 4
# The tokens of each row: one is padded on the left, and one is not padded.
MASK = np.array([[1, 1, 1, 1, 0, 0], [0, 0, 1, 1, 1, 0], [1, 1, 1, 1, 1, 1]], bool)
EXPECTED = {
    "cls": lambda rows, places: rows[0],
    "last": lambda rows, places: rows[-1],
    "max": lambda rows, places: rows.max(axis=0),
    "mean": lambda rows, places: rows.mean(axis=0),
    "mean_sqrt_len": lambda rows, places: rows.sum(axis=0) / np.sqrt(len(rows)),
    "weighted_mean": lambda rows, places: places @ rows / places.sum(),
}


@pytest.fixture
def X():
    return np.random.default_rng(0).normal(size=(BATCH, LENGTH, WIDTH)).astype("float32")


def expected(kind, X, skipped=0, end=None):
    """Return the pooling of each row without its first `skipped` tokens, with NumPy."""
    found = []
    for row, mask in zip(X, MASK, strict=True):
        places = np.arange(1, mask.sum() + 1)[skipped:end]
        found.append(EXPECTED[kind](row[mask][skipped:end], places))
    return np.stack(found)


@pytest.mark.parametrize("kind", POOLINGS)
def test_padding_prompts_and_special_tokens_do_not_count(kind, X):
    pooling = Pooling(kind, normalize=False)
    np.testing.assert_allclose(pooling(X, MASK), expected(kind, X), atol=1e-6)
    lens = np.full(BATCH, 2, "int32")
    found = pooling(X, MASK, prompt_lens=lens)
    np.testing.assert_allclose(found, expected(kind, X, skipped=2), atol=1e-6)
    without = Pooling(kind, normalize=False, include_special=False)
    np.testing.assert_allclose(without(X, MASK), expected(kind, X, 1, -1), atol=1e-6)


@pytest.mark.parametrize("kind", ["mean", "mean_sqrt_len", "weighted_mean", "last"])
def test_the_vector_of_no_tokens_is_zero(kind, X):
    found = Pooling(kind, include_special=False)(X[:, :2])
    np.testing.assert_array_equal(found, np.zeros((BATCH, WIDTH)))


def test_several_poolings_and_steps_follow_each_other(X):
    dense = {"units": 5, "activation": "tanh", "use_bias": False}
    pooling = Pooling(["max", "cls"], steps=["normalize", dense])
    found = pooling(X, MASK)
    Y = np.concatenate([expected("max", X), expected("cls", X)], axis=1)
    [kernel] = map(np.asarray, pooling.weights)
    Y = np.tanh(Y / np.linalg.norm(Y, axis=1, keepdims=True) @ kernel)
    Y /= np.linalg.norm(Y, axis=1, keepdims=True)
    np.testing.assert_allclose(found, Y, atol=1e-5)
    assert pooling.width(WIDTH) == 5
    assert Pooling(["max", "cls"]).width(WIDTH) == 8


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"pooling": "median"}, "`pooling` must be one of"),
        ({"pooling": ()}, "`pooling` must be one of"),
        ({"pooling": ["cls", 3]}, "`pooling` must be one of"),
        ({"steps": "normalize"}, "`steps` must be a list"),
        ({"steps": ["dropout"]}, "`steps` must be one of"),
        ({"steps": [{"units": 4, "bias": True}]}, "`steps` must be dense steps with the keys"),
        ({"steps": [{"units": 0}]}, "`units` must be .* least 1"),
        ({"steps": [{"units": 4, "activation": "softmax"}]}, "`activation` must be one of"),
    ],
)
def test_wrong_arguments_are_errors(arguments, message):
    with pytest.raises(ValueError, match=message):
        Pooling(**arguments)


def test_gelu_is_the_exact_one(X):
    pooling = Pooling("cls", normalize=False, steps=[{"units": WIDTH, "activation": "gelu"}])
    found = pooling(X)
    kernel, bias = map(np.asarray, pooling.weights)
    expected = keras.activations.gelu(X[:, 0] @ kernel + bias, approximate=False)
    np.testing.assert_allclose(found, expected, atol=1e-6)
