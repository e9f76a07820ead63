"""Losses and metrics of Keras in models that output logits.

B batch, C classes.
"""

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, TypeAlias

import keras
from keras import ops

from keras_bert_d2l.checks import IGNORED, check_that, wrong
from keras_bert_d2l.models.losses import Loss, Metrics, label_weights, labels_of
from keras_bert_d2l.types import Tensor

# One class per text, which may be one-hot; other class ids; rows of 0 and 1; numbers; groups.
Labels: TypeAlias = Literal["classes", "ids", "rows", "scores", "groups"]
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
}
ONE_HOT_LOSSES = tuple(getattr(keras.losses, name) for name in _ONE_HOT)


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
        return loss
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
    is_wrong = {"groups": is_of_keras, "scores": is_accuracy}.get(labels, False)
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
