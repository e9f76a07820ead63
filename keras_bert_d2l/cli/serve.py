"""The command that answers for an exported model."""

import pathlib
from typing import Annotated

import typer

_HOST, _PORT = "127.0.0.1", 8501


def serve(
    path: Annotated[
        pathlib.Path,
        typer.Argument(
            metavar="PATH",
            help="Folder with the versions of a model, as `export` writes it, of any program.",
            show_default=False,
        ),
    ],
    port: Annotated[int, typer.Option(min=0, max=65535, help="0: any that is free.")] = _PORT,
    host: Annotated[str, typer.Option(help="Address of this machine to listen at.")] = _HOST,
    name: Annotated[
        str | None, typer.Option(help="The model's name.  [default: that of its folder]")
    ] = None,
) -> None:
    """Serves a SavedModel by TensorFlow Serving's REST routes, for trying and for tests.

    It is not meant for production. New versions are loaded when they appear; Ctrl-C ends it.

    Example: `keras-bert-d2l serve saved_models/mine`
    """
    try:
        from keras_bert_d2l.serving.server import local_server
    except ModuleNotFoundError as error:
        raise ImportError(
            'The local server needs starlette and uvicorn: pip install "keras-bert-d2l[serving]".'
        ) from error
    local_server.serve(path, name=name, host=host, port=port)
