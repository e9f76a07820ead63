"""An ONNX graph under construction, and the nodes of what a model's outputs mean.

The model's own method `answer` is called with symbolic tensors, and each operation of Keras that it
recorded becomes a node. So an answer is written once, with `keras.ops`.

B: batch size, T: tokens, P: predicted positions.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import keras
import numpy as np

from keras_bert_d2l.types import Tensor

if TYPE_CHECKING:
    from onnx import NodeProto

TOKENS, MASK, SEGMENTS = "input_ids", "attention_mask", "token_type_ids"  # int64 inputs (B, T)
PREDICTED = "pred_positions"  # int64 input (B, P)
PROMPT_LENS = "prompt_lens"  # int64 input (B,)
PLACES = ("batch", "length")  # names of the dimensions (B, T)
Shape: TypeAlias = tuple[str | int, ...]

_SAME = {  # operations of Keras whose inputs are those of ONNX's, with the attributes
    "Softmax": ("Softmax", {"axis": -1}),
    "LogSoftmax": ("LogSoftmax", {"axis": -1}),
    **{name: (name, {}) for name in ("Sigmoid", "Tanh", "Exp", "Log", "Sqrt", "Abs")},
    **{name: (name, {}) for name in ("Add", "Greater", "Less", "Where")},
    "Subtract": ("Sub", {}),
    "Multiply": ("Mul", {}),
    "Divide": ("Div", {}),
    "TrueDivide": ("Div", {}),
    "GreaterEqual": ("GreaterOrEqual", {}),
    "LessEqual": ("LessOrEqual", {}),
    "LogicalNot": ("Not", {}),
    "LogicalAnd": ("And", {}),
}
# Integers are int64 in these files, as in those of other programs.
_TYPES = {"float32": 1, "bool": 9, "int32": 7, "int64": 7}
_AXIS = ("Softmax", "LogSoftmax", "Max", "Argmax")


class Graph:
    """Nodes and constants of an ONNX graph under construction.

    Attributes:
        nodes: The nodes in topological order.
        constants: Arrays by name. Weights have the same names as in checkpoints.
        inputs: Dtypes and shapes of the inputs by name. A string names a dynamic dimension.
        outputs: Dtypes and shapes of the outputs by name.
    """

    def __init__(self, *inputs: str) -> None:
        self.nodes: list[NodeProto] = []
        self.constants: dict[str, np.ndarray] = {}
        self.inputs: dict[str, tuple[str, Shape]] = dict.fromkeys(inputs, ("int64", PLACES))
        self.outputs: dict[str, tuple[str, Shape]] = {}

    def add(self, operator: str, *inputs: str, **attributes: str | float | Sequence[int]) -> str:
        """Add a node and return the name of its output, which is also that of the node."""
        from onnx import helper

        name = f"{operator}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, inputs, [name], name, **attributes))  # type: ignore[arg-type]
        return name

    def add_two(self, operator: str, *inputs: str, **attributes: int) -> tuple[str, str]:
        """Add a node with two outputs and return their names."""
        first = self.add(operator, *inputs, **attributes)
        second = f"{first}_second"
        self.nodes[-1].output.append(second)
        return first, second

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


def add_answer(
    graph: Graph, logits: str, shape: Shape, answer: Callable[[Tensor], Mapping[str, Tensor]]
) -> None:
    """Add the outputs of a model's `answer`.

    Args:
        graph: The graph.
        logits: The name of the tensor with the logits.
        shape: Its shape; a string names a dynamic dimension.
        answer: Returns named tensors for logits.

    Raises:
        ValueError: `answer` uses an operation that has no equal in `_SAME`.
    """
    start = keras.KerasTensor([None if isinstance(n, str) else n for n in shape], "float32")
    found = answer(start)
    names = {id(start): logits}

    def name_of(x: Any) -> str:
        if not isinstance(x, keras.KerasTensor):
            return graph.constant(x, "bool" if isinstance(x, bool) else "float32")
        if id(x) not in names:
            operation, number, _ = x._keras_history
            arguments = operation._inbound_nodes[number].arguments
            inputs = [name_of(one) for one in arguments.args if one is not None]
            names[id(x)] = _added(graph, operation, inputs)
        return names[id(x)]

    for name, x in found.items():
        dtype = "int64" if "int" in x.dtype else x.dtype
        dynamic = zip(x.shape, shape, strict=False)
        sizes = [known if size is None else size for size, known in dynamic]
        if name not in graph.outputs:  # the logits may be the answer
            graph.output(name, name_of(x), *sizes, dtype=dtype)


def _added(graph: Graph, operation: Any, inputs: list[str]) -> str:
    """Add an operation of Keras, and return the name of its output."""
    kind = type(operation).__name__
    if kind in _AXIS and operation.axis not in (-1, [-1]):
        raise ValueError(f"An answer in ONNX needs axis=-1. Received: {operation.axis} of {kind}.")
    if kind in _SAME:
        name, attributes = _SAME[kind]
        return graph.add(name, *inputs, **attributes)
    if kind == "Cast":
        return graph.add("Cast", inputs[0], to=_TYPES[operation.dtype])
    if kind == "Argmax":
        return graph.add("ArgMax", inputs[0], axis=-1, keepdims=0)
    if kind == "Max":
        last = graph.constant([-1], "int64")
        highest = graph.add("ReduceMax", inputs[0], last, keepdims=int(operation.keepdims))
        if operation.initial is None:
            return highest
        return graph.add("Max", highest, graph.constant(operation.initial))
    raise ValueError(
        f"`answer` has an operation that is not known in ONNX: {kind}. Use {', '.join(_SAME)}, "
        "Cast, Argmax or Max, or `export_saved_model`."
    )
