"""What `docs/fields.md` says about each field of a configuration file is true."""

import functools
import itertools
import json
import pathlib
import re
import shutil
import tempfile
import warnings

import numpy as np
import pytest
import safetensors.numpy
import yaml

import keras_bert_d2l as kb
from keras_bert_d2l.checkpoints import adapters
from keras_bert_d2l.checkpoints.formats import google, huggingface, kerashub, model_garden
from keras_bert_d2l.checkpoints.formats.huggingface.config import config_from_json
from keras_bert_d2l.checkpoints.formats.huggingface.heads import layers_of, task_of
from keras_bert_d2l.checkpoints.formats.huggingface.model_types import MODEL_TYPES
from keras_bert_d2l.checkpoints.formats.huggingface.tokenizer import read_tokenizer, write_tokenizer
from keras_bert_d2l.checkpoints.formats.kerashub.models import KINDS
from tests.checkpoints import sbert_folders
from tests.checkpoints.formats.test_kerashub import ORIGINALS as PRESETS
from tests.checkpoints.formats.test_model_garden import FOLDER as GARDEN
from tests.family import WORDS, tokenizer_of
from tests.fields import rows, scopes

TOKENIZERS = {
    "WordPiece": kb.Tokenizer(kb.Vocab([*"[PAD] [UNK] [CLS] [SEP] [MASK]".split(), *WORDS])),
    "BPE": tokenizer_of("roberta"),
    "Unigram": tokenizer_of("xlm-roberta"),
}
TEXTS = ["The cat sat  on a\tmat.", " ein Café in 日本, 12 films <mask>"]
CLASSIFIER = ("classifier_linear", "task.json", "config")
DISTANCES = {"relative_attention": True, "pos_att_type": "p2c|c2p"}
OF_V2 = {"share_att_key": True, "norm_rel_ebd": "layer_norm", "conv_act": "gelu"}
DEBERTA = {"deberta": DISTANCES, "deberta-v2": {**DISTANCES, **OF_V2}}
OF_KERAS_HUB = {  # the archive, the file, and where its fields are
    "BertBackbone": ("backbone", "config.json", "config"),
    "BertTokenizer": ("tokens_uncased", "tokenizer.json", "config"),
    "BertTextClassifier": CLASSIFIER,
    "BertTextClassifierPreprocessor": (*CLASSIFIER, "preprocessor", "config"),
}


def write(folder, **files):
    folder.mkdir()
    for name, fields in files.items():
        (folder / name).write_text(json.dumps(fields))


@functools.cache
def tokenizer_json(kind):
    with tempfile.TemporaryDirectory() as folder:
        write_tokenizer(pathlib.Path(folder), TOKENIZERS[kind].vocab, TOKENIZERS[kind].options)
        return pathlib.Path(folder, "tokenizer.json").read_text()


def write_files(folder, kind):
    write(folder, **{"config.json": {"model_type": "bert"}})
    (folder / "tokenizer.json").write_text(tokenizer_json(kind))


@functools.cache
def sentence_folder():
    folder = pathlib.Path(tempfile.mkdtemp())
    steps = ("Pooling", "Normalize", "Dropout", "Dense")
    sbert_folders.write(folder, steps=steps, settings={"Dense": {"out_features": 4}})
    arrays = {"linear.weight": np.eye(4, dtype="float32"), "linear.bias": np.ones(4, "float32")}
    safetensors.numpy.save_file(arrays, folder / "4_Dense/model.safetensors")
    prompts = {"prompts": {"document": "document: "}}
    (folder / "config_sentence_transformers.json").write_text(json.dumps(prompts))
    return folder


def model(folder, kind):
    """Read a `config.json`: the architecture, and two tasks of such a model."""
    file, kind = folder / "config.json", MODEL_TYPES[kind]
    fields, found = json.loads(file.read_text()), [config_from_json(file)]
    for task in ("SequenceClassifier", "MultipleChoice"):
        layers = layers_of({"kind": task}, kind)
        named = {"architectures": [layers.architecture], **fields}
        found.append(task_of(named, kind, {f"{layers.head}.bias": (2,)}, "weights"))
    return found


def tokenizer(folder, _):
    vocab, options, unsupported = read_tokenizer(folder)
    if unsupported:
        raise ValueError(unsupported)
    return vocab, options


def embedding(folder, _):
    found = huggingface.describe(folder)
    if unsupported := found.embedding.get("unsupported"):
        raise ValueError(unsupported)
    return found.embedding, found.tokenizer_options


def preset(folder, kind):
    if kind == "BertTokenizer":
        return kerashub.read_tokenizer(folder)[1]
    if kind == "BertBackbone":
        fields = json.loads((folder / "config.json").read_text())["config"]
        return KINDS["bert"].config(fields, "Backbone")
    found = kerashub.describe(folder)
    return found.config, found.task


def garden(folder, _):
    config, params = model_garden._read_config(folder / "params.yaml")
    return model_garden._with_heads(config, ["cls/predictions/"], None, params)


def adapter(folder, _):
    found = adapters.read_config(folder / "adapter_config.json")
    alpha = adapters.alpha_of(found, "attention.query", 2)
    return found["r"], alpha


