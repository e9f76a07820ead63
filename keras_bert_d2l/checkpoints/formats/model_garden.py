"""Read checkpoints of the BERTs of TensorFlow's Model Garden (tf-models-official, TensorFlow 2).

A folder contains

- `ckpt-1.index` and `ckpt-1.data-00000-of-00001`, under this or a different prefix: variables that
  `tf.train.Checkpoint` saved of an encoder or of a whole model, also with the optimizer and the
  counters of the trainer;
- often `checkpoint`, which names the latest prefix;
- `params.yaml`, which the trainer writes, `bert_config.yaml` with a part of it, or the
  `bert_config.json` of google-research/bert: the architecture;
- sometimes `vocab.txt`.

Encoders are `BertEncoder` and `BertEncoderV2`. Models are `BertPretrainerV2`, `BertClassifier`,
`BertTokenClassifier` and `BertSpanLabeler`. If a classification head has a pooler of its own, that
of the encoder was not trained. The former is loaded, as in the Model Garden's own export. Before
version 2.4, the heads of all tasks looked the same. They are not read.

Source: github.com/tensorflow/models, official/nlp (modeling/models, configs/encoders.py,
tasks, data/create_pretraining_data.py).
"""

import contextlib
import dataclasses
import pathlib
import re
from collections.abc import Mapping

from keras_bert_d2l.checkpoints.array_files import NamedArrays
from keras_bert_d2l.checkpoints.formats import google, tensorflow_hub
from keras_bert_d2l.checkpoints.formats.checkpoint import Checkpoint, parts_of, unnamed_labels
from keras_bert_d2l.checkpoints.formats.google import find_config, find_prefix
from keras_bert_d2l.checkpoints.formats.tensorflow_hub import PRETRAINING, SENTENCE, TOKENS
from keras_bert_d2l.checkpoints.tensorflow_files import (
    OBJECT_GRAPH,
    has_object_graph,
    open_tf,
    variables_of,
)
from keras_bert_d2l.checkpoints.weights import check_extent
from keras_bert_d2l.checks import check_bool, check_choice, check_that, shown_names
from keras_bert_d2l.config import BERTConfig
from keras_bert_d2l.reading import errors_naming, read_json_object, read_yaml
from keras_bert_d2l.text.normalization import TokenizerOptions
from keras_bert_d2l.types import ConfigDict

_POOLER, _MLM = "pooler_transform", "cls/predictions/"
_PROJECTION = "mlm_output_weights_use_proj"
_HEAD = rf"(?:{PRETRAINING}|{SENTENCE}|{TOKENS})/(?:pooler_dense|logits)/\w+"
_NESTED = re.compile(r"(.*/)?layer_with_weights-\d+/layer_with_weights-\d+/kernel")
_YAML_FILES = ("params.yaml", "bert_config.yaml")
_BERT_FIELDS = {  # by their names in bert_config.json
    "num_layers": "num_hidden_layers",
    "dropout_rate": "hidden_dropout_prob",
    "attention_dropout_rate": "attention_probs_dropout_prob",
    "hidden_activation": "hidden_act",
}


def _read_config(path: pathlib.Path) -> tuple[BERTConfig, ConfigDict]:
    """Return the architecture, and the fields of the task in a YAML file."""
    if path.suffix == ".json":
        return google.read_config(path, read_json_object(path)), {}
    params = {"params": read_yaml(path)}
    with errors_naming(path):
        task = _inner(_inner(params, "params"), "task")
        encoder = _inner(_inner(task, "model"), "encoder")
        kind = encoder.get("type", "bert")
        check_choice("type", kind, ("bert", "bert_v2"))
        fields = {"vocab_size": 30522, "type_vocab_size": 2, **_inner(encoder, kind)}
        fields.pop("type", None)
        for name, value in fields.items():
            check_that(not isinstance(value, dict | list), str(name), "a single value", value)
        if fields.get("embedding_size") == fields.get("hidden_size", 768):
            del fields["embedding_size"]  # another size is rejected
    fields = {_BERT_FIELDS.get(name, str(name)): value for name, value in fields.items()}
    return google.read_config(path, fields), task


def _inner(fields: ConfigDict, name: str) -> ConfigDict:
    """Return a part of a configuration, or all of it if the file has this part alone."""
    part: ConfigDict = fields.get(name, fields)
    check_that(isinstance(part, dict), name, "a mapping", part)
    return part


def recognizes(path: pathlib.Path) -> bool:
    """Return whether a folder or a prefix has a checkpoint of TensorFlow 2."""
    with contextlib.suppress(OSError, ValueError):
        prefix = find_prefix(path)
        files = google.CONFIG_FILE, *_YAML_FILES
        return has_object_graph(prefix) or find_config(prefix, *files).suffix == ".yaml"
    return False


