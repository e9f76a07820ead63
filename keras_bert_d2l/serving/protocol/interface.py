"""Inputs and outputs of a signature, and the conversion of Python values to its arrays.

The client checks values before sending them, and the server before running the model: nested
lists of equal lengths with the right names, types and rank.
"""

import reprlib
from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf import meta_graph_pb2

_INITIALIZER = "__saved_model_init_op"  # TensorFlow's internal signature
_BEYOND = "a number outside its range"
_LEAVES: dict[str, tuple[type, ...]] = {"i": (int,), "u": (int,), "f": (int, float), "b": (bool,)}

Specs = Mapping[str, tf.TensorSpec]
"""Dtypes and shapes by name."""
Arrays = Mapping[str, np.ndarray]
"""Arrays by name. Strings are objects of type `bytes`."""


class Interface(NamedTuple):
    """Inputs and outputs of a signature.

    Attributes:
        inputs: Dtypes and shapes of the arguments by name.
        outputs: Dtypes and shapes of the outputs by name.
    """

    inputs: dict[str, tf.TensorSpec]
    outputs: dict[str, tf.TensorSpec]


def interfaces(
    signature_defs: Mapping[str, meta_graph_pb2.SignatureDef],
) -> dict[str, Interface]:
    """Return the interfaces of the signatures of a SavedModel by name."""
    return {
        name: Interface(_specs(found.inputs), _specs(found.outputs))
        for name, found in sorted(signature_defs.items())
        if name != _INITIALIZER
    }


def find_interface(found: Mapping[str, Interface], signature_name: str) -> Interface:
    """Return the interface of a signature.

    Raises:
        ValueError: The model has no such signature.
    """
    if not isinstance(signature_name, str) or signature_name not in found:
        raise ValueError(
            f"`signature_name` must be one of {', '.join(found)}. Received: "
            f"{reprlib.repr(signature_name)}."
        )
    return found[signature_name]


def to_arrays(
    inputs: object, specs: Specs, encode: Callable[[object], bytes]
) -> dict[str, np.ndarray]:
    """Convert the inputs of a request to the arguments of a signature.

    Args:
        inputs: A mapping from names to nested lists or arrays.
        specs: Inputs of the signature.
        encode: Converts one string of the inputs to bytes; see `to_array`.

    Raises:
        ValueError: A name is missing or unknown, or a value does not match its spec.
    """
    if not isinstance(inputs, Mapping):
        raise ValueError(
            f"The inputs must be a dictionary with the keys {', '.join(specs)}. Received: "
            f"{reprlib.repr(inputs)}."
        )
    if inputs.keys() != specs.keys():
        names = ", ".join(sorted(map(str, inputs))) or "none"
        raise ValueError(f"The inputs must be: {', '.join(specs)}. Received: {names:.200}.")
    return {name: to_array(inputs[name], spec, encode) for name, spec in specs.items()}


def to_array(value: object, spec: tf.TensorSpec, encode: Callable[[object], bytes]) -> np.ndarray:
    """Convert nested lists to an array.

    Numbers are never converted to a different type: 1.0 and true are not integers.

    Args:
        value: Nested lists or tuples of equal lengths, or an array.
        spec: Dtype and shape. A `None` dimension can have any size; it becomes 0 if an empty list
            leaves it undetermined.
        encode: Converts one string value to bytes, or raises `ValueError`.

    Returns: the array. Strings are objects of type `bytes`.

    Raises:
        ValueError: The value does not match the spec.
    """
    values = _values(value, spec)
    leaves = [leaf.item() if isinstance(leaf, np.generic) else leaf for leaf in values.flat]
    if spec.dtype == tf.string:
        array = np.array([encode(leaf) for leaf in leaves], object)
    else:
        array = _numbers(leaves, spec)
    return array.reshape(values.shape)


def _specs(infos: Mapping[str, meta_graph_pb2.TensorInfo]) -> dict[str, tf.TensorSpec]:
    return {
        name: tf.TensorSpec(tf.TensorShape(info.tensor_shape), tf.as_dtype(info.dtype), name)
        for name, info in sorted(infos.items())
    }


def _values(value: object, spec: tf.TensorSpec) -> np.ndarray:
    """Convert nested lists to an array of objects."""
    try:
        values = np.array(value, object)
    except ValueError as error:  # arrays of different shapes
        raise _wrong(spec, reprlib.repr(value)) from error
    if any(isinstance(leaf, list | tuple | np.ndarray) for leaf in values.flat):
        raise _wrong(spec, reprlib.repr(value))
    if not values.size and spec.shape.rank is not None:
        # An empty list does not determine the size of its rows.
        widths = (size or 0 for size in spec.shape.as_list()[values.ndim :])
        values = values.reshape(*values.shape, *widths)
    if not spec.shape.is_compatible_with(values.shape):
        raise _wrong(spec, f"the shape {values.shape}")
    return values


def _numbers(leaves: list[object], spec: tf.TensorSpec) -> np.ndarray:
    dtype = np.dtype(spec.dtype.as_numpy_dtype)
    # NumPy reports the kind "V" for the types of ml_dtypes, such as bfloat16.
    allowed = _LEAVES.get("f" if spec.dtype.is_floating else dtype.kind, ())
    for leaf in leaves:
        if type(leaf) not in allowed:
            raise _wrong(spec, reprlib.repr(leaf))
    try:
        wide = np.array(leaves, np.float64 if spec.dtype.is_floating else dtype)
    except OverflowError as error:
        raise _wrong(spec, _BEYOND) from error
    with np.errstate(over="ignore"):
        array = wide.astype(dtype)
    # Infinity may be intended. A finite number that is too large is rejected, as in TF Serving.
    if spec.dtype.is_floating and (np.isinf(array) & ~np.isinf(wide)).any():
        raise _wrong(spec, _BEYOND)
    return array


def _wrong(spec: tf.TensorSpec, received: str) -> ValueError:
    shape = "any shape" if spec.shape.rank is None else f"the shape {tuple(spec.shape.as_list())}"
    return ValueError(
        f"`{spec.name}` must have the dtype {spec.dtype.name} and {shape}, in lists of equal "
        f"lengths. Received: {received}."
    )
