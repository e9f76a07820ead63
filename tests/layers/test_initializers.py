import keras
import numpy as np
import pytest

from keras_bert_d2l.layers.heads import MaskLM
from keras_bert_d2l.layers.variants import (
    dense_initializer,
    embedding_initializer,
    initialize,
    output_initializer,
    position_initializer,
    without_initialization,
)


def drawers():
    return [
        *(
            make(kind)
            for make in (dense_initializer, embedding_initializer, position_initializer)
            for kind in ("book", "truncated_normal")
        ),
        output_initializer(),
    ]


def test_truncated_normal_weights_are_within_two_standard_deviations():
    weights = np.asarray(dense_initializer("truncated_normal")((100, 100)))
    assert 0.039 < np.abs(weights).max() <= 0.0401
    # Truncation at two standard deviations reduces the standard deviation to 0.0176.
    np.testing.assert_allclose(weights.std(), 0.0176, rtol=0.05)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_without_initialization_draws_no_weights(dtype, monkeypatch):
    def drawn(*args, **kwargs):
        raise AssertionError

    initializers = drawers()
    for name in ("truncated_normal", "uniform", "normal"):
        monkeypatch.setattr(keras.src.initializers.random_initializers.random, name, drawn)
    for initializer in initializers:
        with without_initialization():
            values = initializer((3, 4), dtype)
        assert tuple(values.shape) == (3, 4)
        assert keras.backend.standardize_dtype(values.dtype) == dtype
        with pytest.raises(AssertionError):
            initializer((3, 4), dtype)


def test_initialization_is_enabled_again_after_an_error():
    with pytest.raises(KeyError), without_initialization():
        raise KeyError
    assert np.asarray(output_initializer()((10, 10))).std() > 0.01


def test_initialize_draws_new_kernels_for_a_layer():
    head = MaskLM(5, 4)
    with without_initialization():
        head.build((None, None, 4))
    head.mlp.layers[1].gamma.assign([2.0] * 4)
    initialize(head)
    dense, norm, logits = head.mlp.layers
    assert 0.1 < np.abs(np.asarray(dense.kernel)).max() <= np.sqrt(6 / 8)
    assert 0.01 < np.abs(np.asarray(logits.kernel)).max() <= 0.0401
    np.testing.assert_array_equal(norm.gamma, [2.0] * 4)


def test_initializer_is_restored_from_its_config():
    for initializer in drawers():
        config = keras.saving.serialize_keras_object(initializer)
        again = keras.saving.deserialize_keras_object(config)
        assert keras.saving.serialize_keras_object(again) == config
        assert again((3, 4)).shape == (3, 4)
