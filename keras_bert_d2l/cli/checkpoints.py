"""Commands on checkpoints."""

import pathlib
from typing import Annotated

import typer

from keras_bert_d2l.checkpoints.opening import inspect_checkpoint
from keras_bert_d2l.checkpoints.saving import Format, convert_checkpoint
from keras_bert_d2l.training.run_folder import checkpoint_folder

_COLUMNS = ("name", "shape", "dtype", "mean", "std")

_SOURCE = (
    "Folder of a checkpoint, file of weights, prefix of a TF1 checkpoint, or folder of a run, "
    "which stands for its best checkpoint."
)
NumHeads = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Attention heads per block, where a file of weights does not tell it.",
        show_default=False,
    ),
]


def convert(
    source: Annotated[
        pathlib.Path, typer.Argument(metavar="FROM", help=_SOURCE, show_default=False)
    ],
    target: Annotated[
        pathlib.Path, typer.Argument(metavar="TO", help="Folder to write.", show_default=False)
    ],
    format: Annotated[
        Format, typer.Option("--format", "-f", help="Whose format to write.")
    ] = "native",
    num_heads: NumHeads = None,
) -> None:
    """Writes a checkpoint once more, in the format of another program.

    The format of FROM is found out by looking. What the other program has no field for is refused.

    Examples:

    - `keras-bert-d2l convert runs/mine hf/mine --format huggingface`
    - `keras-bert-d2l convert downloads/uncased_L-2_H-128_A-2 checkpoints/tiny`
    """
    convert_checkpoint(checkpoint_folder(source), target, format, num_heads=num_heads)
    typer.echo(f"Written to {target}")


def inspect(
    path: Annotated[pathlib.Path, typer.Argument(metavar="PATH", help=_SOURCE, show_default=False)],
    num_heads: NumHeads = None,
) -> None:
    """Says what a checkpoint is, and lists its weights with their mean and standard deviation.

    Example: `keras-bert-d2l inspect checkpoints/tiny`
    """
    summary, weights = inspect_checkpoint(checkpoint_folder(path), num_heads=num_heads)
    typer.echo(summary)
    rows = [_COLUMNS]
    for one in weights:
        shape = " x ".join(map(str, one.shape))
        rows.append((one.name, shape, one.dtype, f"{one.mean:.5f}", f"{one.std:.5f}"))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for name, *figures in rows:
        cells = [f"{cell:>{width}}" for cell, width in zip(figures, widths[1:], strict=True)]
        typer.echo("  ".join([f"{name:{widths[0]}}", *cells]))
