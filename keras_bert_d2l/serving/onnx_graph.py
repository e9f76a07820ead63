"""The layers of this package as ONNX operators.

The functions add the nodes of a layer to a graph. They take and return tensor names.

B: batch size, T: tokens, P: predicted positions, N: heads, D: hidden width, V: vocabulary size.
"""

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias

import keras
import numpy as np

from keras_bert_d2l.layers.attention import MultiHeadAttention
from keras_bert_d2l.layers.encoder import BERTEncoder
from keras_bert_d2l.layers.heads import MaskLM, Pooling
from keras_bert_d2l.layers.transformer import AddNorm, TransformerEncoderBlock
from keras_bert_d2l.layers.variants import UnbiasedLayerNormalization, activation_function
from keras_bert_d2l.types import Tensor

if TYPE_CHECKING:
    from onnx import NodeProto

TOKENS, MASK, SEGMENTS = "input_ids", "attention_mask", "token_type_ids"  # int64 inputs (B, T)
PREDICTED = "pred_positions"  # int64 input (B, P)
PLACES = ("batch", "length")  # names of the dimensions (B, T)
Shape: TypeAlias = tuple[str | int, ...]

_FLOAT, _INT64 = 1, 7  # ONNX's numbers for dtypes
_MASKED_SCORE = -1e6  # as in `masked_softmax` in float32
_ACTIVATIONS: dict[Callable[..., Tensor], tuple[str, dict[str, str]] | None] = {
    keras.activations.linear: None,
    keras.activations.sigmoid: ("Sigmoid", {}),
    keras.activations.tanh: ("Tanh", {}),
    activation_function("relu"): ("Relu", {}),
    activation_function("gelu"): ("Gelu", {"approximate": "none"}),
    activation_function("gelu_tanh"): ("Gelu", {"approximate": "tanh"}),
}


class Graph:
    """Nodes and constants of an ONNX graph under construction.

    Attributes:
        nodes: The nodes in topological order.
        constants: Arrays by name. Weights have the same names as in checkpoints.
        inputs: Shapes of the int64 inputs by name. A string names a dynamic dimension.
        outputs: Shapes of the float32 outputs by name.
    """

    def __init__(self) -> None:
        self.nodes: list[NodeProto] = []
        self.constants: dict[str, np.ndarray] = {}
        self.inputs: dict[str, Shape] = dict.fromkeys((TOKENS, MASK, SEGMENTS), PLACES)
        self.outputs: dict[str, Shape] = {}

    def add(self, operator: str, *inputs: str, **attributes: str | float | Sequence[int]) -> str:
        """Add a node and return the name of its output, which is also that of the node."""
        from onnx import helper

        name = f"{operator}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, inputs, [name], name, **attributes))  # type: ignore[arg-type]
        return name

    def output(self, name: str, X: str, *shape: str | int) -> None:
        """Give a tensor the name of an output of the graph."""
        from onnx import helper

        self.nodes.append(helper.make_node("Identity", [X], [name], name))
        self.outputs[name] = shape

    def constant(self, value: float | Sequence[int], dtype: str = "float32") -> str:
        """Add a constant that is not a weight and return its name."""
        array = np.asarray(value, dtype)
        name = f"{dtype}_{array.tolist()}"
        self.constants[name] = array
        return name

    def weight(self, name: str, value: Tensor) -> str:
        """Add a weight in float32 and return its name.

        Raises:
            ValueError: The layer is quantized.
        """
        if name not in self.constants:
            if not keras.backend.is_float_dtype(keras.backend.standardize_dtype(value.dtype)):
                raise ValueError(
                    f"ONNX export requires floating-point weights. Received: {name!r} in "
                    f"{value.dtype}. Export the model before quantizing it."
                )
            self.constants[name] = np.asarray(
                keras.ops.convert_to_numpy(keras.ops.cast(value, "float32"))
            )
        return name


