"""Activation checkpointing: compute a layer again in the backward pass, to keep less in memory."""

from typing import Any

import keras
from keras import ops

from keras_bert_d2l.types import Tensor

_SEED = "seed_generator_state"  # name that Keras gives to the state of a random generator


def rematerialized(layer: keras.layers.Layer, x: Tensor, **options: Any) -> Tensor:
    """Return `layer(x, **options)` and keep no activations of the layer for its gradient.

    The backward pass computes them again. It starts from the same seeds, so that dropout makes the
    same decisions. `keras.remat` alone would draw new ones.

    Source: Chen et al. 2016.

    Args:
        layer: A built layer with one output.
        x: Its input.
        **options: Further arguments of its `call`, which get no gradient.
    """
    weights, others = layer.trainable_variables, layer.non_trainable_variables
    state = list(map(ops.copy, others))  # reads the variables now, not when they are used
    traced: list[list[Tensor]] = []

    def pure(x: Tensor, *values: Tensor) -> Any:
        output, state_after = layer.stateless_call(list(values), state, x, **options)
        traced.append(state_after)
        # TensorFlow would need gradients of all outputs, and JAX returns nothing in another way.
        return (output, state_after) if keras.backend.backend() == "jax" else output

    output = keras.remat(pure)(x, *map(ops.copy, weights))
    output, after = output if keras.backend.backend() == "jax" else (output, traced[0])
    for variable, value in zip(others, after, strict=True):
        if variable.name == _SEED:
            variable.assign(value)
    return output
