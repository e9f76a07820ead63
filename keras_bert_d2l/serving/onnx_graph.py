"""An ONNX graph under construction, and the names of its inputs.

B: batch size, T: tokens, P: predicted positions.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias

import keras
import numpy as np

from keras_bert_d2l.config import BERTConfig
from keras_bert_d2l.types import Tensor

if TYPE_CHECKING:
    from onnx import NodeProto

TOKENS, MASK, SEGMENTS = "input_ids", "attention_mask", "token_type_ids"  # int64 inputs (B, T)
PREDICTED = "pred_positions"  # int64 input (B, P)
PLACES = ("batch", "length")  # names of the dimensions (B, T)
Shape: TypeAlias = tuple[str | int, ...]


class Graph:
    """Nodes and constants of an ONNX graph under construction.

    Attributes:
        nodes: The nodes in topological order.
        constants: Arrays by name. Weights have the same names as in checkpoints.
        inputs: Shapes of the int64 inputs by name. A string names a dynamic dimension.
        outputs: Dtypes and shapes of the outputs by name.
    """

    def __init__(self, *inputs: str) -> None:
        self.nodes: list[NodeProto] = []
        self.constants: dict[str, np.ndarray] = {}
        self.inputs: dict[str, Shape] = dict.fromkeys(inputs, PLACES)
        self.outputs: dict[str, tuple[str, Shape]] = {}

    def add(self, operator: str, *inputs: str, **attributes: str | float | Sequence[int]) -> str:
        """Add a node and return the name of its output, which is also that of the node."""
        from onnx import helper

        name = f"{operator}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, inputs, [name], name, **attributes))  # type: ignore[arg-type]
        return name

    def halves(self, X: str) -> tuple[str, str]:
        """Split a tensor in the middle of its last axis."""
        first = self.add("Split", X, axis=-1, num_outputs=2)
        second = f"{first}_second"
        self.nodes[-1].output.append(second)
        return first, second

    def best(self, X: str, size: int) -> tuple[str, str]:
        """Return the highest values on the last axis, in order, and their places, int64."""
        values = self.add("TopK", X, self.constant([size], "int64"))
        places = f"{values}_places"
        self.nodes[-1].output.append(places)
        return values, places

    @property
    def typed_inputs(self) -> dict[str, tuple[str, Shape]]:
        """Dtypes and shapes of the inputs by name."""
        return {name: ("int64", shape) for name, shape in self.inputs.items()}

    def output(self, name: str, X: str, *shape: str | int, dtype: str = "float32") -> None:
        """Give a tensor the name of an output of the graph."""
        from onnx import helper

        self.nodes.append(helper.make_node("Identity", [X], [name], name))
        self.outputs[name] = dtype, shape

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


def graph_for(config: BERTConfig) -> Graph:
    """Return an empty graph. As in transformers, it has no segments if they have no effect."""
    return Graph(TOKENS, MASK, *([SEGMENTS] if config.num_segments > 1 else []))
