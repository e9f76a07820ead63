"""Training only a part of an encoder: its upper blocks, or low-rank additions (LoRA)."""

import keras

from keras_bert_d2l.layers.encoder import BERTEncoder

_LORA_TARGETS = ("W_q", "W_v")  # Hu et al. 2021, section 7.1
_LORA_WEIGHTS = "lora_kernel"  # Keras's prefix for the names of the additions


def freeze_lower_part(encoder: BERTEncoder, num_blks: int) -> None:
    """Freeze the embeddings and the lowest blocks, and make the rest trainable.

    Freezing all blocks freezes the whole encoder. It sets every weight by itself, because the
    position embedding belongs to the encoder, not to a layer inside it.

    Raises:
        ValueError: The encoder has LoRA, which needs all other weights frozen.
    """
    if any(weight.name.startswith(_LORA_WEIGHTS) for weight in encoder.weights):
        raise ValueError(
            "An encoder with LoRA stays frozen as a whole: call `enable_lora` only once and "
            "`freeze_encoder` not at all, or load the model again."
        )
    encoder.trainable = True  # changes no weight if it is True already
    trained = {id(weight) for layer in _upper_part(encoder, num_blks) for weight in layer.weights}
    for weight in encoder.weights:
        weight.trainable = id(weight) in trained


def num_frozen_blks(encoder: BERTEncoder) -> int | None:
    """Return the number of frozen blocks, or `None` if the embeddings are trainable.

    The additions of LoRA do not count as trainable here.
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
    """Add trainable low-rank products to the query and value projections of every block."""
    for block in encoder.blks:
        for name in _LORA_TARGETS:
            getattr(block.attention, name).enable_lora(rank, lora_alpha)
