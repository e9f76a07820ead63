"""Weights with the names of transformers 4 in TensorFlow, as `tf_model.h5` has them.

Keras writes each weight below the name of its layer, and TensorFlow names it by its scopes. The
first scopes depend on the program:

    bert/tf_bert_for_masked_lm/bert/encoder/layer_._0/attention/self/query/kernel:0
    mlm___cls/tf_bert_for_masked_lm/mlm___cls/predictions/bias:0

A file whose name ends in `.weights.h5` has the attributes of the model instead, and numbers:

    layers/tf_bert_main_layer/encoder/layer/tf_bert_layer/attention/self_attention/query/vars/0

The other layers of a custom model around `TFBertModel` are not read.

Source: github.com/huggingface/transformers, version 4, `modeling_tf_utils.py` and
`modeling_tf_pytorch_utils.py`.
"""

import dataclasses
import math
import re
from collections.abc import Mapping

import numpy as np

from keras_bert_d2l.checkpoints.array_files import NamedArrays
from keras_bert_d2l.checkpoints.formats.huggingface.model_types import ModelType
from keras_bert_d2l.checkpoints.weights import first_few
from keras_bert_d2l.checks import shown

# Entries of the metadata: the arrays of other layers, and the class of transformers.
NOT_READ, CLASS = "not read", "class"
_CLASS = re.compile(r"(?:.*/)?tf[a-z_]+_for_([a-z_]+?)(?:_\d+)?")  # the last scope of Keras
_OPTIMIZER = ("optimizer_weights/", "optimizer/vars/")
_WHOLE_MODEL = "model_weights/"  # the group of the weights in a file of `model.save("x.h5")`
# From the first layer of the model on, which is `sop_classifier` rather than the layer inside.
_PATH = r"(?:(?P<scopes>.*)/)?(?<!sop_classifier/)(?P<name>(?:{})/.*)"
_FIRST = ("mlm___cls", "nsp___cls", "classifier", "qa_outputs", "sequence_summary")
_WEIGHTS = {"kernel": "weight", "gamma": "weight", "beta": "bias", "embeddings": "weight"}

_ATTRIBUTES = (  # in the second kind of file, and how the first one names them
    (r"(?:^|/)layers/tf_bert_main_layer/", "/bert/"),
    (r"(?:^|/)mlm/predictions/input_embeddings/", "/bert/embeddings/"),
    (r"(?:^|/)(mlm|nsp)/", r"/\1___cls/"),
    (r"/layer/tf_bert_layer/", "/layer_._0/"),
    (r"/layer/tf_bert_layer_(\d+)/", r"/layer_._\1/"),
    (r"/(?:dense|bert)_output/", "/output/"),
    (r"/self_attention/", "/self/"),
)
_NUMBERED = {  # the weights of a layer other than a dense one
    "LayerNorm": ("gamma", "beta"),
    "embeddings": (
        *("word_embeddings/weight", "token_type_embeddings/embeddings"),
        "position_embeddings/embeddings",
    ),
    "predictions": ("bias",),
}


def has_tensorflow_names(stored: NamedArrays) -> bool:
    """Return whether TensorFlow named the arrays of a file."""
    return any(name.endswith(":0") for name in stored.shapes)


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
    named = {path: _named(path) for path in sorted(stored.shapes)}
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


def _named(path: str) -> str:
    """Return the path of a weight with the names of its layers and its own name."""
    layers, is_numbered, number = path.rpartition("/vars/")
    if not is_numbered:
        return path.removeprefix(_WHOLE_MODEL).removesuffix(":0")
    layers = f"{layers}/"
    for pattern, name in _ATTRIBUTES:
        layers = re.sub(pattern, name, layers)
    names = _NUMBERED.get(layers.split("/")[-2], ("kernel", "bias"))
    known = dict(zip("012", names, strict=False))
    return layers + known.get(number, number)


def _torch_name(name: str) -> str:
    layers, _, weight = name.rpartition("/")
    layers = re.sub(r"\b[a-z]+___", "", layers).replace("_._", ".").replace("/", ".")
    return f"{layers}.{_WEIGHTS.get(weight, weight)}"


def _flat(name: str, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return a shape without the axis of the heads, which transformers 4.2 to 4.4 wrote."""
    if name.endswith("/kernel") and len(shape) == 3:
        first = math.prod(shape[:2]) if name.endswith("output/dense/kernel") else shape[0]
        return first, math.prod(shape) // max(first, 1)
    return (math.prod(shape),) if name.endswith("/bias") else shape
