"""Partial training of an encoder: only its upper blocks, or only LoRA weights."""

import keras

from keras_bert_d2l.layers.encoder import BERTEncoder

_LORA_TARGETS = ("W_q", "W_v")  # Hu et al. 2021, section 7.1
_LORA_WEIGHTS = "lora_kernel"  # prefix of the names that Keras gives to LoRA weights


def freeze_lower_part(encoder: BERTEncoder, num_blks: int) -> None:
    """Freeze the embeddings and the lowest blocks, and make the remaining blocks trainable.

    Freezing all blocks freezes the complete encoder. `trainable` is set on each weight, because
    the position embedding belongs to the encoder itself, not to a layer inside it.

    Raises:
        ValueError: The encoder has LoRA, which requires all other weights to be frozen.
    """
    if any(weight.name.startswith(_LORA_WEIGHTS) for weight in encoder.weights):
        raise ValueError(
            "An encoder with LoRA must stay completely frozen. Call `enable_lora` only once and do "
            "not call `freeze_encoder` afterwards, or reload the model."
        )
    encoder.trainable = True  # has no effect if it is already True
    trained = {id(weight) for layer in _upper_part(encoder, num_blks) for weight in layer.weights}
    for weight in encoder.weights:
        weight.trainable = id(weight) in trained


def num_frozen_blks(encoder: BERTEncoder) -> int | None:
    """Return the number of frozen blocks, or `None` if the embeddings are trainable.

    LoRA weights do not count as trainable here.
    """
    trained = {
        id(weight)
        for weight in encoder.trainable_variables
        if not weight.name.startswith(_LORA_WEIGHTS)
    }
    for num_blks in range(len(encoder.blks), -1, -1):
        of_upper = {id(w) for layer in _upper_part(encoder, num_blks) for w in layer.weights}
        if trained <= of_upper:
            return num_blks
    return None


def _upper_part(encoder: BERTEncoder, num_blks: int) -> list[keras.layers.Layer]:
    """Return the layers that remain trainable when the lowest `num_blks` blocks are frozen."""
    upper = [*encoder.blks[num_blks:]]
    if encoder.final_ln is not None and upper:
        upper.append(encoder.final_ln)
    return upper


def add_lora(encoder: BERTEncoder, rank: int, lora_alpha: float | None) -> None:
    """Add trainable LoRA weights to the query and value projections of every block."""
    for block in encoder.blks:
        for name in _LORA_TARGETS:
            getattr(block.attention, name).enable_lora(rank, lora_alpha)
