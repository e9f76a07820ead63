"""Export of a model as an ONNX file, from token ids to the outputs of its heads.

The names of files, inputs and outputs are those that Hugging Face's programs expect.
B: batch size, T: tokens, P: predicted positions, D: hidden width, V: vocabulary size, C: labels.

Source: github.com/huggingface/optimum-onnx, `optimum/onnxruntime/modeling.py`, and
github.com/huggingface/text-embeddings-inference, `router/src/lib.rs` and `backends/ort`.
"""

import importlib
import importlib.metadata
import inspect
import math
import os
import pathlib
from typing import TYPE_CHECKING

import numpy as np

from keras_bert_d2l.checkpoints.checks import check_kind, check_vocabulary
from keras_bert_d2l.checkpoints.formats.checkpoint import embedding_fields, task_fields
from keras_bert_d2l.checkpoints.formats.huggingface.config import CONFIG_FILE, runtime_fields
from keras_bert_d2l.checkpoints.formats.huggingface.tokenizer import write_tokenizer
from keras_bert_d2l.checkpoints.formats.huggingface.written_modules import write_embedding
from keras_bert_d2l.checkpoints.weights import named_weights
from keras_bert_d2l.checks import check_path, check_that, is_number
from keras_bert_d2l.contract.task import embedder, task_named
from keras_bert_d2l.files import check_local, replacing_folder, write_json
from keras_bert_d2l.inference.heads import DEFAULT_TOP_K
from keras_bert_d2l.models.bert import BERTModel
from keras_bert_d2l.models.tasks.task_model import TaskModel
from keras_bert_d2l.serving.onnx_graph import (
    MASK,
    PLACES,
    PREDICTED,
    PROMPT_LENS,
    SEGMENTS,
    TOKENS,
    Graph,
    add_answer,
)
from keras_bert_d2l.serving.onnx_layers import (
    dense,
    encode,
    first_token,
    is_token,
    pool,
    pooler,
    predict_masked,
)
from keras_bert_d2l.serving.protocol import CARD_FILE, CRF_FILE, ONNX_FILE
from keras_bert_d2l.serving.saved_model import PRODUCER, card_fields
from keras_bert_d2l.signatures.signatures import takes
from keras_bert_d2l.text.tokenizer.tokenizer import Tokenizer
from keras_bert_d2l.types import PathLike

if TYPE_CHECKING:
    from onnx import ModelProto

_USE_OF_CRF = "Pass the logits of the first token of each word of whole texts, from all windows."
OPSET, IR_VERSION = 20, 9  # as in onnx 1.15; the first opset with Gelu


