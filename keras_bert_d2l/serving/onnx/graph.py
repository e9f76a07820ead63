"""The layers of this package as ONNX operators: names of tensors in, names of tensors out.

B batch, T tokens, P predicted positions, N heads, D hidden width, V vocabulary.
"""

import math
from collections.abc import Mapping
from typing import Any

import keras
import numpy as np

from keras_bert_d2l.layers.attention import MultiHeadAttention
from keras_bert_d2l.layers.encoder import BERTEncoder
from keras_bert_d2l.layers.heads import MaskLM
from keras_bert_d2l.layers.layer_norm import UnbiasedLayerNormalization
from keras_bert_d2l.layers.pooling import Pooling
from keras_bert_d2l.layers.transformer import (
    AddNorm,
    PositionWiseFFN,
    TransformerEncoderBlock,
    activation_function,
)

INSTALL = 'Writing ONNX needs onnx, and for int8 onnxruntime: `pip install "keras-bert-d2l[onnx]"`.'

_FLOAT, _INT32, _INT64 = 1, 6, 7  # the format's numbers of dtypes
_HIDDEN_SCORE = -1e6  # as `masked_softmax` in float32
_ACTIVATIONS: dict[Any, tuple[str, dict[str, str]] | None] = {
    keras.activations.linear: None,
    keras.activations.tanh: ("Tanh", {}),
    activation_function("relu"): ("Relu", {}),
    activation_function("gelu"): ("Gelu", {"approximate": "none"}),
    activation_function("gelu_tanh"): ("Gelu", {"approximate": "tanh"}),
}


class Graph:
    """The nodes and constants of an ONNX graph that grows.

    Attributes:
        nodes: The nodes, each after those that it needs.
        constants: Arrays by name: weights under the names that checkpoints give them.
    """

    def __init__(self) -> None:
        try:
            import onnx
        except ModuleNotFoundError as error:
            raise ImportError(INSTALL) from error
        self._make_node = onnx.helper.make_node
        self.nodes: list[Any] = []
        self.constants: dict[str, np.ndarray] = {}

    def add(self, operator: str, *inputs: str, output: str | None = None, **attributes: Any) -> str:
        """Adds a node and returns the name of its output, by default its own."""
        name = f"{operator}_{len(self.nodes)}"
        output = output or name
        self.nodes.append(self._make_node(operator, inputs, [output], name, **attributes))
        return output

    def constant(self, value: Any, dtype: str = "float32") -> str:
        """Returns the name of a constant that is no weight."""
        array = np.asarray(value, dtype)
        name = f"{dtype}_{array.tolist()}"
        self.constants[name] = array
        return name

    def weight(self, name: str, value: Any) -> str:
        """Returns the name of a weight in float32.

        Raises:
            ValueError: The layer is quantised.
        """
        if name not in self.constants:
            if not keras.backend.is_float_dtype(keras.backend.standardize_dtype(value.dtype)):
                raise ValueError(
                    f"ONNX is written of weights that are floats. Received: {name!r} in "
                    f"{value.dtype}; export the model before it is quantised."
                )
            self.constants[name] = np.asarray(
                keras.ops.convert_to_numpy(keras.ops.cast(value, "float32"))
            )
        return name


def encode(graph: Graph, encoder: BERTEncoder, inputs: Mapping[str, str]) -> str:
    """Adds an encoder.

    Args:
        graph: Where to.
        encoder: The layer.
        inputs: Names of the int32 tensors `tokens` and `segments` `(B, T)` and `valid_lens`
            `(B,)`, by those.

    Returns: the encoded tokens `(B, T, D)`.
    """
    sums = [
        graph.add("Gather", embeddings(graph, encoder, f"{name}_embedding"), inputs[f"{name}s"])
        for name in ("token", "segment")
    ]
    X = graph.add("Add", graph.add("Add", *sums), _positions(graph, encoder, inputs["tokens"]))
    if encoder.embedding_ln is not None:
        X = normalize(graph, encoder.embedding_ln, X, "encoder/embedding_ln")
    penalty = _penalty(graph, is_token(graph, inputs, encoder.mask_from))
    for index, block in enumerate(encoder.blks):
        X = _block(graph, block, X, penalty, f"encoder/blk_{index}")
    if encoder.final_ln is not None:
        X = normalize(graph, encoder.final_ln, X, "encoder/final_ln")
    return X


