"""Cross entropy and accuracy over large vocabularies, fused on TensorFlow's CPU.

N labels, V classes.
"""

from collections.abc import Callable

from keras import ops

from keras_bert_d2l.layers.kernels.fusion import compiled, is_fusible
from keras_bert_d2l.types import Tensor


def cross_entropy(labels: Tensor, logits: Tensor) -> Tensor:
    """Return the cross entropy of each label, computed in float32.

    Args:
        labels: int32 `(...)`, from 0.
        logits: Any float dtype, `(..., V)`.

    Returns: float32 `(...)`.
    """
    if is_fusible(logits):
        return _fused(labels, logits)[0]
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
        return _fused(labels, logits)[1]
    return ops.cast(ops.cast(ops.argmax(logits, axis=-1), "int32") == labels, "float32")


def _fused(labels: Tensor, logits: Tensor) -> tuple[Tensor, Tensor]:
    """Run `forward` in one pass; TensorFlow merges the calls for the loss and for the metrics."""
    import tensorflow as tf

    labels_of_rows = ops.reshape(labels, (-1,))

    @tf.custom_gradient
    def differentiable(logits: Tensor) -> tuple[tuple[Tensor, ...], Callable[..., Tensor]]:
        losses, hits, normalizers = compiled(forward)(labels_of_rows, logits)

        def gradient(upstream: Tensor, _: Tensor) -> Tensor:
            return compiled(backward)(labels_of_rows, logits, normalizers, upstream)

        return (losses, hits), gradient

    rows = ops.reshape(logits, (-1, logits.shape[-1]))  # (N, V)
    losses, hits = differentiable(rows)
    return ops.reshape(losses, labels.shape), ops.reshape(hits, labels.shape)


def forward(labels: Tensor, logits: Tensor) -> tuple[Tensor, Tensor, Tensor]:
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


def backward(labels: Tensor, logits: Tensor, normalizers: Tensor, upstream: Tensor) -> Tensor:
    """Return the gradient with respect to the logits: `(softmax - one_hot) * upstream`."""
    probabilities = ops.exp(ops.cast(logits, "float32") - normalizers[:, None])
    is_label = ops.arange(logits.shape[-1], dtype="int32") == labels[:, None]  # (N, V)
    gradient = (probabilities - ops.cast(is_label, "float32")) * upstream[:, None]
    return ops.cast(gradient, logits.dtype)
