"""A model in, an ONNX file out, from token ids to what the model says of them.

B batch, T tokens, P predicted positions, D hidden width, V vocabulary, C labels.
"""

import importlib.metadata
import json
import os
import pathlib
from typing import Any

from keras_bert_d2l.checkpoints.checks import check_vocabulary
from keras_bert_d2l.checkpoints.formats.task_fields import task_fields
from keras_bert_d2l.files import replacing_folder, write_text
from keras_bert_d2l.models.bert import FEATURES, BERTModel
from keras_bert_d2l.models.tasks.heads import QuestionAnswerer, TextEmbedder, TokenClassifier
from keras_bert_d2l.models.tasks.task_model import FEATURES as TASK_FEATURES
from keras_bert_d2l.models.tasks.task_model import TaskModel
from keras_bert_d2l.serving.onnx.graph import (
    INSTALL,
    Graph,
    dense,
    encode,
    first_token,
    is_token,
    pool,
    predict_masked,
)
from keras_bert_d2l.text.tokenizer.tokenizer import Tokenizer

MODEL_FILE, CONFIG_FILE, VOCAB_FILE = "model.onnx", "config.json", "vocab.txt"
OPSET, IR_VERSION = 20, 9  # those of onnx 1.15; the first opset with Gelu

_MOST_BYTES = 2**31 - 1  # of a protocol buffer
_PRODUCER = "keras-bert-d2l"
_Shape = tuple[str | int, ...]


def export_onnx(
    model: BERTModel | TaskModel,
    path: str | os.PathLike[str],
    tokenizer: Tokenizer | None = None,
    *,
    int8: bool = False,
) -> pathlib.Path:
    """Writes a model as ONNX, for any runtime that reads it.

    The inputs are int32: `tokens` and `segments` `(B, T)`, `valid_lens` `(B,)` and, of a model
    with the heads of pretraining, `pred_positions` `(B, P)`, where P may be 0; B, T and P are
    free from call to call. The outputs are float32:

    - of a `BERTModel`: `encoded` `(B, T, D)`, `pooled` `(B, D)`, `mlm_logits` `(B, P, V)` and
      `nsp_logits` `(B, 2)`, whose column 1 is "is next", without what the model has not;
    - of a `SequenceClassifier` or `SequenceRegressor`: `logits` `(B, C)`; of a `TokenClassifier`:
      `logits` `(B, T, C)`;
    - of a `QuestionAnswerer`: `start` and `end` `(B, T)`, logits;
    - of a `TextEmbedder`: `embedding` `(B, D)`.

    The graph is made of ONNX's own operators, of one opset, 20; the weights are float32 whatever
    precision the model computes in. Nothing in it checks the inputs: ids have to be in the
    vocabulary, and T at most `max_len`.

    With `int8` the dense layers of the encoder's blocks multiply integers: their kernels have a
    scale for each column, and what comes in has one for each call (onnxruntime's dynamic
    quantisation). Most answers stay what they are and some change: score them before they are
    served. Embeddings and heads stay float32.

    The folder appears as a whole: `model.onnx`; `config.json`, which tells the architecture, the
    labels, the tokenizer's options and the inputs and outputs; and `vocab.txt`, where there is a
    tokenizer.

    Args:
        model: The model.
        path: The folder to write, a new one or an empty one.
        tokenizer: The model's tokenizer; `None`: that of a task's model, else no vocabulary is
            written.
        int8: Whether the encoder's blocks compute in integers of 8 bits.

    Returns: the path of `model.onnx`.

    Raises:
        ImportError: onnx is not installed, or for `int8` onnxruntime.
        FileExistsError: There is something at `path` already.
        ValueError: The vocabulary is not of the model's size, the model is quantised, or its
            weights take more than the two gigabytes that an ONNX file can hold.
        OSError: The folder cannot be written.
    """
    try:
        import onnx

        if int8:
            import onnxruntime  # noqa: F401  # before the work
    except ModuleNotFoundError as error:
        raise ImportError(INSTALL) from error
    folder = pathlib.Path(path)
    _refuse_existing(folder)
    if tokenizer is None and isinstance(model, TaskModel):
        tokenizer = model.tokenizer
    if tokenizer is not None:
        check_vocabulary(model, tokenizer)
    graph, outputs = _graph(model)
    _check_size(graph)
    inputs = _inputs(model)
    proto = onnx.helper.make_model(
        onnx.helper.make_graph(
            graph.nodes,
            type(model).__name__,
            _tensors(onnx.TensorProto.INT32, inputs),
            _tensors(onnx.TensorProto.FLOAT, outputs),
            [onnx.numpy_helper.from_array(value, name) for name, value in graph.constants.items()],
        ),
        opset_imports=[onnx.helper.make_opsetid("", OPSET)],
        ir_version=IR_VERSION,
        producer_name=_PRODUCER,
        producer_version=importlib.metadata.version(_PRODUCER),
    )
    onnx.checker.check_model(proto, full_check=True)
    with replacing_folder(folder) as temporary:
        if int8:
            _save_int8(proto, temporary / MODEL_FILE)
        else:
            onnx.save(proto, temporary / MODEL_FILE)
        card = _card(model, tokenizer, inputs, outputs, int8)
        text = json.dumps(card, indent=2, ensure_ascii=False, default=os.fspath)
        write_text(temporary / CONFIG_FILE, text + "\n")
        if tokenizer is not None:
            tokenizer.vocab.to_file(temporary / VOCAB_FILE)
        _refuse_existing(folder)  # another process may have written it meanwhile
    return folder / MODEL_FILE