def export_onnx(
    model: BERTModel | TaskModel,
    path: PathLike,
    tokenizer: Tokenizer | None = None,
    *,
    pairs: bool = False,
    int8: bool = False,
    null_threshold: float | None = None,
) -> pathlib.Path:
    """Export a model as ONNX, for any ONNX runtime.

    The folder can be loaded by Hugging Face's programs: Optimum, text-embeddings-inference and
    transformers.js. The inputs are int64: `input_ids`, `attention_mask` (1 for tokens, 0 for
    padding) and `token_type_ids` (the segments, if the model has at least two), all `(B, T)`.
    A `BERTModel` with an MLM head also takes `pred_positions` `(B, P)`, which may be omitted. B, T
    and P may differ between calls. The outputs are float32, apart from ids (int64)
    and `is_label` (bool):

    - `BERTModel`: `last_hidden_state` `(B, T, D)`; `pooler_output` `(B, D)`; `sentence_embedding`
      `(B, D)`, as from `embed`; `mlm_logits` `(B, P, V)`, and the five most likely tokens with
      their probabilities, `mlm_ids` and `mlm_scores` `(B, P, 5)`; and `nsp_logits` and the
      probabilities `nsp` `(B, 2)`, whose column 1 means "is next". The outputs of missing heads
      (`BERTModel.missing_heads`) are omitted;
    - `SequenceClassifier` and `SequenceRegressor`: `logits` `(B, C)`, and what they mean, as in a
      SavedModel: `scores` `(B, C)`, with `score` and `id` `(B,)` of the most likely label, or
      `is_label` `(B, C)` with `multi_label`;
    - `TokenClassifier`: `logits` and `scores` `(B, T, C)`, `score` and `id` `(B, T)`; with a CRF
      only the `logits`, for a second graph, `crf.onnx`: from the `logits` `(B, W, C)` of the first
      tokens of all words of whole texts, and `num_words` `(B,)`, it computes the `id` and the
      `score` `(B, W)` of the best tags, and the marginals `scores` `(B, W, C)`;
    - `MultipleChoice`: `logits` `(B, 1)`, the score of each text with one choice; and, if all rows
      are the choices of one text, their probabilities `scores` `(1, B)`, with `index` and `score`
      `(1,)` of the best;
    - `QuestionAnswerer`: `start_logits` and `end_logits` `(B, T)`;
    - `TextEmbedder`: `last_hidden_state` `(B, T, D)` and `sentence_embedding` `(B, D)`.

    The graph uses only standard ONNX operators (opset 20). The weights are float32, regardless of
    the model's precision. The graph does not validate its inputs: ids must be in the vocabulary,
    and T must not exceed `max_len`.

    With `int8`, onnxruntime's dynamic quantization converts the dense layers of the encoder's
    blocks to integer arithmetic, with one scale per kernel column and one per call for the
    inputs. Most predictions stay the same, but some change, so evaluate the file before you serve
    it. Embeddings and heads stay float32.

    The folder is created atomically. It contains `model.onnx`; `config.json` with Hugging Face's
    fields; `1_Pooling/config.json` and `modules.json` if there is a sentence embedding;
    `model_card.json`, which describes the architecture, labels, tokenizer options, inputs and
    outputs; and, if there is a tokenizer, `tokenizer.json`, `tokenizer_config.json`,
    `special_tokens_map.json` and, of WordPiece, `vocab.txt`.
    Programs that read these tokenize like `Tokenizer(compat="huggingface")`.

    Args:
        model: The model.
        path: Folder to write. It must be new or empty.
        tokenizer: The model's tokenizer. Defaults to `model.tokenizer`; if that is `None`, no
            vocabulary is written.
        pairs: Whether `keras-bert-d2l serve` asks a `SequenceClassifier` or a `SequenceRegressor`
            for pairs of texts, as in `export_saved_model`. The graph takes either.
        int8: Whether to quantize the blocks of the encoder to 8-bit integers.
        null_threshold: For `keras-bert-d2l serve`, as in `export_saved_model`, where a run is a
            default.

    Returns: the path of `model.onnx`.

    Raises:
        ImportError: onnx is not installed, or `int8` is set and onnxruntime is not installed.
        FileExistsError: The folder is not empty.
        ValueError: The vocabulary does not have the model's size, the model is quantized, it splits
            long texts into windows, or `pairs` or `null_threshold` does not fit it.
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
    check_kind(model, BERTModel, TaskModel)
    if model.max_row_len > model.bert_config.max_len:
        raise ValueError(
            "An ONNX graph does not split texts into windows. Received: a model with "
            f"long_texts={model.long_texts!r}. Use `export_saved_model`, or truncate long texts "
            'with `model.long_texts = "cut"`.'
        )
    if pairs and not takes(model, "pairs"):
        kind = f"a SequenceClassifier or a SequenceRegressor. Received: a {type(model).__name__}"
        raise ValueError(f"`pairs` requires {kind}. Omit `pairs`.")
    if null_threshold is not None:
        is_right = takes(model, "null_threshold") and is_number(null_threshold)
        is_right = is_right and math.isfinite(null_threshold)
        expected = "a finite number for a QuestionAnswerer, and omitted for other models"
        check_that(is_right, "null_threshold", expected, null_threshold)
    check_path("path", path)
    check_local("path", path)
    try:
        for package in ("onnx", "onnxruntime") if int8 else ("onnx",):
            importlib.import_module(package)
    except ModuleNotFoundError as error:
        raise ImportError(
            "ONNX export requires onnx, and onnxruntime for int8: "
            '`pip install "keras-bert-d2l[onnx]"`.'
        ) from error
    folder = pathlib.Path(path)
    if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
        raise FileExistsError(
            f"`path` must be a new or empty folder. Received: {os.fspath(folder)!r}, which "
            "exists and is not an empty folder. Choose a different path, or remove it first."
        )
    tokenizer = model.tokenizer if tokenizer is None else tokenizer
    if tokenizer is not None:
        check_vocabulary(model, tokenizer)
    graph = _graph(model)
    proto = _proto(graph, type(model).__name__)
    is_task = isinstance(model, TaskModel)
    pairs = pairs or (is_task and model.has_head and task_named(model.task).needs_text_b)
    options = {"pairs": pairs, "ranks": is_task and model.ranks, "null_threshold": null_threshold}
    options["window_sizes"] = getattr(model, "window_sizes", None)  # of questions about long texts
    card = {
        "opset": OPSET,
        "int8": int8,
        **_tensors(graph),
        **card_fields(model, tokenizer, **options),
    }
    with_crf = _crf_graph(model) if getattr(model, "crf", None) is not None else None
    if with_crf is not None:
        card["crf"] = {"file": CRF_FILE, "use": _USE_OF_CRF, **_tensors(with_crf)}
    with replacing_folder(folder) as temporary:
        _save(proto, temporary / ONNX_FILE, int8)
        if with_crf is not None:
            _save(_proto(with_crf, "CRF"), temporary / CRF_FILE, int8=False)
        write_json(temporary / CARD_FILE, card, ensure_ascii=False)
        _write_huggingface_files(temporary, model, tokenizer)
    return folder / ONNX_FILE


def _tensors(graph: Graph) -> dict[str, object]:
    """Describe the inputs and outputs of a graph as JSON."""
    return {
        kind: {name: {"dtype": dtype, "shape": [*shape]} for name, (dtype, shape) in found.items()}
        for kind, found in (("inputs", graph.inputs), ("outputs", graph.outputs))
    }


def _write_huggingface_files(
    folder: pathlib.Path, model: BERTModel | TaskModel, tokenizer: Tokenizer | None
) -> None:
    """Write the files that other programs need besides the graph."""
    config, vocab = model.bert_config, None
    if tokenizer is not None:
        vocab = tokenizer.vocab
        write_tokenizer(folder, vocab, tokenizer.options, config)
    fields = runtime_fields(config, task_fields(model), vocab)
    write_json(folder / CONFIG_FILE, fields, ensure_ascii=False)
    embedding = embedding_fields(model)
    if embedding is not None and embedding["include_special"]:
        of_steps = {
            name: np.asarray(weight)
            for name, weight in named_weights(model).items()
            if name.startswith("head/step_")
        }
        write_embedding(folder, config.num_hiddens, config.max_len, embedding, of_steps)


def _graph(model: BERTModel | TaskModel) -> Graph:
    config = model.bert_config
    # As in transformers, there are no segments if they have no effect.
    graph = Graph(TOKENS, MASK, *([SEGMENTS] if config.num_segments > 1 else []))
    reads_first = isinstance(model, TaskModel) and model.reads_first
    encoded = encode(graph, model.encoder, only_first=reads_first)
    if isinstance(model, BERTModel) or not model.has_head:
        of_texts = embedder()(model) if isinstance(model, BERTModel) else model
        graph.output("last_hidden_state", encoded, *PLACES, config.num_hiddens)
        prompt_lens = ""
        if PROMPT_LENS in of_texts.features:  # it may be omitted: no token is skipped
            prompt_lens = PROMPT_LENS
            graph.inputs[prompt_lens] = "int64", PLACES[:1]
            graph.constants[prompt_lens] = np.zeros(1, "int64")
        embedding = pool(graph, of_texts.head, encoded, is_token(graph, config), prompt_lens)
        width = of_texts.embedding_width
        if of_texts.truncate_dim is not None:
            ends = (graph.constant([n], "int64") for n in (0, width, 1))
            embedding = graph.add("Slice", embedding, *ends)
        graph.output("sentence_embedding", embedding, "batch", width)
        if isinstance(model, BERTModel):
            _add_pretraining_heads(graph, model, encoded)
        return graph
    if model.mean is not None:
        encoded = pool(graph, model.mean, encoded, is_token(graph, config))
    elif reads_first:
        encoded = first_token(graph, encoded)
    if model.hidden is not None:
        encoded = pooler(graph, model.hidden, encoded)
    logits = dense(graph, model.head, encoded, "head")
    if model.outputs[1:]:
        for column, name in enumerate(model.outputs):
            one = graph.add("Gather", logits, graph.constant(column, "int64"), axis=-1)
            graph.output(f"{name}_logits", one, *PLACES)
    else:
        rows = PLACES if model.gives_tokens else PLACES[:1]
        # `MultipleChoice` has no labels, but one score per row.
        shape = (*rows, len(getattr(model, "labels", "1")))
        graph.output("logits", logits, *shape)
        if "is_choice" in inspect.signature(model.answer).parameters:
            shape = (1, "batch")  # the rows of a batch are the choices of one text
            logits = graph.add("Reshape", logits, graph.constant([1, -1], "int64"))
        if getattr(model, "crf", None) is None:
            add_answer(graph, {logits: ("float32", shape)}, model.answer)
    return graph


def _crf_graph(model: TaskModel) -> Graph:
    """Return the graph that answers with a CRF: from the logits of the words of whole texts."""
    graph, sizes = Graph(), ("batch", "words", len(model.labels))
    graph.inputs |= {"logits": ("float32", sizes), "num_words": ("int64", sizes[:1])}
    add_answer(graph, graph.inputs, model.answer)
    return graph


def _add_pretraining_heads(graph: Graph, model: BERTModel, encoded: str) -> None:
    config, heads = model.bert_config, model.usable_heads
    cls = first_token(graph, encoded)
    if "pooler" in heads:
        cls = pooler(graph, heads["pooler"], cls)
        graph.output("pooler_output", cls, "batch", config.num_hiddens)
    if "mlm" in heads:
        logits = predict_masked(graph, heads["mlm"], encoded)
        _, places = graph.inputs[PREDICTED]
        graph.output("mlm_logits", logits, *places, config.vocab_size)
        size = min(DEFAULT_TOP_K, config.vocab_size)
        probabilities = graph.add("Softmax", logits, axis=-1)
        scores, ids = graph.add_two("TopK", probabilities, graph.constant([size], "int64"))
        graph.output("mlm_scores", scores, *places, size)
        graph.output("mlm_ids", ids, *places, size, dtype="int64")
    if "nsp" in heads:
        logits = dense(graph, heads["nsp"].dense, cls, "nsp/dense")
        graph.output("nsp_logits", logits, "batch", 2)
        graph.output("nsp", graph.add("Softmax", logits, axis=-1), "batch", 2)


def _proto(graph: Graph, name: str) -> "ModelProto":
    """Convert a graph to a protocol buffer and validate it."""
    import onnx
    from onnx import helper

    size = sum(value.nbytes for value in graph.constants.values())
    if size >= onnx.checker.MAXIMUM_PROTOBUF:
        raise ValueError(
            "An ONNX file is limited to two gigabytes. Received: a model with "
            f"{size / 1e9:.1f} GB of weights. Use `export_saved_model`."
        )
    inputs, outputs = (
        [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), x)
            for name, (dtype, x) in tensors.items()
        ]
        for tensors in (graph.inputs, graph.outputs)
    )
    values = [onnx.numpy_helper.from_array(value, key) for key, value in graph.constants.items()]
    proto = helper.make_model(
        helper.make_graph(graph.nodes, name, inputs, outputs, values),
        opset_imports=[helper.make_opsetid("", OPSET)],
        ir_version=IR_VERSION,
        producer_name=PRODUCER,
        producer_version=importlib.metadata.version(PRODUCER),
    )
    onnx.checker.check_model(proto, full_check=True)
    return proto


def _save(proto: "ModelProto", file: pathlib.Path, int8: bool) -> None:
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
