"""Export of a model as an ONNX file, from token ids to the outputs of its heads.

B: batch size, T: tokens, P: predicted positions, D: hidden width, V: vocabulary size, C: labels.
"""

import importlib.metadata
import json
import os
import pathlib
from typing import TYPE_CHECKING

from keras_bert_d2l.checkpoints.checks import check_kind, check_vocabulary
from keras_bert_d2l.checkpoints.formats.task_fields import embedding_fields, task_fields
from keras_bert_d2l.checks import check_path
from keras_bert_d2l.files import replacing_folder, write_text
from keras_bert_d2l.models.bert import FEATURES, BERTModel
from keras_bert_d2l.models.tasks import QuestionAnswerer, TextEmbedder, TokenClassifier
from keras_bert_d2l.models.tasks.task_model import FEATURES as TASK_FEATURES
from keras_bert_d2l.models.tasks.task_model import TaskModel
from keras_bert_d2l.serving.onnx.graph import (
    Graph,
    dense,
    encode,
    first_token,
    is_token,
    pool,
    predict_masked,
)
from keras_bert_d2l.text.tokenizer.tokenizer import Tokenizer
from keras_bert_d2l.types import PathLike

if TYPE_CHECKING:
    from onnx import ModelProto

MODEL_FILE, CONFIG_FILE, VOCAB_FILE = "model.onnx", "config.json", "vocab.txt"
OPSET, IR_VERSION = 20, 9  # as in onnx 1.15; the first opset with Gelu

_MAX_BYTES = 2**31 - 1  # maximum size of a protocol buffer
_MAX_NODES = 2**20  # bytes reserved for the nodes
_PRODUCER = "keras-bert-d2l"
_Shapes = dict[str, tuple[str | int, ...]]
"""Shapes of inputs or outputs by name. A string names a dynamic dimension."""


