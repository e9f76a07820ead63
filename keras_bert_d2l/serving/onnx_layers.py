"""The layers of this package as ONNX operators.

The functions add the nodes of a layer to a graph. They take and return tensor names.

B: batch size, T: tokens, P: predicted positions, N: heads, D: hidden width, H: width of a head,
V: vocabulary size.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import keras
import numpy as np

from keras_bert_d2l.config import BERTConfig
from keras_bert_d2l.layers.base import UnbiasedLayerNormalization, activation_function
from keras_bert_d2l.layers.encoder import BERTEncoder
from keras_bert_d2l.layers.heads import MaskLM, NormalizedDense
from keras_bert_d2l.layers.pooling import Pooling
from keras_bert_d2l.layers.positions import (
    MAX_DISTANCE,
    RelativeBias,
    RelativeEmbeddings,
    relative_buckets,
    rotary_frequencies,
)
from keras_bert_d2l.layers.sublayers import (
    OF_THREE_TERMS,
    GatedFFN,
    MultiHeadAttention,
    PositionWiseFFN,
)
from keras_bert_d2l.layers.transformer import AddNorm, NeighborConv, TransformerEncoderBlock
from keras_bert_d2l.serving.onnx_distances import Distances
from keras_bert_d2l.serving.onnx_graph import MASK, PREDICTED, SEGMENTS, TOKENS, Graph
from keras_bert_d2l.types import Tensor

_FLOAT, _INT64 = 1, 7  # ONNX's numbers for dtypes
_MASKED_SCORE = -1e6  # as in `masked_softmax` in float32
_ACTIVATIONS: dict[Callable[..., Tensor], tuple[str, dict[str, str]] | None] = {
    keras.activations.linear: None,
    keras.activations.sigmoid: ("Sigmoid", {}),
    keras.activations.tanh: ("Tanh", {}),
    keras.activations.relu: ("Relu", {}),
    keras.activations.gelu: ("Gelu", {"approximate": "none"}),
    keras.ops.sigmoid: ("Sigmoid", {}),
    keras.ops.tanh: ("Tanh", {}),
    keras.ops.relu: ("Relu", {}),
    activation_function("relu"): ("Relu", {}),
    activation_function("gelu"): ("Gelu", {"approximate": "none"}),
    activation_function("gelu_tanh"): ("Gelu", {"approximate": "tanh"}),
}


class _Scores(NamedTuple):
    """What the attention of a block depends on besides its queries, keys and values.

    Attributes:
        distances: What the blocks of a DeBERTa share.
        added: What is added to the scores, `(B, 1 or N, 1 or T, T)`.
        rotation: Rotary positions: the cosines and the sines, both `(T, 1, H)`.
    """

    added: str
    rotation: tuple[str, str] | None
    distances: Distances | None


def encode(graph: Graph, encoder: BERTEncoder, *, only_first: bool = False) -> str:
    """Add an encoder of the inputs `(B, T)`. Return the encoded tokens `(B, T, D)`.

    With `only_first`, they are the first one of each row, `(B, 1, D)`, and the last block computes
    no others.
    """
    X = _embed(graph, encoder)
    num_whole = len(encoder.blks) - only_first
    scores_of_blocks = _scores_of_blocks(graph, encoder)
    for number, (block, scores) in enumerate(zip(encoder.blks, scores_of_blocks, strict=True)):
        # With `shared_blocks`, all blocks are the first one.
        name = f"encoder/blk_{encoder.blks.index(block)}"
        before, only = X, number >= num_whole
        X = _block(graph, block, X, scores, name, only_first=only)
        if number == 0 and encoder.conv is not None:
            mask = is_token(graph, encoder.config)
            X = _convolve(graph, encoder.conv, before, X, mask, only_first=only)
    if encoder.final_ln is not None:
        X = normalize(graph, encoder.final_ln, X, "encoder/final_ln")
    return X


def is_token(graph: Graph, config: BERTConfig) -> str:
    """Add the mask of non-padding tokens, bool `(B, T)`."""
    mask = graph.add("Greater", MASK, graph.constant(0, "int64"))
    if config.mask_from == "tokens":
        mask = graph.add("And", mask, _is_text(graph, config))
    return mask


def dense(graph: Graph, layer: keras.layers.Dense, X: str, name: str) -> str:
    """Add a dense layer over the last axis, with its activation."""
    # With LoRA, `layer.kernel` includes the low-rank product.
    X = graph.add("MatMul", X, graph.weight(f"{name}/kernel", layer.kernel))
    if layer.use_bias:
        X = graph.add("Add", X, graph.weight(f"{name}/bias", layer.bias))
    return _activate(graph, layer.activation, X)


def _activate(graph: Graph, function: Callable[..., Tensor], X: str) -> str:
    if function is keras.ops.silu:
        return graph.add("Mul", X, graph.add("Sigmoid", X))
    operator = _ACTIVATIONS[function]
    return X if operator is None else graph.add(operator[0], X, **operator[1])


def pooler(graph: Graph, layer: keras.layers.Dense, X: str) -> str:
    """Add the hidden layer before the heads, over the last axis."""
    X = dense(graph, layer, X, "hidden")
    return normalize(graph, layer.ln, X, "hidden/ln") if isinstance(layer, NormalizedDense) else X


def normalize(graph: Graph, layer: keras.layers.Layer, X: str, name: str) -> str:
    """Add a layer normalization, Keras's own or `UnbiasedLayerNormalization`."""
    if isinstance(layer, keras.layers.Identity):
        return X
    gamma, *beta = (graph.weight(f"{name}/{weight.name}", weight) for weight in layer.weights)
    if not isinstance(layer, UnbiasedLayerNormalization):
        return graph.add("LayerNormalization", X, gamma, *beta, axis=-1, epsilon=layer.epsilon)
    last = graph.constant([-1], "int64")
    centered = graph.add("Sub", X, graph.add("ReduceMean", X, last))
    squares = graph.add("ReduceSumSquare", centered, last)
    variance = graph.add("Div", squares, graph.constant(layer.gamma.shape[0] - 1))
    lowest = graph.constant(keras.backend.epsilon() ** 2)
    std = graph.add("Sqrt", graph.add("Max", variance, lowest))
    normal = graph.add("Div", centered, graph.add("Add", std, graph.constant(layer.epsilon)))
    return graph.add("Add", graph.add("Mul", normal, gamma), *beta)


