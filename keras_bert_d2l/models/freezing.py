"""An encoder of which a part alone is trained: the upper blocks, or low-rank additions."""

from keras_bert_d2l.layers.encoder import BERTEncoder

_LORA_TARGETS = ("W_q", "W_v")  # Hu et al. 2021, section 7.1


def freeze_lower_part(encoder: BERTEncoder, num_blks: int) -> None:
    """Makes the embeddings and the lowest blocks not trainable; all of the encoder for all blocks.

    Weight by weight, as the position embedding is the encoder's own.
    """
    upper = [*encoder.blks[num_blks:]]
    if encoder.final_ln is not None and upper:
        upper.append(encoder.final_ln)
    trained = {id(weight) for layer in upper for weight in layer.weights}
    for weight in encoder.trainable_variables:
        if id(weight) not in trained:
            weight.trainable = False


def add_lora(encoder: BERTEncoder, rank: int, lora_alpha: float | None) -> None:
    """Adds trainable products of low rank to the query and value projections of every block."""
    for block in encoder.blks:
        for name in _LORA_TARGETS:
            getattr(block.attention, name).enable_lora(rank, lora_alpha)
