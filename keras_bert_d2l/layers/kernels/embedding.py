"""Embedding whose reverse, the MLM logits, needs no transposed table and can be int8."""

import keras
from keras import ops

from keras_bert_d2l.layers.kernels.dense import Quantizable
from keras_bert_d2l.types import Tensor


@keras.saving.register_keras_serializable("keras_bert_d2l")
class ReversibleEmbedding(Quantizable, keras.layers.ReversibleEmbedding):
    """`keras.layers.ReversibleEmbedding` with a faster reverse of vectors `(N, D)`."""

    def call(self, inputs: Tensor, reverse: bool = False) -> Tensor:
        if not reverse or keras.backend.backend() != "tensorflow":
            return super().call(inputs, reverse=reverse)
        import tensorflow as tf

        # Keras transposes the table, and its gradient, in memory.
        table = ops.cast(self.embeddings, self.reverse_dtype)
        return tf.matmul(ops.cast(inputs, self.reverse_dtype), table, transpose_b=True)
