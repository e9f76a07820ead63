"""Read and write presets of KerasHub, formerly KerasNLP, for BERT.

A preset is a folder that `save_to_preset` writes. It contains

- `config.json`: the class `BertBackbone` and its arguments; a whole task in KerasNLP before 0.9;
- `model.weights.h5`: the weights of the backbone, or several files with `model.weights.json`;
- `task.json` and `task.weights.h5`: the class and the head of a `BertMaskedLM`, a
  `BertTextClassifier` (formerly `BertClassifier`) or a `BertTextEmbedder`, which has no weights;
- `tokenizer.json` and `assets/tokenizer/vocabulary.txt`, and `preprocessor.json`;
- `metadata.json`, which KerasHub does not read. This package stores there what KerasHub cannot
  express, such as the names of labels.

The files name classes of Keras. The package only checks that it knows a name: it imports no class,
and creates no object from the files.

KerasHub's BERT has the tanh approximation of GELU and a normalization with 1e-12. Its MLM head has
the exact GELU and 1e-5.

Source: github.com/keras-team/keras-hub, `models/bert`, `layers/modeling/masked_lm_head.py` and
`utils/preset_utils.py`; `saving/saving_lib.py` of Keras.
"""

import dataclasses
import os
import pathlib
import warnings
from collections.abc import Sequence
from typing import cast

import keras
import numpy as np

from keras_bert_d2l import checks, reading
from keras_bert_d2l.checkpoints import weights
from keras_bert_d2l.checkpoints.array_files import NamedArrays, shard_files
from keras_bert_d2l.checkpoints.formats import checkpoint, foreign_config
from keras_bert_d2l.checkpoints.formats.tensorflow_hub import split_heads
from keras_bert_d2l.checkpoints.hdf5_files import open_hdf5, write_hdf5
from keras_bert_d2l.config import BERTConfig
from keras_bert_d2l.contract.task import embedder
from keras_bert_d2l.files import write_json
from keras_bert_d2l.models.bert import BERTModel
from keras_bert_d2l.models.tasks.task_model import TaskModel
from keras_bert_d2l.text.normalization import TokenizerOptions, normalization_of
from keras_bert_d2l.text.vocab import GOOGLE_SPECIALS, Vocab
from keras_bert_d2l.types import ConfigDict

CONFIG_FILE, TASK_FILE, METADATA_FILE = "config.json", "task.json", "metadata.json"
TOKENIZER_FILE, PREPROCESSOR_FILE = "tokenizer.json", "preprocessor.json"
VOCAB_FILE = "assets/tokenizer/vocabulary.txt"
WEIGHTS_FILE, INDEX_FILE = "model.weights.h5", "model.weights.json"
TASK_WEIGHTS_FILE = "task.weights.h5"
# What `write` may replace in a folder, with `config.json` and `tokenizer.json`.
FILES = (TASK_FILE, METADATA_FILE, PREPROCESSOR_FILE, WEIGHTS_FILE, TASK_WEIGHTS_FILE, "assets")

_BACKBONE, _MLM, _EMBEDDER = "BertBackbone", "BertMaskedLM", "BertTextEmbedder"
_CLASSIFIERS = ("BertTextClassifier", "BertClassifier")  # the second is that of KerasNLP
_CLASSES = (_BACKBONE, _MLM, *_CLASSIFIERS, _EMBEDDER)
_POOLINGS = ("cls", "mean", "max")
_OWN_FIELDS: dict[str, tuple[str, ...]] = {
    _EMBEDDER: (
        *("long_texts", "max_len", "prompts", "default_prompt_name", "include_prompt"),
        *("similarity", "truncate_dim"),
    )
}
_OWN_FIELDS |= dict.fromkeys(_CLASSIFIERS, ("labels", "long_texts"))
_OWN = "keras_bert_d2l"  # the key in `METADATA_FILE`

