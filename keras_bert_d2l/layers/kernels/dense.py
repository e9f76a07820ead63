"""Dense and embedding layers that are faster and more precise on TensorFlow's CPU, or int8."""

from collections.abc import Callable

import keras
from keras import ops

from keras_bert_d2l.layers.kernels.fusion import fused, is_fusible
from keras_bert_d2l.types import Tensor


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
