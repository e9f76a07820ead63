"""Commands for checkpoints and exported models: `inspect`, `convert`, `export` and `serve`."""

import os
import signal
import sys
from pathlib import Path
from typing import Annotated, Any, Literal

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
    TruncateDim,
    given,
    refuse,
)
from keras_bert_d2l.cli.input_output import load, stage_of_loading
from keras_bert_d2l.progress import stage

_GRAPH_FILE = "saved_model.pb"

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


def inspect(source: Source, /, *, num_heads: NumHeads = None) -> int | None:
    """Describe a checkpoint, or audit the operations of a SavedModel.

    Lists the weights of a checkpoint, with their mean and standard deviation.

    Of a SavedModel, exported by any program, it lists the signatures, and the operations that are
    unsupported or access files or the network. TensorFlow Serving cannot load a model with
    operations that it does not support. Operations that access files can read and write them with
    the rights of the server. The exit code is 1 if any are found.

    For example:

    - `keras-bert-d2l inspect checkpoints/tiny`
    - `keras-bert-d2l inspect saved_models/mine/1`
    """
    graphs = [Path(source, _GRAPH_FILE), *Path(source).glob(f"[0-9]*/{_GRAPH_FILE}")]
    is_saved_model = any(graph.exists() for graph in graphs) and not is_run(source)
    code = _print_audit(source) if is_saved_model else None
    try:
        summary, weights = kb.inspect_checkpoint(source, num_heads=num_heads)
    except (FileNotFoundError, ValueError) as error:
        if not is_saved_model or num_heads is not None:
            raise
        reason = str(error).partition(". ")[0].removesuffix(".")
        print(f"Its weights are not listed: {reason}.", file=sys.stderr)
        return code
    print(summary)
    rows = [("name", "shape", "dtype", "mean", "std")]
    for one in weights:
        shape = " x ".join(map(str, one.shape))
        rows.append((one.name, shape, one.dtype, f"{one.mean:.5f}", f"{one.std:.5f}"))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for name, *numbers in rows:
        cells = [f"{cell:>{width}}" for cell, width in zip(numbers, widths[1:], strict=True)]
        print("  ".join([f"{name:{widths[0]}}", *cells]))
    return code


def _print_audit(folder: str) -> int | None:
    """Print the signatures and the findings of a SavedModel, and return the exit code."""
    findings = kb.audit_saved_model(folder)
    from keras_bert_d2l.serving.audit import oldest_release, read_saved_model

    [graph, *_] = read_saved_model(folder).meta_graphs
    for name, signature in sorted(graph.signature_def.items()):
        if signature.inputs:  # TensorFlow adds one without inputs
            takes, gives = (", ".join(sorted(x)) for x in (signature.inputs, signature.outputs))
            print(f"Signature {name}: {takes} -> {gives}")
    for finding in findings:
        print(finding)
    if findings:
        return 1
    print("TensorFlow Serving supports all operations, and none accesses files or the network.")
    if oldest := oldest_release(folder):
        print(f"TensorFlow has them since version {oldest}.")
    return None


def convert(
    source: Source,
    target: Path,
    /,
    *,
    format: Literal["native", "huggingface", "kerashub", "book"] = "native",
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
    format: Literal["saved_model", "onnx"] = "saved_model",
    pairs: Flag = False,
    version: PositiveInt | None = None,
    top_k: Annotated[
        PositiveInt | None, Parameter(alias="-k", help="Number of results. [default: 5]")
    ] = None,
    null_threshold: NullThreshold = None,
    int8: Flag = False,
    rerank: Flag = False,
    truncate_dim: TruncateDim = None,
) -> None:
    """Export a SavedModel that accepts strings, or an ONNX file.

    A fine-tuned model predicts for its task. Any other model returns vectors; it also fills masks
    and scores next sentences if it has the heads.

    With --truncate-dim, it returns shorter vectors and nothing else, as a TextEmbedder.

    A SavedModel contains the tokenizer, for TensorFlow Serving or plain TensorFlow. An ONNX file
    takes token ids, and the tokenizer is in the folder beside it.

    For example:

    - `keras-bert-d2l export --model runs/mine --out saved_models/mine`
    - `keras-bert-d2l export --model runs/mine --format onnx --out onnx/mine`

    Args:
        format: Output format.
        pairs: Classify or score pairs of texts instead of single texts.
        version: Version number of a SavedModel, which names the subfolder of --out. [default: the
            next number]
        rerank: Export a model with one score as a reranker, although its folder does not say so.
        int8: Quantize an ONNX file to 8-bit integers: faster on recent CPUs, but less accurate.
    """
    own = {"version": version, "top_k": top_k}
    if format == "onnx":
        refuse("--format saved_model", **own)
    else:
        refuse("--format onnx", int8=int8)
    exported: Any
    if rerank:
        refuse("models that embed texts, not for --rerank", truncate_dim=truncate_dim)
        exported = kb.Reranker.from_pretrained(model, verbose=False)
    elif truncate_dim is not None:
        exported = kb.TextEmbedder.from_pretrained(model, truncate_dim=truncate_dim, verbose=False)
    else:
        exported = load(model, as_embedder=None).model
    run = model if is_run(model) else None
    if run is not None and null_threshold is None:
        from keras_bert_d2l.training.run.run_folder import tuned_null_threshold

        null_threshold = tuned_null_threshold(run)
    options: dict[str, Any] = given(pairs=pairs, null_threshold=null_threshold)
    with stage("Exporting the model"):
        if format == "onnx":
            path = kb.export_onnx(exported, out, int8=int8, **options)
        else:
            path = kb.export_saved_model(exported, out, run_dir=run, **options, **given(**own))
    print(f"Exported {model} to {path}")


def serve(
    paths: list[Path],
    /,
    *,
    port: Annotated[Integer, Parameter(validator=Number(gte=0, lte=65535))] = 8501,
    host: str = "127.0.0.1",
    name: str | None = None,
    max_rows: PositiveInt = 1024,
    max_tokens: PositiveInt = 32768,
    verify: bool = True,
    allow_files: Flag = False,
) -> None:
    """Serve SavedModels and ONNX folders over REST, for tests.

    This is a server for development. The routes are those of TensorFlow Serving, and OpenAI's for
    embeddings. A folder of `export --format onnx` is served without TensorFlow, in a fraction of
    the memory.

    Do not use it in production. It serves the newest version of each model. Several models share
    one address, such as an embedder and a reranker. Press Ctrl-C to stop.

    A SavedModel is a program: serve only models whose author you trust. Models that can access
    files or the network are refused, unless you pass --allow-files.

    For example:

    - `keras-bert-d2l serve saved_models/mine`
    - `keras-bert-d2l serve saved_models/embedder saved_models/reranker`

    Args:
        paths: For each model, the folder with the numbered versions of a SavedModel, exported by
            any program, or a folder of `export --format onnx`.
        port: Port to listen on; 0 selects a free port.
        host: Network address to listen on.
        name: Name of a single model in the URL. [default: the name of its folder]
        max_rows: Maximum number of rows in a request.
        max_tokens: Maximum number of tokens in a request, including padding.
        verify: Compare the files of the version with its SHA256SUMS, if it has one.
        allow_files: Also serve models that can access files or the network.
    """
    try:
        from keras_bert_d2l.serving.server import local_server

        local_server.serve(
            *paths,
            name=name,
            host=host,
            port=port,
            limits=local_server.Limits(max_rows, max_tokens),
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