def describe(path: pathlib.Path, *, tokenizer: bool = True) -> Checkpoint:
    """Locate the files of a checkpoint and read everything except the weights.

    The vocabulary is beside the configuration. If no task of `params.yaml` used it with an option
    for lowercasing, this is inferred from the tokens.

    Args:
        path: The folder, whose latest checkpoint is used, or a prefix such as `.../ckpt-1`. The
            configuration and the vocabulary may also be in the parent folder.
        tokenizer: Whether to read the vocabulary.

    Raises:
        FileNotFoundError: The checkpoint or its configuration is missing.
        ValueError: A file is damaged, or the model is not one of the BERTs above.
    """
    prefix = find_prefix(path)
    config_file = find_config(prefix, *_YAML_FILES, google.CONFIG_FILE)
    config, params = _read_config(config_file)
    stored = variables_of(open_tf(prefix))
    names = tensorflow_hub.bert_names(stored, _HEAD)
    if not names:
        raise ValueError(
            f"{stored.source!r} has no BERT of the Model Garden. It contains "
            f"{shown_names(sorted(stored.shapes))}. Load it in the program that made it."
        )
    with errors_naming(config_file):
        task = _task(stored, names, params)
        config = _with_heads(config, names, task, params)
        casing = _casing(params)
    names = _used(names, task)
    arrays = stored.select(names)
    check_extent(config, arrays)
    unread = sorted(stored.shapes.keys() - {*names.values()})
    vocab, options = google.read_vocab(config_file.parent) if tokenizer else (None, {})
    return Checkpoint(
        description="Model Garden" + (f" (not read: {shown_names(unread)})" if unread else ""),
        config=config,
        table=tensorflow_hub.table(config, task),
        arrays=arrays,
        vocab=vocab,
        tokenizer_options=options if vocab is None else {**options, **casing},
        task=task,
    )


def _task(stored: NamedArrays, names: Mapping[str, str], params: ConfigDict) -> ConfigDict | None:
    """Return the task of a checkpoint, or `None`."""
    logits = {name: full for name, full in names.items() if name.endswith("/logits/kernel")}
    logits.pop(f"{PRETRAINING}/logits/kernel", None)
    if not logits:
        return None
    check_that(len(logits) == 1, "task", "that of one head", [*logits])
    [(name, full_name)] = logits.items()
    num_labels = stored.shapes[full_name][-1]
    if name.startswith(SENTENCE):
        return google.sentence_task(num_labels)
    attributes = stored.metadata[OBJECT_GRAPH]
    if "span_labeling" in attributes:
        return {"kind": "QuestionAnswerer"}
    is_nested = "classifier" not in attributes or _NESTED.fullmatch(stored.metadata[full_name])
    if is_nested and "class_names" not in params:
        return None  # before version 2.4, heads of all tasks looked the same
    labels = params.get("class_names", unnamed_labels(num_labels))
    is_right = isinstance(labels, list) and len(labels) == num_labels
    check_that(is_right, "class_names", f"a list of {num_labels} labels", labels)
    dropout = _inner(params, "model").get("head_dropout", 0.1)
    return {"kind": "TokenClassifier", "labels": labels, "dropout": dropout}


def _with_heads(
    config: BERTConfig, names: Mapping[str, str], task: ConfigDict | None, params: ConfigDict
) -> BERTConfig:
    """Return an architecture with the heads of its model.

    Raises:
        ValueError: A head of the pretrained model computes something else than ours.
    """
    heads = _inner(params, "model").get("cls_heads") or []
    is_usual = isinstance(heads, list) and all(
        isinstance(head, dict)
        and (head.get("activation", "tanh"), head.get("cls_token_idx", 0)) == ("tanh", 0)
        for head in heads
    )
    check_that(is_usual, "cls_heads", "a list of heads that apply tanh to the first token", heads)
    projects, expected = _inner(params, "model").get(_PROJECTION), "False or omitted"
    check_that(not projects, _PROJECTION, expected, projects)
    if "model" in params and any(name.startswith(_MLM) for name in names):
        activation = google.activation_of(_inner(params, "model"), "mlm_activation")
        if activation != config.activation:
            config = dataclasses.replace(config, mlm_activation=activation)
    if task and "hidden" not in parts_of(task):
        config = dataclasses.replace(config, pooler=False, next_sentence=False)
    return config


def _casing(params: ConfigDict) -> TokenizerOptions:
    """Return whether a task lowercased texts, if it tokenized any with its vocabulary."""
    for data in (params.get("validation_data"), params.get("train_data")):
        if isinstance(data, dict) and data.get("vocab_file"):
            for name in data.keys() & {"do_lower_case", "lower_case"}:
                return {"lowercase": check_bool(name, data[name])}
    return {}


def _used(names: Mapping[str, str], task: ConfigDict | None) -> dict[str, str]:
    """Return the variables that a model uses, with the pooler of its head as the only one."""
    own = f"{SENTENCE if task else PRETRAINING}/pooler_dense/"
    has_own = any(name.startswith(own) for name in names)
    unused = {
        _MLM: task is not None,
        PRETRAINING: task is not None or not has_own,  # it reads no other pooler than its own
        f"{TOKENS}/": task is None,
        _POOLER: has_own or "hidden" not in parts_of(task),
    }
    dropped = tuple(name for name, is_unused in unused.items() if is_unused)
    return {
        name.replace(own, f"{_POOLER}/"): full_name
        for name, full_name in names.items()
        if not name.startswith(dropped)
    }
