"""Copy weights between a file and a model, using a table of names.

`load_weights` copies from a file into a model, `stored_weights` from a model to the arrays of a
file. Both raise an error instead of silently omitting weights on either side.
"""

import math
from collections.abc import Mapping, Sequence

import keras
import numpy as np

from keras_bert_d2l.checkpoints.weights.tables import (
    HEAD_NAMES,
    PARTS,
    NamedArrays,
    Row,
    check_contents,
    first_few,
    part_of,
)
from keras_bert_d2l.config import BERTConfig
from keras_bert_d2l.layers.variants import initialize
from keras_bert_d2l.models.bert import BERTModel
from keras_bert_d2l.models.partial_training import lora_update
from keras_bert_d2l.models.tasks.task_model import TaskModel


def named_weights(model: BERTModel | TaskModel) -> dict[str, keras.Variable]:
    """Return the weights of a model by their Keras paths without the model's name.

    A tied token embedding is listed once. The states of random generators and the LoRA matrices
    are not listed.

    Raises:
        ValueError: The model is quantized.
    """
    if model.quantized_policies:
        raise ValueError(
            "A quantized model has no float weights to save, change or load. Do this before "
            "`quantize`; to save the quantized model, use `model.save('model.keras')`."
        )
    # A path may start with a model name or a name scope, so it is compared with the path of the
    # layer.
    layers = {part: getattr(model, part, None) for part in PARTS}
    paths = {part: layer.path for part, layer in layers.items() if layer is not None}
    return {
        part + weight.path.removeprefix(path): weight
        for weight in model.weights
        for part, path in paths.items()
        if weight.path.startswith(f"{path}/") and not weight.name.startswith("lora_kernel")
    }


def with_config(model: BERTModel, config: BERTConfig) -> BERTModel:
    """Return a model with other heads or dropout rates, and the weights that both have.

    The other weights, such as those of a new pooler, are random.
    """
    changed = BERTModel.from_bert_config(config)
    changed.tokenizer, changed.missing_heads = model.tokenizer, model.missing_heads
    weights = named_weights(model)
    for name, weight in named_weights(changed).items():
        if name in weights:
            weight.assign(weights[name])
    return changed


def load_weights(model: BERTModel | TaskModel, table: Sequence[Row], arrays: NamedArrays) -> None:
    """Load the weights of a file into a model.

    A head of a `BERTModel` that is completely missing is initialized at random and recorded in
    `model.missing_heads`. The encoder and all parts of a task model are required.

    Args:
        model: The model.
        table: A row for every weight of the model.
        arrays: The arrays of the file that are weights.

    Raises:
        ValueError: Weights are missing or unused, a shape differs, or a value is not finite.
    """
    weights = named_weights(model)
    _check_names(weights, table)
    shapes = {name: tuple(weight.shape) for name, weight in weights.items()}
    may_lack = HEAD_NAMES if isinstance(model, BERTModel) else ()
    missing = check_contents(table, arrays, shapes, may_lack)
    present = [row for row in table if part_of(row.ours) not in missing]
    # Load the largest weight first: it is in memory twice while it is converted, when the memory of
    # the other weights is not yet in use.
    for row in sorted(present, key=lambda row: -math.prod(shapes[row.ours])):
        weights[row.ours].assign(row.layout.to_ours(arrays.read_finite(row.theirs)))
    for layer in model.lora_layers:  # stored kernels include the LoRA update
        layer.lora_kernel_b.assign(np.zeros(layer.lora_kernel_b.shape))
    for part in missing:
        initialize(getattr(model, part))
    model.missing_heads = frozenset(HEAD_NAMES[part] for part in missing)


def stored_weights(model: BERTModel | TaskModel, table: Sequence[Row]) -> dict[str, np.ndarray]:
    """Return the weights of a model in float32, with another program's names and layouts.

    LoRA updates are merged into the kernels. Weights of `model.missing_heads` are omitted, because
    they are random.

    Raises:
        ValueError: The table lacks a row for a weight, so the format cannot express the model.
    """
    weights = named_weights(model)
    _check_names(weights, table)
    lora_layers = {id(layer._kernel): layer for layer in model.lora_layers}
    stored = {}
    for row in table:
        if HEAD_NAMES.get(part_of(row.ours)) in model.missing_heads:
            continue
        weight = weights[row.ours]
        value = keras.ops.convert_to_numpy(weight)
        if id(weight) in lora_layers:
            value = value + lora_update(lora_layers[id(weight)])
        stored[row.theirs] = np.ascontiguousarray(row.layout.to_theirs(value), dtype=np.float32)
    return stored


def _check_names(weights: Mapping[str, keras.Variable], table: Sequence[Row]) -> None:
    """Raise `ValueError` unless the table has exactly one row for each weight of the model."""
    names = {row.ours for row in table}
    if weights.keys() != names:
        raise ValueError(
            "The format cannot express this model. Weights without a counterpart: "
            f"{first_few(weights.keys() ^ names)}."
        )
