"""Rows of `model.summary()`: all sublayers, which add up to the weights of the model."""

import math
from typing import Any

import keras

from keras_bert_d2l.layers.attention import MultiHeadAttention
from keras_bert_d2l.layers.transformer import AddNorm, PositionWiseFFN, TransformerEncoderBlock
from keras_bert_d2l.types import Shape

# Layers whose output has the shape of their first input. Keras cannot infer it.
_SAME_SHAPE = (AddNorm, MultiHeadAttention, PositionWiseFFN, TransformerEncoderBlock)


class SummaryRow:
    """A model or a layer as Keras's summary shows it, with its sublayers as nested rows.

    A row counts the weights that no row above it counts, so a tied embedding counts once. It is the
    sum of its nested rows. These leave out layers without weights.

    Args:
        layer: The model or the layer. It provides all other attributes.
        counted: The ids of the weights in the rows above. They are extended.
    """

    def __init__(self, layer: keras.layers.Layer, counted: set[int] | None = None) -> None:
        self._layer = layer
        counted = set() if counted is None else counted
        self.weights = [weight for weight in layer.weights if id(weight) not in counted]
        inner = (
            layer.layers
            if isinstance(layer, keras.Model)
            else layer._flatten_layers(include_self=False, recursive=False)
        )
        rows = [SummaryRow(one, counted) for one in inner if one.weights]
        own = [weight for weight in self.weights if id(weight) not in counted] if rows else []
        self.layers = [*map(Weight, own), *rows]
        counted.update(map(id, self.weights))

    @property  # type: ignore[misc]
    def __class__(self) -> type:  # the summary shows its name
        return type(self._layer)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._layer, name)

    def count_params(self) -> int:
        """Return the number of weights that this row counts."""
        return sum(math.prod(weight.shape) for weight in self.weights)

    def compute_output_shape(self, **shapes: Shape) -> Shape:
        if isinstance(self._layer, _SAME_SHAPE):
            return next(iter(shapes.values()))
        return self._layer.compute_output_shape(**shapes)


class Weight:
    """A weight that a layer has besides its sublayers, as a row of the summary."""

    built, layers, _inbound_nodes = True, (), ()

    def __init__(self, weight: keras.Variable) -> None:
        self.name, self.output_shape = weight.name, weight.shape
        self.weights, self.trainable = [weight], weight.trainable
        self._build_shapes_dict = {"shape": weight.shape}  # that it is not empty matters

    def count_params(self) -> int:
        """Return the size of the weight."""
        return math.prod(self.output_shape)
