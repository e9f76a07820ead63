"""Partial training: only the upper blocks of an encoder, or only LoRA weights."""

from collections.abc import Mapping, Sequence

import keras
import numpy as np

from keras_bert_d2l.checks import shown
from keras_bert_d2l.layers.encoder import BERTEncoder

LORA_LAYERS = ("W_q", "W_v")  # Hu et al. 2021, section 7.1
LORA_WEIGHTS = ("lora_kernel", "lora_embeddings")  # how Keras names them, without an ending


def freeze_lower_part(encoder: BERTEncoder, num_blks: int) -> None:
    """Freeze the embeddings and the lowest blocks, and make the remaining blocks trainable.

    Freezing all blocks freezes the complete encoder. `trainable` is set on each weight, because
    the position embedding belongs to the encoder itself, not to a layer inside it.

    Raises:
        ValueError: The encoder has LoRA, which requires all other weights to be frozen.
    """
    _check_without_lora(encoder.weights)
    encoder.trainable = True  # has no effect if it is already True
    upper = [*encoder.blks[num_blks:]]
    if encoder.final_ln is not None and upper:
        upper.append(encoder.final_ln)
    trained = {id(weight) for layer in upper for weight in layer.weights}
    for weight in encoder.weights:
        weight.trainable = id(weight) in trained


def add_lora(
    parts: Sequence[keras.layers.Layer],
    layers: Mapping[keras.layers.Layer, tuple[int, float | None]],
) -> None:
    """Freeze parts of a model and add trainable LoRA weights to some of their layers.

    Args:
        parts: The layers to freeze.
        layers: The rank and `lora_alpha` of each dense or embedding layer that gets LoRA weights.
            Its own weights are frozen, too.

    Raises:
        ValueError: A part already has LoRA.
    """
    frozen = [*parts, *layers]
    weights = [weight for part in frozen for weight in part.weights]
    _check_without_lora(weights)
    for part in frozen:
        part.trainable = True  # so that each weight decides for itself
    for weight in weights:
        weight.trainable = False
    for layer, (rank, lora_alpha) in layers.items():
        layer.enable_lora(rank, lora_alpha)


def dense_layers(
    parts: Sequence[keras.layers.Layer], names: Sequence[str]
) -> list[keras.layers.Layer]:
    """Return the dense layers in parts of a model whose paths end in one of the names.

    Raises:
        ValueError: A name does not belong to a dense layer.
    """
    dense = [
        layer
        for part in parts
        for layer in part._flatten_layers()
        if isinstance(layer, keras.layers.Dense)
    ]
    for name in names:
        if not any(_ends_in(layer, name) for layer in dense):
            known = sorted({layer.name for layer in dense})
            raise ValueError(
                f"`lora_layers` must name dense layers: {', '.join(known)}, or a longer end of a "
                f"path, such as 'blk_0/attention/W_q'. Received: {shown(name)}."
            )
    return [layer for layer in dense if any(_ends_in(layer, name) for name in names)]


def lora_variables(layer: keras.layers.Layer) -> tuple[keras.Variable, ...]:
    """Return the weight that LoRA adapts, and its matrices: input to rank, and rank to output."""
    name = LORA_WEIGHTS[isinstance(layer, keras.layers.Embedding)]
    names = name.replace("lora", ""), f"{name}_a", f"{name}_b"
    return tuple(getattr(layer, name, None) for name in names)


def lora_update(layer: keras.layers.Layer) -> np.ndarray:
    """Return the LoRA update of a weight in float32 (`layer.kernel` has the policy's dtype)."""
    a, b = map(keras.ops.convert_to_numpy, lora_variables(layer)[1:])
    return (layer.lora_alpha / layer.lora_rank) * (a @ b)


def merge_lora(layer: keras.layers.Layer) -> None:
    """Add the LoRA update to the weight and remove the LoRA weights."""
    weight, *matrices = lora_variables(layer)
    weight.assign(weight + lora_update(layer))
    for matrix in matrices:
        layer._untrack_variable(matrix)  # private, but Keras's quantization uses it the same way
    layer.lora_enabled = False


def _check_without_lora(weights: Sequence[keras.Variable]) -> None:
    if any(weight.name.startswith(LORA_WEIGHTS) for weight in weights):
        raise ValueError(
            "An encoder with LoRA must stay completely frozen. Call `enable_lora` only once and do "
            "not call `freeze_encoder` afterwards, or call `merge_lora` first."
        )


def _ends_in(layer: keras.layers.Layer, name: str) -> bool:
    name = "pooler" if name == "hidden" else name  # the name in the book
    return f"/{layer.path}".endswith(f"/{name}")