def export_onnx(
    model: BERTModel | TaskModel,
    path: PathLike,
    tokenizer: Tokenizer | None = None,
    *,
    int8: bool = False,
) -> pathlib.Path:
    """Export a model as ONNX, for any ONNX runtime.

    The inputs are int32: `tokens` and `segments` `(B, T)`, `valid_lens` `(B,)` and, for a
    `BERTModel` with an MLM head, `pred_positions` `(B, P)`. B, T and P may differ between calls,
    and P may be 0. The outputs are float32:

    - `BERTModel`: `embedding` `(B, D)`, as from `embed`; `encoded` `(B, T, D)`; `pooled` `(B, D)`;
      `mlm_logits` `(B, P, V)`; and `nsp_logits` `(B, 2)`, whose column 1 means "is next". The
      outputs of missing heads (`BERTModel.missing_heads`) are omitted;
    - `SequenceClassifier` and `SequenceRegressor`: `logits` `(B, C)`;
    - `TokenClassifier`: `logits` `(B, T, C)`;
    - `QuestionAnswerer`: the logits `start` and `end` `(B, T)`;
    - `TextEmbedder`: `embedding` `(B, D)`.

    The graph uses only standard ONNX operators (opset 20). The weights are float32, regardless of
    the model's precision. The graph does not validate its inputs: ids must be in the vocabulary,
    and T must not exceed `max_len`.

    With `int8`, onnxruntime's dynamic quantization converts the dense layers of the encoder's
    blocks to integer arithmetic, with one scale per kernel column and one per call for the
    inputs. Most predictions stay the same, but some change, so evaluate the file before you serve
    it. Embeddings and heads stay float32.

    The folder is created atomically. It contains `model.onnx`; `config.json`, which describes the
    architecture, labels, tokenizer options, inputs and outputs; and `vocab.txt` if there is a
    tokenizer.

    Args:
        model: The model.
        path: Folder to write. It must be new or empty.
        tokenizer: The model's tokenizer. Defaults to the tokenizer of a task model. Without one,
            no vocabulary is written.
        int8: Whether to quantize the blocks of the encoder to 8-bit integers.

    Returns: the path of `model.onnx`.

    Raises:
        ImportError: onnx is not installed, or `int8` is set and onnxruntime is not installed.
        FileExistsError: The folder is not empty.
        ValueError: The vocabulary does not have the model's size, the model is quantized, or its
            weights exceed two gigabytes, the limit of an ONNX file.
        OSError: The folder cannot be written.

    Example:

    ```python
    import keras_bert_d2l as kb
    import onnxruntime

    model = kb.BERTModel.from_bert_config(kb.BERTConfig.preset("tiny"))
    file = kb.export_onnx(model, "onnx/demo")
    session = onnxruntime.InferenceSession(str(file))
    print([output.name for output in session.get_outputs()])
    ```
    """
    check_kind(model, BERTModel, TaskModel, remedy="export one of those")
    check_path("path", path)
    _check_installed(int8)
    folder = pathlib.Path(path)
    _refuse_existing(folder)
    if tokenizer is None and isinstance(model, TaskModel):
        tokenizer = model.tokenizer
    if tokenizer is not None:
        check_vocabulary(model, tokenizer)
    graph, inputs, outputs = _graph(model)
    proto = _proto(graph, inputs, outputs, type(model).__name__)
    card = {
        "producer": f"{_PRODUCER} {importlib.metadata.version(_PRODUCER)}",
        "opset": OPSET,
        "int8": int8,
        "inputs": {name: {"dtype": "int32", "shape": list(x)} for name, x in inputs.items()},
        "outputs": {name: {"dtype": "float32", "shape": list(x)} for name, x in outputs.items()},
        "task": task_fields(model),
        "embedding": embedding_fields(model),
        "config": model.bert_config.to_dict(),
        "tokenizer": tokenizer and tokenizer.options,
        "vocabulary": tokenizer and tokenizer.vocab.fingerprint,
    }
    with replacing_folder(folder) as temporary:
        _save(proto, temporary / MODEL_FILE, int8)
        text = json.dumps(card, indent=2, ensure_ascii=False, default=os.fspath)
        write_text(temporary / CONFIG_FILE, text + "\n")
        if tokenizer is not None:
            tokenizer.vocab.to_file(temporary / VOCAB_FILE)
        _refuse_existing(folder)  # another process may have written it in the meantime
    return folder / MODEL_FILE


def _check_installed(int8: bool) -> None:
    try:
        import onnx  # noqa: F401

        if int8:
            import onnxruntime  # noqa: F401
    except ModuleNotFoundError as error:
        raise ImportError(
            "ONNX export requires onnx, and onnxruntime for int8: "
            '`pip install "keras-bert-d2l[onnx]"`.'
        ) from error


def _refuse_existing(folder: pathlib.Path) -> None:
    if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
        raise FileExistsError(
            f"`path` must be a new or empty folder. Received: {os.fspath(folder)!r}, which "
            "exists and is not an empty folder. Choose a different path, or remove it first."
        )


def _graph(model: BERTModel | TaskModel) -> tuple[Graph, _Shapes, _Shapes]:
    """Return the graph of a model, its input shapes and its output shapes."""
    shapes: _Shapes = {"valid_lens": ("batch",), "pred_positions": ("batch", "predictions")}
    has_mlm = isinstance(model, BERTModel) and "mlm" in model.usable_heads
    features = FEATURES if has_mlm else TASK_FEATURES
    inputs = {name: shapes.get(name, ("batch", "length")) for name in features}
    graph, names = Graph(), dict(zip(inputs, inputs, strict=True))
    encoded = encode(graph, model.encoder, names)
    if isinstance(model, BERTModel | TextEmbedder):
        embedder = TextEmbedder(model) if isinstance(model, BERTModel) else model
        mask = is_token(graph, names, model.bert_config.mask_from)
        graph.add("Identity", pool(graph, embedder.head, encoded, mask), output="embedding")
        outputs: _Shapes = {"embedding": ("batch", model.bert_config.num_hiddens)}
        if isinstance(model, BERTModel):
            outputs |= _add_pretraining_heads(graph, model, encoded)
        return graph, inputs, outputs
    if model.hidden is not None:
        encoded = dense(graph, model.hidden, first_token(graph, encoded), "hidden")
    logits = dense(graph, model.head, encoded, "head")
    if isinstance(model, QuestionAnswerer):
        for column, side in enumerate(("start", "end")):
            graph.add("Gather", logits, graph.constant(column, "int64"), axis=-1, output=side)
        return graph, inputs, dict.fromkeys(("start", "end"), ("batch", "length"))
    graph.add("Identity", logits, output="logits")
    places = ("batch", "length") if isinstance(model, TokenClassifier) else ("batch",)
    return graph, inputs, {"logits": (*places, len(model.labels))}