def encode(graph: Graph, encoder: BERTEncoder) -> str:
    """Add an encoder of the inputs `(B, T)`. Return the encoded tokens `(B, T, D)`."""
    config, segments = encoder.config, SEGMENTS
    if config.first_segment_id:
        segments = graph.add("Add", segments, graph.constant(config.first_segment_id, "int64"))
        if config.mask_from == "tokens":
            is_text = graph.add("Greater", TOKENS, graph.constant(0, "int64"))
            segments = graph.add("Mul", segments, graph.add("Cast", is_text, to=_INT64))
    embedded = []
    for name, layer, ids in (
        ("token", encoder.token_embedding, TOKENS),
        ("segment", encoder.segment_embedding, segments),
    ):
        table = graph.weight(f"encoder/{name}_embedding/embeddings", layer.embeddings)
        embedded.append(graph.add("Gather", table, ids))
    X = graph.add("Add", *embedded)
    if encoder.pos_embedding is not None:
        X = graph.add("Add", X, _positions(graph, encoder))
    if encoder.embedding_ln is not None:
        X = normalize(graph, encoder.embedding_ln, X, "encoder/embedding_ln")
    penalty = _penalty(graph, is_token(graph, config.mask_from))
    for index, block in enumerate(encoder.blks):
        X = _block(graph, block, X, penalty, f"encoder/blk_{index}")
    if encoder.final_ln is not None:
        X = normalize(graph, encoder.final_ln, X, "encoder/final_ln")
    return X


def is_token(graph: Graph, mask_from: str) -> str:
    """Add the mask of non-padding tokens, bool `(B, T)`."""
    zero = graph.constant(0, "int64")
    mask = graph.add("Greater", MASK, zero)
    if mask_from == "tokens":
        mask = graph.add("And", mask, graph.add("Greater", TOKENS, zero))
    return mask


def dense(graph: Graph, layer: keras.layers.Dense, X: str, name: str) -> str:
    """Add a dense layer over the last axis, with its activation."""
    # With LoRA, `layer.kernel` includes the low-rank product.
    X = graph.add("MatMul", X, graph.weight(f"{name}/kernel", layer.kernel))
    if layer.use_bias:
        X = graph.add("Add", X, graph.weight(f"{name}/bias", layer.bias))
    operator = _ACTIVATIONS[layer.activation]
    return X if operator is None else graph.add(operator[0], X, **operator[1])


def normalize(graph: Graph, layer: keras.layers.Layer, X: str, name: str) -> str:
    """Add a layer normalization, Keras's own or `UnbiasedLayerNormalization`."""
    gamma, beta = (
        graph.weight(f"{name}/{part}", getattr(layer, part)) for part in ("gamma", "beta")
    )
    if not isinstance(layer, UnbiasedLayerNormalization):
        return graph.add("LayerNormalization", X, gamma, beta, axis=-1, epsilon=layer.epsilon)
    last = graph.constant([-1], "int64")
    centered = graph.add("Sub", X, graph.add("ReduceMean", X, last))
    squares = graph.add("ReduceSumSquare", centered, last)
    variance = graph.add("Div", squares, graph.constant(layer.gamma.shape[0] - 1))
    lowest = graph.constant(keras.backend.epsilon() ** 2)
    std = graph.add("Sqrt", graph.add("Max", variance, lowest))
    normal = graph.add("Div", centered, graph.add("Add", std, graph.constant(layer.epsilon)))
    return graph.add("Add", graph.add("Mul", normal, gamma), beta)


def predict_masked(graph: Graph, head: MaskLM, X: str) -> str:
    """Add the masked-token head, from `(B, T, D)` and the input `(B, P)` to `(B, P, V)`.

    The input may be omitted: it has a default without positions, `(1, 0)`, which is expanded.
    """
    graph.constants[PREDICTED] = np.zeros((1, 0), "int64")
    graph.inputs[PREDICTED] = ("batch", "predictions")
    sizes = graph.add("Shape", TOKENS, end=1), graph.add("Shape", PREDICTED, start=1)
    places = graph.add("Expand", PREDICTED, graph.add("Concat", *sizes, axis=0))
    places = graph.add("Unsqueeze", places, graph.constant([2], "int64"))
    X = graph.add("GatherND", X, places, batch_dims=1)  # (B, P, D)
    for layer in head.mlp.layers:
        if isinstance(layer, keras.layers.Dense):
            X = dense(graph, layer, X, f"mlm/mlp/{layer.name}")
        elif not isinstance(layer, keras.layers.Identity):
            X = normalize(graph, layer, X, f"mlm/mlp/{layer.name}")
    if head.token_embedding is not None:
        table = graph.weight("encoder/token_embedding/embeddings", head.token_embedding.embeddings)
        X = graph.add("MatMul", X, graph.add("Transpose", table, perm=[1, 0]))
        X = graph.add("Add", X, graph.weight("mlm/bias", head.bias))
    if head.num_tokens is None:
        return X
    graph.constants["mlm/penalty"] = head.penalty
    return graph.add("Add", X, "mlm/penalty")


