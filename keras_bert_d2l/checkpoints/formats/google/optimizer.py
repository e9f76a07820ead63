"""Restore the optimizer state from google-research/bert's training checkpoints.

Source: github.com/google-research/bert, optimization.py.
"""

import os
import pathlib
from collections.abc import Iterator

import keras
import numpy as np
import tensorflow as tf

from keras_bert_d2l.checkpoints.formats.google.folder import find_prefix
from keras_bert_d2l.checkpoints.formats.google.weights import SLOTS, STEP, table
from keras_bert_d2l.checkpoints.weights.tables import Row
from keras_bert_d2l.checkpoints.weights.tf1_files import open_tf1
from keras_bert_d2l.checkpoints.weights.transfer import named_weights
from keras_bert_d2l.models.bert import BERTModel
from keras_bert_d2l.types import PathLike


def restore_optimizer(path: PathLike, model: BERTModel) -> int:
    """Restore the optimizer state of a compiled model from one of Google's checkpoints.

    The weights are not changed. If they come from the same checkpoint, training continues as if it
    had never stopped. Google's optimizer is `BERTAdamW(..., bias_correction=False)`.

    Args:
        path: The folder or the prefix of the checkpoint.
        model: A model compiled with `BERTAdamW`.

    Returns:
        The number of steps that the checkpoint was trained for.

    Raises:
        FileNotFoundError: There is no checkpoint.
        ValueError: The checkpoint contains no optimizer state, belongs to a different model, or
            the model is not compiled with `BERTAdamW`.
    """
    arrays = open_tf1(find_prefix(pathlib.Path(path)))
    has_slots = any(name.endswith(tuple(SLOTS.values())) for name in arrays.shapes)
    if STEP not in arrays.shapes or not has_slots:
        raise ValueError(
            f"{arrays.source!r} contains no optimizer state ({STEP}, and the slots adam_m and "
            "adam_v for every weight). Use a checkpoint from a training run."
        )
    values = []  # everything is read and checked before anything is changed
    for variable, name, row in _moments(model):
        expected = row.layout.to_theirs(np.empty(variable.shape)).shape
        if arrays.shapes.get(name) != expected:
            raise ValueError(
                f"{arrays.source!r} belongs to a different model: the slot {name!r} must have the "
                f"shape {expected}. Found: {arrays.shapes.get(name, 'none')}."
            )
        values.append((variable, row.layout.to_ours(arrays.read(name))))
    for variable, value in values:
        variable.assign(value)
    step = int(tf.train.load_variable(os.fspath(arrays.source), STEP))
    model.optimizer.iterations.assign(step)
    return step


def _moments(model: BERTModel) -> Iterator[tuple[keras.Variable, str, Row]]:
    """Yield each optimizer moment, its name in a checkpoint and the table row of its weight."""
    optimizer = getattr(model, "optimizer", None)
    if optimizer is None:
        raise ValueError(
            "The model has no optimizer to restore: call "
            "`model.compile(BERTAdamW(..., bias_correction=False))` first."
        )
    optimizer.build(model.trainable_variables)
    # Keras names a variable of an optimizer after the weight's path and the variable's purpose.
    states = {variable.name: variable for variable in optimizer.variables}
    rows = {row.ours: row for row in table(model.bert_config)}
    for ours, weight in named_weights(model).items():
        if not weight.trainable:
            continue
        if ours not in rows:
            raise ValueError(f"The format of google-research/bert has no weight {ours!r}.")
        for moment, slot in SLOTS.items():
            name = f"{weight.path.replace('/', '_')}_{moment}"
            if name not in states:
                raise ValueError(
                    "The model must be compiled with BERTAdamW, whose state matches Google's "
                    f"slots. Received: {optimizer.name!r}, which has no {name!r}."
                )
            yield states[name], f"{rows[ours].theirs}/{slot}", rows[ours]