def predict_masked(graph: Graph, head: MaskLM, X: str) -> str:
    """Add the masked-token head, from `(B, T, D)` and the input `(B, P)` to `(B, P, V)`.

    The input may be omitted: it has a default without positions, `(1, 0)`, which is expanded.
    """
    graph.constants[PREDICTED] = np.zeros((1, 0), "int64")
    graph.inputs[PREDICTED] = "int64", ("batch", "predictions")
    sizes = graph.add("Shape", TOKENS, end=1), graph.add("Shape", PREDICTED, start=1)
    places = graph.add("Expand", PREDICTED, graph.add("Concat", *sizes, axis=0))
    places = graph.add("Unsqueeze", places, graph.constant([2], "int64"))
    X = graph.add("GatherND", X, places, batch_dims=1)  # (B, P, D)
    for layer in head.mlp.layers:
        if isinstance(layer, keras.layers.Dense):
            X = dense(graph, layer, X, f"mlm/mlp/{layer.name}")
        else:
            X = normalize(graph, layer, X, f"mlm/mlp/{layer.name}")
    if head.token_embedding is not None:
        table = graph.weight("encoder/token_embedding/embeddings", head.token_embedding.embeddings)
        X = graph.add("MatMul", X, graph.add("Transpose", table, perm=[1, 0]))
        X = graph.add("Add", X, graph.weight("mlm/bias", head.bias))
    if head.num_tokens is None:
        return X
    graph.constants["mlm/penalty"] = head.penalty
    return graph.add("Add", X, "mlm/penalty")


