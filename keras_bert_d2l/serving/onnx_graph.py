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
    **{name: (name, {}) for name in ("Add", "Equal", "Greater", "Less", "Where")},
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
_DTYPES = {"f": "float32", "b": "bool", "i": "int64"}  # of constants
_AXIS = ("Softmax", "LogSoftmax", "Argmax")
_REDUCED = {"Max": "ReduceMax", "Sum": "ReduceSum", "Logsumexp": "ReduceLogSumExp"}
_ALONG = {"Take": "Gather", "Concatenate": "Concat"}
_LAST = 2**63 - 1  # the end of an axis


class Graph:
    """Nodes and constants of an ONNX graph under construction.

    Attributes:
        nodes: The nodes in topological order.
        constants: Arrays by name. Weights have the same names as in checkpoints.
        inputs: Dtypes and shapes of the inputs by name. A string names a dynamic dimension.
        outputs: Dtypes and shapes of the outputs by name.
        prefix: What the names of nodes begin with.
    """

    prefix = ""

    def __init__(self, *inputs: str) -> None:
        self.nodes: list[NodeProto] = []
        self.constants: dict[str, np.ndarray] = {}
        self.inputs: dict[str, tuple[str, Shape]] = dict.fromkeys(inputs, ("int64", PLACES))
        self.outputs: dict[str, tuple[str, Shape]] = {}

    def add(self, operator: str, *inputs: str, **attributes: str | float | Sequence[int]) -> str:
        """Add a node and return the name of its output, which is also that of the node."""
        from onnx import helper

        name = f"{self.prefix}{operator}_{len(self.nodes)}"
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

    def constant(self, value: float | Sequence[int] | np.ndarray, dtype: str = "float32") -> str:
        """Add a constant that is not a weight and return its name."""
        array = np.asarray(value, dtype)
        name = f"{dtype}_{array.tolist() if array.size < 9 else len(self.constants)}"
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
    graph: Graph,
    inputs: Mapping[str, tuple[str, Shape]],
    answer: Callable[..., Mapping[str, Tensor]],
) -> None:
    """Add the outputs of a model's `answer`.

    Args:
        graph: The graph.
        inputs: The dtypes and shapes of the tensors that `answer` takes, by their names: the
            logits, and for a CRF the numbers of words. A string names a dynamic dimension.
        answer: Returns named tensors for these.

    Raises:
        ValueError: `answer` uses an operation that has no equal here.
    """
    _, shape = next(iter(inputs.values()))
    names = {
        keras.KerasTensor([None if isinstance(n, str) else n for n in sizes], dtype): name
        for name, (dtype, sizes) in inputs.items()
    }
    for name, x in answer(*names).items():
        dtype = "int64" if "int" in x.dtype else x.dtype
        dynamic = zip(x.shape, shape, strict=False)
        sizes = [known if size is None else size for size, known in dynamic]
        if name not in graph.outputs:  # the logits may be the answer
            graph.output(name, _name_of(graph, names, x), *sizes, dtype=dtype)


def _name_of(graph: Graph, names: dict[Any, str], x: Any) -> str:
    """Return the name of a tensor or a constant, after adding what computes it.

    Args:
        graph: The graph.
        names: The names of the tensors that are known, to which those of new ones are added.
        x: The tensor.
    """
    if not isinstance(x, keras.KerasTensor):
        x = np.asarray(float(x) if type(x) is int else x)
        return graph.constant(x, _DTYPES[x.dtype.kind])
    if x not in names:
        operation, number, _ = x._keras_history
        node = operation._inbound_nodes[number]
        if type(operation).__name__ == "Scan":
            found = _add_scan(graph, names, operation, *node.arguments.args)
        else:
            first, *rest = node.arguments.args
            is_key = type(operation).__name__ == "GetItem"
            given = keras.tree.flatten(first if is_key else (first, *rest))
            inputs = [_name_of(graph, names, one) for one in given if one is not None]
            found = [_added(graph, operation, inputs, rest[-1] if is_key else None)]
        names.update(zip(node.output_tensors, found, strict=True))
    return names[x]


