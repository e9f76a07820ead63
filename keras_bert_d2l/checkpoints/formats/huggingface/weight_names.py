"""The names of weights in transformers: those that it writes today, and those of older files.

Files of TensorFlow, `tf_model.h5` of transformers 4, have names of their own. Keras writes each
weight below the name of its layer, and TensorFlow names it by its scopes. The first scopes depend
on the program:

    bert/tf_bert_for_masked_lm/bert/encoder/layer_._0/attention/self/query/kernel:0
    mlm___cls/tf_bert_for_masked_lm/mlm___cls/predictions/bias:0

The other layers of a custom model around `TFBertModel` are not read.

Source: github.com/huggingface/transformers, `models/`, and in version 4 `modeling_tf_utils.py` and
`modeling_tf_pytorch_utils.py`.
"""

import dataclasses
import math
import re
from collections.abc import Mapping

import numpy as np

from keras_bert_d2l.checkpoints.array_files import NamedArrays
from keras_bert_d2l.checkpoints.formats.checkpoint import parts_of
from keras_bert_d2l.checkpoints.formats.huggingface.heads import layers_of
from keras_bert_d2l.checkpoints.formats.huggingface.model_types import (
    MODEL_TYPES,
    ModelType,
    model_type_of,
)
from keras_bert_d2l.checkpoints.weights import TORCH_ENDINGS, Row, expand, first_few
from keras_bert_d2l.checks import shown
from keras_bert_d2l.config import BERTConfig
from keras_bert_d2l.types import ConfigDict

# Constant buffers that old versions stored like weights.
_BUFFERS = ("position_ids", "token_type_ids")
# ModernBERT stacks query, key and value; DeBERTa those of each head.
_JOINED, _PARTS = re.compile(r"(.+\.(?:Wqkv|in_proj))(\.lora_[AB])?\.weight"), 3
_OF_HEADS = ".in_proj."

# Entries of the metadata: the arrays of other layers, and the class of transformers.
NOT_READ, CLASS = "not read", "class"
_CLASS = re.compile(r"(?:.*/)?tf[a-z_0-9]+_for_([a-z_]+?)(?:_\d+)?")  # the last scope of Keras
# The MLM head in Microsoft's files of DeBERTa, where that of transformers has other names.
_NEW_HEAD = {
    "lm_predictions.lm_head.bias": "cls.predictions.bias",
    "lm_predictions.lm_head.": "cls.predictions.transform.",
}
_OPTIMIZER = "optimizer_weights/"
_WHOLE_MODEL = "model_weights/"  # the group of the weights in a file of `model.save("x.h5")`
# From the first layer of the model on, which is `sop_classifier` rather than the layer inside.
_PATH = r"(?:(?P<scopes>.*)/)?(?<!sop_classifier/)(?P<name>(?:{})/.*)"
_FIRST = ("mlm___cls", "nsp___cls", "classifier", "qa_outputs", "sequence_summary")
_WEIGHTS = {"kernel": "weight", "gamma": "weight", "beta": "bias", "embeddings": "weight"}


def table(config: BERTConfig, task: ConfigDict | None, kind: ModelType | None = None) -> list[Row]:
    """Return a row for every weight, with the name that transformers writes.

    A part of a joined weight has its number after the name, such as `Wqkv.weight[0]`.

    Args:
        config: The architecture.
        task: The fields of a task model, or `None`.
        kind: The model type. Defaults to that of the architecture.
    """
    kind = kind or MODEL_TYPES[model_type_of(config)]
    names = dict(kind.names)
    if task is not None:
        layers = layers_of(task, kind)
        names |= {"hidden": layers.hidden, "head": layers.head}
        names |= {f"crf/{x}": f"crf.{x}_transitions" for x in ("start", "end")}  # as in pytorch-crf
        names["crf/transitions"] = "crf.transitions"
        names["hidden/ln"] = layers.hidden.replace("dense", "norm")
    return expand(config, names, TORCH_ENDINGS, parts_of(task, config))


