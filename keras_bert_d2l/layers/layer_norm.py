"""Layer normalization, in two variants selected by the configuration's `layer_norm`."""

from collections.abc import Callable
from typing import Unpack

import keras
from keras import ops

from keras_bert_d2l.config import LayerNorm, check_field
from keras_bert_d2l.types import LayerOptions, Shape, Tensor


@keras.saving.register_keras_serializable("keras_bert_d2l")
class UnbiasedLayerNormalization(keras.layers.Layer):
    """Layer normalization with the unbiased standard deviation.

    The output is `gamma * (x - mean) / (std + epsilon) + beta`. Unlike in Keras's own layer, the
    variance is divided by D - 1, and epsilon is added outside the square root.

    Source: github.com/codertimo/BERT-pytorch, layer_norm.py.

    Args:
        epsilon: Small number added to the standard deviation.
        **kwargs: `name`, `dtype` and `trainable`, as for every Keras layer.

    Call arguments:
        x: `(..., D)`.

    Output shape: `(..., D)`.
    """

    def __init__(self, epsilon: float = 1e-6, **kwargs: Unpack[LayerOptions]) -> None:
        super().__init__(**kwargs)
        self.epsilon = epsilon

    def build(self, x_shape: Shape) -> None:
        self.gamma = self.add_weight(name="gamma", shape=x_shape[-1:], initializer="ones")
        self.beta = self.add_weight(name="beta", shape=x_shape[-1:], initializer="zeros")

    def call(self, x: Tensor) -> Tensor:
        return unbiased_layer_normalization(x, self.gamma, self.beta, epsilon=self.epsilon)


def unbiased_layer_normalization(
    x: Tensor, gamma: Tensor, beta: Tensor, *, epsilon: float
) -> Tensor:
    """Compute `UnbiasedLayerNormalization`, with the arguments of `ops.layer_normalization`."""
    wide = ops.cast(x, "float32")  # as in Keras's own function: squares overflow in float16
    centered = wide - ops.mean(wide, axis=-1, keepdims=True)
    variance = ops.sum(ops.square(centered), axis=-1, keepdims=True) / (x.shape[-1] - 1)
    # The square root has no finite gradient at 0, which occurs if all elements of x are equal.
    std = ops.sqrt(ops.maximum(variance, keras.backend.epsilon() ** 2))
    normal = ops.cast(centered / (std + epsilon), x.dtype)
    return normal * ops.cast(gamma, x.dtype) + ops.cast(beta, x.dtype)


def normalization_of(layer: keras.layers.Layer) -> Callable[..., Tensor]:
    """Return the function of x, gamma, beta and `epsilon` that the layer computes."""
    if isinstance(layer, UnbiasedLayerNormalization):
        return unbiased_layer_normalization
    return ops.layer_normalization


def layer_normalization(
    kind: LayerNorm, epsilon: float, **options: Unpack[LayerOptions]
) -> keras.layers.Layer:
    """Create the layer for the configuration's `layer_norm` and `layer_norm_epsilon`."""
    check_field("layer_norm_epsilon", epsilon)
    if check_field("layer_norm", kind) == "unbiased":
        return UnbiasedLayerNormalization(epsilon, **options)
    return keras.layers.LayerNormalization(epsilon=epsilon, **options)
