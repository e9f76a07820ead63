"""Commands for checkpoint files."""

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

import keras_bert_d2l as kb
from keras_bert_d2l.cli.arguments import PositiveInt
from keras_bert_d2l.cli.input_output import stage_of_loading

_COLUMNS = ("name", "shape", "dtype", "mean", "std")

Source = Annotated[
    str,
    Parameter(
        help="Checkpoint folder, weight file, prefix of a TF1 checkpoint, run folder (its best "
        "checkpoint is used), or name on the Hugging Face Hub."
    ),
]
NumHeads = Annotated[
    PositiveInt | None,
    Parameter(help="Attention heads per block, if the checkpoint does not specify it."),
]


def inspect(source: Source, /, *, num_heads: NumHeads = None) -> None:
    """Describe a checkpoint and list its weights, with their mean and standard deviation.

    For example: `keras-bert-d2l inspect checkpoints/tiny`
    """
    summary, weights = kb.inspect_checkpoint(source, num_heads=num_heads)
    print(summary)
    rows = [_COLUMNS]
    for one in weights:
        shape = " x ".join(map(str, one.shape))
        rows.append((one.name, shape, one.dtype, f"{one.mean:.5f}", f"{one.std:.5f}"))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for name, *numbers in rows:
        cells = [f"{cell:>{width}}" for cell, width in zip(numbers, widths[1:], strict=True)]
        print("  ".join([f"{name:{widths[0]}}", *cells]))


def convert(
    source: Source,
    target: Path,
    /,
    *,
    format: Literal["native", "google", "huggingface", "book"] = "native",
    num_heads: NumHeads = None,
) -> None:
    """Convert a checkpoint to another format.

    The format of SOURCE is detected. Architectures that the target format cannot express are
    rejected.

    For example:

    - `keras-bert-d2l convert runs/mine hf/mine --format huggingface`
    - `keras-bert-d2l convert downloads/uncased_L-2_H-128_A-2 checkpoints/tiny`

    Args:
        target: Output folder.
        format: Output format.
    """
    with stage_of_loading("Converting the checkpoint", source):
        kb.convert_checkpoint(source, target, format, num_heads=num_heads)
    print(f"Written to {target}")
