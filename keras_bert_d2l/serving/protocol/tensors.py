"""Plain values in, arrays of the dtypes and shapes that a signature names out.

What a client checks before it sends, and a server before it runs: nested lists of equal lengths, of
the right type and rank, by the right names.
"""

import reprlib
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

_INITIALIZER = "__saved_model_init_op"  # TensorFlow's own among the signatures
_BEYOND = "a number beyond its range"
_LEAVES: dict[str, tuple[type, ...]] = {"i": (int,), "u": (int,), "f": (int, float), "b": (bool,)}


class Interface(NamedTuple):
    """What a signature takes and returns.

    Attributes:
        inputs: The dtypes and shapes of its arguments, by name.
        outputs: Those of its answer.
        method: The method of TensorFlow Serving that answers it beside `Predict`.
    """

    inputs: dict[str, tf.TensorSpec]
    outputs: dict[str, tf.TensorSpec]
    method: str


def interfaces(signature_defs: Mapping[str, Any]) -> dict[str, Interface]:
    """Returns what the signatures of a SavedModel take and return.

    Args:
        signature_defs: Protocol buffers `SignatureDef` by name.
    """
    return {
        name: Interface(_specs(found.inputs), _specs(found.outputs), found.method_name)
        for name, found in sorted(signature_defs.items())
        if name != _INITIALIZER
    }


def find_interface(found: Mapping[str, Interface], signature: str) -> Interface:
    """Returns the interface of a signature.

    Raises:
        ValueError: The model has no such signature.
    """
    if signature not in found:
        raise ValueError(
            f"The signature must be one of {', '.join(found)}. Received: {reprlib.repr(signature)}."
        )
    return found[signature]


def to_arrays(
    inputs: Mapping[str, Any], specs: Mapping[str, tf.TensorSpec], encode: Callable[[Any], bytes]
) -> dict[str, np.ndarray]:
    """Makes the arguments of a signature.

    Args:
        inputs: Nested lists, or arrays, by name.
        specs: What the signature takes.
        encode: Makes bytes of what stands for a string, see `to_array`.

    Raises:
        ValueError: A name is missing or unknown, or a value is not what its spec says.
    """
    if not isinstance(inputs, Mapping):
        raise ValueError(
            f"The inputs must be a dictionary with {', '.join(specs)}. Received: "
            f"{reprlib.repr(inputs)}."
        )
    if inputs.keys() != specs.keys():
        names = ", ".join(sorted(map(str, inputs))) or "none"
        raise ValueError(f"The inputs must be {', '.join(specs)}. Received: {names:.200}.")
    return {name: to_array(inputs[name], spec, encode) for name, spec in specs.items()}


def to_array(value: Any, spec: tf.TensorSpec, encode: Callable[[Any], bytes]) -> np.ndarray:
    """Makes an array of nested lists.

    Numbers have to be of the type of the spec already: 1.0 and true are no integers.

    Args:
        value: Nested lists or tuples of equal lengths, or an array.
        spec: The dtype and shape, of which `None` is any size; an array without values gets
            size 0 for each such size that the value does not tell.
        encode: Makes bytes of what stands for a string, or raises `ValueError`.

    Returns: the array; strings as objects of type `bytes`.

    Raises:
        ValueError: The value is not what the spec says.
    """
    leaves, shape = _flatten(value, spec)
    if spec.dtype == tf.string:
        array = np.empty(len(leaves), object)
        array[:] = [encode(leaf) for leaf in leaves]
    else:
        array = _numbers(leaves, spec)
    return array.reshape(shape)


def _specs(infos: Mapping[str, Any]) -> dict[str, tf.TensorSpec]:
    return {
        name: tf.TensorSpec(tf.TensorShape(info.tensor_shape), tf.as_dtype(info.dtype), name)
        for name, info in sorted(infos.items())
    }


def _flatten(value: Any, spec: tf.TensorSpec) -> tuple[list[Any], tuple[int, ...]]:
    """The values in their order, and the shape that they have."""
    rank = spec.shape.rank
    level, shape = [_plain(value)], list[int]()
    while level and (isinstance(level[0], list) if rank is None else len(shape) < rank):
        sizes = {len(row) if isinstance(row, list) else None for row in level}
        size = sizes.pop()
        if sizes or size is None:
            raise _wrong(spec, reprlib.repr(value))
        level = [_plain(entry) for row in level for entry in row]
        shape.append(size)
    if any(isinstance(leaf, list) for leaf in level):
        raise _wrong(spec, reprlib.repr(value))
    if rank is not None:  # an empty list does not tell how wide its rows would be
        shape += [size or 0 for size in spec.shape.as_list()[len(shape) :]]
    if not spec.shape.is_compatible_with(shape):
        raise _wrong(spec, f"the shape {tuple(shape)}")
    return level, tuple(shape)


def _plain(value: Any) -> Any:
    """Lists of arrays, tensors and tuples; all else as it is."""
    if isinstance(value, tuple):
        return list(value)
    return np.asarray(value).tolist() if hasattr(value, "__array__") else value


def _numbers(leaves: list[Any], spec: tf.TensorSpec) -> np.ndarray:
    dtype = np.dtype(spec.dtype.as_numpy_dtype)
    # ml_dtypes, bfloat16 among them, are of kind "V" to NumPy.
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
    # Infinity may be meant; a finite number that becomes it, TensorFlow Serving refuses as well.
    if spec.dtype.is_floating and (np.isinf(array) & ~np.isinf(wide)).any():
        raise _wrong(spec, _BEYOND)
    return array


def _wrong(spec: tf.TensorSpec, received: str) -> ValueError:
    shape = "any shape" if spec.shape.rank is None else f"the shape {tuple(spec.shape.as_list())}"
    return ValueError(
        f"`{spec.name}` must be of the dtype {spec.dtype.name} and {shape}, in lists of equal "
        f"lengths. Received: {received}."
    )