_ROOT = "layers/bert_backbone/"  # in the file of a whole task
_OF_BACKBONE = f"{_ROOT}layers/"
_POOLER = f"{_OF_BACKBONE}dense"
_BLOCK = f"{_OF_BACKBONE}transformer_encoder_{{}}"
_HEADS = {_MLM: "layers/masked_lm_head/", _CLASSIFIERS[0]: "layers/dense/"}
_ENDINGS: weights.Endings = {
    **dict.fromkeys(("kernel", "gamma", "embeddings"), ("/vars/0", weights.SAME)),
    **dict.fromkeys(("bias", "beta"), ("/vars/1", weights.SAME)),
}
_NAMES: weights.Names = {
    "encoder/token_embedding": f"{_OF_BACKBONE}reversible_embedding",
    "encoder/segment_embedding": f"{_OF_BACKBONE}embedding",
    "encoder/pos_embedding": (f"{_OF_BACKBONE}position_embedding/vars/0", weights.POSITIONS),
    "encoder/embedding_ln": f"{_OF_BACKBONE}layer_normalization",
    "encoder/blk_{}/attention/W_q": f"{_BLOCK}/_self_attention_layer/query_dense",
    "encoder/blk_{}/attention/W_k": f"{_BLOCK}/_self_attention_layer/key_dense",
    "encoder/blk_{}/attention/W_v": f"{_BLOCK}/_self_attention_layer/value_dense",
    "encoder/blk_{}/attention/W_o": f"{_BLOCK}/_self_attention_layer/output_dense",
    "encoder/blk_{}/addnorm1/ln": f"{_BLOCK}/_self_attention_layer_norm",
    "encoder/blk_{}/ffn/dense1": f"{_BLOCK}/_feedforward_intermediate_dense",
    "encoder/blk_{}/ffn/dense2": f"{_BLOCK}/_feedforward_output_dense",
    "encoder/blk_{}/addnorm2/ln": f"{_BLOCK}/_feedforward_layer_norm",
    "hidden": _POOLER,
    "mlm/mlp/dense": "layers/masked_lm_head/_intermediate_dense",
    "mlm/mlp/ln": "layers/masked_lm_head/_intermediate_layer_norm",
    "mlm/bias": "layers/masked_lm_head/vars/0",
    "mlm/mlp/logits": "no head of KerasHub/logits",
    "nsp/dense": "no head of KerasHub/nsp",
    "head": "layers/dense",
}


def table(config: BERTConfig, task: ConfigDict | None) -> list[weights.Row]:
    """Return a row for every weight, with the name that Keras gives it in the file of a task."""
    rows = weights.expand(config, _NAMES, _ENDINGS, checkpoint.parts_of(task))
    rows = split_heads(rows, config.num_heads)
    first = _BLOCK.format(0)  # Keras numbers layers of the same class from the second one
    return [row._replace(theirs=row.theirs.replace(f"{first}/", f"{first[:-2]}/")) for row in rows]


_FIELDS: foreign_config.FieldTable = {
    "vocabulary_size": ("vocab_size", None),
    "num_layers": ("num_blks", None),
    "num_heads": ("num_heads", None),
    "hidden_dim": ("num_hiddens", None),
    "intermediate_dim": ("ffn_num_hiddens", None),
    "dropout": ("dropout", 0.1),
    "max_sequence_length": ("max_len", 512),
    "num_segments": ("num_segments", 2),
}
_HEAD_OF_MLM: ConfigDict = {"mlm_activation": "gelu", "mlm_layer_norm_epsilon": 1e-5}
_OF_HEADS = {_MLM: _HEAD_OF_MLM, _EMBEDDER: {"pooler": False, "next_sentence": False}}
_OPTIONS = {  # of the tokenizer, theirs and ours
    "lowercase": "lowercase",
    "strip_accents": "strip_accents",
    "special_tokens_in_strings": "split_special_tokens",  # the opposite
    "split_on_cjk": "tokenize_chinese_chars",
}
_FIXED = {"split": True, "suffix_indicator": "##", "oov_token": "[UNK]"}
_OF_LAYERS = ("name", "trainable", "dtype")
_OF_OTHERS = """
    backbone preprocessor num_classes activation dropout pooling_mode normalize tokenizer
    sequence_length truncate config_file vocabulary
""".split()


def _object(value: object, where: str, *classes: str) -> tuple[str, ConfigDict]:
    """Return the class name and the arguments of a serialized object, if it is one of `classes`."""
    fields = value if isinstance(value, dict) else {}
    package, _, name = str(fields.get("registered_name")).partition(">")
    is_known = package in ("keras_hub", "keras_nlp") and name in classes
    received, expected = fields.get("registered_name") or value, ", ".join(classes)
    checks.check_that(is_known, where, f"of KerasHub: {expected}", received, "Only BERT is read.")
    arguments = cast(ConfigDict, fields.get("config"))
    checks.check_that(isinstance(arguments, dict), "config", "an object", arguments)
    known = _FIELDS if name == _BACKBONE else (*_OPTIONS, *_FIXED, *_OF_OTHERS)
    expected = "omitted: it may change what the model computes"
    for argument in arguments.keys() - {*known, *_OF_LAYERS}:
        checks.check_that(not arguments[argument], argument, expected, arguments[argument])
    return name, arguments


