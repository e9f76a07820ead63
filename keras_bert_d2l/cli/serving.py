"""Commands on models that answer strings."""

import pathlib
from typing import Annotated

import typer

from keras_bert_d2l import quickstart
from keras_bert_d2l.cli.options import Model, NullThreshold, load
from keras_bert_d2l.serving.export.audit import audit_saved_model
from keras_bert_d2l.serving.export.saved_model import export_saved_model
from keras_bert_d2l.training.run_folder import checkpoint_folder

_FOUND = 1  # exit code


def export(
    out: Annotated[
        pathlib.Path,
        typer.Option("--out", "-o", help="Folder of all versions of the model."),
    ],
    model: Model = None,
    version: Annotated[
        int | None, typer.Option(min=1, help="Number of the version.  [default: the next one]")
    ] = None,
    pairs: Annotated[
        bool, typer.Option("--pairs", help="The texts to classify or to score are pairs.")
    ] = False,
    top_k: Annotated[
        int, typer.Option("--top-k", "-k", min=1, help="Answers for each mask, or question.")
    ] = 5,
    null_threshold: NullThreshold = None,
) -> None:
    """Writes a SavedModel that takes strings, for TensorFlow Serving or any TensorFlow.

    The model may be that of a task: then it gives the task's answers.

    Example: `keras-bert-d2l export --model runs/mine --out saved_models/mine`
    """
    source = model or quickstart.newest_run()
    pretrained = load(source)
    folder = export_saved_model(
        pretrained.model,
        out,
        pretrained.tokenizer,
        version,
        pairs=pairs,
        top_k=top_k,
        null_threshold=null_threshold,
        run_dir=None if checkpoint_folder(source) == source else source,
    )
    typer.echo(f"Exported to {folder}")


def audit(
    path: Annotated[
        pathlib.Path,
        typer.Argument(
            metavar="PATH", help="Folder with a saved_model.pb, of any program.", show_default=False
        ),
    ],
) -> None:
    """Lists the operations of a SavedModel that TensorFlow Serving does not know.

    The exit code is 1 where there are any.

    Example: `keras-bert-d2l audit saved_models/mine/1`
    """
    findings = audit_saved_model(path)
    for finding in findings:
        typer.echo(str(finding))
    if findings:
        raise typer.Exit(_FOUND)
    typer.echo("TensorFlow Serving knows all operations.")
