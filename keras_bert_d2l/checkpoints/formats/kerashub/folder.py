"""Read and write presets of KerasHub, formerly KerasNLP, for BERT and its relatives.

A preset is a folder that `save_to_preset` writes. It contains

- `config.json`: a class such as `BertBackbone` and its arguments; a task in KerasNLP before 0.9;
- `model.weights.h5`: the weights of the backbone, or several files with `model.weights.json`;
- `task.json` and `task.weights.h5`: the class and the head of a `BertMaskedLM`, a
  `BertTextClassifier` (formerly `BertClassifier`) or a `BertTextEmbedder`, which has no weights;
- `tokenizer.json` and the files in `assets/tokenizer`, and `preprocessor.json`;
- `metadata.json`, which KerasHub does not read. This package stores there what KerasHub cannot
  express, such as the names of labels.

The files name classes of Keras. The package only checks that it knows a name: it imports no class,
and creates no object from the files.

Source: github.com/keras-team/keras-hub, `utils/preset_utils.py`; `saving/saving_lib.py` of Keras.
"""

import dataclasses
import os
import pathlib
import re
import warnings
from collections.abc import Sequence

import keras
import numpy as np

from keras_bert_d2l import checks, reading
from keras_bert_d2l.checkpoints import weights
from keras_bert_d2l.checkpoints.array_files import NamedArrays, shard_files
from keras_bert_d2l.checkpoints.formats import checkpoint, foreign_config
from keras_bert_d2l.checkpoints.formats.huggingface.model_types import model_type_of
from keras_bert_d2l.checkpoints.formats.kerashub import tokenizers
from keras_bert_d2l.checkpoints.formats.kerashub.models import CLASSES, KINDS, ROOT, Kind
from keras_bert_d2l.checkpoints.hdf5_files import open_hdf5, write_hdf5
from keras_bert_d2l.contract.task import embedder
from keras_bert_d2l.files import write_json
from keras_bert_d2l.models.bert import BERTModel
from keras_bert_d2l.models.tasks.task_model import TaskModel
from keras_bert_d2l.text.normalization import TokenizerOptions
from keras_bert_d2l.text.vocab import Vocab
from keras_bert_d2l.types import ConfigDict

CONFIG_FILE, TASK_FILE, PREPROCESSOR_FILE = "config.json", "task.json", "preprocessor.json"
METADATA_FILE = tokenizers.METADATA_FILE
WEIGHTS_FILE, INDEX_FILE = "model.weights.h5", "model.weights.json"
TASK_WEIGHTS_FILE = "task.weights.h5"
# What `write` may replace in a folder, with `config.json` and `tokenizer.json`.
FILES = (TASK_FILE, METADATA_FILE, PREPROCESSOR_FILE, WEIGHTS_FILE, TASK_WEIGHTS_FILE, "assets")