def _serialized(name: str, arguments: ConfigDict) -> ConfigDict:
    """Return an object as Keras serializes it, which KerasHub finds by the registered name."""
    registered = {"class_name": name, "registered_name": f"keras_hub>{name}"}
    return {"module": "keras_hub.models", **registered, "config": arguments}


def _config_of(fields: ConfigDict, kind: str) -> BERTConfig:
    """Return the architecture of a backbone, with the heads of a task of KerasHub."""
    values = {ours: fields.get(theirs, default) for theirs, (ours, default) in _FIELDS.items()}
    heads = _OF_HEADS.get(kind, {})
    return BERTConfig.preset("google", **values, embedding_dropout=values["dropout"], **heads)


def _classifier_of(fields: ConfigDict, own: ConfigDict, bias: tuple[int, ...]) -> ConfigDict:
    """Return the task of a classifier whose head has a bias of some shape."""
    number = fields.get("num_classes")
    checks.check_that((number,) == bias, "num_classes", f"the size of the head, {bias}", number)
    choices = ("linear", "sigmoid", "softmax")[: 2 if number == 1 else 3]
    activation = checks.check_choice("activation", fields.get("activation") or "linear", choices)
    task = {"kind": "SequenceRegressor", "activation": activation}
    if number != 1:
        task = {"kind": "SequenceClassifier", "multi_label": activation == "sigmoid"}
    task |= {"dropout": fields.get("dropout", 0.1), "pooling": "cls"}
    task |= {"labels": checkpoint.unnamed_labels(*bias), **own}
    return checkpoint.check_task_fields(task)


def _embedding_of(fields: ConfigDict, own: ConfigDict, most: int) -> ConfigDict:
    """Return the arguments of the `TextEmbedder` that computes what a `BertTextEmbedder` does."""
    max_len = None
    if (preprocessor := fields.get("preprocessor")) is not None:
        _, rows = _object(preprocessor, "preprocessor", f"{_EMBEDDER}Preprocessor")
        length = checks.check_integer("sequence_length", rows.get("sequence_length"), least=3)
        max_len = length if length < most else None
    pooling = checks.check_choice("pooling_mode", fields.get("pooling_mode", "mean"), _POOLINGS)
    normalize = checks.check_bool("normalize", fields.get("normalize", True))
    return {"pooling": pooling, "normalize": normalize, "max_len": max_len, **own}


def recognizes(path: pathlib.Path, file: str = CONFIG_FILE) -> bool:
    """Return whether a file of a folder has a serialized object of Keras."""
    return "registered_name" in reading.readable_fields(path / file, reading.MOST_VOCAB_BYTES)


def describe(path: pathlib.Path, *, tokenizer: bool = True) -> checkpoint.Checkpoint:
    """Read everything in a preset except its weights, with the arguments of `native.describe`.

    A task has the backbone of its own file, as in KerasHub. The pooler of a `BertTextEmbedder` is
    not read, because it is not used. No preset has a next-sentence head.
    """
    file = path / (TASK_FILE if reading.has_file(path / TASK_FILE) else CONFIG_FILE)
    content = reading.read_json_object(file)
    with reading.errors_naming(file):
        kind, fields = _object(content, "registered_name", *_CLASSES)
        backbone = content if kind == _BACKBONE else fields.get("backbone")
        config = _config_of(_object(backbone, "backbone", _BACKBONE)[1], kind)
    arrays = _open_weights(path, kind)
    weights.check_extent(config, arrays)
    task = embedding = None
    own = {"long_texts": "cut", **_own_fields(path, *_OWN_FIELDS.get(kind, ()))}
    with reading.errors_naming(file):
        if kind in _CLASSIFIERS:
            task = _classifier_of(fields, own, arrays.shapes.get("layers/dense/vars/1", ()))
        elif kind == _EMBEDDER:
            embedding = _embedding_of(fields, own, config.max_len)
    known = (f"KerasHub {kind}", config, table(config, task), arrays)
    words = read_tokenizer(path) if tokenizer else (None, TokenizerOptions())
    return checkpoint.Checkpoint(*known, *words, task, embedding=embedding)


def _own_fields(path: pathlib.Path, *names: str) -> ConfigDict:
    """Return those fields of a preset that this package stored."""
    file = path / METADATA_FILE
    own = reading.read_json_object(file).get(_OWN) if reading.has_file(file) else None
    return {name: own[name] for name in names if name in own} if isinstance(own, dict) else {}


