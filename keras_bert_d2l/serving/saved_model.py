"""Export of a model and its tokenizer as a numbered SavedModel, with its card and warm-up."""

import importlib.metadata
import os
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
import tensorflow as tf

from keras_bert_d2l.checkpoints.checks import check_kind
from keras_bert_d2l.checkpoints.formats.checkpoint import embedding_fields, task_fields
from keras_bert_d2l.checks import check_integer, check_path, check_that
from keras_bert_d2l.files import check_local, replacing_folder, verify_checksums, write_json
from keras_bert_d2l.models.bert import BERTModel
from keras_bert_d2l.models.tasks.task_model import TaskModel
from keras_bert_d2l.reading import read_json_object
from keras_bert_d2l.serving.audit import (
    GRAPH_FILE,
    check_saved_model,
    oldest_release,
    read_saved_model,
)
from keras_bert_d2l.serving.protocol import CARD_FILE, JSONObject, Specs, interfaces
from keras_bert_d2l.signatures.signature import Answer, Signature, TextOptions, embedding_prompts
from keras_bert_d2l.signatures.signatures import bert_within, model_signatures, takes
from keras_bert_d2l.text.tokenizer.framing import require
from keras_bert_d2l.text.tokenizer.tokenizer import Tokenizer
from keras_bert_d2l.training.run.run_folder import RunFolder, tuned_null_threshold
from keras_bert_d2l.types import PathLike

PRODUCER = "keras-bert-d2l"
# In the function that saves variables. Releases before 2.12 lack it.
_NEW_OP = "DisableCopyOnRead"
WARMUP_FILE = pathlib.PurePath("assets.extra", "tf_serving_warmup_requests")