def embeddings(graph: Graph, encoder: BERTEncoder, name: str) -> str:
    """Returns the matrix of the encoder's token or segment embedding."""
    return graph.weight(f"encoder/{name}/embeddings", getattr(encoder, name).embeddings)


def is_token(graph: Graph, inputs: Mapping[str, str], mask_from: str) -> str:
    """Adds the mask of what is no padding, bool `(B, T)`."""
    zero, one = (graph.constant(number, "int32") for number in (0, 1))
    length = graph.add("Squeeze", graph.add("Shape", inputs["tokens"], start=1))
    places = graph.add("Range", zero, graph.add("Cast", length, to=_INT32), one)  # (T,)
    lengths = graph.add("Unsqueeze", inputs["valid_lens"], graph.constant([1], "int64"))
    mask = graph.add("Less", places, lengths)
    if mask_from == "tokens":
        mask = graph.add("And", mask, graph.add("Greater", inputs["tokens"], zero))
    return mask


def dense(graph: Graph, layer: keras.layers.Dense, X: str, name: str) -> str:
    """Adds a dense layer with its activation, over the last axis."""
    # With LoRA the kernel is the sum with the low-rank product.
    X = graph.add("MatMul", X, graph.weight(f"{name}/kernel", layer.kernel))
    if layer.use_bias:
        X = graph.add("Add", X, graph.weight(f"{name}/bias", layer.bias))
    operator = _ACTIVATIONS[layer.activation]
    return X if operator is None else graph.add(operator[0], X, **operator[1])


def normalize(graph: Graph, layer: keras.layers.Layer, X: str, name: str) -> str:
    """Adds a layer normalisation of either kind."""
    gamma, beta = (
        graph.weight(f"{name}/{part}", getattr(layer, part)) for part in ("gamma", "beta")
    )
    if not isinstance(layer, UnbiasedLayerNormalization):
        return graph.add("LayerNormalization", X, gamma, beta, axis=-1, epsilon=layer.epsilon)
    last = graph.constant([-1], "int64")
    centred = graph.add("Sub", X, graph.add("ReduceMean", X, last))
    squares = graph.add("ReduceSumSquare", centred, last)
    variance = graph.add("Div", squares, graph.constant(layer.gamma.shape[0] - 1))
    lowest = graph.constant(keras.backend.epsilon() ** 2)
    std = graph.add("Sqrt", graph.add("Max", variance, lowest))
    normal = graph.add("Div", centred, graph.add("Add", std, graph.constant(layer.epsilon)))
    return graph.add("Add", graph.add("Mul", normal, gamma), beta)


def predict_masked(graph: Graph, head: MaskLM, X: str, pred_positions: str, output: str) -> str:
    """Adds the head that predicts tokens, from `(B, T, D)` and int `(B, P)` to `(B, P, V)`."""
    places = graph.add("Cast", pred_positions, to=_INT64)
    places = graph.add("Unsqueeze", places, graph.constant([2], "int64"))
    X = graph.add("GatherND", X, places, batch_dims=1)  # (B, P, D)
    for layer in head.mlp.layers:
        if isinstance(layer, keras.layers.Dense):
            X = dense(graph, layer, X, f"mlm/mlp/{layer.name}")
        elif not isinstance(layer, keras.layers.Identity):
            X = normalize(graph, layer, X, f"mlm/mlp/{layer.name}")
    if head.token_embedding is None:
        return graph.add("Identity", X, output=output)
    table = graph.weight("encoder/token_embedding/embeddings", head.token_embedding.embeddings)
    X = graph.add("MatMul", X, graph.add("Transpose", table, perm=[1, 0]))
    return graph.add("Add", X, graph.weight("mlm/bias", head.bias), output=output)


