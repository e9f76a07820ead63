"""Disentangled attention as ONNX operators, computed as in `layers.kernels.disentangled`.

B: batch size, T: tokens, N: heads, H: width of a head; C blocks of b queries, W = T + b.
"""

import math

from keras_bert_d2l.layers.kernels.disentangled import BLOCK, rows_of_distances
from keras_bert_d2l.layers.positions import RelativeEmbeddings
from keras_bert_d2l.layers.sublayers import MultiHeadAttention
from keras_bert_d2l.serving.onnx_graph import TOKENS, Graph

_ROWS = "encoder/relative_embeddings/rows"


class Distances:
    """What the blocks of a DeBERTa share: shapes, and rows of the embeddings of distances.

    Args:
        graph: The graph.
        layer: The embeddings.
    """

    def __init__(self, graph: Graph, layer: RelativeEmbeddings) -> None:
        config, self.layer = layer.config, layer
        rows = rows_of_distances(config.relative_embeddings, config.relative_max_distance)
        graph.constants[_ROWS], most = rows.astype("int64"), len(rows) // 2
        self.graph, add, n = graph, graph.add, self._numbers
        zero, one = (graph.constant(number, "int64") for number in (0, 1))
        T = self.length = add("Shape", TOKENS, start=1)
        b = add("Min", T, n(BLOCK))
        W, rest = add("Add", T, b), add("Sub", b, n(1))
        row = add("Sub", W, n(1))
        C = add("Div", row, b)
        padded = add("Mul", C, b)
        to_T, to_C, to_W = (add("Range", zero, add("Squeeze", x), one) for x in (T, C, W))
        first = add("Unsqueeze", add("Add", add("Mul", to_C, b), rest), n(1))
        distances = add("Sub", first, to_W)  # (C, W)
        nearest = [add("Neg", to_T), distances, add("Neg", distances)]
        ends = [graph.constant(end, "int64") for end in (-most, most)]
        nearest = [add("Add", add("Clip", x, *ends), n(most)) for x in nearest]
        self.rows = [add("Gather", _ROWS, x) for x in nearest]
        self.padding = add("Concat", n(*[0] * 6), add("Sub", padded, T), n(0), axis=0)
        batch = n(-1, config.num_heads)
        shapes = (C, b, n(config.head_width)), (C, add("Mul", b, W)), (C, b, row), (padded, T)
        self.shapes = [add("Concat", batch, *shape, axis=0) for shape in shapes]
        self.used = rest, add("Add", rest, add("Mul", b, row))  # of a row of products

    def add_scores(
        self, layer: MultiHeadAttention, queries: str, keys: str, name: str, *, only_first: bool
    ) -> str:
        """Add the scores of contents with distances, `(B, N, 1 or T, T)`.

        Args:
            layer: The attention.
            queries: Queries, `(B, N, 1 or T, H)`, scaled by the width and the number of terms.
            keys: Keys, `(B, N, T, H)`.
            name: The name of the attention.
            only_first: Whether the only query is the first token.
        """
        add, weight = self.graph.add, self.graph.weight
        tables = layer.project_distances(self.layer.normalized(), training=False)
        tables[0] = tables[0] * math.sqrt(layer.head_width)  # the queries are scaled already
        for_queries, for_keys = (
            weight(f"{name}/distances_{n}", table) for n, table in enumerate(tables)
        )  # (N, 2 K, H)
        if only_first:
            for_queries = add("Gather", for_queries, self.rows[0], axis=1)  # (N, T, H)
            of_keys = add("Mul", keys, add("Gather", for_keys, self.rows[0], axis=1))
            of_keys = add("ReduceSum", of_keys, self._numbers(-1), keepdims=0)
            of_keys = add("Unsqueeze", of_keys, self._numbers(2))
            of_queries = add("MatMul", queries, add("Transpose", for_queries, perm=[0, 2, 1]))
            return add("Add", of_queries, of_keys)
        of_keys = self._by_distance(keys, add("Gather", for_keys, self.rows[2], axis=1))
        of_queries = self._by_distance(queries, add("Gather", for_queries, self.rows[1], axis=1))
        return add("Add", of_queries, add("Transpose", of_keys, perm=[0, 1, 3, 2]))

    def _by_distance(self, x: str, windows: str) -> str:
        """Add the products of tokens with embeddings `(N, C, W, H)`, `(B, N, T, T)`."""
        add, zero = self.graph.add, self._numbers(0)
        x = add("Reshape", add("Pad", x, self.padding), self.shapes[0])
        x = add("MatMul", x, add("Transpose", windows, perm=[0, 1, 3, 2]))
        ends = (self.used, -1), ((zero, self.length), -1), ((zero, self.length), 2)
        for shape, ((start, end), axis) in zip(self.shapes[1:], ends, strict=True):
            x = add("Slice", add("Reshape", x, shape), start, end, self._numbers(axis))
        return x

    def _numbers(self, *values: int) -> str:
        return self.graph.constant(values, "int64")