def pool(graph: Graph, layer: Pooling, X: str, mask: str) -> str:
    """Add the pooling of `(B, T, D)` over a mask `(B, T)`, to `(B, D)`."""
    column = graph.add("Unsqueeze", mask, graph.constant([2], "int64"))
    tokens = graph.constant([1], "int64")
    if layer.pooling == "cls":
        first = graph.add("ArgMax", graph.add("Cast", mask, to=_INT64), axis=1, keepdims=1)
        X = graph.add("GatherND", X, first, batch_dims=1)
    elif layer.pooling == "max":
        shown = graph.add("Where", column, X, graph.constant(-3e38))
        X = graph.add("ReduceMax", shown, tokens, keepdims=0)
    else:
        weights = graph.add("Cast", column, to=_FLOAT)
        total = graph.add("ReduceSum", graph.add("Mul", X, weights), tokens, keepdims=0)
        count = graph.add("ReduceSum", weights, tokens, keepdims=0)
        # For a text without tokens, the sum is already 0.
        X = graph.add("Div", total, graph.add("Max", count, graph.constant(1.0)))
    if not layer.normalize:
        return X
    length = graph.add("ReduceL2", X, graph.constant([-1], "int64"))
    return graph.add("Div", X, graph.add("Max", length, graph.constant(1e-12)))


def first_token(graph: Graph, X: str) -> str:
    """Select the first token, from `(B, T, D)` to `(B, D)`."""
    return graph.add("Gather", X, graph.constant(0, "int64"), axis=1)


def _positions(graph: Graph, encoder: BERTEncoder) -> str:
    """Add the position embeddings for the first T positions, `(T, D)`."""
    table = graph.weight("encoder/pos_embedding", keras.ops.squeeze(encoder.pos_embedding, 0))
    first = graph.constant([0], "int64")
    return graph.add("Slice", table, first, graph.add("Shape", TOKENS, start=1), first)


def _penalty(graph: Graph, mask: str) -> str:
    """Add the penalty for the scores of masked keys, `(B, 1, 1, T)`."""
    scores = graph.add("Where", mask, graph.constant(0.0), graph.constant(_MASKED_SCORE))
    return graph.add("Unsqueeze", scores, graph.constant([1, 2], "int64"))


def _block(graph: Graph, block: TransformerEncoderBlock, X: str, penalty: str, name: str) -> str:
    def attend(X: str) -> str:
        return _attention(graph, block.attention, X, penalty, f"{name}/attention")

    def transform(X: str) -> str:
        hidden = dense(graph, block.ffn.dense1, X, f"{name}/ffn/dense1")
        return dense(graph, block.ffn.dense2, hidden, f"{name}/ffn/dense2")

    X = _residual(graph, block.addnorm1, X, attend, f"{name}/addnorm1")
    return _residual(graph, block.addnorm2, X, transform, f"{name}/addnorm2")


def _residual(
    graph: Graph, layer: AddNorm, X: str, sublayer: Callable[[str], str], name: str
) -> str:
    """Add a sublayer with its residual connection, normalized before or after it."""
    if layer.norm_first:
        return graph.add("Add", sublayer(normalize(graph, layer.ln, X, f"{name}/ln")), X)
    # onnxruntime would merge an Add with the normalization into one operator, whose kernel takes
    # several times as long as both.
    return normalize(graph, layer.ln, graph.add("Sum", sublayer(X), X), f"{name}/ln")


def _attention(graph: Graph, layer: MultiHeadAttention, X: str, penalty: str, name: str) -> str:
    width = layer.num_hiddens // layer.num_heads
    split = graph.constant([0, 0, layer.num_heads, width], "int64")  # 0 keeps the size
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
