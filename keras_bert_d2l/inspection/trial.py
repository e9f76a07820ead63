"""`undone`: train a model for a few steps to measure something, and restore it."""

import contextlib
from collections.abc import Iterator
from typing import Any

import keras

from keras_bert_d2l.models.features import BatchModel


@contextlib.contextmanager
def undone(model: BatchModel) -> Iterator[None]:
    """Undo the training steps inside the `with` block.

    At its end, the weights, the optimizer, the dropout seeds and the metrics are as before.

    Args:
        model: The compiled model.
    """
    optimizer: Any = model.optimizer
    missing_heads = model.missing_heads
    optimizer.build(model.trainable_variables)
    variables = [*model.variables, *optimizer.variables]
    values = [keras.ops.convert_to_numpy(variable).copy() for variable in variables]
    try:
        yield
    finally:
        for variable, value in zip(variables, values, strict=True):
            variable.assign(value)
        model.missing_heads = missing_heads
        model.reset_metrics()