def export_saved_model(
    model: keras.Model | Mapping[str, keras.Model],
    path: PathLike,
    *,
    tokenizer: Tokenizer | None = None,
    version: int | None = None,
    pairs: bool = False,
    top_k: int = 5,
    null_threshold: float | None = None,
    run_dir: PathLike | None = None,
) -> pathlib.Path:
    """Export a model, with its tokenizer in the graph, as a SavedModel for TensorFlow Serving.

    Loading the export requires neither this package nor Keras nor tensorflow-text: import
    `tensorflow`, then use `tf.saved_model.load(folder).signatures`. Each signature takes any number
    of rows:

    - `serving_default`: strings -> the predictions of the model:

      - `BERTModel`: `text` -> `embedding`, `pooled`, `nsp`;
      - `SequenceClassifier`: `text`, and `text_b` of pairs -> `labels`, `scores`, and `label`,
        `score`, `id`, or `is_label` if it is multi-label;
      - `SequenceRegressor`: `text`, and `text_b` of pairs -> `labels`, `scores`;
      - `TokenClassifier`: `text` -> `words`, `labels`, `scores`, `ids`, `starts`, `ends`;
      - `QuestionAnswerer`: `question`, `context` -> `answer`, `score`, `start`, `end`,
        `null_score`, and the best `top_k`: `answers`, `scores`, `starts`, `ends`;
      - `MultipleChoice`: `text`, `choices` -> `choice`, `index`, `score`, `scores`;
      - `TextEmbedder`: `text` -> `embedding`;
      - a Keras model of your own: `text`, with `pairs` also `text_b`, and its other inputs -> its
        outputs. `pred_positions` are the positions of the masks in the text;

    - `embed` of a `BERTModel` or a `TextEmbedder`: `text` -> `embedding`, as from
      `keras_bert_d2l.embed`; `embed_query` and `embed_document`, if the model has prompts for
      queries and documents;
    - `fill_mask` of a `BERTModel`: `text` -> `tokens`, `scores`, `ids`, `positions`;
    - `embed_sparse` of a `BERTModel`: `text` -> `indices`, `values`, `tokens`;
    - `entities` of a `TokenClassifier`: `text` -> `texts`, `labels`, `scores`, `starts`, `ends`;
      `words` and `word_entities`: `words`, padded with empty strings -> the outputs of
      `serving_default` and of `entities`;
    - `nsp` of a `BERTModel`: `text`, `text_b` -> `nsp`;
    - `tokens`: `tokens`, `segments`, `valid_lens`, and `pred_positions` of a `BERTModel` ->
      logits; of a model of your own, all its inputs -> its outputs.

    A model of your own is a functional `keras.Model` with one `BERTEncoder`. Its inputs are known
    by their names, `tokens`, `segments`, `valid_lens`, `pred_positions` and `attention_mask`. It
    also has the signature `embed`.

    Several task models that share one encoder, given as a dictionary, become one export. The
    weights of the encoder are saved once. Each name is a signature that takes strings, with the
    outputs of `serving_default` above; `serving_default` is an alias of the first one.

    Signatures and outputs of heads that the model's checkpoint lacked (`BERTModel.missing_heads`)
    are omitted. Signatures that take strings also return `truncated`, a mask of the texts that were
    too long. Without a tokenizer, `tokens` is the only signature, and `serving_default` is an alias
    of it. docs/serving_signatures.md lists the dtypes and shapes.

    Besides the graph and the weights, the folder contains `model_card.json`, `assets/vocab.txt` or
    `assets/tokenizer.json` if there is a tokenizer, and warm-up requests for the server if
    tensorflow-serving-api is installed. The graph is audited (see `audit_saved_model`). The folder
    is created atomically, so a server that watches `path` never sees an incomplete version.

    Args:
        model: The model, or models by the names of their signatures.
        path: Folder for all versions of the model, such as `"saved_models/demo"`.
        tokenizer: The model's tokenizer. Defaults to `model.tokenizer`; if that is `None`, the
            export only accepts token ids.
        version: Version number, at least 1. Defaults to the next one, or 1 in a new folder.
        pairs: Whether the inputs of a `SequenceClassifier` or a `SequenceRegressor` are pairs of
            texts, or those of a model of your own.
        top_k: Number of predictions per mask, or of answers per question for a
            `QuestionAnswerer`.
        null_threshold: A `QuestionAnswerer` returns no answer (the empty string) if its
            `null_score` is above this. Defaults to the threshold that was best on the development
            data of the run in `run_dir`. Without a threshold, it always returns an answer.
        run_dir: Folder or URL of the run that trained the model, for the threshold and the summary
            in the model card.

    Returns: the folder of the version, `path/version`.

    Raises:
        ValueError: The backend is not TensorFlow, the vocabulary does not have the model's size,
            `version`, `top_k` or `null_threshold` is out of range, or `pairs` or `null_threshold`
            does not fit the model. Several models do not share their encoder, or lack a tokenizer.
            A model of your own is not functional, has no tokens or several
            encoders, or a name appears twice.
        RuntimeError: The graph has operations that TensorFlow Serving does not support.
        FileExistsError: The version already exists.
        FileNotFoundError: `run_dir` is not a run folder.
        OSError: The folder cannot be written.

    Example:

    ```python
    import keras_bert_d2l as kb
    import tensorflow as tf

    vocab = kb.Vocab(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "text"])
    config = kb.BERTConfig.preset("tiny", vocab_size=len(vocab))
    model = kb.BERTModel.from_bert_config(config)
    folder = kb.export_saved_model(model, "saved_models/demo", tokenizer=kb.Tokenizer(vocab))

    embed = tf.saved_model.load(str(folder)).signatures["embed"]
    print(embed(text=tf.constant(["a text"]))["embedding"].shape)  # (1, 128)
    ```
    """
    models = model if isinstance(model, Mapping) else {"": model}
    bert, *others = map(_checked, models.values())
    check_path("path", path)
    check_local("path", path)
    tokenizer = bert.tokenizer if tokenizer is None else tokenizer
    is_right = all(one.encoder is bert.encoder and one.is_task and tokenizer for one in others)
    check_that(is_right, "model", "task models with a tokenizer, which share their encoder", model)
    can_be_unanswered = takes(bert, "null_threshold") and tokenizer is not None
    if can_be_unanswered and null_threshold is None and run_dir is not None:
        null_threshold = tuned_null_threshold(run_dir)
    options = TextOptions(pairs, top_k, null_threshold)
    of_models = {name: model_signatures(one, tokenizer, options) for name, one in models.items()}
    of_texts = {name: one.get("serving_default") for name, one in of_models.items()}
    signatures: Any = of_models.get("", of_texts)
    folder = _version_folder(pathlib.Path(path), version)
    name = folder.resolve().parent.name
    with replacing_folder(folder) as temporary:
        layers = (layer for one in models.values() for layer in one._flatten_layers())
        tables = [getattr(layer, "lookup_table", None) for layer in layers]
        _save(signatures, [x for x in (tokenizer, *tables) if x is not None], temporary)
        check_saved_model(temporary)
        if tokenizer is not None:
            tokenizer.vocab.to_file(temporary / "assets" / tokenizer.vocab.file_name)
        write_warmup(temporary, name, signatures)
        signature_defs = read_saved_model(temporary).meta_graphs[0].signature_def
        card = {
            "name": name,
            "version": int(folder.name),
            **card_fields(bert, tokenizer, pairs=pairs, null_threshold=null_threshold),
            "precision": bert.dtype_policy.name,
            "oldest_tensorflow": oldest_release(temporary),
            "signatures": {
                key: {"inputs": _tensors(one.inputs), "outputs": _tensors(one.outputs)}
                for key, one in interfaces(signature_defs).items()
            },
            "training": None if run_dir is None else _training(run_dir),
        }
        write_json(temporary / CARD_FILE, card, ensure_ascii=False)
        _refuse_existing(folder)  # another process may have written this version in the meantime
    return folder