def _add_scan(
    graph: Graph, names: dict[Any, str], scan: Any, step: Callable[..., Any], init: Any, xs: Any
) -> list[str]:
    """Add a loop of Keras, `ops.scan`, and return the names of its last state and its outputs."""
    from onnx import helper

    inner = Graph()
    inner.prefix, inner.constants = f"{graph.prefix}scan{len(graph.nodes)}_", graph.constants
    state, x = (
        keras.KerasTensor(shape, y.dtype) for y, shape in ((init, init.shape), (xs, xs.shape[1:]))
    )
    inputs = {state: f"{inner.prefix}state", x: f"{inner.prefix}x"}
    known = {**names, **inputs}
    outputs = [inner.add("Identity", _name_of(inner, known, y)) for y in step(state, x)]
    types = [_TYPES[init.dtype], _TYPES[xs.dtype]], [_TYPES[init.dtype]] * 2
    of_inputs, of_outputs = (
        [helper.make_tensor_value_info(*pair, None) for pair in zip(some, kinds, strict=True)]
        for some, kinds in zip((inputs.values(), outputs), types, strict=True)
    )
    body = helper.make_graph(inner.nodes, f"{inner.prefix}body", of_inputs, of_outputs)
    directions: Any = {f"scan_{x}_directions": [int(scan.reverse)] for x in ("input", "output")}
    given = _name_of(graph, names, init), _name_of(graph, names, xs)
    return [*graph.add_two("Scan", *given, body=body, num_scan_inputs=1, **directions)]


def _taken(graph: Graph, x: str, key: Any) -> str:
    """Add a node for each item of `x[key]`: a slice, `None` for a new axis, or an index."""
    axis = 0
    for item in key if isinstance(key, tuple) else (key,):
        along = graph.constant([axis], "int64")
        if item is None:
            x = graph.add("Unsqueeze", x, along)
        elif isinstance(item, int):
            x = graph.add("Gather", x, graph.constant(item, "int64"), axis=axis)
            axis -= 1
        elif item != slice(None):
            ends = item.start or 0, _LAST if item.stop is None else item.stop
            x = graph.add("Slice", x, *(graph.constant([n], "int64") for n in ends), along)
        axis += 1
    return x


def _added(graph: Graph, operation: Any, inputs: list[str], key: Any) -> str:
    """Add an operation of Keras, and return the name of its output.

    Args:
        graph: The graph.
        operation: The operation.
        inputs: The names of its inputs.
        key: That of `x[key]`.
    """
    kind = type(operation).__name__
    if kind in _AXIS and operation.axis not in (-1, [-1]):
        raise ValueError(f"An answer in ONNX needs axis=-1. Received: {operation.axis} of {kind}.")
    if kind in _SAME:
        name, attributes = _SAME[kind]
        return graph.add(name, *inputs, **attributes)
    if kind in _ALONG:
        return graph.add(_ALONG[kind], *inputs, axis=operation.axis)
    if kind in _REDUCED:
        axes = graph.constant(np.atleast_1d(operation.axis), "int64")
        found = graph.add(_REDUCED[kind], inputs[0], axes, keepdims=int(operation.keepdims))
        least = getattr(operation, "initial", None)
        return found if least is None else graph.add("Max", found, graph.constant(least))
    match kind:
        case "Cast":
            return graph.add("Cast", inputs[0], to=_TYPES[operation.dtype])
        case "Argmax":
            return graph.add("ArgMax", inputs[0], axis=-1, keepdims=0)
        case "GetItem":
            return _taken(graph, inputs[0], key)
        case "Transpose":
            return graph.add("Transpose", inputs[0], perm=operation.axes)
        case "Cumsum":
            return graph.add("CumSum", inputs[0], graph.constant(operation.axis, "int64"))
    raise ValueError(
        f"`answer` has an operation that is not known in ONNX: {kind}. Use {', '.join(_SAME)}, "
        "Cast, Argmax or Max, or `export_saved_model`."
    )