def _save_int8(proto: Any, file: pathlib.Path) -> None:
    """Writes a graph with the kernels of the encoder's blocks as integers."""
    import onnx
    from onnxruntime.quantization import QuantType, quantize_dynamic

    # It would warn that the graph was not prepared: there is no shape in it left to infer.
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


def _refuse_existing(folder: pathlib.Path) -> None:
    if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
        raise FileExistsError(
            f"An ONNX model is written to a new folder. Received: {os.fspath(folder)!r}, which "
            "exists; choose another name, or remove it first."
        )


def _inputs(model: BERTModel | TaskModel) -> dict[str, _Shape]:
    """The inputs' shapes by name."""
    features = FEATURES if isinstance(model, BERTModel) else TASK_FEATURES
    shapes: dict[str, _Shape] = {
        "valid_lens": ("batch",),
        "pred_positions": ("batch", "predictions"),
    }
    return {name: shapes.get(name, ("batch", "length")) for name in features}


def _graph(model: BERTModel | TaskModel) -> tuple[Graph, dict[str, _Shape]]:
    """The graph of a model, and its outputs' shapes by name."""
    graph = Graph()
    inputs = {name: name for name in _inputs(model)}
    encoded = encode(graph, model.encoder, inputs)
    if isinstance(model, BERTModel):
        return graph, _pretraining(graph, model, encoded)
    if isinstance(model, TextEmbedder):
        mask = is_token(graph, inputs, model.bert_config.mask_from)
        vectors = pool(graph, model.head, encoded, mask)
        graph.add("Identity", vectors, output="embedding")
        return graph, {"embedding": ("batch", model.bert_config.num_hiddens)}
    if model.hidden is not None:
        encoded = dense(graph, model.hidden, first_token(graph, encoded), "hidden")
    logits = dense(graph, model.head, encoded, "head")
    if isinstance(model, QuestionAnswerer):
        sides = ("start", "end")
        for column, side in enumerate(sides):
            graph.add("Gather", logits, graph.constant(column, "int64"), axis=-1, output=side)
        return graph, dict.fromkeys(sides, ("batch", "length"))
    graph.add("Identity", logits, output="logits")
    places = ("batch", "length") if isinstance(model, TokenClassifier) else ("batch",)
    return graph, {"logits": (*places, len(model.labels))}


def _pretraining(graph: Graph, model: BERTModel, encoded: str) -> dict[str, _Shape]:
    """Adds the heads of pretraining."""
    config = model.bert_config
    outputs: dict[str, _Shape] = {"encoded": ("batch", "length", config.num_hiddens)}
    graph.add("Identity", encoded, output="encoded")
    cls = first_token(graph, encoded)
    if model.hidden is not None:
        cls = graph.add("Identity", dense(graph, model.hidden, cls, "hidden"), output="pooled")
        outputs["pooled"] = ("batch", config.num_hiddens)
    predict_masked(graph, model.mlm, encoded, "pred_positions", "mlm_logits")
    outputs["mlm_logits"] = ("batch", "predictions", config.vocab_size)
    if model.nsp is not None:
        logits = dense(graph, model.nsp.dense, cls, "nsp/dense")
        graph.add("Identity", logits, output="nsp_logits")
        outputs["nsp_logits"] = ("batch", 2)
    return outputs


def _tensors(dtype: int, shapes: dict[str, _Shape]) -> list[Any]:
    from onnx import helper

    return [helper.make_tensor_value_info(name, dtype, shape) for name, shape in shapes.items()]


def _check_size(graph: Graph) -> None:
    size = sum(value.nbytes for value in graph.constants.values())
    if size > _MOST_BYTES - 2**20:  # the nodes take the rest
        raise ValueError(
            f"An ONNX file holds at most two gigabytes. Received: a model of {size / 1e9:.1f} GB "
            "of weights; `export_saved_model` writes models of any size."
        )


def _card(
    model: BERTModel | TaskModel,
    tokenizer: Tokenizer | None,
    inputs: dict[str, _Shape],
    outputs: dict[str, _Shape],
    int8: bool,
) -> dict[str, Any]:
    """What the file holds, for people and for programs that have no ONNX."""
    return {
        "producer": f"{_PRODUCER} {importlib.metadata.version(_PRODUCER)}",
        "opset": OPSET,
        "int8": int8,
        "inputs": {name: {"dtype": "int32", "shape": list(x)} for name, x in inputs.items()},
        "outputs": {name: {"dtype": "float32", "shape": list(x)} for name, x in outputs.items()},
        "task": task_fields(model),
        "config": model.bert_config.to_dict(),
        "tokenizer": None if tokenizer is None else tokenizer.options,
        "vocabulary": None if tokenizer is None else tokenizer.vocab.fingerprint,
    }
