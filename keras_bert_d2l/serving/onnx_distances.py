"""Disentangled attention as ONNX operators, computed as in `layers.kernels.disentangled`.

B: batch size, T: tokens, N: heads, H: width of a head; C blocks of b queries, W = T + b.
"""

import math
from typing import NamedTuple

from keras_bert_d2l.config import BERTConfig
from keras_bert_d2l.layers.kernels.disentangled import BLOCK, rows_of_distances
from keras_bert_d2l.layers.positions import RelativeEmbeddings
from keras_bert_d2l.layers.sublayers import MultiHeadAttention
from keras_bert_d2l.serving.onnx_graph import TOKENS, Graph

_ROWS = "encoder/relative_embeddings/rows"


class Distances(NamedTuple):
    """What the blocks of an encoder share.

    Attributes:
        layer: The embeddings of distances.
        of_first: The rows of the distances from the first token, int64 `(T,)`.
        of_queries: The rows of the distances from queries to keys, int64 `(C, W)`.
        of_keys: The same for the distances from keys to queries, with the opposite sign.
        padding: What `Pad` adds to tensors `(B, N, T, H)`.
        shapes: The shapes of the blocks `(B, N, C, b, H)`, of their products in one row
            `(B, N, C, b W)` and in shifted rows `(B, N, C, b, W - 1)`, and of the scores
            `(B, N, C b, T)`.
        start: The first element of the products in one row that is used, `(1,)`.
        end: The end of these elements, `(1,)`.
        length: The number of tokens, `(1,)`.
    """

    layer: RelativeEmbeddings
    of_first: str
    of_queries: str
    of_keys: str
    padding: str
    shapes: tuple[str, ...]
    start: str
    end: str
    length: str


def add_distances(graph: Graph, layer: RelativeEmbeddings, config: BERTConfig) -> Distances:
    """Add what the blocks of an encoder share."""
    graph.constants[_ROWS] = rows_of_distances(
        config.relative_embeddings, config.relative_max_distance
    ).astype("int64")
    most = len(graph.constants[_ROWS]) // 2

    def number(value: int) -> str:
        return graph.constant([value], "int64")

    def shape(*sizes: str) -> str:
        return graph.add("Concat", number(-1), number(config.num_heads), *sizes, axis=0)

    def up_to(end: str) -> str:
        first, step = (graph.constant(value, "int64") for value in (0, 1))
        return graph.add("Range", first, graph.add("Squeeze", end), step)

    def rows(distances: str) -> str:
        clipped = graph.add("Clip", distances, *(graph.constant(n, "int64") for n in (-most, most)))
        return graph.add("Gather", _ROWS, graph.add("Add", clipped, number(most)))

    T, H = graph.add("Shape", TOKENS, start=1), number(config.head_width)
    b = graph.add("Min", T, number(BLOCK))
    rest = graph.add("Sub", b, number(1))
    W, of_row = graph.add("Add", T, b), graph.add("Add", T, rest)
    C = graph.add("Div", of_row, b)
    padded = graph.add("Mul", C, b)
    firsts = graph.add("Add", graph.add("Mul", up_to(C), b), rest)
    distances = graph.add("Sub", graph.add("Unsqueeze", firsts, number(1)), up_to(W))
    zeros = [number(0)] * 5
    return Distances(
        layer,
        rows(graph.add("Neg", up_to(T))),
        rows(distances),
        rows(graph.add("Neg", distances)),
        graph.add("Concat", *zeros, number(0), graph.add("Sub", padded, T), number(0), axis=0),
        (
            shape(C, b, H),
            shape(C, graph.add("Mul", b, W)),
            shape(C, b, of_row),
            shape(padded, T),
        ),
        rest,
        graph.add("Add", rest, graph.add("Mul", b, of_row)),
        T,
    )


def add_disentangled(
    graph: Graph,
    layer: MultiHeadAttention,
    inputs: Distances,
    queries: str,
    keys: str,
    name: str,
    *,
    only_first: bool,
) -> str:
    """Add the scores of contents with distances, `(B, N, 1 or T, T)`.

    Args:
        graph: The graph.
        layer: The attention.
        inputs: The result of `add_distances`.
        queries: Queries, `(B, N, 1 or T, H)`, scaled by the width of a head and the three terms.
        keys: Keys, `(B, N, T, H)`.
        name: The name of the attention.
        only_first: Whether the only query is the first token.
    """
    for_queries, for_keys = layer.project_distances(inputs.layer.normalized(), training=False)
    for_queries = for_queries * math.sqrt(layer.head_width)  # the queries are scaled already
    tables = [
        graph.weight(f"{name}/distances/{letter}", table)  # (N, 2 K, H)
        for letter, table in (("q", for_queries), ("k", for_keys))
    ]
    if only_first:
        of_queries, of_keys = (
            graph.add("Gather", table, inputs.of_first, axis=1) for table in tables
        )  # (N, T, H)
        last = graph.constant([-1], "int64")
        of_keys = graph.add("ReduceSum", graph.add("Mul", keys, of_keys), last, keepdims=0)
        of_keys = graph.add("Unsqueeze", of_keys, graph.constant([2], "int64"))
        of_queries = graph.add("Transpose", of_queries, perm=[0, 2, 1])
        return graph.add("Add", graph.add("MatMul", queries, of_queries), of_keys)
    of_queries = _by_distance(graph, inputs, queries, tables[0], inputs.of_queries)
    of_keys = _by_distance(graph, inputs, keys, tables[1], inputs.of_keys)
    return graph.add("Add", of_queries, graph.add("Transpose", of_keys, perm=[0, 1, 3, 2]))


def _by_distance(graph: Graph, inputs: Distances, x: str, table: str, rows: str) -> str:
    """Add the products of tokens with the embeddings of their distances, `(B, N, T, T)`."""

    def part(x: str, start: str, end: str, axis: int) -> str:
        return graph.add("Slice", x, start, end, graph.constant([axis], "int64"))

    zero = graph.constant([0], "int64")
    windows = graph.add("Gather", table, rows, axis=1)  # (N, C, W, H)
    windows = graph.add("Transpose", windows, perm=[0, 1, 3, 2])
    x = graph.add("Reshape", graph.add("Pad", x, inputs.padding), inputs.shapes[0])
    x = graph.add("Reshape", graph.add("MatMul", x, windows), inputs.shapes[1])
    x = graph.add("Reshape", part(x, inputs.start, inputs.end, -1), inputs.shapes[2])
    x = graph.add("Reshape", part(x, zero, inputs.length, -1), inputs.shapes[3])
    return part(x, zero, inputs.length, 2)
