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
of the encoder was not trained. The former is loaded, as in the Model Garden's own export.

Source: github.com/tensorflow/models, official/nlp (modeling/models, configs/encoders.py,
tasks, data/create_pretraining_data.py).
"""

import contextlib
import dataclasses
import pathlib
import re
from collections.abc import Mapping
from typing import Any

from keras_bert_d2l.checkpoints.array_files import NamedArrays
from keras_bert_d2l.checkpoints.formats import foreign_config
from keras_bert_d2l.checkpoints.formats.checkpoint import Checkpoint, parts_of
from keras_bert_d2l.checkpoints.formats.garden_names import NAMES, bert_names, with_merged_heads
from keras_bert_d2l.checkpoints.formats.tensorflow_folder import (
    CONFIG_FILE,
    find_config,
    find_prefix,
    read_vocab,
)
from keras_bert_d2l.checkpoints.object_graphs import OBJECT_GRAPH, open_object_graph
from keras_bert_d2l.checkpoints.tensorflow_files import open_tf
from keras_bert_d2l.checkpoints.weights import (
    SWAPPED,
    TENSORFLOW_ENDINGS,
    Names,
    Row,
    check_extent,
    expand,
)
from keras_bert_d2l.checks import check_choice, check_that, shown, shown_names
from keras_bert_d2l.config import BERTConfig
from keras_bert_d2l.reading import errors_naming, read_yaml
from keras_bert_d2l.types import ConfigDict

_PRETRAINING, _SENTENCE, _TOKENS = "next_sentence", "sentence_prediction", "predictions/transform"
_POOLER, _MLM = "pooler_transform", "cls/predictions/"
_HEAD = re.compile(
    rf"(?:.+/)?((?:{_PRETRAINING}|{_SENTENCE}|{_TOKENS})/(?:pooler_dense|logits)/(?:kernel|bias))"
)
_SPANS = re.compile(r"(.*/)?(span_labeling|layer_with_weights-1)/layer_with_weights-0/kernel")

# The labels of the sentence pairs are Google's: column 0 means "is next".
_NSP: Names = {
    f"nsp/dense/{weight}": (f"{_PRETRAINING}/logits/{weight}", SWAPPED)
    for weight in ("kernel", "bias")
}


def table(config: BERTConfig, task: ConfigDict | None) -> list[Row]:
    """Return a row with the Model Garden's name for every weight."""
    head = _SENTENCE if "hidden" in parts_of(task) else _TOKENS
    names = {**NAMES, **_NSP, "head": f"{head}/logits"}
    return expand(config, names, TENSORFLOW_ENDINGS, parts_of(task))


_YAML_FILES = ("params.yaml", "bert_config.yaml")
_FIELDS: foreign_config.FieldTable = {
    "vocab_size": ("vocab_size", 30522),
    "hidden_size": ("num_hiddens", 768),
    "intermediate_size": ("ffn_num_hiddens", 3072),
    "num_attention_heads": ("num_heads", 12),
    "num_layers": ("num_blks", 12),
    "dropout_rate": ("dropout", 0.1),
    "attention_dropout_rate": ("attention_dropout", 0.1),
    "max_position_embeddings": ("max_len", 512),
    "type_vocab_size": ("num_segments", 2),
    "initializer_range": ("initializer_range", 0.02),
}
_ACTIVATION = "hidden_activation"
_WITHOUT_EFFECT = ("type", "return_all_encoder_outputs", "return_attention_scores")
_KNOWN = {*_FIELDS, _ACTIVATION, "norm_first", "embedding_size", *_WITHOUT_EFFECT}


def _read_config(path: pathlib.Path) -> tuple[BERTConfig, ConfigDict]:
    """Return the architecture, and the fields of the task in a YAML file."""
    if path.suffix == ".json":
        return foreign_config.read_bert_config(path), {}
    params = read_yaml(path)
    with errors_naming(path):
        task = _inner(_mapping(params, "params"), "task")
        encoder = _inner(_inner(task, "model"), "encoder")
        kind = encoder.get("type", "bert")
        check_choice("type", kind, ("bert", "bert_v2"))
        fields = _inner(encoder, kind)
        for name, value in fields.items():
            check_that(not isinstance(value, dict | list), str(name), "a single value", value)
    config = foreign_config.read_config(path, _FIELDS, _KNOWN, _from_fields, fields)
    return config, task


def _inner(fields: ConfigDict, name: str) -> ConfigDict:
    """Return a part of a configuration, or all of it if the file has this part alone."""
    return _mapping(fields[name], name) if name in fields else fields


def _mapping(value: Any, name: str) -> ConfigDict:
    check_that(isinstance(value, dict), name, "a mapping", value)
    fields: ConfigDict = value
    return fields


def _from_fields(fields: ConfigDict) -> BERTConfig:
    width = fields.get("hidden_size", 768)
    embedding = fields.get("embedding_size") or width
    check_that(not fields.get("norm_first"), "norm_first", "false", True)
    check_that(embedding == width, "embedding_size", f"null or {width}", embedding)
    return foreign_config.from_bert_fields({"vocab_size": 30522, **fields}, _FIELDS, _ACTIVATION)


def recognizes(path: pathlib.Path) -> bool:
    """Return whether a folder or a prefix has a checkpoint of TensorFlow 2."""
    with contextlib.suppress(OSError, ValueError):
        prefix = find_prefix(path)
        with contextlib.suppress(OSError, ValueError):
            return OBJECT_GRAPH in open_tf(prefix).shapes
        return bool(find_config(prefix, *_YAML_FILES))  # the checkpoint is damaged
    return False


