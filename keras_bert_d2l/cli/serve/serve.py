"""`keras-bert-d2l serve`."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from cyclopts.validators import Number

from keras_bert_d2l.cli.arguments import Flag, PositiveInt
from keras_bert_d2l.cli.options_from_records import Integer
from keras_bert_d2l.progress import stage
from keras_bert_d2l.serving.server.limits import Limits

_LIMITS = Limits()


def serve(
    path: Path,
    /,
    *,
    port: Annotated[Integer, Parameter(validator=Number(gte=0, lte=65535))] = 8501,
    host: str = "127.0.0.1",
    name: str | None = None,
    max_rows: PositiveInt = _LIMITS.max_rows,
    max_tokens: PositiveInt = _LIMITS.max_tokens,
    verify: bool = True,
    allow_files: Flag = False,
) -> None:
    """Serve a SavedModel over the REST API of TensorFlow Serving, for development and tests.

    Do not use it in production. It serves the newest version. Press Ctrl-C to stop.

    A SavedModel is a program: serve only models whose author you trust. Models that can access
    files or the network are refused, unless you pass --allow-files.

    For example: `keras-bert-d2l serve saved_models/mine`

    Args:
        path: Folder with the numbered versions of a SavedModel, exported by any program.
        port: Port to listen on; 0 selects a free port.
        host: Network address to listen on.
        name: Model name in the URL. [default: the name of its folder]
        max_rows: Maximum number of rows in a request.
        max_tokens: Maximum number of tokens in a request, including padding.
        verify: Compare the files of the version with its SHA256SUMS, if it has one.
        allow_files: Also serve models that can access files or the network.
    """
    try:
        with stage("Importing TensorFlow"):
            from keras_bert_d2l.serving.server import local_server
    except ModuleNotFoundError as error:
        raise ImportError(
            'The server requires starlette and uvicorn: pip install "keras-bert-d2l[serving]".'
        ) from error
    local_server.serve(
        path,
        name=name,
        host=host,
        port=port,
        limits=Limits(max_rows, max_tokens),
        verify=verify,
        allow_files=allow_files,
    )
