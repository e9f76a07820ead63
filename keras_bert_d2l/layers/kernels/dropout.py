"""Dropout whose decisions cost almost nothing on TensorFlow's CPU."""

import keras
import numpy as np
from keras import ops

from keras_bert_d2l.layers.kernels.fusion import fused, is_fusible
from keras_bert_d2l.types import Tensor


@keras.saving.register_keras_serializable("keras_bert_d2l")
class Dropout(keras.layers.Dropout):
    """`keras.layers.Dropout`; fused with the generation of its random numbers where that is faster.

    The fused form draws different random numbers. Its backward pass computes them again instead of
    keeping a mask in memory.
    """

    def call(self, inputs: Tensor, training: bool = False) -> Tensor:
        if training and self.rate > 0 and is_fusible(inputs):
            return fused(dropped)(inputs, self.seed_generator.next(), rate=self.rate)
        return super().call(inputs, training=training)


def dropped(x: Tensor, seed: Tensor, *, rate: float) -> Tensor:
    """Return `x` with a fraction of about `rate` set to 0 and the remainder scaled up.

    Args:
        x: Any shape with known sizes.
        seed: Two integers, as from `keras.random.SeedGenerator.next`.
        rate: In [0, 1).
    """
    is_kept = random_bits(x.shape, seed) >= np.uint32(rate * 2**32)
    return ops.where(is_kept, x * ops.cast(1 / (1 - rate), x.dtype), ops.cast(0, x.dtype))


def random_bits(shape: tuple[int, ...], seed: Tensor) -> Tensor:
    """Return 32 pseudorandom bits per element: a hash of the seed and the index of the element.

    The generators of TensorFlow and XLA are several times slower than the dropout itself. Source:
    github.com/skeeto/hash-prospector, the two-round function with a bias of 0.107.

    Args:
        shape: A known shape.
        seed: Two integers.

    Returns: uint32.
    """
    seed = ops.cast(seed, "uint32")
    index = ops.reshape(ops.cast(ops.arange(np.prod(shape), dtype="int32"), "uint32"), shape)
    key = _second_half(_first_half(seed * np.uint32(0x9E3779B9)))
    return _second_half(ops.bitwise_xor(_first_half(index + key[0]), key[1]))


def _first_half(x: Tensor) -> Tensor:
    return _xor_shifted(x, 16) * np.uint32(0x21F0AAAD)


def _second_half(x: Tensor) -> Tensor:
    return _xor_shifted(_xor_shifted(x, 15) * np.uint32(0x735A2D97), 15)


def _xor_shifted(x: Tensor, shift: int) -> Tensor:
    return ops.bitwise_xor(x, ops.right_shift(x, np.uint32(shift)))