def pool(graph: Graph, layer: Pooling, X: str, mask: str, prompt_lens: str = "") -> str:
    """Add the pooling of `(B, T, D)` over a mask `(B, T)`, and its steps, to `(B, E)`.

    `prompt_lens` are the numbers of first tokens that do not count, int64 `(B,)`.
    """
    tokens = graph.constant([1], "int64")
    places = is_counted = graph.add("Cast", mask, to=_INT64)  # from 1; 0 does not count
    if "weighted_mean" in layer.kinds or prompt_lens or not layer.include_special:
        places = graph.add("CumSum", places, graph.constant(1, "int64"))
        places = graph.add("Mul", places, is_counted)
    if not layer.include_special:
        inner = graph.add("Greater", places, tokens)
        last = graph.add("ReduceMax", places, tokens, keepdims=1)
        inner = graph.add("And", inner, graph.add("Less", places, last))
        places = graph.add("Mul", places, graph.add("Cast", inner, to=_INT64))
    if prompt_lens:
        later = graph.add("Greater", places, graph.add("Unsqueeze", prompt_lens, tokens))
        places = graph.add("Mul", places, graph.add("Cast", later, to=_INT64))
    vectors = [_pooled(graph, X, places, kind) for kind in layer.kinds]
    X = graph.add("Concat", *vectors, axis=-1) if vectors[1:] else vectors[0]
    for number, step in enumerate(layer.layers):
        is_dense = step is not None
        X = dense(graph, step, X, f"head/step_{number}") if is_dense else _unit(graph, X)
    return _unit(graph, X) if layer.normalize else X


def _pooled(graph: Graph, X: str, places: str, kind: str) -> str:
    """Add one pooling of the tokens `(B, T, D)` whose `places` `(B, T)` are not 0."""
    tokens = graph.constant([1], "int64")
    counted = graph.add("Greater", places, graph.constant(0, "int64"))
    column = graph.add("Unsqueeze", counted, graph.constant([2], "int64"))
    if kind in ("cls", "last"):
        last = {"select_last_index": int(kind == "last")}
        ends = graph.add("Cast", counted, to=_INT64)
        place = graph.add("ArgMax", ends, axis=1, keepdims=1, **last)
        found = graph.add("GatherND", X, place, batch_dims=1)
        if kind == "cls":
            return found
        is_any = graph.add("ReduceMax", graph.add("Cast", counted, to=_FLOAT), tokens, keepdims=1)
        return graph.add("Mul", found, is_any)
    if kind == "max":
        shown = graph.add("Where", column, X, graph.constant(-3e38))
        return graph.add("ReduceMax", shown, tokens, keepdims=0)
    weights = column
    if kind == "weighted_mean":
        weights = graph.add("Unsqueeze", places, graph.constant([2], "int64"))
    weights = graph.add("Cast", weights, to=_FLOAT)
    total = graph.add("ReduceSum", graph.add("Mul", X, weights), tokens, keepdims=0)
    count = graph.add("ReduceSum", weights, tokens, keepdims=0)
    # For a text without tokens, the sum is already 0.
    count = graph.add("Max", count, graph.constant(1.0))
    count = graph.add("Sqrt", count) if kind == "mean_sqrt_len" else count
    return graph.add("Div", total, count)


def _unit(graph: Graph, X: str) -> str:
    length = graph.add("ReduceL2", X, graph.constant([-1], "int64"))
    return graph.add("Div", X, graph.add("Max", length, graph.constant(1e-12)))


def first_token(graph: Graph, X: str) -> str:
    """Select the first token, from `(B, T, D)` to `(B, D)`."""
    return graph.add("Gather", X, graph.constant(0, "int64"), axis=1)


