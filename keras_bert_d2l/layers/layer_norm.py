"""Layer normalisation: each vector to mean 0 and deviation 1, then scaled and shifted.

B batch, T tokens, D hidden width.
"""

from typing import Any

import keras
from keras import ops

from keras_bert_d2l.config import check_choice


@keras.saving.register_keras_serializable("keras_bert_d2l")
class UnbiasedLayerNormalization(keras.layers.Layer):
    """Layer normalisation by the unbiased standard deviation.

    The output is `gamma * (x - mean) / (std + epsilon) + beta` with a `std` over D - 1: the
    epsilon is outside the root. Source: github.com/codertimo/BERT-pytorch, layer_norm.py.

    Args:
        epsilon: Added to the standard deviation.

    Call arguments:
        x: `(..., D)`.

    Output shape: `(..., D)`.
    """

    def __init__(self, epsilon: float = 1e-6, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.epsilon = epsilon

    def build(self, x_shape: Any) -> None:
        self.gamma = self.add_weight(name="gamma", shape=x_shape[-1:], initializer="ones")
        self.beta = self.add_weight(name="beta", shape=x_shape[-1:], initializer="zeros")

    def call(self, x: Any) -> Any:
        wide = ops.cast(x, "float32")  # as Keras's own layer: squares overflow in float16
        centred = wide - ops.mean(wide, axis=-1, keepdims=True)
        variance = ops.sum(ops.square(centred), axis=-1, keepdims=True) / (x.shape[-1] - 1)
        # The root has no finite gradient at 0, where all of x are equal.
        std = ops.sqrt(ops.maximum(variance, keras.backend.epsilon() ** 2))
        normal = ops.cast(centred / (std + self.epsilon), x.dtype)
        return normal * ops.cast(self.gamma, x.dtype) + ops.cast(self.beta, x.dtype)

    def compute_output_shape(self, x_shape: Any) -> Any:
        return x_shape

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "epsilon": self.epsilon}


def layer_normalization(kind: str, epsilon: float, **kwargs: Any) -> keras.layers.Layer:
    """Returns the layer of the configuration's `layer_norm`; `kwargs`: Keras's name and dtype."""
    if check_choice("layer_norm", kind) == "unbiased":
        return UnbiasedLayerNormalization(epsilon, **kwargs)
    return keras.layers.LayerNormalization(epsilon=epsilon, **kwargs)
