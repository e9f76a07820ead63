"""The variables of the BERTs of TensorFlow's Model Garden, which are also those on TensorFlow Hub.

The names are those that the variables had in the program. They may follow the name of a model, such
as `bert_encoder/`. The attention has the heads as an axis of their own, see `split_heads`.

Source: github.com/tensorflow/models, official/nlp/modeling, and for the first versions on
TensorFlow Hub official/nlp/tools/tf1_bert_checkpoint_converter_lib.py.
"""

import re
from collections.abc import Sequence

import numpy as np

from keras_bert_d2l.checkpoints import weights
from keras_bert_d2l.checkpoints.array_files import NamedArrays
from keras_bert_d2l.checkpoints.formats.checkpoint import parts_of
from keras_bert_d2l.checkpoints.weights import Layout, Names, Row
from keras_bert_d2l.checks import shown
from keras_bert_d2l.config import BERTConfig
from keras_bert_d2l.types import ConfigDict

PRETRAINING, SENTENCE, TOKENS = "next_sentence", "sentence_prediction", "predictions/transform"

_BLOCK = "transformer/layer_{}"
_NAMES: Names = {
    "encoder/token_embedding": "word_embeddings/embeddings",
    "encoder/segment_embedding": "type_embeddings/embeddings",
    "encoder/pos_embedding": ("position_embedding/embeddings", weights.POSITIONS),
    "encoder/embedding_ln": "embeddings/layer_norm",
    "encoder/blk_{}/attention/W_q": f"{_BLOCK}/self_attention/query",
    "encoder/blk_{}/attention/W_k": f"{_BLOCK}/self_attention/key",
    "encoder/blk_{}/attention/W_v": f"{_BLOCK}/self_attention/value",
    "encoder/blk_{}/attention/W_o": f"{_BLOCK}/self_attention/attention_output",
    "encoder/blk_{}/addnorm1/ln": f"{_BLOCK}/self_attention_layer_norm",
    "encoder/blk_{}/ffn/dense1": f"{_BLOCK}/intermediate",
    "encoder/blk_{}/ffn/dense2": f"{_BLOCK}/output",
    "encoder/blk_{}/addnorm2/ln": f"{_BLOCK}/output_layer_norm",
    "hidden": "pooler_transform",
    "mlm/mlp/dense": "cls/predictions/transform/dense",
    "mlm/mlp/ln": "cls/predictions/transform/LayerNorm",
    "mlm/bias": "cls/predictions/output_bias/bias",
    # The labels of the sentence pairs are Google's: column 0 means "is next".
    "nsp/dense/kernel": (f"{PRETRAINING}/logits/kernel", weights.SWAPPED),
    "nsp/dense/bias": (f"{PRETRAINING}/logits/bias", weights.SWAPPED),
}
_OLD_NAMES = {  # of the first versions on TensorFlow Hub
    "embedding_postprocessor/type_embeddings": "type_embeddings/embeddings",
    "embedding_postprocessor/position_embeddings": "position_embedding/embeddings",
    "embedding_postprocessor/layer_norm/": "embeddings/layer_norm/",
    "encoder/layer_": "transformer/layer_",
    "/self_attention_output/": "/self_attention/attention_output/",
}
_OF_BERT = re.compile(
    r"(?:.+/)?((?:word|type)_embeddings/embeddings|position_embedding/embeddings"
    r"|embeddings/layer_norm/\w+|transformer/layer_(\d+)/.+|pooler_transform/\w+"
    r"|cls/predictions/.+)"
)
_QUERY = "transformer/layer_0/self_attention/query/kernel"


def table(config: BERTConfig, task: ConfigDict | None = None) -> list[Row]:
    """Return a row with the Model Garden's name for every weight."""
    head = SENTENCE if "hidden" in parts_of(task) else TOKENS
    names = {**_NAMES, "head": f"{head}/logits"}
    rows = weights.expand(config, names, weights.TENSORFLOW_ENDINGS, parts_of(task))
    return split_heads(rows, config.num_heads)


def bert_names(arrays: NamedArrays, heads: str = "(?!)") -> dict[str, str]:
    """Map the names of `table` to the names in a file, for each variable of a BERT.

    Args:
        arrays: The variables of the file.
        heads: A regular expression for the names of further variables.

    Raises:
        ValueError: The file has several models.
    """
    names: dict[str, str] = {}
    of_head = re.compile(f"(?:.+/)?({heads})")
    for stored in arrays.shapes:
        name = stored
        for old, new in _OLD_NAMES.items():
            name = name.replace(old, new)
        found = _OF_BERT.fullmatch(name) or of_head.fullmatch(name)
        if found and names.setdefault(found[1], stored) != stored:
            raise ValueError(
                f"{arrays.source!r} contains several BERTs: {shown(names[found[1]])} and "
                f"{shown(stored)}. Save one of them alone in the program that made them."
            )
    return names


def bert_sizes(arrays: NamedArrays) -> dict[str, int]:
    """Return the sizes of a BERT, as fields of a `BERTConfig`, from the shapes of its variables.

    Args:
        arrays: The variables, by their names of `table`.

    Raises:
        ValueError: A variable is missing or has the wrong number of axes.
    """
    shapes = arrays.shapes

    def size(name: str, axis: int, rank: int = 2) -> int:
        if len(shapes.get(name, ())) != rank:
            raise ValueError(
                f"{arrays.source!r} is not a BERT of TensorFlow Hub or the Model Garden: it must "
                f"have an array {name!r} with {rank} axes. Received: {shapes.get(name)}."
            )
        return shapes[name][axis]

    blocks = {found[2] for name in shapes if (found := _OF_BERT.fullmatch(name)) and found[2]}
    return {
        "vocab_size": size("word_embeddings/embeddings", 0),
        "num_hiddens": size("word_embeddings/embeddings", 1),
        "num_segments": size("type_embeddings/embeddings", 0),
        "max_len": size("position_embedding/embeddings", 0),
        "num_heads": size(_QUERY, 1, rank=3),
        "ffn_num_hiddens": size("transformer/layer_0/intermediate/kernel", 1),
        "num_blks": len(blocks),
    }


def split_heads(rows: Sequence[Row], num_heads: int) -> list[Row]:
    """Return rows for files whose attention weights have an axis for the heads, as in Keras."""
    layouts = dict.fromkeys(
        (f"W_{x}/{end}" for x in "qkv" for end in ("kernel", "bias")), _by_head(num_heads, -1)
    )
    layouts["W_o/kernel"] = _by_head(num_heads, 0)
    return [
        row._replace(layout=layouts.get(row.ours.partition("/attention/")[2], row.layout))
        for row in rows
    ]


def _by_head(num_heads: int, axis: int) -> Layout:
    """Return a layout in which the first axis (0) or the last one (-1) is heads times their width.

    The first axis D of the kernel of the output is (N, D / N) there, and so is the last axis of the
    kernels and biases of query, key and value.
    """

    def theirs(shape: tuple[int, ...]) -> tuple[int, ...]:
        split = (num_heads, shape[axis] // num_heads)
        return (*split, *shape[1:]) if axis == 0 else (*shape[:-1], *split)

    def ours(x: np.ndarray) -> np.ndarray:
        return x.reshape(-1, *x.shape[2:]) if axis == 0 else x.reshape(*x.shape[:-2], -1)

    return Layout(ours, lambda x: x.reshape(theirs(x.shape)), theirs)