def google_config(folder, _):
    file = folder / "bert_config.json"
    return google.read_config(file, json.loads(file.read_text()))


LORA = {"peft_type": "LORA", "r": 2, "lora_alpha": 4, "target_modules": ["query"]}
PARAMS = yaml.safe_load((GARDEN / "pretraining/params.yaml").read_text())
OF_TOKENIZERS = (write_files, tokenizer, TOKENIZERS)
READERS = {  # by heading: what writes a folder, what reads it, and the values of the first column
    "config.json": (
        lambda folder, kind: write(
            folder, **{"config.json": {"model_type": kind, **DEBERTA.get(kind, {})}}
        ),
        *(model, MODEL_TYPES),
    ),
    "bert_config.json": (
        lambda folder, _: write(folder, **{"bert_config.json": {"vocab_size": 30}}),
        google_config,
    ),
    "adapter_config.json": (
        *(lambda folder, _: write(folder, **{"adapter_config.json": LORA}), adapter),
    ),
    "params.yaml": (lambda folder, _: write(folder, **{"params.yaml": PARAMS}), garden),
    "Folders of sentence-transformers": (
        *(lambda folder, _: shutil.copytree(sentence_folder(), folder), embedding),
    ),
    "Presets of KerasHub": (
        lambda folder, kind: shutil.unpack_archive(
            PRESETS / f"{OF_KERAS_HUB[kind][0]}.zip", folder
        ),
        *(preset, OF_KERAS_HUB),
    ),
    **dict.fromkeys(
        ("tokenizer_config.json", "special_tokens_map.json", "tokenizer.json"), OF_TOKENIZERS
    ),
}


def place(section, scope, name):
    """Return the file of a field, and the keys that lead to it."""
    if section == "Presets of KerasHub":
        return [*OF_KERAS_HUB[scope][1:], name]
    if section == "Folders of sentence-transformers":
        return [scope, *([1] if scope == "modules.json" else []), name]
    inside = section == "params.yaml" and "." not in name
    return [section, *(["task", "model", "encoder", "bert"] if inside else []), *name.split(".")]


def read(section, folder, scope, name, value):
    """Return what is read from a folder in which one field has another value."""
    write_folder, read_folder = READERS[section][:2]
    write_folder(folder, scope)
    file, *path, last = place(section, scope, name)
    file = folder / file
    fields = json.loads(file.read_text()) if file.exists() else {}
    inner = functools.reduce(lambda x, key: x[key], path, fields)
    old, title = inner.get(last), getattr(MODEL_TYPES.get(scope), "title", "")
    number = len(TOKENIZERS[scope].vocab) if scope in TOKENIZERS else 0
    if name == "added_tokens":
        flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized", "special"), False)
        value = [*old, {"id": number, **flags, **value}]
    elif isinstance(old, dict) and "type" in old and old["type"] == value["type"]:
        value = old | value
    elif (scope, name) == ("BPE", "pre_tokenizer"):
        value = {"type": "Sequence", "pretokenizers": [value, old]}
    text = json.dumps(value).replace("NEXT", str(number)).replace("TYPE", title)
    inner[last] = json.loads(text)
    file.write_text(json.dumps(fields))
    return read_folder(folder, scope)


def same(found, base):
    """Return whether two descriptions, or the tokens of two tokenizers, are equal."""
    if found == base or not isinstance(base[0], kb.Vocab):
        return found == base
    one, other = (kb.Tokenizer(v, **options).with_offsets(TEXTS) for v, options in (found, base))
    return all(one[name].to_list() == other[name].to_list() for name in one)


def problem(handling, name, value, reader, base):
    """Return what is wrong with a row of a table about one field, or None."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        try:
            found = reader(name, value)
        except (ValueError, FileNotFoundError, UserWarning) as error:
            named = [name.rpartition(".")[2], *re.findall(r"\w+", json.dumps(value))]
            is_named = any(re.search(rf"\b{word}\b", str(error)) for word in named)
            is_right = handling == "refused" and is_named and not isinstance(error, UserWarning)
            is_needed = handling == "applied" and json.dumps(value)[-3:-1] in ("[]", "{}")
            return None if is_right or is_needed else f"{name}: {value!r}: {error!r:.200}"
    is_right = handling == "no effect" and same(found, base)
    is_right |= handling == "applied" and found != base
    return None if is_right else f"{name}: {value!r} is {'read' if found != base else 'ignored'}"


@pytest.mark.slow
@pytest.mark.parametrize("row", rows(), ids=lambda row: f"{row.section} {row.scope} {row.handling}")
def test_each_field_is_handled_as_the_page_says(row, tmp_path):
    folders = map(tmp_path.joinpath, map(str, itertools.count()))
    for scope in scopes(row, [*(READERS[row.section][2:] or [[]])[0]]):
        reader = lambda name, value, s=scope: read(row.section, next(folders), s, name, value)  # noqa: E731
        base = reader("no_such_field", None)
        found = [problem(row.handling, *field, reader, base) for field in row.fields]
        assert not any(found), "\n".join(filter(None, found))