def describe(
    path: pathlib.Path, num_heads: int | None = None, *, tokenizer: bool = True
) -> Checkpoint:
    """Locate the files of a checkpoint and read everything except the weights.

    The vocabulary is beside the configuration. No file records whether it is lowercase, so this is
    inferred from the tokens.

    Args:
        path: The folder, whose latest checkpoint is used, or a prefix such as `.../ckpt-1`. The
            configuration and the vocabulary may also be in the parent folder.
        num_heads: Not used. The configuration records it.
        tokenizer: Whether to read the vocabulary.

    Raises:
        FileNotFoundError: The checkpoint or its configuration is missing.
        ValueError: A file is damaged, or the model is not one of the BERTs above.
    """
    prefix = find_prefix(path)
    config_file = find_config(prefix, *_YAML_FILES, CONFIG_FILE)
    config, params = _read_config(config_file)
    stored = open_object_graph(prefix)
    names = bert_names(stored)
    if not names:
        raise ValueError(
            f"{stored.source!r} has no BERT of the Model Garden. It contains "
            f"{shown_names(sorted(stored.shapes))}. Load it in the program that made it."
        )
    names = _with_heads(stored, names)
    with errors_naming(config_file):
        task = _task(stored, names, params)
        _check_heads(params, config)
    if task and "hidden" not in parts_of(task):
        config = dataclasses.replace(config, pooler=False, next_sentence=False)
    names = _used(names, task)
    arrays = with_merged_heads(stored.select(names), config)
    check_extent(config, arrays)
    unread = sorted(stored.shapes.keys() - {*names.values()})
    vocab, options = read_vocab(config_file.parent) if tokenizer else (None, {})
    has_mlm = any(name.startswith(_MLM) for name in names)
    kind = _KINDS[task["kind"]] if task else "BertPretrainerV2" if has_mlm else "encoder"
    return Checkpoint(
        description=f"Model Garden, {kind}"
        + (f" (not read: {shown_names(unread)})" if unread else ""),
        config=config,
        table=table(config, task),
        arrays=arrays,
        vocab=vocab,
        tokenizer_options=options,
        task=task,
    )


_KINDS = {
    "SequenceClassifier": "BertClassifier",
    "SequenceRegressor": "BertClassifier",
    "TokenClassifier": "BertTokenClassifier",
    "QuestionAnswerer": "BertSpanLabeler",
}


def _with_heads(stored: NamedArrays, names: Mapping[str, str]) -> dict[str, str]:
    """Add the names of the variables of heads."""
    names = dict(names)
    for full_name in stored.shapes:
        found = _HEAD.fullmatch(full_name)
        if found and names.setdefault(found[1], full_name) != full_name:
            raise ValueError(
                f"{stored.source!r} contains several heads: {shown(names[found[1]])} and "
                f"{shown(full_name)}. Save one of them alone."
            )
    return names


def _task(stored: NamedArrays, names: Mapping[str, str], params: ConfigDict) -> ConfigDict | None:
    """Return the task of a checkpoint, or `None`."""
    logits = {name: full for name, full in names.items() if name.endswith("/logits/kernel")}
    logits.pop(f"{_PRETRAINING}/logits/kernel", None)
    if not logits:
        return None
    check_that(len(logits) == 1, "task", "that of one head", [*logits])
    [(name, full_name)] = logits.items()
    num_labels = stored.shapes[full_name][-1]
    labels: object = [f"LABEL_{number}" for number in range(num_labels)]
    if name.startswith(_TOKENS):
        if "class_names" not in params and _SPANS.fullmatch(stored.metadata[full_name]):
            return {"kind": "QuestionAnswerer"}
        labels = params.get("class_names", labels)
        is_right = isinstance(labels, list) and len(labels) == num_labels
        check_that(is_right, "class_names", f"a list of {num_labels} labels", labels)
        dropout = _inner(params, "model").get("head_dropout", 0.1)
        return {"kind": "TokenClassifier", "labels": labels, "dropout": dropout}
    fields = {"labels": labels, "long_texts": "cut", "dropout": 0.1, "pooling": "cls"}
    if num_labels == 1:
        return {"kind": "SequenceRegressor", **fields}
    return {"kind": "SequenceClassifier", "multi_label": False, **fields}


def _check_heads(params: ConfigDict, config: BERTConfig) -> None:
    """Raise `ValueError` if a head of a pretrained model computes something else than ours."""
    model = _inner(params, "model")
    if "mlm_activation" in model:
        activation = foreign_config.activation_of(model, "mlm_activation")
        is_same, stored = activation == config.activation, model["mlm_activation"]
        check_that(is_same, "mlm_activation", "that of the encoder", stored)
    heads = model.get("cls_heads") or []
    check_that(isinstance(heads, list), "cls_heads", "a list", heads)
    for head in heads:
        fields = {"activation": "tanh", "cls_token_idx": 0, **_mapping(head, "cls_heads")}
        is_usual = (fields["activation"], fields["cls_token_idx"]) == ("tanh", 0)
        check_that(is_usual, "cls_heads", "heads that apply tanh to the first token", head)


def _used(names: Mapping[str, str], task: ConfigDict | None) -> dict[str, str]:
    """Return the variables that a model uses, with the pooler of its head as the only one."""
    own = f"{_SENTENCE if task else _PRETRAINING}/pooler_dense/"
    has_own = any(name.startswith(own) for name in names)
    unused = []
    if task:
        unused.append(_MLM)
    if task or not has_own:  # the head of next sentences reads nothing but a pooler of its own
        unused.append(_PRETRAINING)
    if has_own or "hidden" not in parts_of(task):
        unused.append(_POOLER)
    return {
        name.replace(own, f"{_POOLER}/"): full_name
        for name, full_name in names.items()
        if not name.startswith(tuple(unused))
    }