def signature(kind: ModelType) -> str:
    """Return a regular expression for the name of the token embedding, with or without a base."""
    name = kind.token_embedding.removeprefix(f"{kind.base}.")
    return rf"(?:{kind.base}\.)?{re.escape(name)}"


def current_names(stored: NamedArrays, kind: ModelType, prefix: str = "") -> dict[str, str]:
    """Map the name that transformers writes today to the name in a file, for each weight.

    Old files use `gamma` and `beta` for the weight and bias of a normalization, and may contain
    constant buffers. Files of a class without a head omit the prefix `bert.` (or another one), and
    a wrapper may have added one of its own.
    """
    base = f"{kind.base}."
    inside = tuple({name.split(".")[1] + "." for name in kind.their_names if name.startswith(base)})
    buffers = {f"{base}embeddings.{name}" for name in _BUFFERS}
    has_old_head = any(name.startswith("cls.predictions.") for name in stored.shapes)
    names = {}
    for stored_name in stored.shapes:
        name = stored_name.replace("LayerNorm.gamma", "LayerNorm.weight")
        name = name.replace("LayerNorm.beta", "LayerNorm.bias")
        if name.startswith(prefix):
            name = name.removeprefix(prefix)
            if kind.base == "deberta" and not has_old_head:
                for new, old in _NEW_HEAD.items():
                    name = old + name.removeprefix(new) if name.startswith(new) else name
            name = f"{base}{name}" if name.startswith(inside) else name
        if name in stored.shapes:  # a second array of the same name is not a weight of the model
            name = stored_name
        if name not in buffers:
            names[name] = stored_name
    # In files with both biases of the MLM head, they are equal, or only that of the decoder takes
    # effect.
    if kind.decoder_bias in names:
        names[kind.mlm_bias] = names.pop(kind.decoder_bias)
    if kind.decoder in names and kind.token_embedding not in names:  # tied, and stored once
        names[kind.token_embedding] = names.pop(kind.decoder)
    return names


