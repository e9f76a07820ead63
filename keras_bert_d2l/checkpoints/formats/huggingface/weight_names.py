"""The names of weights in transformers: those that it writes today, and those of older files.

Source: github.com/huggingface/transformers, `models/`.
"""

import dataclasses
import re

import numpy as np

from keras_bert_d2l.checkpoints.array_files import NamedArrays
from keras_bert_d2l.checkpoints.formats.checkpoint import parts_of
from keras_bert_d2l.checkpoints.formats.huggingface.heads import layers_of
from keras_bert_d2l.checkpoints.formats.huggingface.model_types import (
    MODEL_TYPES,
    ModelType,
    model_type_of,
)
from keras_bert_d2l.checkpoints.weights import TORCH_ENDINGS, Row, expand
from keras_bert_d2l.config import BERTConfig
from keras_bert_d2l.types import ConfigDict

# Constant buffers that old versions stored like weights.
_BUFFERS = ("position_ids", "token_type_ids")
# ModernBERT stacks query, key and value.
_JOINED, _PARTS = re.compile(r"(.+\.Wqkv)(\.lora_[AB])?\.weight"), 3


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
    names = {}
    for stored_name in stored.shapes:
        name = stored_name.replace("LayerNorm.gamma", "LayerNorm.weight")
        name = name.replace("LayerNorm.beta", "LayerNorm.bias")
        if name.startswith(prefix):
            name = name.removeprefix(prefix)
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


def split_joined(stored: NamedArrays) -> NamedArrays:
    """Return arrays in which the parts of joined weights replace these weights.

    Of LoRA, the first matrix belongs to all parts; the second one is split.
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
        return np.split(stored.read(name), number)[part]

    arrays = stored.select(names)
    shapes = {
        new: (shape[0] // parts[new][2], *shape[1:]) if new in parts else shape
        for new, shape in arrays.shapes.items()
    }
    return dataclasses.replace(arrays, shapes=shapes, read=read)


def join_parts(weights: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the weights of a model with the joined ones in place of their parts."""
    for whole in [name.removesuffix("[0]") for name in weights if name.endswith("[0]")]:
        parts = [weights.pop(f"{whole}[{part}]") for part in range(_PARTS)]
        weights[whole] = np.concatenate(parts)
    return weights
