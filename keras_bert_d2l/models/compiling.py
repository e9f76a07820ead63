"""Losses and metrics of Keras for models that output logits, and training steps in micro-batches.

The gradients of micro-batches add up to exactly the gradient of the whole batch. Keras's
`gradient_accumulation_steps` averages them equally instead, which is different if one micro-batch
has more predictions than another. A loss that compares the vectors of the whole batch needs all of
them first, so each micro-batch is embedded twice (GradCache).

B batch, M micro-batch, C classes, D width of vectors.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal, NamedTuple, Self, TypeAlias

import keras
from keras import ops, tree

from keras_bert_d2l.checks import IGNORED, check_that, wrong
from keras_bert_d2l.layers.transformer import SEED_STATE
from keras_bert_d2l.models.losses import (
    CRFLoss,
    GlobalMeanLoss,
    Loss,
    Metrics,
    label_weights,
    labels_of,
    sum_over_replicas,
)
from keras_bert_d2l.types import Tensor

# One class per text, which may be one-hot; other class ids; those of a CRF; rows of 0 and 1;
# numbers; groups.
Labels: TypeAlias = Literal["classes", "ids", "tags", "rows", "scores", "groups"]
_ONE_HOT = ("CategoricalCrossentropy", "CategoricalFocalCrossentropy")
# The first one is the same as the default loss.
_LOSSES: dict[Labels, tuple[str, ...]] = {
    "classes": ("SparseCategoricalCrossentropy", *_ONE_HOT),
    "ids": ("SparseCategoricalCrossentropy",),
    "rows": ("BinaryCrossentropy", "BinaryFocalCrossentropy"),
    "scores": tuple(
        "MeanSquaredError MeanAbsoluteError MeanAbsolutePercentageError Huber LogCosh Poisson "
        "MeanSquaredLogarithmicError CosineSimilarity BinaryCrossentropy "
        "BinaryFocalCrossentropy".split()
    ),
    "groups": (),
    "tags": (),
}
ONE_HOT_LOSSES = tuple(getattr(keras.losses, name) for name in _ONE_HOT)
Data = tuple[Tensor, Tensor, Tensor]
"""Features, labels and weights of a batch."""


class Training(NamedTuple):
    """The losses and metrics of a model."""

    loss: Loss
    metrics: Metrics | None
    loss_weights: Mapping[str, float] | None = None


def fitting_loss(loss: Any, own: Any, labels: Labels, from_logits: bool) -> Any:
    """Return a loss that gets the outputs of a model as they are.

    Args:
        loss: The argument of `compile`. Functions and classes of one's own are returned unchanged.
        own: The default loss, which the name of the same loss of Keras stands for. Models with
            several outputs have a dictionary of losses.
        labels: What the labels of the model are.
        from_logits: Whether the model outputs logits.

    Raises:
        ValueError: The loss does not fit the labels.
    """
    if isinstance(own, Mapping):
        of_outputs = loss if isinstance(loss, Mapping) else dict.fromkeys(own, loss)
        return {
            name: fitting_loss(one, own.get(name), labels, from_logits)
            for name, one in of_outputs.items()
        }
    [loss] = loss if isinstance(loss, list | tuple) and len(loss) == 1 else [loss]
    given: Any = keras.losses.get(loss) if isinstance(loss, str) else loss
    kinds = [one for one in vars(keras.losses).values() if isinstance(one, type)]
    kind: Any = next((one for one in kinds if getattr(one(), "fn", one) is given), type(given))
    if kind not in kinds:
        return own if isinstance(loss, CRFLoss) else loss  # that of a file lacks its layer
    fitting = _LOSSES[labels]
    others = f", or use {', '.join(fitting)} of keras.losses" if fitting else ""
    advice = f"Omit it for the default, {type(own).__name__}{others}."
    is_right, expected = kind.__name__ in fitting, "one for the outputs and labels of this model"
    check_that(is_right, "loss", expected, loss, advice)
    if kind.__name__ == fitting[0] and not isinstance(loss, keras.losses.Loss):
        return own
    config = {**kind().get_config(), **(given.get_config() if isinstance(given, kind) else {})}
    if "from_logits" in config:  # most users forget it, and the model would learn nothing
        config["from_logits"] = from_logits
    if config.get("ignore_class", IGNORED) is None:
        config["ignore_class"] = IGNORED
    return kind.from_config(config)


def fitting_metrics(metrics: Any, labels: Labels) -> Any:
    """Return the argument `metrics` of `compile` with copies of those of Keras for logits.

    Metrics of one's own, and those of scores, are returned unchanged.

    Raises:
        ValueError: A metric has no meaning for the labels, or a threshold is one of logits.
    """
    if isinstance(metrics, Mapping):
        return {name: fitting_metrics(one, labels) for name, one in metrics.items()}
    if isinstance(metrics, list | tuple):
        return [fitting_metrics(one, labels) for one in metrics]
    of_accuracy = f"{'binary' if labels == 'rows' else 'sparse_categorical'}_accuracy"
    is_accuracy = metrics in ("accuracy", "acc") or type(metrics) is keras.metrics.Accuracy
    metric = of_accuracy if is_accuracy else metrics
    metric = keras.metrics.get(metric) if isinstance(metric, str) else metric
    is_of_keras = getattr(metric, "__module__", "").startswith("keras.")
    is_wrong = {"groups": is_of_keras, "tags": is_of_keras, "scores": is_accuracy}.get(
        labels, False
    )
    check_that(not is_wrong, "metrics", "those for the outputs of this model", metrics, "Omit it.")
    if labels == "scores" or not is_of_keras:
        return metrics
    name = metrics if isinstance(metrics, str) else getattr(metrics, "name", None)
    if not isinstance(metric, keras.metrics.Metric):
        metric = keras.metrics.MeanMetricWrapper(metric, name=metric.__name__)
    config = {**metric.get_config(), "name": name or metric.name}
    if 0 in (config.get("threshold"), config.get("thresholds")):
        raise wrong("metrics", "those with thresholds of probabilities, such as 0.5", config)
    if "from_logits" in config:
        config["from_logits"] = False
    return _of_logits(type(metric).from_config(config), labels == "rows")


def _of_logits(metric: Any, multi_label: bool) -> Any:
    """Make a metric of Keras take logits; its values are those after a softmax or a sigmoid.

    It gets class ids if its name has "sparse", and otherwise one column per label. Labels of -100
    do not count, nor do rows with such a label.
    """
    is_sparse = "sparse" in getattr(metric, "_fn", type(metric)).__name__.lower()
    update = metric.update_state

    def update_state(y_true: Tensor, y_pred: Tensor, sample_weight: Tensor | None = None) -> None:
        logits, labels = ops.cast(y_pred, "float32"), ops.convert_to_tensor(y_true)
        probabilities = ops.sigmoid(logits) if multi_label else ops.softmax(logits)
        is_hot = labels.shape[1:] == logits.shape[1:]
        if multi_label:
            labels = labels_of(labels, logits.shape)
            ids = ops.min(labels, -1)
        else:
            ids = ops.argmax(labels, -1) if is_hot else labels_of(labels, logits.shape[:-1])
            known = ops.cast(ops.maximum(ids, 0), "int32")
            one_hot = labels if is_hot else ops.one_hot(known, ops.shape(logits)[-1])
            labels = known if is_sparse else one_hot
        weights = label_weights(ids, sample_weight)
        axes = len(ids.shape)
        rows = [ops.reshape(x, (-1, *ops.shape(x)[axes:])) for x in (labels, probabilities)]
        update(*rows, ops.reshape(weights, (-1,)))

    metric.update_state = update_state
    return metric


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


def check_parts(
    is_mean: bool, has_vectors: bool, micro_batches: int, optimizer: Any, loss: Any, metrics: Any
) -> None:
    """Raise `ValueError` unless a step can be split, and the optimizer does not split it otherwise.

    Args:
        is_mean: Whether the loss is a mean over the batch: whether there is a `SplitLoss`.
        has_vectors: Whether the loss compares the outputs of rows, which `split_step` then computes
            first.
        micro_batches: As for `compile`, as are the others.
        optimizer: It may accumulate gradients, all with the same weight.
        loss: For the message.
        metrics: Metrics without weights.
    """
    inner = getattr(optimizer, "inner_optimizer", optimizer)
    steps = getattr(inner, "gradient_accumulation_steps", None)
    advice = "Parts have different weights: use `micro_batches` of `compile` with larger batches."
    check_that(not (is_mean and steps), "gradient_accumulation_steps", "None", steps, advice)
    expected = "1 unless the backend is TensorFlow and, if it does not compare rows, the loss is a "
    expected += "mean over the batch, such as WeightedCrossEntropy, without `metrics`"
    advice = f"It comes with loss={loss!r:.80}, metrics={metrics!r:.80}."
    can_split = has_vectors or (is_mean and not metrics)
    can_split = can_split and keras.backend.backend() == "tensorflow"
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
    batch: Data = keras.utils.unpack_x_y_sample_weight(data)
    if model.split_loss is None:
        loss, gradients = _of_vectors(model, batch)
    else:
        with model.split_loss.of_parts(*batch[1:]):
            loss, gradients = _of_parts(model, batch, _share_of_loss)
    model.optimizer.apply_gradients(zip(gradients, model.trainable_weights, strict=True))
    return _logs(model, loss, _sizes(batch, 1)[0])


def split_test_step(model: keras.Model, data: Data) -> dict[str, Tensor]:
    """Return the logs of an evaluation step whose vectors are computed in parts."""
    x, y, weights = data = keras.utils.unpack_x_y_sample_weight(data)
    vectors = _in_parts(model, x, training=False)
    loss = model.compute_loss(x, y, vectors, weights, training=False)
    model.compute_metrics(x, y, vectors, weights)
    return _logs(model, loss, _sizes(data, 1)[0])


def _logs(model: keras.Model, loss: Tensor, rows: Tensor) -> dict[str, Tensor]:
    import tensorflow as tf

    # Keras averages the losses of the replicas, but each is only a share of the global mean.
    replicas = tf.distribute.get_strategy().num_replicas_in_sync
    model.metrics[0].update_state(loss * replicas, sample_weight=rows)
    return model.get_metrics_result()


def _of_parts(
    model: keras.Model, data: Data, loss_of: Callable[..., tuple[Tensor, Tensor]]
) -> tuple[Tensor, list[Tensor | None]]:
    """Return the sums of the losses and of the gradients of all micro-batches.

    Args:
        model: The model.
        data: The batch.
        loss_of: Returns the loss of a micro-batch, and what to differentiate. Its arguments are the
            model, and the features, labels, weights and outputs of the micro-batch.
    """
    import tensorflow as tf

    variables = model.trainable_weights
    rows, size = _sizes(data, model.micro_batches)
    is_used = [True] * len(variables)

    def add(start: Tensor, loss: Tensor, sums: list[Tensor]) -> tuple[Tensor, Tensor, list[Tensor]]:
        part = _part(data, start, model.micro_batches)
        with tf.GradientTape() as tape:
            share, scaled = loss_of(model, *part, model(part[0], training=True))
        gradients = tape.gradient(scaled, variables)
        is_used[:] = [gradient is not None for gradient in gradients]
        sums = [s if g is None else s + g for s, g in zip(sums, gradients, strict=True)]
        return start + size, loss + share, sums

    zeros = [tf.zeros(variable.shape, variable.dtype) for variable in variables]
    _, loss, sums = tf.while_loop(
        lambda start, *_: start < rows, add, (0, 0.0, zeros), parallel_iterations=1
    )
    return loss, [s if used else None for s, used in zip(sums, is_used, strict=True)]


def _share_of_loss(
    model: keras.Model, x: Tensor, y: Tensor, weights: Tensor, y_pred: Tensor
) -> tuple[Tensor, Tensor]:
    share = model.compute_loss(x, y, y_pred, weights, training=True)
    model.compute_metrics(x, y, y_pred, weights)
    return share, model.optimizer.scale_loss(share)


def _of_vectors(model: keras.Model, data: Data) -> tuple[Tensor, list[Tensor | None]]:
    """Return a loss that compares the vectors of the whole batch, and its gradients.

    All vectors are computed first, without activations for a backward pass. The gradients of the
    vectors then go backward through each micro-batch, which is embedded again with the same
    dropout.

    Source: Gao et al. 2021 (Scaling Deep Contrastive Learning Batch Size under Memory Limited
    Setup), section 3.2.
    """
    import tensorflow as tf

    x, y, weights = data
    seeds = [state for state in model.non_trainable_variables if state.name == SEED_STATE]
    before = list(map(ops.copy, seeds))
    vectors = _in_parts(model, x, training=True)
    with tf.GradientTape() as tape:
        tape.watch(vectors)
        loss = model.compute_loss(x, y, vectors, weights, training=True)
        scaled = model.optimizer.scale_loss(loss)
    of_vectors = tape.gradient(scaled, vectors)  # (B, D)
    model.compute_metrics(x, y, vectors, weights)
    for state, value in zip(seeds, before, strict=True):
        state.assign(value)

    def product(*part: Tensor) -> tuple[Tensor, Tensor]:
        of_part, is_row, vectors = part[2:]
        products = of_part * ops.cast(vectors, "float32")  # whose gradients are those of the loss
        return 0.0, ops.sum(products * is_row[:, None])

    _, gradients = _of_parts(model, (x, of_vectors, None), product)
    return loss, gradients


def _in_parts(model: keras.Model, x: Tensor, training: bool) -> Tensor:
    """Return the vectors of a batch, `(B, D)`, one micro-batch after the other."""
    import tensorflow as tf

    data: Data = (x, {}, None)
    rows, size = _sizes(data, model.micro_batches)

    def embedded(start: Tensor) -> Tensor:
        part, _, _ = _part(data, start, model.micro_batches)
        return ops.cast(model(part, training=training), "float32")

    starts = tf.range(0, rows, size)
    parts = tf.map_fn(embedded, starts, fn_output_signature="float32", parallel_iterations=1)
    return tf.reshape(parts, (-1, parts.shape[-1]))[:rows]
