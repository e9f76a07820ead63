"""The variables of the BERTs of TensorFlow's Model Garden, which are also those on TensorFlow Hub.

The names are those that the variables had in the program. They may follow the name of a model, such
as `bert_encoder/`. Kernels of the attention have the heads as an axis of their own, `(D, N, D/N)`
or `(N, D/N, D)`, which is merged with its neighbor here.

Source: github.com/tensorflow/models, official/nlp/modeling, and for the first versions on
TensorFlow Hub official/nlp/tools/tf1_bert_checkpoint_converter_lib.py.
"""

import dataclasses
import math
import re

import numpy as np

from keras_bert_d2l.checkpoints.array_files import NamedArrays
from keras_bert_d2l.checkpoints.weights import POSITIONS, Names
from keras_bert_d2l.checks import shown
from keras_bert_d2l.config import BERTConfig

_BLOCK = "transformer/layer_{}"
NAMES: Names = {
    "encoder/token_embedding": "word_embeddings/embeddings",
    "encoder/segment_embedding": "type_embeddings/embeddings",
    "encoder/pos_embedding": ("position_embedding/embeddings", POSITIONS),
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
# The group finds the kernels whose heads are the second axis.
_OF_HEADS = re.compile(
    r"transformer/layer_\d+/self_attention/"
    r"(?:(?:query|key|value)/(?:(kernel)|bias)|attention_output/kernel)"
)
_QUERY = "transformer/layer_0/self_attention/query/kernel"


def bert_names(arrays: NamedArrays, heads: str = "(?!)") -> dict[str, str]:
    """Map the names in `NAMES` to the names in a file, for each variable of a BERT.

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
        arrays: The variables, by their names in `NAMES`.

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


def with_merged_heads(arrays: NamedArrays, config: BERTConfig) -> NamedArrays:
    """Return the variables of a BERT without an axis for the heads of the attention.

    Raises:
        ValueError: A variable has another number of heads than the configuration.
    """
    heads = (config.num_heads, config.num_hiddens // config.num_heads)
    shapes = dict(arrays.shapes)
    for name, shape in arrays.shapes.items():
        found = _OF_HEADS.fullmatch(name)
        if not found:
            continue
        axis = 1 if found[1] else 0
        if shape[axis : axis + 2] != heads:
            raise ValueError(
                f"{arrays.source!r} must have {heads[0]} heads of size {heads[1]} in each variable "
                f"of the attention. Received: {name} with the shape {shape}."
            )
        shapes[name] = (*shape[:axis], math.prod(heads), *shape[axis + 2 :])

    def read(name: str) -> np.ndarray:
        return arrays.read(name).reshape(shapes[name])

    return dataclasses.replace(arrays, shapes=shapes, read=read)