def _checked(model: object) -> BERTModel | TaskModel:
    """Return the model or, of a model of one's own, a `BERTModel` that shares its encoder."""
    if keras.backend.backend() != "tensorflow":
        raise ValueError(
            "Exporting a SavedModel requires the TensorFlow backend. Received: the backend "
            f"{keras.backend.backend()!r}. Save the model with `save_pretrained`, then load and "
            "export it in a process with KERAS_BACKEND=tensorflow."
        )
    found: BERTModel | TaskModel = bert_within(model)
    check_kind(found, BERTModel, TaskModel)
    return found


def _save(
    signatures: Mapping[str, Signature], resources: list[object], folder: pathlib.Path
) -> None:
    """Write the graph, its variables and other resources, such as tables of the tokenizer.

    Functions that are already traced are saved unchanged. `keras.export.ExportArchive` would
    trace each of them again.
    """
    saved = tf.Module()
    saved.resources = resources
    traced = {name: _of_any_shape(*one[:2]) for name, one in signatures.items()}
    used = {id(variable): variable for one in traced.values() for variable in one.variables}
    saved.all_variables = list(used.values())
    default = tf.saved_model.DEFAULT_SERVING_SIGNATURE_DEF_KEY
    traced.setdefault(default, next(iter(traced.values())))
    tf.saved_model.save(saved, os.fspath(folder), signatures=traced)
    # Servers, which read the file, need the first axis to count and to merge rows.
    proto = read_saved_model(folder)
    for name, signature in signatures.items():
        inputs = proto.meta_graphs[0].signature_def[name].inputs
        for spec in signature.specs:
            inputs[spec.name].tensor_shape.CopyFrom(spec.shape.as_proto())
    for function in proto.meta_graphs[0].graph_def.library.function:
        for node in function.node_def:
            if node.op == _NEW_OP:
                node.CopyFrom(type(node)(name=node.name, op="NoOp"))
    (folder / GRAPH_FILE).write_bytes(proto.SerializeToString(deterministic=True))