def split_joined(stored: NamedArrays, num_heads: int) -> NamedArrays:
    """Return arrays in which the parts of joined weights replace these weights.

    Of LoRA, the first matrix belongs to all parts; the second one is split.

    Args:
        stored: The arrays of a file.
        num_heads: Number of attention heads.
    """
    parts: dict[str, tuple[str, int, int]] = {}
    for name, shape in stored.shapes.items():
        found = _JOINED.fullmatch(name)
        number = 1 if found and found[2] == ".lora_A" else _PARTS
        if found and shape and shape[0] % number == 0:
            for part in range(_PARTS):
                new = f"{found[1]}[{part}]{found[2]}.weight" if found[2] else f"{name}[{part}]"
                parts[new] = name, part % number, number
    if not parts or not parts.keys().isdisjoint(stored.shapes):
        return stored
    joined = {name for name, _, _ in parts.values()}
    names = {name: name for name in stored.shapes if name not in joined}
    names |= {new: name for new, (name, _, _) in parts.items()}

    def read(new: str) -> np.ndarray:
        if new not in parts:
            return stored.read(new)
        name, part, number = parts[new]
        value = stored.read(name)
        if number > 1 and _OF_HEADS in name and len(value) % (number * num_heads) == 0:
            heads = value.reshape(num_heads, number, -1, *value.shape[1:])
            return heads[:, part].reshape(-1, *value.shape[1:])
        return np.split(value, number)[part]

    arrays = stored.select(names)
    shapes = {
        new: (shape[0] // parts[new][2], *shape[1:]) if new in parts else shape
        for new, shape in arrays.shapes.items()
    }
    return dataclasses.replace(arrays, shapes=shapes, read=read)


def join_parts(weights: dict[str, np.ndarray], num_heads: int) -> dict[str, np.ndarray]:
    """Return the weights of a model with the joined ones in place of their parts."""
    for whole in [name.removesuffix("[0]") for name in weights if name.endswith("[0]")]:
        parts = [weights.pop(f"{whole}[{part}]") for part in range(_PARTS)]
        shape = (-1, *parts[0].shape[1:])
        if _OF_HEADS in whole:
            parts = [part.reshape(num_heads, -1, *shape[1:]) for part in parts]
            weights[whole] = np.stack(parts, axis=1).reshape(shape)
        else:
            weights[whole] = np.concatenate(parts)
    return weights


def with_torch_names(stored: NamedArrays, kind: ModelType) -> NamedArrays:
    """Return the weights of a BERT with the names and the layouts that transformers writes today.

    Files have the token embedding twice if an MLM head shares it. When it is read, both are
    compared.

    Args:
        stored: The arrays of a file with the names of TensorFlow.
        kind: The model type.

    Raises:
        ValueError: The file contains no BERT of transformers, or several.
    """
    named = {
        path: path.removeprefix(_WHOLE_MODEL).removesuffix(":0") for path in sorted(stored.shapes)
    }
    scopes, paths = _one_model(stored, named, kind)
    layers = {path for path in named if not path.startswith(_OPTIMIZER)}
    metadata = {**stored.metadata, NOT_READ: layers.difference(*paths.values())}
    firsts = {name: same[0] for name, same in paths.items()}
    shapes = {name: _flat(named[path], stored.shapes[path]) for name, path in firsts.items()}
    kernels = {name for name, path in firsts.items() if named[path].endswith("/kernel")}

    def read(name: str) -> np.ndarray:
        first, *copies = paths[name]
        value = stored.read(first)
        if not all(np.array_equal(stored.read(copy), value, equal_nan=True) for copy in copies):
            raise ValueError(
                f"{stored.source!r} contains {shown(first)} and {shown(copies[0])}, which must be "
                "equal. The file is damaged: copy it again."
            )
        value = value.reshape(shapes[name])
        return value.T if name in kernels else value

    if match := _CLASS.fullmatch(scopes):
        metadata[CLASS] = f"{kind.title}For{match[1].title().replace('_', '')}"
    ours = {name: shape[::-1] if name in kernels else shape for name, shape in shapes.items()}
    return dataclasses.replace(stored.select(firsts), shapes=ours, read=read, metadata=metadata)


def _one_model(
    stored: NamedArrays, named: Mapping[str, str], kind: ModelType
) -> tuple[str, dict[str, list[str]]]:
    """Return the scopes of a BERT, and the paths of each weight by the name that PyTorch has."""
    models: dict[str, dict[str, list[str]]] = {}
    firsts = {name.partition(".")[0] for name in (*kind.their_names, kind.base)}
    pattern = re.compile(_PATH.format("|".join(sorted(firsts.union(_FIRST)))))
    for path, name in named.items():
        match = pattern.fullmatch(name)
        if match and not path.startswith(_OPTIMIZER):
            scopes = (match["scopes"] or "").partition("/")[2]  # without the layer of Keras
            models.setdefault(scopes, {}).setdefault(_torch_name(match["name"]), []).append(path)
    found = [model for model in models.items() if kind.token_embedding in model[1]]
    if len(found) != 1:
        raise ValueError(
            f"{stored.source!r} contains {len(found) or 'no'} BERTs of transformers, whose token "
            f"embedding is named '.../{kind.token_embedding.replace('.', '/')}:0'. Received: "
            f"{first_few(stored.shapes)}. Save the weights of one `TF{kind.title}Model` alone: "
            "`model.save_pretrained(folder)`."
        )
    return found[0]


def _torch_name(name: str) -> str:
    layers, _, weight = name.rpartition("/")
    layers = re.sub(r"\b[a-z]+___", "", layers).replace("_._", ".").replace("/", ".")
    return f"{layers}.{_WEIGHTS.get(weight, weight)}"


def _flat(name: str, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return a shape without the axis of the heads, which transformers 4.2 to 4.4 wrote."""
    if name.endswith("/kernel") and len(shape) == 3 and "/conv/" not in name:
        first = math.prod(shape[:2]) if name.endswith("output/dense/kernel") else shape[0]
        return first, math.prod(shape) // max(first, 1)
    return (math.prod(shape),) if name.endswith("/bias") else shape
