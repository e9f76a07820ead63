"""Dense layers, dropout, normalization and cross entropy, compiled with XLA for TensorFlow's CPU.

TensorFlow executes one operation after the other, and each reads and writes complete tensors. On a
CPU, memory therefore limits chains of elementwise operations. XLA turns a chain into one loop, and
the chain with its gradient into another.
"""

import functools
import math
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_bert_d2l.layers.base import normalization_of
from keras_bert_d2l.types import Tensor

_MIN_SIZE = 2**18  # for smaller tensors, compiling takes longer than hundreds of steps


def is_fusible(x: Tensor) -> bool:
    """Return whether to process `x` with XLA: a large tensor of known shape on TensorFlow's CPU.

    XLA compiles once per shape, so batches of varying length are excluded.
    """
    if keras.backend.backend() != "tensorflow" or None in x.shape or math.prod(x.shape) < _MIN_SIZE:
        return False
    import tensorflow as tf

    devices = tf.config.list_logical_devices()
    return tf.is_tensor(x) and all(device.device_type == "CPU" for device in devices)


@functools.cache
def fused(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Return the function with XLA-compiled forms of the function and its gradient.

    The gradient is found by automatic differentiation and recomputes the function from its inputs,
    so no intermediate tensors are kept. Check `is_fusible` before calling the result.

    Args:
        function: Function written with `keras.ops`, of tensors (positional arguments) and constants
            (keyword arguments). Integer tensors have no gradient.
    """
    import tensorflow as tf

    def gradient_of(tensors: tuple[Tensor, ...], upstream: Tensor, **constants: object) -> list:
        floats = [x for x in tensors if x.dtype.is_floating]
        with tf.GradientTape() as tape:
            tape.watch(floats)
            output = function(*tensors, **constants)
        gradients = iter(tape.gradient(output, floats, upstream))
        return [next(gradients) if x.dtype.is_floating else None for x in tensors]

    forward, backward = compiled(function), compiled(gradient_of)

    @functools.wraps(function)
    def call(*tensors: Tensor, **constants: object) -> Tensor:
        @tf.custom_gradient
        def differentiable(*tensors: Tensor) -> tuple[Tensor, Callable[[Tensor], list]]:
            def gradient(upstream: Tensor) -> list:
                return backward(tensors, upstream, **constants)

            return forward(*tensors, **constants), gradient

        # This reads variables, as `autocast` says.
        values = (keras.ops.convert_to_tensor(x) for x in tensors)
        return differentiable(*map(tf.convert_to_tensor, values))

    return call


@functools.cache
def compiled(function: Callable) -> Callable:
    """Return the function as a TensorFlow function that XLA compiles."""
    import tensorflow as tf

    return tf.function(function, jit_compile=True, autograph=False)


class Quantizable(keras.layers.Layer):
    """Base of the subclasses of Keras's layers, which `keras.Model.quantize` would refuse."""

    def quantize(
        self,
        mode: str,
        type_check: bool = True,
        config: keras.quantizers.QuantizationConfig | None = None,
    ) -> None:
        super().quantize(mode, type_check=False, config=config)  # Keras refuses subclasses


@keras.saving.register_keras_serializable("keras_bert_d2l")
class Dense(Quantizable, keras.layers.Dense):
    """A `keras.layers.Dense` that fuses bias and activation during training if this is faster."""

    def call(self, inputs: Tensor, training: bool | None = None) -> Tensor:
        rows = ops.reshape(inputs, (-1, inputs.shape[-1]))
        outputs = self._outputs(self._product(rows, training), training)
        return ops.reshape(outputs, (*ops.shape(inputs)[:-1], self.units))

    def _product(self, rows: Tensor, training: bool | None) -> Tensor:
        """Return the product of rows `(M, in)` and the kernel, `(M, units)`."""
        if not (training and self.lora_enabled):
            return ops.matmul(rows, self.kernel)
        # A separate product, because the gradient of a merged kernel is as large as the kernel.
        update = ops.matmul(ops.matmul(rows, self.lora_kernel_a), self.lora_kernel_b)
        scale = ops.cast(self.lora_alpha / self.lora_rank, update.dtype)
        return ops.matmul(rows, self._kernel) + scale * update

    def _outputs(self, product: Tensor, training: bool | None) -> Tensor:
        """Add the bias and apply the activation to a product `(M, units)`.

        TensorFlow itself fuses the product of two matrices, the bias and relu; without a gradient
        also gelu.
        """
        if self.bias is None:
            return self.activation(product)
        is_elementary = self.activation in (keras.activations.linear, ops.relu)
        if training and not is_elementary and is_fusible(product):
            return fused(biased_activation)(product, self.bias, activation=self.activation)
        return self.activation(add_bias(product, self.bias))


@keras.saving.register_keras_serializable("keras_bert_d2l")
class ReversibleEmbedding(Quantizable, keras.layers.ReversibleEmbedding):
    """`keras.layers.ReversibleEmbedding` with a faster reverse of vectors `(N, D)`: MLM logits."""

    def call(self, inputs: Tensor, reverse: bool = False) -> Tensor:
        if not reverse or keras.backend.backend() != "tensorflow":
            return super().call(inputs, reverse=reverse)
        import tensorflow as tf

        # Keras transposes the table, and its gradient, in memory.
        table = ops.cast(self.embeddings, self.reverse_dtype)
        return tf.matmul(ops.cast(inputs, self.reverse_dtype), table, transpose_b=True)


def biased_activation(x: Tensor, bias: Tensor, *, activation: Callable[[Tensor], Tensor]) -> Tensor:
    """Return `activation(x + bias)`, computed in float32."""
    biased = ops.cast(x, "float32") + ops.cast(bias, "float32")
    return ops.cast(activation(biased), x.dtype)


def add_bias(x: Tensor, bias: Tensor) -> Tensor:
    """Add a bias `(D,)` to `x`, `(..., D)`, with a gradient that is summed in float32.

    On a CPU, TensorFlow's own gradient sums thousands of rows in bfloat16, which has 8 bits.
    """
    if keras.backend.backend() != "tensorflow" or ops.dtype(x) == "float32":
        return ops.add(x, bias)
    import tensorflow as tf

    @tf.custom_gradient
    def differentiable(x: Tensor, bias: Tensor) -> tuple[Tensor, Callable]:
        def gradient(upstream: Tensor) -> tuple[Tensor, Tensor]:
            rows = ops.reshape(upstream, (-1, upstream.shape[-1]))
            ones = ops.ones((1, ops.shape(rows)[0]), rows.dtype)
            return upstream, tf.matmul(ones, rows)[0]  # a product, which is summed in float32

        return ops.add(x, bias), gradient

    return differentiable(x, ops.cast(bias, x.dtype))


@keras.saving.register_keras_serializable("keras_bert_d2l")
class Dropout(keras.layers.Dropout):
    """`keras.layers.Dropout`; fused with the generation of its random numbers where that is faster.

    The fused form draws different random numbers. Its backward pass computes them again instead of
    keeping a mask in memory.

    The random state has the same name in every model. TensorFlow keeps about 36 kB for every name
    that a variable ever had, and Keras numbers the states of a process, so that memory would grow
    with each model that is loaded and deleted.
    """

    def __init__(self, rate: float, **options: Any) -> None:
        super().__init__(0.0, **options)  # which creates no state
        self.rate = rate
        if rate > 0:
            self.seed_generator = keras.random.SeedGenerator(self.seed, name="seed_generator")
        self.build(None)

    def build(self, input_shape: object) -> None:
        """Without this method, Keras would allow no state after its own `__init__`."""

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


def add_norm(
    X: Tensor, Y: Tensor, *, dropout: Dropout, ln: keras.layers.Layer, training: bool | None
) -> Tensor:
    """Return `ln(dropout(Y) + X)`; while training, fused where that is faster."""
    if not (training and is_fusible(Y)):
        return ln(dropout(Y, training=training) + X)
    seed = dropout.seed_generator.next() if dropout.rate > 0 else ops.zeros(2, "int64")
    beta = ops.zeros_like(ln.gamma) if ln.beta is None else ln.beta
    return fused(dropped_added_normalized)(
        *(X, Y, ln.gamma, beta, seed),
        rate=dropout.rate,
        normalization=normalization_of(ln),
        epsilon=ln.epsilon,
    )


def dropped_added_normalized(
    X: Tensor,
    Y: Tensor,
    gamma: Tensor,
    beta: Tensor,
    seed: Tensor,
    *,
    rate: float,
    normalization: Callable[..., Tensor],
    epsilon: float,
) -> Tensor:
    """Return the normalized sum of `X` and of `Y` after dropout, computed in float32."""
    kept = ops.cast(Y, "float32")
    kept = dropped(kept, seed, rate=rate) if rate > 0 else kept
    normal = normalization(kept + ops.cast(X, "float32"), gamma, beta, epsilon=epsilon)
    return ops.cast(normal, X.dtype)


def cross_entropy(labels: Tensor, logits: Tensor) -> Tensor:
    """Return the cross entropy of each label, computed in float32.

    Args:
        labels: int32 `(...)`, from 0.
        logits: Any float dtype, `(..., V)`.

    Returns: float32 `(...)`.
    """
    if is_fusible(logits):
        return _losses_and_hits(labels, logits)[0]
    logits = ops.cast(logits, "float32")
    return ops.sparse_categorical_crossentropy(labels, logits, from_logits=True)


def hits(labels: Tensor, logits: Tensor) -> Tensor:
    """Return 1 where the first of the largest logits is that of the label, else 0.

    Args:
        labels: As for `cross_entropy`.
        logits: As for `cross_entropy`.

    Returns: float32 `(...)`.
    """
    if is_fusible(logits):
        return _losses_and_hits(labels, logits)[1]
    return ops.cast(ops.cast(ops.argmax(logits, axis=-1), "int32") == labels, "float32")


def _losses_and_hits(labels: Tensor, logits: Tensor) -> tuple[Tensor, Tensor]:
    """Run `_forward` in one pass; TensorFlow merges the calls for the loss and for the metrics."""
    import tensorflow as tf

    labels_of_rows = ops.reshape(labels, (-1,))

    @tf.custom_gradient
    def differentiable(logits: Tensor) -> tuple[tuple[Tensor, ...], Callable[..., Tensor]]:
        losses, hits, normalizers = compiled(_forward)(labels_of_rows, logits)

        def gradient(upstream: Tensor, _: Tensor) -> Tensor:
            return compiled(_backward)(labels_of_rows, logits, normalizers, upstream)

        return (losses, hits), gradient

    rows = ops.reshape(logits, (-1, logits.shape[-1]))  # (N, V)
    losses, hits = differentiable(rows)
    return ops.reshape(losses, labels.shape), ops.reshape(hits, labels.shape)


def _forward(labels: Tensor, logits: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the losses, the hits and the logarithms of the softmax's denominators, all `(N,)`."""
    logits = ops.cast(logits, "float32")
    classes = ops.arange(logits.shape[-1], dtype="int32")  # (V,)
    largest = ops.max(logits, axis=-1, keepdims=True)  # (N, 1)
    log_total = ops.log(ops.sum(ops.exp(logits - largest), axis=-1))
    first = ops.min(ops.where(logits == largest, classes, logits.shape[-1]), axis=-1)
    largest = ops.squeeze(largest, axis=-1)
    of_labels = ops.squeeze(ops.take_along_axis(logits, labels[:, None], axis=-1), axis=-1)
    losses = log_total - (of_labels - largest)  # in this order, large logits lose no digits
    return losses, ops.cast(first == labels, "float32"), largest + log_total


def _backward(labels: Tensor, logits: Tensor, normalizers: Tensor, upstream: Tensor) -> Tensor:
    """Return the gradient with respect to the logits: `(softmax - one_hot) * upstream`."""
    probabilities = ops.exp(ops.cast(logits, "float32") - normalizers[:, None])
    is_label = ops.arange(logits.shape[-1], dtype="int32") == labels[:, None]  # (N, V)
    gradient = (probabilities - ops.cast(is_label, "float32")) * upstream[:, None]
    return ops.cast(gradient, logits.dtype)
