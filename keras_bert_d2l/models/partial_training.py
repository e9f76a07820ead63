"""Partial training: only the upper blocks of an encoder, or only LoRA weights."""

from collections.abc import Sequence

import keras
import numpy as np

from keras_bert_d2l.checks import shown
from keras_bert_d2l.layers.encoder import BERTEncoder

LORA_LAYERS = ("W_q", "W_v")  # Hu et al. 2021, section 7.1
_LORA_WEIGHTS = "lora_kernel"  # prefix of the names that Keras gives to LoRA weights


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
    rank: int,
    lora_alpha: float | None,
    names: Sequence[str],
) -> None:
    """Freeze parts of a model and add trainable LoRA weights to some of their dense layers.

    Args:
        parts: The layers to freeze.
        rank: Rank of the LoRA weights.
        lora_alpha: As for `enable_lora`.
        names: Last components of the paths of the dense layers.

    Raises:
        ValueError: A part already has LoRA, or a name does not belong to a dense layer.
    """
    weights = [weight for part in parts for weight in part.weights]
    _check_without_lora(weights)
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
    for part in parts:
        part.trainable = True  # so that each weight decides for itself
    for weight in weights:
        weight.trainable = False
    for layer in dense:
        if any(_ends_in(layer, name) for name in names):
            layer.enable_lora(rank, lora_alpha)


def lora_update(layer: keras.layers.Dense) -> np.ndarray:
    """Return the LoRA update of a kernel in float32 (`layer.kernel` has the policy's dtype)."""
    a, b = map(keras.ops.convert_to_numpy, (layer.lora_kernel_a, layer.lora_kernel_b))
    return (layer.lora_alpha / layer.lora_rank) * (a @ b)


def merge_lora(layer: keras.layers.Dense) -> None:
    """Add the LoRA update to the kernel and remove the LoRA weights."""
    layer._kernel.assign(layer._kernel + lora_update(layer))
    for weight in (layer.lora_kernel_a, layer.lora_kernel_b):
        layer._untrack_variable(weight)  # private, but Keras's quantization uses it the same way
    layer.lora_kernel_a = layer.lora_kernel_b = None
    layer.lora_enabled = False


def _check_without_lora(weights: Sequence[keras.Variable]) -> None:
    if any(weight.name.startswith(_LORA_WEIGHTS) for weight in weights):
        raise ValueError(
            "An encoder with LoRA must stay completely frozen. Call `enable_lora` only once and do "
            "not call `freeze_encoder` afterwards, or call `merge_lora` first."
        )


def _ends_in(layer: keras.layers.Layer, name: str) -> bool:
    name = "pooler" if name == "hidden" else name  # the name in the book
    return f"/{layer.path}".endswith(f"/{name}")