def _first(graph: Graph, X: str, axis: int = 1) -> str:
    """Select the first token and keep its axis, from `(B, T, D)` to `(B, 1, D)`."""
    return graph.add("Slice", X, *(graph.constant([n], "int64") for n in (0, 1, axis)))


def _embed(graph: Graph, encoder: BERTEncoder) -> str:
    """Add the sum of the embeddings, normalized and projected, `(B, T, D)`."""
    segments = _segments(graph, encoder.config) if SEGMENTS in graph.inputs else None
    table = graph.weight("encoder/token_embedding/embeddings", encoder.token_embedding.embeddings)
    embedded = [graph.add("Gather", table, TOKENS)]
    if encoder.segment_embedding is not None:
        name = "encoder/segment_embedding/embeddings"
        table = graph.weight(name, encoder.segment_embedding.embeddings)
        embedded.append(table if segments is None else graph.add("Gather", table, segments))
    X = graph.add("Add", *embedded) if embedded[1:] else embedded[0]
    if encoder.pos_embedding is not None:
        X = graph.add("Add", X, _positions(graph, encoder))
    if encoder.embedding_ln is not None:
        X = normalize(graph, encoder.embedding_ln, X, "encoder/embedding_ln")
    if encoder.embedding_projection is not None:
        X = dense(graph, encoder.embedding_projection, X, "encoder/embedding_projection")
    return X


def _is_text(graph: Graph, config: BERTConfig) -> str:
    """Add which ids are not that of padding, bool `(B, T)`."""
    is_padding = graph.add("Equal", TOKENS, graph.constant(config.pad_id, "int64"))
    return graph.add("Not", is_padding)


def _segments(graph: Graph, config: BERTConfig) -> str:
    """Add the rows of the segment embedding, int64 `(B, T)`."""
    segments = SEGMENTS
    if config.first_segment_id:
        segments = graph.add("Add", segments, graph.constant(config.first_segment_id, "int64"))
        if config.mask_from == "tokens":
            is_text = graph.add("Cast", _is_text(graph, config), to=_INT64)
            segments = graph.add("Mul", segments, is_text)
    return segments


def _positions(graph: Graph, encoder: BERTEncoder) -> str:
    """Add the position embeddings, `(T, D)` or, with `first_position_id`, `(B, T, D)`."""
    config = encoder.config
    table = graph.weight("encoder/pos_embedding", keras.ops.squeeze(encoder.pos_embedding, 0))
    if not config.first_position_id:
        first = graph.constant([0], "int64")
        return graph.add("Slice", table, first, graph.add("Shape", TOKENS, start=1), first)
    is_text = graph.add("Cast", _is_text(graph, config), to=_INT64)
    counts = graph.add("CumSum", is_text, graph.constant(1, "int64"))
    offset = graph.constant(config.first_position_id - 1, "int64")
    rows = graph.add("Add", graph.add("Mul", counts, is_text), offset)
    return graph.add("Gather", table, rows)


def _scores_of_blocks(graph: Graph, encoder: BERTEncoder) -> list[_Scores]:
    """Add what the attention of each block depends on."""
    config, relative = encoder.config, encoder.relative
    added = _penalty(graph, is_token(graph, config))
    distances = Distances(graph, relative) if isinstance(relative, RelativeEmbeddings) else None
    if relative is not None and distances is None:
        added = graph.add("Add", added, _relative_bias(graph, relative))
    is_local = [config.is_local(block) for block in range(config.num_blks)]
    kinds = {}
    for local in dict.fromkeys(is_local):
        theta = config.local_rope_theta if local else config.rope_theta
        kinds[local] = _Scores(
            _in_window(graph, config.local_attention, added) if local else added,
            _rotation(graph, config, theta) if config.positions == "rotary" else None,
            distances,
        )
    return [kinds[local] for local in is_local]


def _penalty(graph: Graph, mask: str) -> str:
    """Add the penalty for the scores of masked keys, `(B, 1, 1, T)`."""
    scores = graph.add("Where", mask, graph.constant(0.0), graph.constant(_MASKED_SCORE))
    return graph.add("Unsqueeze", scores, graph.constant([1, 2], "int64"))