def pool(graph: Graph, layer: Pooling, X: str, mask: str) -> str:
    """Adds the pooling of `(B, T, D)` over a mask `(B, T)`, to `(B, D)`."""
    column = graph.add("Unsqueeze", mask, graph.constant([2], "int64"))
    tokens = graph.constant([1], "int64")
    if layer.pooling == "cls":
        X = first_token(graph, X)
    elif layer.pooling == "max":
        shown = graph.add("Where", column, X, graph.constant(-3e38))
        X = graph.add("ReduceMax", shown, tokens, keepdims=0)
    else:
        weights = graph.add("Cast", column, to=_FLOAT)
        total = graph.add("ReduceSum", graph.add("Mul", X, weights), tokens, keepdims=0)
        count = graph.add("ReduceSum", weights, tokens, keepdims=0)
        # Of a text without a token the sum is 0 already.
        X = graph.add("Div", total, graph.add("Max", count, graph.constant(1.0)))
    if not layer.normalize:
        return X
    length = graph.add("ReduceL2", X, graph.constant([-1], "int64"))
    return graph.add("Div", X, graph.add("Max", length, graph.constant(1e-12)))


def first_token(graph: Graph, X: str) -> str:
    """Adds the choice of the first token, from `(B, T, D)` to `(B, D)`."""
    return graph.add("Gather", X, graph.constant(0, "int64"), axis=1)


def _positions(graph: Graph, encoder: BERTEncoder, tokens: str) -> str:
    """The position embeddings of so many tokens, `(T, D)`."""
    table = graph.weight("encoder/pos_embedding", keras.ops.squeeze(encoder.pos_embedding, 0))
    first = graph.constant([0], "int64")
    return graph.add("Slice", table, first, graph.add("Shape", tokens, start=1), first)


def _penalty(graph: Graph, mask: str) -> str:
    """What is added to the scores of keys, `(B, 1, 1, T)`."""
    scores = graph.add("Where", mask, graph.constant(0.0), graph.constant(_HIDDEN_SCORE))
    return graph.add("Unsqueeze", scores, graph.constant([1, 2], "int64"))


def _block(graph: Graph, block: TransformerEncoderBlock, X: str, penalty: str, name: str) -> str:
    before = _before(graph, block.addnorm1, X, f"{name}/addnorm1")
    attended = _attention(graph, block.attention, before, penalty, f"{name}/attention")
    Y = _after(graph, block.addnorm1, X, attended, f"{name}/addnorm1")
    before = _before(graph, block.addnorm2, Y, f"{name}/addnorm2")
    transformed = _ffn(graph, block.ffn, before, f"{name}/ffn")
    return _after(graph, block.addnorm2, Y, transformed, f"{name}/addnorm2")


def _before(graph: Graph, layer: AddNorm, X: str, name: str) -> str:
    return normalize(graph, layer.ln, X, f"{name}/ln") if layer.norm_first else X


def _after(graph: Graph, layer: AddNorm, X: str, Y: str, name: str) -> str:
    total = graph.add("Add", Y, X)
    return total if layer.norm_first else normalize(graph, layer.ln, total, f"{name}/ln")


def _ffn(graph: Graph, layer: PositionWiseFFN, X: str, name: str) -> str:
    hidden = dense(graph, layer.dense1, X, f"{name}/dense1")
    return dense(graph, layer.dense2, hidden, f"{name}/dense2")


def _attention(graph: Graph, layer: MultiHeadAttention, X: str, penalty: str, name: str) -> str:
    width = layer.num_hiddens // layer.num_heads
    split = graph.constant([0, 0, layer.num_heads, width], "int64")  # 0: as it is
    joined = graph.constant([0, 0, layer.num_hiddens], "int64")

    def heads(letter: str, *axes: int) -> str:
        projected = dense(graph, getattr(layer, f"W_{letter}"), X, f"{name}/W_{letter}")
        return graph.add("Transpose", graph.add("Reshape", projected, split), perm=axes)

    queries = heads("q", 0, 2, 1, 3)  # (B, N, T, D / N)
    queries = graph.add("Mul", queries, graph.constant(1 / math.sqrt(width)))
    scores = graph.add("MatMul", queries, heads("k", 0, 2, 3, 1))  # (B, N, T, T)
    weights = graph.add("Softmax", graph.add("Add", scores, penalty), axis=-1)
    values = graph.add("MatMul", weights, heads("v", 0, 2, 1, 3))
    values = graph.add("Transpose", values, perm=[0, 2, 1, 3])
    return dense(graph, layer.W_o, graph.add("Reshape", values, joined), f"{name}/W_o")