def _open_weights(path: pathlib.Path, kind: str) -> NamedArrays:
    """Open the weights of a preset, with the names of the file of a whole task."""
    is_sharded = not reading.has_file(path / WEIGHTS_FILE) and reading.has_file(path / INDEX_FILE)
    arrays = _layers(shard_files(path / INDEX_FILE) if is_sharded else [path / WEIGHTS_FILE])
    if not any(name.startswith(_ROOT) for name in arrays.shapes):
        body = arrays = arrays.select({f"{_ROOT}{name}": name for name in arrays.shapes})
        if reading.has_file(path / TASK_WEIGHTS_FILE):
            head = _layers([path / TASK_WEIGHTS_FILE])
            arrays = NamedArrays(
                os.fspath(path),
                {**head.shapes, **body.shapes},
                {**head.dtypes, **body.dtypes},
                lambda name: (body if name in body.shapes else head).read(name),
            )
        elif kind in _CLASSIFIERS:
            raise FileNotFoundError(
                f"{os.fspath(path)!r} has no {TASK_WEIGHTS_FILE}, the head of its {kind}. Copy it "
                f"again. For a new head, remove {TASK_FILE} and pass `labels` to `from_pretrained`."
            )
    used = [name for name in arrays.shapes if kind != _EMBEDDER or not name.startswith(_POOLER)]
    return arrays.select({name: name for name in used})


def _layers(files: Sequence[pathlib.Path]) -> NamedArrays:
    """Open the weights of layers; files of tasks also have the state of the optimizer."""
    arrays, old = open_hdf5(files), "_layer_checkpoint_dependencies"  # in Keras 2.13
    names = {name.replace(old, "layers"): name for name in arrays.shapes}
    return arrays.select({new: name for new, name in names.items() if new.startswith("layers/")})


def read_tokenizer(path: pathlib.Path) -> tuple[Vocab | None, TokenizerOptions]:
    """Return the vocabulary of a preset, or `None` if it has none, and the tokenizer options.

    Raises:
        FileNotFoundError: The vocabulary is missing.
        ValueError: A file is damaged, or our `Tokenizer` would produce different ids.
    """
    file = path / TOKENIZER_FILE
    if not reading.has_file(file):
        return None, {}
    content = reading.read_json_object(file)
    advice = "In Python, `load_pretrained(path, tokenizer=False)` loads the model alone."
    with reading.errors_naming(file):
        _, fields = _object(content, "registered_name", "BertTokenizer")
        for name, only in _FIXED.items():
            value = fields.get(name, only)
            checks.check_that(value == only, name, repr(only), value, advice)
        options = {
            ours: checks.check_bool(theirs, fields.get(theirs, theirs == "split_on_cjk"))
            for theirs, ours in _OPTIONS.items()
        }
    options["split_special_tokens"] = not options["split_special_tokens"]
    compat = {"compat": "huggingface", **_own_fields(path, "compat")}
    return Vocab.from_file(path / VOCAB_FILE), cast(TokenizerOptions, options | compat)


def write(
    model: BERTModel | TaskModel,
    folder: pathlib.Path,
    vocab: Vocab | None,
    tokenizer_options: TokenizerOptions,
    embedding: ConfigDict | None = None,
) -> None:
    """Write a preset that KerasHub loads with `from_preset`, with the arguments of `native.write`.

    Raises:
        ValueError: KerasHub cannot express the model or the tokenizer. The message names the field.
    """
    config, task = model.bert_config, checkpoint.task_fields(model)
    as_embedder = None if embedding is None else embedder()(model, **embedding)
    fields = checkpoint.task_fields(as_embedder or model) or {}
    kind, arguments = _task_object(model, fields)
    backbone = _serialized(_BACKBONE, _checked_fields(model, kind))
    _write_weights(folder, kind, weights.stored_weights(model, table(config, task)), config)
    own = {name: fields[name] for name in _OWN_FIELDS.get(kind, ())}
    preprocessor = None
    if vocab is not None:
        own["compat"] = tokenizer_options.get("compat", "google")
        rows: ConfigDict = {"sequence_length": own.get("max_len") or config.max_len}
        rows["tokenizer"] = _write_tokenizer(folder, vocab, tokenizer_options)
        preprocessor = _serialized(f"{kind}Preprocessor", rows)
    write_json(folder / CONFIG_FILE, backbone)
    if kind != _BACKBONE:
        arguments |= {"backbone": backbone, "preprocessor": preprocessor}
        write_json(folder / TASK_FILE, _serialized(kind, arguments))
        if preprocessor is not None:
            write_json(folder / PREPROCESSOR_FILE, preprocessor)
    write_json(folder / METADATA_FILE, {"keras_version": keras.__version__, _OWN: own})