def _of_any_shape(function: Callable[..., Answer], specs: Sequence[tf.TensorSpec]) -> Any:
    """Trace a function so that one text `()` and columns of texts `(B, 1)` count as `(B,)`."""
    are_texts = [spec.dtype == tf.string and spec.shape.rank == 1 for spec in specs]
    message = "Texts must have the shape (B,), (B, 1) or ()."

    def flat(x: tf.Tensor) -> tf.Tensor:
        with tf.control_dependencies(require(tf.reduce_prod(tf.shape(x)[1:]) == 1, message)):
            return tf.reshape(x, [-1])

    def of_any_shape(*inputs: tf.Tensor) -> Answer:
        pairs = zip(inputs, are_texts, strict=True)
        return function(*(flat(x) if is_text else x for x, is_text in pairs))

    open_specs = [
        tf.TensorSpec(None, tf.string, spec.name) if is_text else spec
        for spec, is_text in zip(specs, are_texts, strict=True)
    ]
    return tf.function(of_any_shape, autograph=False).get_concrete_function(*open_specs)


def _version_folder(path: pathlib.Path, version: int | None) -> pathlib.Path:
    if (path / GRAPH_FILE).exists():
        raise FileExistsError(
            f"{os.fspath(path)!r} is a version of an exported model. Export to the folder of the "
            f"model, {os.fspath(path.parent)!r}, which then gets another version."
        )
    if version is None:
        taken = [int(entry.name) for entry in path.glob("*") if entry.name.isdecimal()]
        return path / str(max(taken, default=0) + 1)
    check_integer("version", version, 1)
    folder = path / str(version)
    _refuse_existing(folder)
    return folder


def _refuse_existing(folder: pathlib.Path) -> None:
    if folder.exists():
        raise FileExistsError(
            f"{os.fspath(folder)!r} already exists, and an export never replaces a version. Choose "
            "a different number, or omit `version` to use the next one."
        )


def write_warmup(folder: pathlib.Path, name: str, signatures: Mapping[str, Signature]) -> None:
    """Write requests for each signature, if tensorflow-serving-api is installed.

    Args:
        folder: Folder of a SavedModel.
        name: Name of the model on the server.
        signatures: The signatures by name.
    """
    try:
        from tensorflow_serving.apis import model_pb2, predict_pb2, prediction_log_pb2
    except ModuleNotFoundError:
        return
    file = folder / WARMUP_FILE
    file.parent.mkdir()
    with tf.io.TFRecordWriter(str(file)) as writer:
        for signature_name, signature in signatures.items():
            request = predict_pb2.PredictRequest(
                model_spec=model_pb2.ModelSpec(name=name, signature_name=signature_name),
                inputs={
                    spec.name: tf.make_tensor_proto(array, spec.dtype)
                    for spec, array in zip(signature.specs, signature.example, strict=True)
                },
            )
            log = prediction_log_pb2.PredictLog(request=request)
            writer.write(prediction_log_pb2.PredictionLog(predict_log=log).SerializeToString())


def card_fields(
    model: BERTModel | TaskModel, tokenizer: Tokenizer | None, **task_options: object
) -> dict[str, object]:
    """Return what the model cards of a SavedModel and of an ONNX file tell about a model."""
    task = task_fields(model)
    return {
        "producer": f"{PRODUCER} {importlib.metadata.version(PRODUCER)}",
        "task": task and {**task, **task_options},
        "embedding": embedding_fields(model),
        "prompts": embedding_prompts(model),  # of the signatures
        "config": model.bert_config.to_dict(),
        "tokenizer": tokenizer and tokenizer.options,
        "vocabulary": tokenizer
        and {"size": len(tokenizer.vocab), "sha256": tokenizer.vocab.fingerprint},
    }


def _tensors(specs: Specs) -> dict[str, JSONObject]:
    """Describe tensors as JSON. A dimension of `None` can have any size."""
    return {name: {"dtype": spec.dtype_name, "shape": spec.shape} for name, spec in specs.items()}


def _training(run_dir: PathLike) -> dict[str, object]:
    """Return the path of a run and, of a fine-tuning run, the metrics of its best epoch."""
    run = RunFolder.for_reading(run_dir)
    verify_checksums(run.path)
    best = None
    if run.summary_file.is_file():
        best = read_json_object(run.summary_file)["best"]
    elif not run.options_file.is_file():
        raise FileNotFoundError(
            f"{os.fspath(run_dir)!r} does not contain a run: it has no {run.options_file.name}."
        )
    return {"run": os.fspath(run_dir), "best": best}