def _in_window(graph: Graph, window: int, added: str) -> str:
    """Add the penalty of keys outside of the windows, `(B, 1 or N, T, T)`."""
    far = graph.add("Abs", _distances(graph))
    is_near = graph.add("LessOrEqual", far, graph.constant(window // 2, "int64"))
    return graph.add("Where", is_near, added, graph.constant(_MASKED_SCORE))


def _relative_bias(graph: Graph, layer: RelativeBias) -> str:
    """Add the bias of the scores, `(N, T, T)`."""
    name = "encoder/relative_bias"
    table = graph.weight(f"{name}/embeddings", layer.embeddings)
    buckets = relative_buckets(layer.config.relative_buckets).astype("int64")
    graph.constants[f"{name}/buckets"] = buckets
    least, most = (graph.constant(far, "int64") for far in (-MAX_DISTANCE, MAX_DISTANCE))
    distances = graph.add("Clip", _distances(graph), least, most)
    rows = graph.add("Gather", f"{name}/buckets", graph.add("Add", distances, most))
    return graph.add("Transpose", graph.add("Gather", table, rows), perm=[2, 0, 1])


def _distances(graph: Graph) -> str:
    """Add the distances from queries to keys, int64 `(T, T)`."""
    places = _places(graph)
    return graph.add("Sub", places, graph.add("Unsqueeze", places, graph.constant([1], "int64")))


def _places(graph: Graph) -> str:
    """Add the numbers 0 to T - 1, int64 `(T,)`."""
    first, step = (graph.constant(number, "int64") for number in (0, 1))
    length = graph.add("Squeeze", graph.add("Shape", TOKENS, start=1))
    return graph.add("Range", first, length, step)


def _rotation(graph: Graph, config: BERTConfig, theta: float) -> tuple[str, str]:
    """Add the cosines and sines of rotary positions, both `(T, 1, H)`."""
    name = f"encoder/rotary_{theta}"
    graph.constants[name] = rotary_frequencies(theta, config.head_width)
    places = graph.add("Cast", _places(graph), to=_FLOAT)
    places = graph.add("Unsqueeze", places, graph.constant([1, 2], "int64"))
    angles = graph.add("Mul", places, name)  # (T, 1, H / 2)
    cos, sin = graph.add("Cos", angles), graph.add("Sin", angles)
    sines = graph.add("Concat", graph.add("Neg", sin), sin, axis=-1)
    return graph.add("Concat", cos, cos, axis=-1), sines


def _rotated(graph: Graph, X: str, rotation: tuple[str, str]) -> str:
    """Add the rotation of heads `(B, T, N, H)`, whose pairs are i and i + H / 2."""
    cos, sin = rotation
    swapped = graph.add(
        "Concat", *reversed(graph.add_two("Split", X, axis=-1, num_outputs=2)), axis=-1
    )
    return graph.add("Add", graph.add("Mul", X, cos), graph.add("Mul", swapped, sin))


def _block(
    graph: Graph,
    block: TransformerEncoderBlock,
    X: str,
    scores: _Scores,
    name: str,
    *,
    only_first: bool,
) -> str:
    def attend(X: str) -> str:
        return _attention(graph, block.attention, X, scores, f"{name}/attention", only_first)

    def transform(X: str) -> str:
        return _feed_forward(graph, block.ffn, X, f"{name}/ffn")

    X = _residual(graph, block.addnorm1, X, attend, f"{name}/addnorm1", only_first=only_first)
    return _residual(graph, block.addnorm2, X, transform, f"{name}/addnorm2")


def _convolve(
    graph: Graph, layer: NeighborConv, X: str, Y: str, mask: str, *, only_first: bool
) -> str:
    """Add the convolution of the embeddings `X` to the output of the first block, `Y`."""
    name, mask = "encoder/conv", graph.add("Cast", mask, to=_FLOAT)
    X = graph.add("Mul", X, graph.add("Unsqueeze", mask, graph.constant([2], "int64")))
    kernel = keras.ops.transpose(layer.conv.kernel, (2, 1, 0))
    weights = graph.weight(f"{name}/conv/kernel", kernel)
    bias = graph.weight(f"{name}/conv/bias", layer.conv.bias)
    X = graph.add("Transpose", X, perm=[0, 2, 1])  # (B, D, T)
    sides = [layer.conv.kernel_size[0] // 2] * 2
    X = graph.add("Transpose", graph.add("Conv", X, weights, bias, pads=sides), perm=[0, 2, 1])
    X = _activate(graph, layer.activation, _first(graph, X) if only_first else X)
    return normalize(graph, layer.addnorm.ln, graph.add("Sum", X, Y), f"{name}/addnorm/ln")


def _feed_forward(graph: Graph, layer: PositionWiseFFN, X: str, name: str) -> str:
    X = dense(graph, layer.dense1, X, f"{name}/dense1")
    if isinstance(layer, GatedFFN):
        X, gate = graph.add_two("Split", X, axis=-1, num_outputs=2)
        X = graph.add("Mul", _activate(graph, layer.activation, X), gate)
    return dense(graph, layer.dense2, X, f"{name}/dense2")


def _residual(
    graph: Graph,
    layer: AddNorm,
    X: str,
    sublayer: Callable[[str], str],
    name: str,
    *,
    only_first: bool = False,
) -> str:
    """Add a sublayer with its residual connection, normalized before or after it."""
    kept = _first(graph, X) if only_first else X
    if layer.norm_first:
        return graph.add("Add", sublayer(normalize(graph, layer.ln, X, f"{name}/ln")), kept)
    # onnxruntime would merge an Add with the normalization into one operator, whose kernel takes
    # several times as long as both.
    return normalize(graph, layer.ln, graph.add("Sum", sublayer(X), kept), f"{name}/ln")


def _attention(
    graph: Graph, layer: MultiHeadAttention, X: str, inputs: _Scores, name: str, only_first: bool
) -> str:
    asking, added, rotated = X, inputs.added, "qk"
    if only_first:  # its position is 0, so that it is not rotated
        asking, added, rotated = _first(graph, X), _first(graph, added, axis=-2), "k"
    split = graph.constant([0, 0, layer.num_heads, layer.head_width], "int64")  # 0 keeps the size
    joined = graph.constant([0, 0, layer.width_of_heads], "int64")

    def heads(letter: str, *axes: int) -> str:
        given = asking if letter == "q" else X
        projected = dense(graph, getattr(layer, f"W_{letter}"), given, f"{name}/W_{letter}")
        projected = graph.add("Reshape", projected, split)  # (B, T, N, H)
        if inputs.rotation is not None and letter in rotated:
            projected = _rotated(graph, projected, inputs.rotation)
        return graph.add("Transpose", projected, perm=axes)

    queries = heads("q", 0, 2, 1, 3)  # (B, N, T, H)
    queries = graph.add("Mul", queries, graph.constant(1 / math.sqrt(layer.head_width)))
    if inputs.distances is not None:
        queries, keys = (
            graph.add("Mul", queries, graph.constant(OF_THREE_TERMS)),
            heads("k", 0, 2, 1, 3),
        )
        added = graph.add(
            "Add",
            added,
            inputs.distances.add_scores(layer, queries, keys, name, only_first=only_first),
        )
    scores = graph.add("MatMul", queries, heads("k", 0, 2, 3, 1))  # (B, N, T, T)
    weights = graph.add("Softmax", graph.add("Add", scores, added), axis=-1)
    values = graph.add("MatMul", weights, heads("v", 0, 2, 1, 3))
    values = graph.add("Transpose", values, perm=[0, 2, 1, 3])
    return dense(graph, layer.W_o, graph.add("Reshape", values, joined), f"{name}/W_o")
