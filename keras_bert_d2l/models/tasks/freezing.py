"""An encoder of which a part alone is trained: the upper blocks, or low-rank additions."""

import keras

from keras_bert_d2l.layers.encoder import BERTEncoder

_LORA_TARGETS = ("W_q", "W_v")  # Hu et al. 2021, section 7.1
_LORA_WEIGHTS = "lora_kernel"  # how Keras begins the names of the additions


def freeze_lower_part(encoder: BERTEncoder, num_blks: int) -> None:
    """Makes the embeddings and the lowest blocks not trainable; all of the encoder for all blocks.

    The rest is made trainable. Weight by weight, as the position embedding is the encoder's own.

    Raises:
        ValueError: The encoder has low-rank additions, which need all of it frozen.
    """
    if any(weight.name.startswith(_LORA_WEIGHTS) for weight in encoder.weights):
        raise ValueError(
            "An encoder with LoRA stays frozen as a whole: call `enable_lora` once and "
            "`freeze_encoder` not at all, or load the model anew."
        )
    encoder.trainable = True  # sets no weight where it is True already
    trained = {id(weight) for layer in _upper_part(encoder, num_blks) for weight in layer.weights}
    for weight in encoder.weights:
        weight.trainable = id(weight) in trained


def num_frozen_blks(encoder: BERTEncoder) -> int | None:
    """Returns how many of the lowest blocks are frozen with the embeddings; `None`: not even these.

    The additions of LoRA do not count.
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
    """The layers that are trained where so many blocks are frozen."""
    upper = [*encoder.blks[num_blks:]]
    if encoder.final_ln is not None and upper:
        upper.append(encoder.final_ln)
    return upper


def add_lora(encoder: BERTEncoder, rank: int, lora_alpha: float | None) -> None:
    """Adds trainable products of low rank to the query and value projections of every block."""
    for block in encoder.blks:
        for name in _LORA_TARGETS:
            getattr(block.attention, name).enable_lora(rank, lora_alpha)
