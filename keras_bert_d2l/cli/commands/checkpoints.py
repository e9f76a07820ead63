"""Commands for checkpoints: `inspect`, `convert`, `export`, and those for exported models."""

import os
import signal
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter
from cyclopts.validators import Number

import keras_bert_d2l as kb
from keras_bert_d2l.checkpoints.location import OWN_MODEL, is_run
from keras_bert_d2l.cli.arguments import (
    Flag,
    Integer,
    Model,
    NullThreshold,
    OutFolder,
    PositiveInt,
    TopK,
)
from keras_bert_d2l.cli.input_output import load, stage_of_loading
from keras_bert_d2l.progress import stage
from keras_bert_d2l.serving.server.limits import Limits

_COLUMNS = ("name", "shape", "dtype", "mean", "std")
_FOUND = 1  # exit code
_LIMITS = Limits()

Source = Annotated[
    str,
    Parameter(
        help="Checkpoint folder, weight file, prefix of a TensorFlow checkpoint, run folder (its "
        "best checkpoint is used), or name on the Hugging Face Hub."
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
    format: Literal[
        "native", "google", "huggingface", "kerashub", "book", "blog", "notebook"
    ] = "native",
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


def export(
    *,
    out: OutFolder,
    model: Model = OWN_MODEL,
    version: PositiveInt | None = None,
    pairs: Flag = False,
    top_k: TopK = 5,
    null_threshold: NullThreshold = None,
    xla: Flag = False,
) -> None:
    """Export a SavedModel that accepts strings, for TensorFlow Serving or plain TensorFlow.

    A fine-tuned model predicts for its task. Any other model returns vectors; it also fills masks
    and scores next sentences if it has the heads.

    For example: `keras-bert-d2l export --model runs/mine --out saved_models/mine`

    Args:
        version: Version number, which names the subfolder of --out. [default: the next number]
        pairs: Classify or score pairs of texts instead of single texts.
        xla: Compile short batches with XLA, which answers them faster.
            TensorFlow Serving then needs --xla_cpu_compilation_enabled.
    """
    loaded = load(model, as_embedder=None)
    with stage("Exporting the model"):
        folder = kb.export_saved_model(
            loaded.model,
            out,
            version=version,
            pairs=pairs,
            top_k=top_k,
            null_threshold=null_threshold,
            xla=xla,
            run_dir=model if is_run(model) else None,
        )
    print(f"Exported {model} to {folder}")


def export_onnx(
    *, out: OutFolder, model: Model = OWN_MODEL, pairs: Flag = False, int8: Flag = False
) -> None:
    """Export a model to ONNX, from token ids to logits, together with its tokenizer.

    For example: `keras-bert-d2l export-onnx --model runs/mine --out onnx/mine`

    Args:
        pairs: Let `serve` classify or score pairs of texts instead of single texts.
        int8: Quantize to 8-bit integers: faster on recent CPUs, but less accurate.
    """
    loaded = load(model, as_embedder=None)
    with stage("Exporting the model"):
        file = kb.export_onnx(loaded.model, out, pairs=pairs, int8=int8)
    print(f"Exported {model} to {file}")


def audit(path: Path, /, *, server: str | None = None) -> int | None:
    """List the operations of a SavedModel that are unsupported or access files or the network.

    TensorFlow Serving cannot load a model with operations that it does not support. Operations that
    access files can read and write them with the rights of the server. The exit code
    is 1 if any are found.

    For example: `keras-bert-d2l audit saved_models/mine/1`

    Args:
        path: Folder with a `saved_model.pb`, exported by any program.
        server: Version of TensorFlow Serving: 2.12 or 2.20. [default: operations of all releases]
    """
    findings = kb.audit_saved_model(path, server=server)
    for finding in findings:
        print(finding)
    if findings:
        return _FOUND
    print("TensorFlow Serving supports all operations, and none accesses files or the network.")
    return None


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
    """Serve a SavedModel or an ONNX folder over REST, for development and tests.

    The routes are those of TensorFlow Serving, and OpenAI's for embeddings. A folder of
    `export-onnx` is served without TensorFlow, in a fraction of the memory.

    Do not use it in production. It serves the newest version. Press Ctrl-C to stop.

    A SavedModel is a program: serve only models whose author you trust. Models that can access
    files or the network are refused, unless you pass --allow-files.

    For example: `keras-bert-d2l serve saved_models/mine`

    Args:
        path: Folder with the numbered versions of a SavedModel, exported by any program, or a
            folder of `export-onnx`.
        port: Port to listen on; 0 selects a free port.
        host: Network address to listen on.
        name: Model name in the URL. [default: the name of its folder]
        max_rows: Maximum number of rows in a request.
        max_tokens: Maximum number of tokens in a request, including padding.
        verify: Compare the files of the version with its SHA256SUMS, if it has one.
        allow_files: Also serve models that can access files or the network.
    """
    try:
        from keras_bert_d2l.serving.server import local_server

        local_server.serve(
            path,
            name=name,
            host=host,
            port=port,
            limits=Limits(max_rows, max_tokens),
            verify=verify,
            allow_files=allow_files,
        )
    except ModuleNotFoundError as error:
        raise ImportError(
            "The server requires starlette and uvicorn, and for ONNX folders onnxruntime and "
            'tokenizers: pip install "keras-bert-d2l[serving,onnx]".'
        ) from error
    except KeyboardInterrupt as error:
        # Python would wait for the threads of requests that take longer than the grace period.
        os._exit(128 + getattr(error, "signal_number", signal.SIGINT))
