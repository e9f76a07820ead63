"""Training steps with TensorFlow that split a batch into micro-batches, to save memory.

Their gradients add up to exactly the gradient of the whole batch. Keras's
`gradient_accumulation_steps` averages them equally instead, which is different if one micro-batch
has more predictions than another.

B batch, M micro-batch.
"""

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any, Self

import keras
from keras import ops, tree

from keras_bert_d2l.checks import check_that
from keras_bert_d2l.models.losses import GlobalMeanLoss, Loss, sum_over_replicas
from keras_bert_d2l.types import Tensor

Data = tuple[Tensor, Tensor, Tensor]
"""Features, labels and weights of a batch."""


class SplitLoss:
    """The sum of the losses of all heads, also for a part of a batch.

    Args:
        losses: The loss of each head; the key is "" if the model has only one output.
        loss_weights: The weight of each head. `None`: ones.
    """

    def __init__(
        self, losses: Mapping[str, GlobalMeanLoss], loss_weights: Mapping[str, float] | None
    ) -> None:
        self._losses = losses
        self._loss_weights = loss_weights or {}
        self._totals: dict[str, Tensor] = {}

    @classmethod
    def of(cls, loss: Loss | None, loss_weights: Mapping[str, float] | None) -> Self | None:
        """Return a `SplitLoss` for the loss given to `compile`, or `None` if it cannot be split."""
        given = loss if isinstance(loss, Mapping) else {"": loss}
        losses = {head: one for head, one in given.items() if isinstance(one, GlobalMeanLoss)}
        return cls(losses, loss_weights) if len(losses) == len(given) else None

    def __call__(self, y: Tensor, y_pred: Tensor, sample_weight: Tensor) -> Tensor:
        """Return the loss of a batch or, within `of_parts`, the share of a micro-batch."""
        return sum(
            self._loss_weights.get(head, 1.0)
            * loss(
                _of(head, y), _of(head, y_pred), _of(head, sample_weight), self._totals.get(head)
            )
            for head, loss in self._losses.items()
        )

    @contextlib.contextmanager
    def of_parts(self, y: Tensor, sample_weight: Tensor) -> Iterator[None]:
        """Divide the losses by the weights of the whole batch while its parts are processed."""
        self._totals = {
            head: sum_over_replicas(ops.sum(loss.weights(_of(head, y), _of(head, sample_weight))))
            for head, loss in self._losses.items()
        }
        try:
            yield
        finally:
            self._totals = {}


def check_parts(is_mean: bool, micro_batches: int, optimizer: Any, loss: Any, metrics: Any) -> None:
    """Raise `ValueError` unless a step can be split, and the optimizer does not split it otherwise.

    Args:
        is_mean: Whether the loss is a mean over the batch: whether there is a `SplitLoss`.
        micro_batches: As for `compile`, as are the others.
        optimizer: It may accumulate gradients, all with the same weight.
        loss: For the message.
        metrics: Metrics without weights.
    """
    inner = getattr(optimizer, "inner_optimizer", optimizer)
    steps = getattr(inner, "gradient_accumulation_steps", None)
    advice = "Parts have different weights: use `micro_batches` of `compile` with larger batches."
    check_that(not (is_mean and steps), "gradient_accumulation_steps", "None", steps, advice)
    expected = "1 unless the backend is TensorFlow, the loss is a mean over the batch, such as "
    expected += "WeightedCrossEntropy, and `weighted_metrics` replace `metrics`"
    advice = f"It comes with loss={loss!r:.80}, metrics={metrics!r:.80}."
    can_split = is_mean and not metrics and keras.backend.backend() == "tensorflow"
    is_right = micro_batches == 1 or can_split
    check_that(is_right, "micro_batches", expected, micro_batches, advice)


def _of(head: str, values: Any) -> Tensor:
    """Return the entry of a head. Weights may be one array for all heads."""
    return values[head] if isinstance(values, Mapping) else values


def _part(data: Data, start: Tensor, number: int) -> Data:
    """Return the micro-batch that begins at a row.

    All micro-batches have M rows. The last one is filled with copies of the last row, which have
    the weight 0, so that shapes are static under XLA.
    """
    x, y, weights = data
    rows, size = _sizes(data, number)
    indices = start + ops.arange(size)
    is_row = ops.cast(indices < rows, "float32")  # (M,)
    indices = ops.minimum(indices, rows - 1)

    def cut(values: Tensor) -> Tensor:
        return ops.take(values, indices, axis=0)

    def weigh(values: Tensor) -> Tensor:
        shape = (-1, *[1] * (len(values.shape) - 1))
        return ops.cast(cut(values), "float32") * ops.reshape(is_row, shape)

    weights = is_row if weights is None else tree.map_structure(weigh, weights)
    return tree.map_structure(cut, x), tree.map_structure(cut, y), weights


def _sizes(data: Data, number: int) -> tuple[Tensor, Tensor]:
    """Return the numbers of rows in the batch and in a micro-batch, B and M."""
    rows = ops.shape(tree.flatten(data[0])[0])[0]
    return rows, -(-rows // number)


def split_step(model: keras.Model, data: Data) -> dict[str, Tensor]:
    """Return the logs of a training step in `model.micro_batches` parts."""
    import tensorflow as tf

    x, y, weights = keras.utils.unpack_x_y_sample_weight(data)
    data, variables = (x, y, weights), model.trainable_weights
    rows, size = _sizes(data, model.micro_batches)
    is_used = [True] * len(variables)

    def add(start: Tensor, loss: Tensor, sums: list[Tensor]) -> tuple[Tensor, Tensor, list[Tensor]]:
        part_x, part_y, part_weights = _part(data, start, model.micro_batches)
        with tf.GradientTape() as tape:
            y_pred = model(part_x, training=True)
            share = model.compute_loss(part_x, part_y, y_pred, part_weights, training=True)
            scaled = model.optimizer.scale_loss(share)
        gradients = tape.gradient(scaled, variables)
        is_used[:] = [gradient is not None for gradient in gradients]
        model.compute_metrics(part_x, part_y, y_pred, part_weights)
        sums = [s if g is None else s + g for s, g in zip(sums, gradients, strict=True)]
        return start + size, loss + share, sums

    zeros = [tf.zeros(variable.shape, variable.dtype) for variable in variables]
    with model.split_loss.of_parts(y, weights):
        _, loss, sums = tf.while_loop(
            lambda start, *_: start < rows, add, (0, 0.0, zeros), parallel_iterations=1
        )
    # Keras averages the losses of the replicas, but each is only a share of the global mean.
    replicas = tf.distribute.get_strategy().num_replicas_in_sync
    model.metrics[0].update_state(loss * replicas, sample_weight=rows)
    gradients = [s if used else None for s, used in zip(sums, is_used, strict=True)]
    model.optimizer.apply_gradients(zip(gradients, variables, strict=True))
    return model.get_metrics_result()
