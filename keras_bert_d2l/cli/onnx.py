"""A command that writes models for other runtimes."""

import pathlib
from typing import Annotated

import typer

from keras_bert_d2l.cli.options import Model, load
from keras_bert_d2l.serving.onnx.onnx_model import export_onnx


def export(
    out: Annotated[
        pathlib.Path,
        typer.Option("--out", "-o", help="Folder to write, a new one."),
    ],
    model: Model = None,
    int8: Annotated[
        bool,
        typer.Option("--int8", help="Multiply integers of 8 bits: faster on new CPUs, less exact."),
    ] = False,
) -> None:
    """Writes a model as ONNX, from token ids to logits, with its vocabulary beside it.

    Example: `keras-bert-d2l export-onnx --model runs/mine --out onnx/mine`
    """
    pretrained = load(model)
    file = export_onnx(pretrained.model, out, pretrained.tokenizer, int8=int8)
    typer.echo(f"Exported to {file}")
