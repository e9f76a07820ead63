"""Compare the table of contents of a file with a configuration, before any memory is used."""

import math
from collections.abc import Collection, Mapping, Sequence

import numpy as np

from keras_bert_d2l.checkpoints.weights.arrays import NamedArrays
from keras_bert_d2l.checkpoints.weights.tables import PARTS, Row, first_few, part_of
from keras_bert_d2l.config import BERTConfig

_FEW_VALUES = 1 << 24  # a sinusoidal position embedding of this size takes 64 MB


def check_extent(config: BERTConfig, arrays: NamedArrays) -> None:
    """Raise `ValueError` if a model would be far larger than the arrays of its file.

    The number of blocks determines the size of the table of names, and sinusoidal positions are not
    in the file. `check_contents` compares all other sizes.
    """
    if config.num_blks > len(arrays.shapes):
        raise ValueError(
            f"{arrays.source!r} has {len(arrays.shapes)} arrays, too few for the configuration: "
            f"num_blks={config.num_blks}. One of the two files is damaged."
        )
    num_positions = config.max_len * config.num_hiddens
    num_values = sum(math.prod(shape) for shape in arrays.shapes.values())
    if config.positions == "sinusoidal" and num_positions > max(num_values, _FEW_VALUES):
        raise ValueError(
            f"{arrays.source!r} has {num_values:,} values, but the sinusoidal positions of the "
            f"configuration would have {num_positions:,}: max_len={config.max_len}. Is it damaged?"
        )


def main_shapes(config: BERTConfig) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the weights that determine the sizes of all others."""
    width = config.num_hiddens
    return {
        "encoder/token_embedding/embeddings": (config.vocab_size, width),
        "encoder/segment_embedding/embeddings": (config.num_segments, width),
        "encoder/pos_embedding": (1, config.max_len, width),
        "encoder/blk_0/ffn/dense1/kernel": (width, config.ffn_num_hiddens),
    }


def check_contents(
    table: Sequence[Row],
    arrays: NamedArrays,
    shapes: Mapping[str, tuple[int, ...]],
    may_lack: Collection[str],
) -> list[str]:
    """Compare the names and shapes of the arrays of a file with those that a model needs.

    Args:
        table: A row for every weight of the model.
        arrays: The arrays of the file that are weights.
        shapes: The shapes of some or all weights, by our names.
        may_lack: The parts of the model, from `PARTS`, that the file may lack.

    Returns:
        The parts that the file lacks.

    Raises:
        ValueError: Arrays are missing or unused, or a shape differs.
    """
    missing = _missing_parts(table, arrays, may_lack)
    left_over = arrays.shapes.keys() - {row.theirs for row in table}
    if left_over:
        raise ValueError(
            f"{arrays.source!r} contains weights that the configured model does not have: "
            f"{first_few(left_over)}. The file or the configuration belongs to a different model."
        )
    wrong = []
    for row in table:
        if row.ours in shapes and part_of(row.ours) not in missing:
            expected, found = their_shape(row, shapes[row.ours]), arrays.shapes[row.theirs]
            if found != expected:
                wrong.append(f"{row.theirs} is {found} instead of {expected}")
    if wrong:
        raise ValueError(f"{arrays.source!r} does not match its configuration: {first_few(wrong)}.")
    return missing


def _missing_parts(
    table: Sequence[Row], arrays: NamedArrays, may_lack: Collection[str]
) -> list[str]:
    missing = []
    for part in PARTS:
        names = [row.theirs for row in table if part_of(row.ours) == part]
        absent = [name for name in names if name not in arrays.shapes]
        if absent and absent == names and part in may_lack:
            missing.append(part)
        elif absent:
            raise ValueError(
                f"{arrays.source!r} lacks weights of the model: {first_few(absent)}. The file "
                "belongs to a different model or is incomplete. Copy it again."
            )
    return missing


def their_shape(row: Row, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape that a weight has in the other program's layout."""
    # The axes of a small array have the lengths 1, 2 and so on, which show where each axis ends up.
    numbers = row.layout.to_theirs(np.empty(range(1, len(shape) + 1))).shape
    return tuple(shape[number - 1] for number in numbers)
