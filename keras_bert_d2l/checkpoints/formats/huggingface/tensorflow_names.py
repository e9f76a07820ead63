"""Weights with the names of transformers 4 in TensorFlow, as `tf_model.h5` has them.

Keras writes each weight below the name of its layer, and TensorFlow names it by its scopes, of
which the first ones depend on the program:

    bert/tf_bert_for_masked_lm/bert/encoder/layer_._0/attention/self/query/kernel:0
    mlm___cls/tf_bert_for_masked_lm/mlm___cls/predictions/bias:0

A model of one's own around `TFBertModel` has further layers, which are not read.

Source: github.com/huggingface/transformers, version 4, `modeling_tf_utils.py` and
`modeling_tf_pytorch_utils.py`.
"""

import math
import re

import numpy as np

from keras_bert_d2l.checkpoints.array_files import NamedArrays
from keras_bert_d2l.checkpoints.weights import first_few
from keras_bert_d2l.checks import shown

NOT_READ = "not read"  # the entry of the metadata that names the weights of other layers
_TOKEN_EMBEDDING = "bert.embeddings.word_embeddings.weight"
_WHOLE_MODEL = "model_weights/"  # the group of the weights in a file of `model.save("x.h5")`
_PATH = re.compile(
    r"(?:(?P<scopes>.*)/)?"
    r"(?P<layers>(?:bert|mlm___cls|nsp___cls|classifier|qa_outputs)/(?:[^:]*/)?)(?P<weight>\w+):0"
)
_WEIGHTS = {"kernel": "weight", "gamma": "weight", "beta": "bias", "embeddings": "weight"}


def has_tensorflow_names(stored: NamedArrays) -> bool:
    """Return whether TensorFlow named the arrays of a file."""
    return any(name.endswith(":0") for name in stored.shapes)


def with_torch_names(stored: NamedArrays) -> NamedArrays:
    """Return the weights of a BERT with the names and the layouts that transformers writes today.

    Files have the token embedding twice if an MLM head shares it. When it is read, both are
    compared.

    Args:
        stored: The arrays of a file with the names of TensorFlow.

    Raises:
        ValueError: The file contains no BERT of transformers, or several.
    """
    models: dict[str, dict[str, list[str]]] = {}  # paths by our names of weights, by scopes
    for path in sorted(stored.shapes):
        match = _PATH.fullmatch(path.removeprefix(_WHOLE_MODEL))
        if match and not path.startswith("optimizer_weights/"):
            scopes = (match["scopes"] or "").partition("/")[2]  # without the layer of Keras
            models.setdefault(scopes, {}).setdefault(_torch_name(match), []).append(path)
    found = [scopes for scopes, names in models.items() if _TOKEN_EMBEDDING in names]
    if len(found) != 1:
        what = "no BERT of transformers" if not found else f"{len(found)} BERTs of transformers"
        raise ValueError(
            f"{stored.source!r} contains {what}, whose token embedding is named "
            f"'.../{_TOKEN_EMBEDDING.replace('.', '/')}:0'. Received: {first_few(stored.shapes)}. "
            "Save the weights of one `TFBertModel` alone: `model.save_pretrained(folder)`."
        )
    paths = models[found[0]]
    others = stored.shapes.keys() - {path for same in paths.values() for path in same}
    shapes = {name: _flat(same[0], stored.shapes[same[0]]) for name, same in paths.items()}

    def read(name: str) -> np.ndarray:
        first, *copies = paths[name]
        value = stored.read(first)
        if not all(np.array_equal(stored.read(copy), value, equal_nan=True) for copy in copies):
            raise ValueError(
                f"{stored.source!r} contains {shown(first)} and {shown(copies[0])}, which must be "
                "equal. The file is damaged: copy it again."
            )
        value = value.reshape(shapes[name])
        return value.T if _is_kernel(first) else value

    return NamedArrays(
        stored.source,
        {name: shape[:: -1 if _is_kernel(paths[name][0]) else 1] for name, shape in shapes.items()},
        {name: stored.dtypes[same[0]] for name, same in paths.items()},
        read,
        {**stored.metadata, NOT_READ: first_few(others)},
    )


def _torch_name(match: re.Match[str]) -> str:
    layers = re.sub(r"\b[a-z]+___", "", match["layers"]).replace("_._", ".").replace("/", ".")
    return layers + _WEIGHTS.get(match["weight"], match["weight"])


def _is_kernel(path: str) -> bool:
    return path.endswith("/kernel:0")


def _flat(path: str, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return a shape without the axis of the heads, which transformers 4.2 to 4.4 wrote."""
    if _is_kernel(path) and len(shape) == 3:
        first = math.prod(shape[:2]) if path.endswith("output/dense/kernel:0") else shape[0]
        return first, math.prod(shape) // max(first, 1)
    return (math.prod(shape),) if path.endswith("/bias:0") else shape