def _task_object(model: BERTModel | TaskModel, fields: ConfigDict) -> tuple[str, ConfigDict]:
    """Return the class that a model is in KerasHub, and the arguments of its task."""
    if not fields:
        config = model.bert_config
        same = dataclasses.replace(config, **_HEAD_OF_MLM).mlm_fields() == config.mlm_fields()
        same &= config.mlm_head == "mlp" and config.tie_embeddings
        return (_MLM if same and "mlm" in model.usable_heads else _BACKBONE), {}
    if fields["kind"] == "TextEmbedder":
        pooling = checks.check_choice("pooling", fields["pooling"], _POOLINGS)
        for name, only in (("steps", []), ("include_special", True)):
            checks.check_that(fields[name] == only, name, f"{only} in KerasHub", fields[name])
        return _EMBEDDER, {"pooling_mode": pooling, "normalize": fields["normalize"]}
    number = len(fields.get("labels", ()))
    kind = "SequenceRegressor" if number == 1 else "SequenceClassifier"
    is_known = (fields["kind"], fields.get("pooling")) == (kind, "cls")
    expected = 'a classifier with several labels or a regressor with one score, and pooling="cls"'
    checks.check_that(is_known, "model", expected, checkpoint.describe_task(fields))
    activation = "sigmoid" if fields.get("multi_label") else fields.get("activation", "linear")
    arguments = {"num_classes": number, "activation": activation, "dropout": fields["dropout"]}
    return _CLASSIFIERS[0], arguments


def _write_weights(
    folder: pathlib.Path, kind: str, values: dict[str, np.ndarray], config: BERTConfig
) -> None:
    """Write the files of the weights. A backbone without a pooler gets one of zeros."""
    width = config.num_hiddens
    values.setdefault(f"{_POOLER}/vars/0", np.zeros((width, width), np.float32))
    values.setdefault(f"{_POOLER}/vars/1", np.zeros(width, np.float32))
    body = {name.removeprefix(_ROOT): x for name, x in values.items() if name.startswith(_ROOT)}
    write_hdf5(folder / WEIGHTS_FILE, body)
    if kind in _HEADS:
        head = {name: x for name, x in values.items() if name.startswith(_HEADS[kind])}
        write_hdf5(folder / TASK_WEIGHTS_FILE, head)


def _checked_fields(model: BERTModel | TaskModel, kind: str) -> ConfigDict:
    """Return the arguments of a `BertBackbone`, if it can express the model."""
    heads = model.usable_heads if isinstance(model, BERTModel) else {"pooler": model.hidden}
    fields = foreign_config.their_fields(model.bert_config, _FIELDS)
    ours = foreign_config.without_heads(model.bert_config)
    ours = dataclasses.replace(ours, pooler="pooler" in heads or kind == _EMBEDDER)
    foreign_config.check_kept(ours, _config_of(fields, _BACKBONE), "KerasHub")
    if lost := heads.keys() - {"pooler", "mlm" if kind == _MLM else ""}:
        warnings.warn(
            f"KerasHub cannot express these heads, which are not saved: {sorted(lost)}. It has no "
            f"next-sentence head, and its MLM head has {_HEAD_OF_MLM}.",
            stacklevel=5,
        )
    return fields


def _write_tokenizer(folder: pathlib.Path, vocab: Vocab, options: TokenizerOptions) -> ConfigDict:
    """Write the files of a tokenizer and return the content of `TOKENIZER_FILE`."""
    ours, side = normalization_of(options), options.get("truncation_side", "right")
    checks.check_that(side == "right", "truncation_side", "'right', as in KerasHub", side)
    special = [*vocab.special_tokens, *ours.special_tokens, *ours.normalized_tokens]
    expected = f"those of KerasHub: {' '.join(GOOGLE_SPECIALS)}"
    checks.check_that(special == [*GOOGLE_SPECIALS], "special_tokens", expected, special)
    values = {theirs: getattr(ours, name) for theirs, name in _OPTIONS.items()}
    values["strip_accents"] = ours.strips_accents
    values["special_tokens_in_strings"] = not ours.split_special_tokens
    tokenizer = _serialized("BertTokenizer", values)
    write_json(folder / TOKENIZER_FILE, tokenizer)
    (folder / VOCAB_FILE).parent.mkdir(parents=True)
    vocab.to_file(folder / VOCAB_FILE)
    return tokenizer