_Model = BERTModel | TaskModel
_BACKBONE = re.compile(r"^layers/\w+_backbone/")
_POOLINGS = ("cls", "mean", "max")
_OWN_FIELDS: dict[str, tuple[str, ...]] = {
    "TextEmbedder": (
        *("long_texts", "max_len", "prompts", "default_prompt_name", "include_prompt"),
        *("similarity", "truncate_dim"),
    ),
    "TextClassifier": ("labels", "long_texts", "temperature", "thresholds"),
}


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
    """Return the arguments of the `TextEmbedder` that computes what one of KerasHub does."""
    max_len = None
    if (preprocessor := fields.get("preprocessor")) is not None:
        names = [f"{name}Preprocessor" for name in CLASSES if name.endswith("TextEmbedder")]
        _, rows = tokenizers.object_of(preprocessor, "preprocessor", *names)
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

    A task has the backbone of its own file, as in KerasHub. A pooler that no task of the class uses
    is not read. No preset has a next-sentence head.
    """
    file = path / (TASK_FILE if reading.has_file(path / TASK_FILE) else CONFIG_FILE)
    content = reading.read_json_object(file)
    with reading.errors_naming(file):
        name, fields = tokenizers.object_of(content, "registered_name", *CLASSES)
        kind, end = CLASSES[name]
        backbone = content if end == "Backbone" else fields.get("backbone")
        backbone = tokenizers.object_of(backbone, "backbone", f"{kind.title}Backbone")[1]
        config = kind.config(backbone, end)
    words = tokenizers.read_tokenizer(path) if tokenizer else (None, TokenizerOptions())
    if config.first_position_id and words[0] is not None:  # the first row follows the padding
        pad_id = words[0].pad_id
        config = dataclasses.replace(config, pad_id=pad_id, first_position_id=pad_id + 1)
    arrays = _open_weights(path, name)
    weights.check_extent(config, arrays)
    task = embedding = None
    own = {"long_texts": "cut", **tokenizers.own_fields(path, *_OWN_FIELDS.get(end, ()))}
    with reading.errors_naming(file):
        if end == "TextClassifier":
            table = kind.table(config, {"kind": "SequenceClassifier", "pooling": "cls"})
            task = _classifier_of(fields, own, arrays.shapes.get(table[-1].theirs, ()))
        elif end == "TextEmbedder":
            embedding = _embedding_of(fields, own, config.max_len)
    if kind.has_pooler and (end == "TextEmbedder" or not kind.reads_pooler):
        pooler = f"{kind.pooler(config)}/"
        arrays = arrays.select({n: n for n in arrays.shapes if not n.startswith(pooler)})
    known = (f"KerasHub {name}", config, kind.table(config, task), arrays)
    return checkpoint.Checkpoint(*known, *words, task, embedding=embedding)


def _open_weights(path: pathlib.Path, name: str) -> NamedArrays:
    """Open the weights of a preset, with the names of the file of a whole task."""
    is_sharded = not reading.has_file(path / WEIGHTS_FILE) and reading.has_file(path / INDEX_FILE)
    arrays = _layers(shard_files(path / INDEX_FILE) if is_sharded else [path / WEIGHTS_FILE])
    if not any(name.startswith(ROOT) for name in arrays.shapes):
        body = arrays = arrays.select({f"{ROOT}{name}": name for name in arrays.shapes})
        if reading.has_file(path / TASK_WEIGHTS_FILE):
            head = _layers([path / TASK_WEIGHTS_FILE])
            arrays = NamedArrays(
                os.fspath(path),
                {**head.shapes, **body.shapes},
                {**head.dtypes, **body.dtypes},
                lambda name: (body if name in body.shapes else head).read(name),
            )
        elif CLASSES[name][1] == "TextClassifier":
            raise FileNotFoundError(
                f"{os.fspath(path)!r} has no {TASK_WEIGHTS_FILE}, the head of its {name}. Copy it "
                f"again. For a new head, remove {TASK_FILE} and pass `labels` to `from_pretrained`."
            )
    return arrays


def _layers(files: Sequence[pathlib.Path]) -> NamedArrays:
    """Open the weights of layers; files of tasks also have the state of the optimizer."""
    arrays, old = open_hdf5(files), "_layer_checkpoint_dependencies"  # in Keras 2.13
    names = {_BACKBONE.sub(ROOT, name.replace(old, "layers")): name for name in arrays.shapes}
    return arrays.select({new: name for new, name in names.items() if new.startswith("layers/")})


def write(
    model: _Model,
    folder: pathlib.Path,
    vocab: Vocab | None,
    tokenizer_options: TokenizerOptions,
    embedding: ConfigDict | None = None,
) -> None:
    """Write a preset that KerasHub loads with `from_preset`, with the arguments of `native.write`.

    Raises:
        ValueError: KerasHub cannot express the model or the tokenizer. The message names the field.
    """
    config = model.bert_config
    as_embedder = None if embedding is None else embedder()(model, **embedding)
    fields = checkpoint.task_fields(as_embedder or model) or {}
    name = model_type_of(config)
    name = "xlm-roberta" if vocab and (name, vocab.kind) == ("roberta", "unigram") else name
    kind = KINDS[checks.check_choice("model_type", name, [*KINDS])]
    end, arguments = _task_object(model, fields, kind)
    checks.check_choice("model", f"{kind.title}{end}", [f"{kind.title}{x}" for x in kind.ends])
    backbone = tokenizers.serialized(f"{kind.title}Backbone", _checked_fields(model, kind, end))
    _write_weights(model, folder, kind, end)
    own = {name: fields[name] for name in _OWN_FIELDS.get(end, ()) if name in fields}
    preprocessor = None
    if vocab is not None:
        own["compat"] = tokenizer_options.get("compat", "google")
        rows: ConfigDict = {"sequence_length": own.get("max_len") or config.max_len}
        rows["tokenizer"] = tokenizers.write_tokenizer(folder, vocab, tokenizer_options, kind)
        preprocessor = tokenizers.serialized(f"{kind.title}{end}Preprocessor", rows)
    write_json(folder / CONFIG_FILE, backbone)
    if end != "Backbone":
        arguments |= {"backbone": backbone, "preprocessor": preprocessor}
        write_json(folder / TASK_FILE, tokenizers.serialized(f"{kind.title}{end}", arguments))
        if preprocessor is not None:
            write_json(folder / PREPROCESSOR_FILE, preprocessor)
    write_json(folder / METADATA_FILE, {"keras_version": keras.__version__, tokenizers.OWN: own})


def _task_object(model: _Model, fields: ConfigDict, kind: Kind) -> tuple[str, ConfigDict]:
    """Return the end of the class that a model is in KerasHub, and the arguments of its task."""
    if not fields:
        config = model.bert_config
        same = kind.with_mlm(config).mlm_fields() == config.mlm_fields() and "MaskedLM" in kind.ends
        same &= config.mlm_head == "mlp" and config.tie_embeddings
        return ("MaskedLM" if same and "mlm" in model.usable_heads else "Backbone"), {}
    if fields["kind"] == "TextEmbedder":
        pooling = checks.check_choice("pooling", fields["pooling"], _POOLINGS)
        for name, only in (("steps", []), ("include_special", True)):
            checks.check_that(fields[name] == only, name, f"{only} in KerasHub", fields[name])
        return "TextEmbedder", {"pooling_mode": pooling, "normalize": fields["normalize"]}
    number = len(fields.get("labels", ()))
    name = "SequenceRegressor" if number == 1 else "SequenceClassifier"
    is_known = (fields["kind"], fields.get("pooling")) == (name, "cls")
    expected = 'a classifier with several labels or a regressor with one score, and pooling="cls"'
    checks.check_that(is_known, "model", expected, checkpoint.describe_task(fields))
    activation = "sigmoid" if fields.get("multi_label") else fields.get("activation", "linear")
    arguments = {"num_classes": number, "activation": activation, "dropout": fields["dropout"]}
    return "TextClassifier", arguments


def _write_weights(model: _Model, folder: pathlib.Path, kind: Kind, end: str) -> None:
    """Write the files of the weights. A pooler that the model lacks is written as zeros."""
    config, task = model.bert_config, checkpoint.task_fields(model)
    values = weights.stored_weights(model, kind.table(config, task))
    if kind.has_pooler:
        pooler, width = kind.pooler(config), config.num_hiddens
        values.setdefault(f"{pooler}/vars/0", np.zeros((width, width), np.float32))
        values.setdefault(f"{pooler}/vars/1", np.zeros(width, np.float32))
    elif config.num_segments:
        segments = weights.named_weights(model)["encoder/segment_embedding/embeddings"]
        values[kind.positions] = values[kind.positions] + keras.ops.convert_to_numpy(segments)
    body = {name.removeprefix(ROOT): x for name, x in values.items() if name.startswith(ROOT)}
    write_hdf5(folder / WEIGHTS_FILE, body)
    if start := {"MaskedLM": "layers/masked_lm_head/", "TextClassifier": "layers/dense"}.get(end):
        head = {name: x for name, x in values.items() if name.startswith(start)}
        write_hdf5(folder / TASK_WEIGHTS_FILE, head)


def _checked_fields(model: _Model, kind: Kind, end: str) -> ConfigDict:
    """Return the arguments of a backbone, if it can express the model."""
    heads = model.usable_heads if isinstance(model, BERTModel) else {"pooler": model.hidden}
    config = model.bert_config
    fields = foreign_config.their_fields(config, kind.fields)
    if "embedding_dim" in fields:
        fields["embedding_dim"] = config.width_of_embeddings
    ours = foreign_config.without_heads(config)
    if kind.reads_pooler:
        ours = dataclasses.replace(ours, pooler="pooler" in heads or end == "TextEmbedder")
    rows: ConfigDict = {"pad_id": config.pad_id, "first_position_id": config.first_position_id}
    read_back = dataclasses.replace(kind.config(fields, "Backbone"), **rows)
    foreign_config.check_kept(ours, foreign_config.without_heads(read_back), "KerasHub")
    is_kept = kind.reads_pooler or not isinstance(model, BERTModel)
    if lost := heads.keys() - {"pooler" if is_kept else "", "mlm" if end == "MaskedLM" else ""}:
        warnings.warn(
            f"KerasHub cannot express these heads, which are not saved: {sorted(lost)}. It has no "
            f"next-sentence head, and its MLM head has {kind.with_mlm(config).mlm_fields()}.",
            stacklevel=5,
        )
    return fields