def _add_pretraining_heads(graph: Graph, model: BERTModel, encoded: str) -> _Shapes:
    """Add the encoded tokens and the pretraining heads. Return the shapes of these outputs."""
    config = model.bert_config
    outputs: _Shapes = {"encoded": ("batch", "length", config.num_hiddens)}
    graph.add("Identity", encoded, output="encoded")
    cls = first_token(graph, encoded)
    heads = model.usable_heads
    if "pooler" in heads:
        cls = graph.add("Identity", dense(graph, heads["pooler"], cls, "hidden"), output="pooled")
        outputs["pooled"] = ("batch", config.num_hiddens)
    if "mlm" in heads:
        predict_masked(graph, heads["mlm"], encoded, "pred_positions", "mlm_logits")
        outputs["mlm_logits"] = ("batch", "predictions", config.vocab_size)
    if "nsp" in heads:
        logits = dense(graph, heads["nsp"].dense, cls, "nsp/dense")
        graph.add("Identity", logits, output="nsp_logits")
        outputs["nsp_logits"] = ("batch", 2)
    return outputs


def _proto(graph: Graph, inputs: _Shapes, outputs: _Shapes, name: str) -> "ModelProto":
    """Convert a graph to a protocol buffer and validate it."""
    import onnx
    from onnx import TensorProto, helper

    size = sum(value.nbytes for value in graph.constants.values())
    if size > _MAX_BYTES - _MAX_NODES:
        raise ValueError(
            f"An ONNX file is limited to two gigabytes. Received: a model with {size / 1e9:.1f} GB "
            "of weights. Export a SavedModel instead, which has no size limit."
        )
    proto = helper.make_model(
        helper.make_graph(
            graph.nodes,
            name,
            [helper.make_tensor_value_info(k, TensorProto.INT32, v) for k, v in inputs.items()],
            [helper.make_tensor_value_info(k, TensorProto.FLOAT, v) for k, v in outputs.items()],
            [onnx.numpy_helper.from_array(value, key) for key, value in graph.constants.items()],
        ),
        opset_imports=[helper.make_opsetid("", OPSET)],
        ir_version=IR_VERSION,
        producer_name=_PRODUCER,
        producer_version=importlib.metadata.version(_PRODUCER),
    )
    onnx.checker.check_model(proto, full_check=True)
    return proto


def _save(proto: "ModelProto", file: pathlib.Path, int8: bool) -> None:
    """Write a graph. With `int8`, quantize the kernels of the encoder's blocks."""
    import onnx

    if not int8:
        onnx.save(proto, file)
        return
    from onnxruntime.quantization import QuantType, quantize_dynamic

    # Without this mark, onnxruntime warns about missing shape inference, which is already done.
    onnx.helper.set_model_props(proto, {"onnx.quant.pre_process": "onnxruntime.quant"})
    quantize_dynamic(
        proto,
        file,
        per_channel=True,
        weight_type=QuantType.QInt8,
        nodes_to_quantize=[
            node.name
            for node in proto.graph.node
            if node.op_type == "MatMul" and node.input[1].startswith("encoder/blk_")
        ],
    )
