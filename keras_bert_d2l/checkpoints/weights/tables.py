"""Tables that map this package's weights to the names and layouts of other programs.

This package names a weight by its Keras path without the name of the model.
"""

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import NamedTuple

import numpy as np

from keras_bert_d2l.config import BERTConfig

# The first component of a weight's name. A task model has "head" instead of "mlm" and "nsp".
BERT_PARTS = ("encoder", "hidden", "mlm", "nsp")
PARTS = (*BERT_PARTS, "head")

# The parts of a `BERTModel` that a file may lack, with their user-facing names.
HEAD_NAMES = {"hidden": "pooler", "mlm": "mlm", "nsp": "nsp"}

_DENSE, _NORM = ("kernel", "bias"), ("gamma", "beta")
_BLOCK = {
    **{f"attention/W_{letter}": _DENSE for letter in "qkvo"},
    "addnorm1/ln": _NORM,
    "ffn/dense1": _DENSE,
    "ffn/dense2": _DENSE,
    "addnorm2/ln": _NORM,
}
_NUM_NAMED = 3


class Layout(NamedTuple):
    """The layout of a weight in another program, as conversions to and from our layout."""

    to_ours: Callable[[np.ndarray], np.ndarray]
    to_theirs: Callable[[np.ndarray], np.ndarray]


def _same(x: np.ndarray) -> np.ndarray:
    return x


SAME = Layout(_same, _same)
TRANSPOSED = Layout(np.transpose, np.transpose)  # dense kernels of shape (out, in)
# Position embeddings without the leading axis of length 1 that they have in the book and here.
POSITIONS = Layout(lambda x: x[None], lambda x: x[0])
# Next-sentence logits with "is next" in column 0. In this package, it is column 1.
SWAPPED = Layout(lambda x: x[..., ::-1], lambda x: x[..., ::-1])
SWAPPED_TRANSPOSED = Layout(lambda x: x[::-1].T, lambda x: x.T[::-1])


class Row(NamedTuple):
    """The names and the layout of one weight.

    Attributes:
        ours: This package's name, for example `encoder/blk_0/attention/W_q/kernel`.
        theirs: The other program's name.
        layout: The other program's layout.
    """

    ours: str
    theirs: str
    layout: Layout = SAME


# Maps the last component of our name to the other program's name ending and layout.
Endings = Mapping[str, tuple[str, Layout]]

TENSORFLOW_ENDINGS: Endings = {
    "kernel": ("/kernel", SAME),
    "bias": ("/bias", SAME),
    "gamma": ("/gamma", SAME),
    "beta": ("/beta", SAME),
    "embeddings": ("", SAME),
}
TORCH_ENDINGS: Endings = {
    "kernel": (".weight", TRANSPOSED),
    "bias": (".bias", SAME),
    "gamma": (".weight", SAME),
    "beta": (".bias", SAME),
    "embeddings": (".weight", SAME),
}

# Maps our layers or single weights to those of another program. A single weight may have a layout.
# `{}` stands for the index of a block.
Names = Mapping[str, str | tuple[str, Layout]]


def expand(
    config: BERTConfig, names: Names, endings: Endings, parts: Collection[str] = BERT_PARTS
) -> list[Row]:
    """Return a row for each weight of a model that has a name in another program.

    Args:
        config: The architecture of the model.
        names: The other program's names of layers or single weights.
        endings: The other program's name endings for the weights of a layer.
        parts: The parts of the model, from `PARTS`.
    """
    rows = []
    for ours in weight_names(config, parts):
        block = re.search(r"(?<=/blk_)\d+", ours)
        general = re.sub(r"(?<=/blk_)\d+", "{}", ours)
        layer, _, weight = general.rpartition("/")
        if general in names:
            entry = names[general]
            theirs, layout = (entry, SAME) if isinstance(entry, str) else entry
        elif layer in names:
            ending, layout = endings[weight]
            theirs = f"{names[layer]}{ending}"
        else:
            continue
        rows.append(Row(ours, theirs.format(block and block[0]), layout))
    return rows


def weight_names(config: BERTConfig, parts: Collection[str]) -> list[str]:
    """Return the names of all weights of an architecture.

    Args:
        config: The architecture.
        parts: The parts of the model, from `PARTS`.
    """
    layers: dict[str, tuple[str, ...]] = {
        "encoder/token_embedding": ("embeddings",),
        "encoder/segment_embedding": ("embeddings",),
    }
    if config.positions == "learned":
        layers["encoder"] = ("pos_embedding",)
    if config.embedding_norm:
        layers["encoder/embedding_ln"] = _NORM
    for index in range(config.num_blks):
        layers |= {f"encoder/blk_{index}/{name}": weights for name, weights in _BLOCK.items()}
    if config.final_norm:
        layers["encoder/final_ln"] = _NORM
    if config.pooler:
        layers["hidden"] = _DENSE
    if config.mlm_head == "mlp":
        layers |= {"mlm/mlp/dense": _DENSE, "mlm/mlp/ln": _NORM}
    if config.tie_embeddings:
        layers["mlm"] = ("bias",)
    else:
        layers["mlm/mlp/logits"] = _DENSE
    if config.next_sentence:
        layers["nsp/dense"] = _DENSE
    layers["head"] = _DENSE
    names = [f"{layer}/{weight}" for layer, weights in layers.items() for weight in weights]
    return [name for name in names if part_of(name) in parts]


def part_of(name: str) -> str:
    """Return the part of the model (from `PARTS`) that contains a weight."""
    return name.partition("/")[0]


def first_few(names: Iterable[str]) -> str:
    """Return the first names in alphabetical order and the number omitted, for messages."""
    names = sorted(names)
    more = f" and {len(names) - _NUM_NAMED} more" if len(names) > _NUM_NAMED else ""
    return ", ".join(names[:_NUM_NAMED]) + more
