"""Requests and responses: the arrays of a signature, and TensorFlow Serving's JSON format.

The client checks values before sending them, and the server before running the model: nested lists
of equal lengths with the right names, types and rank.

A request contains rows, `{"instances": [{"text": "one"}, {"text": "two"}]}`, or columns,
`{"inputs": {"text": ["one", "two"]}}`. The name of a single input may be omitted. Responses have
the same form, `{"predictions": [...]}` or `{"outputs": {...}}`. Strings that are not UTF-8 are
written as `{"b64": "..."}`.

Source: tensorflow.org/tfx/serving/api_rest. Requests have too few fields to justify typed models;
instead, the nested lists are validated against the requested signature.
"""

import base64
import contextlib
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple, cast

import numpy as np

from keras_bert_d2l.checks import check_known, check_that, shown

if TYPE_CHECKING:
    from tensorflow.core.protobuf import meta_graph_pb2

_INITIALIZER = "__saved_model_init_op"  # TensorFlow's internal signature
_BEYOND = "a number outside its range"
_DT_NAMES = {"float16": "HALF", "float32": "FLOAT", "float64": "DOUBLE"}
_LEAVES: dict[str, tuple[type, ...]] = {"i": (int,), "u": (int,), "f": (int, float), "b": (bool,)}

CARD_FILE, ONNX_FILE = "model_card.json", "model.onnx"  # in the folder of a model
CRF_FILE = "crf.onnx"
DEFAULT_SIGNATURE = "serving_default"
_BASE64 = "b64"
_ROWS, _COLUMNS, SIGNATURE_NAME = "instances", "inputs", "signature_name"

JSONObject = dict[str, object]
Arrays = Mapping[str, np.ndarray]
"""Arrays by name. Strings are objects of type `bytes`."""


class Spec(NamedTuple):
    """Shape, dtype and name of an input or output.

    Attributes:
        shape: The sizes, with `None` for any size. `None`: any shape.
        dtype: The dtype, `object` for strings.
        name: The name.
    """

    shape: tuple[int | None, ...] | None
    dtype: np.dtype
    name: str = ""

    @property
    def dtype_name(self) -> str:
        """Name of the dtype in TensorFlow."""
        return "string" if self.dtype == object else self.dtype.name


Specs = Mapping[str, Spec]
"""Dtypes and shapes by name."""


class Interface(NamedTuple):
    """Inputs and outputs of a signature.

    Attributes:
        inputs: Dtypes and shapes of the arguments by name.
        outputs: Dtypes and shapes of the outputs by name.
    """

    inputs: dict[str, Spec]
    outputs: dict[str, Spec]


def interfaces(signature_defs: "Mapping[str, meta_graph_pb2.SignatureDef]") -> dict[str, Interface]:
    """Return the interfaces of the signatures of a SavedModel by name."""
    return {
        name: Interface(_specs(found.inputs), _specs(found.outputs))
        for name, found in sorted(signature_defs.items())
        if name != _INITIALIZER
    }


def definitions(interfaces: Mapping[str, Interface]) -> JSONObject:
    """Return the interfaces of signatures as TensorFlow Serving's JSON tells them."""
    return {
        name: {
            "inputs": {key: _tensor_info(spec) for key, spec in one.inputs.items()},
            "outputs": {key: _tensor_info(spec) for key, spec in one.outputs.items()},
            "method_name": "tensorflow/serving/predict",
        }
        for name, one in interfaces.items()
    }


def find_interface(found: Mapping[str, Interface], signature_name: str) -> Interface:
    """Return the interface of a signature.

    Raises:
        ValueError: The model has no such signature.
    """
    is_right = isinstance(signature_name, str) and signature_name in found
    check_that(is_right, "signature_name", f"one of {', '.join(found):.200}", signature_name)
    return found[signature_name]


def to_arrays(inputs: object, specs: Specs) -> dict[str, np.ndarray]:
    """Convert the inputs of a request to the arguments of a signature.

    Args:
        inputs: A mapping from names to nested lists or arrays.
        specs: Inputs of the signature.

    Raises:
        ValueError: A name is missing or unknown, or a value does not match its spec.
    """
    if not isinstance(inputs, Mapping):
        raise ValueError(
            f"The inputs must be a dictionary with the keys {', '.join(specs)}. Received: "
            f"{shown(inputs)}."
        )
    if inputs.keys() != specs.keys():
        names = ", ".join(sorted(map(str, inputs))) or "none"
        raise ValueError(f"The inputs must be: {', '.join(specs)}. Received: {names:.200}.")
    return {name: to_array(inputs[name], spec) for name, spec in specs.items()}


def to_array(value: object, spec: Spec) -> np.ndarray:
    """Convert nested lists to an array.

    Numbers are never converted to a different type: 1.0 and true are not integers.

    Args:
        value: Nested lists or tuples of equal lengths, or an array.
        spec: Dtype and shape. A `None` dimension can have any size; it becomes 0 if an empty list
            leaves it undetermined.

    Returns: the array. Strings are objects of type `bytes`.

    Raises:
        ValueError: The value does not match the spec.
    """
    values = _values(value, spec)
    leaves = [leaf.item() if isinstance(leaf, np.generic) else leaf for leaf in values.flat]
    if spec.dtype == object:
        array = np.array([_encoded(leaf, spec) for leaf in leaves], object)
    else:
        array = _numbers(leaves, spec)
    return array.reshape(values.shape)


def _specs(infos: "Mapping[str, meta_graph_pb2.TensorInfo]") -> dict[str, Spec]:
    import tensorflow as tf  # not every server and model needs it

    specs = {}
    for name, info in sorted(infos.items()):
        shape, dtype = tf.TensorShape(info.tensor_shape), tf.as_dtype(info.dtype)
        sizes = None if shape.rank is None else tuple(shape)
        specs[name] = Spec(sizes, np.dtype(dtype.as_numpy_dtype), name)
    return specs


def _tensor_info(spec: Spec) -> JSONObject:
    sizes = [-1 if size is None else size for size in spec.shape or ()]
    dims = [{"size": str(size), "name": ""} for size in sizes]
    dtype = _DT_NAMES.get(spec.dtype_name, spec.dtype_name.upper())
    shape = {"dim": dims, "unknown_rank": spec.shape is None}
    return {"dtype": f"DT_{dtype}", "tensor_shape": shape, "name": spec.name}


def _values(value: object, spec: Spec) -> np.ndarray:
    """Convert nested lists to an array of objects."""
    try:
        values = np.array(value, object)
    except ValueError as error:  # arrays of different shapes
        raise _wrong(spec, shown(value)) from error
    # Types are collected first, because a response has many numbers and few types.
    if any(issubclass(kind, list | tuple | np.ndarray) for kind in set(map(type, values.flat))):
        raise _wrong(spec, shown(value))
    if not values.size and spec.shape is not None:
        # An empty list does not determine the size of its rows.
        widths = (size or 0 for size in spec.shape[values.ndim :])
        values = values.reshape(*values.shape, *widths)
    sizes = values.shape if spec.shape is None else spec.shape
    pairs = zip(sizes, values.shape, strict=False)
    if len(sizes) != values.ndim or any(size not in (None, found) for size, found in pairs):
        raise _wrong(spec, f"the shape {values.shape}")
    return values


def _numbers(leaves: list[object], spec: Spec) -> np.ndarray:
    dtype = spec.dtype
    is_floating = "float" in dtype.name  # NumPy reports the kind "V" for bfloat16
    allowed = _LEAVES.get("f" if is_floating else dtype.kind, ())
    if not set(map(type, leaves)).issubset(allowed):
        wrong = next(leaf for leaf in leaves if type(leaf) not in allowed)
        raise _wrong(spec, shown(wrong))
    try:
        wide = np.array(leaves, np.float64 if is_floating else dtype)
    except OverflowError as error:
        raise _wrong(spec, _BEYOND) from error
    with np.errstate(over="ignore"):
        array = wide.astype(dtype)
    # Infinity may be intended. A finite number that is too large is rejected, as in TF Serving.
    if is_floating and (np.isinf(array) & ~np.isinf(wide)).any():
        raise _wrong(spec, _BEYOND)
    return array


def _wrong(spec: Spec, received: str) -> ValueError:
    shape = "any shape" if spec.shape is None else f"the shape {spec.shape}"
    return ValueError(
        f"`{spec.name}` must have the dtype {spec.dtype_name} and {shape}, in lists of equal "
        f"lengths. Received: {received}."
    )


def read_object(body: bytes) -> JSONObject:
    """Parse a JSON object.

    Raises:
        ValueError: The body is not a JSON object in UTF-8.
    """
    try:
        # Given bytes, json.loads would accept other encodings and lone surrogates.
        document = json.loads(body.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"The body must be valid JSON in UTF-8: {error!s:.200}.") from error
    if not isinstance(document, dict):
        raise ValueError(f"The body must be a JSON object. Received: {shown(body[:100])}.")
    return document


def request_columns(document: Mapping[str, object], specs: Specs) -> tuple[dict[str, object], bool]:
    """Read the inputs of a request.

    Args:
        document: The body of the request.
        specs: Inputs of its signature.

    Returns: nested lists by name, and whether the request contains rows.

    Raises:
        ValueError: The request does not match the signature.
    """
    check_known("field", document, (_ROWS, _COLUMNS, SIGNATURE_NAME))
    by_rows = _ROWS in document
    if by_rows == (_COLUMNS in document):
        raise ValueError(f"The body must contain either `{_ROWS}` or `{_COLUMNS}`.")
    columns = _columns(document[_ROWS], specs) if by_rows else document[_COLUMNS]
    if not _is_named(columns):
        columns = dict.fromkeys(list(specs)[:1], columns)
    return cast(dict[str, object], columns), by_rows


def response(outputs: Arrays, by_rows: bool) -> JSONObject:
    """Return the body of a response.

    Args:
        outputs: Arrays by name.
        by_rows: Whether the request contains rows.

    Raises:
        ValueError: `by_rows` is set, and the outputs do not have the same number of rows.
    """
    columns = {name: to_json(x) for name, x in outputs.items()}
    single = next(iter(columns.values())) if len(columns) == 1 else None
    if not by_rows:
        return {"outputs": columns if single is None else single}
    sizes = {array.shape[:1] for array in outputs.values()}
    if len(sizes) != 1 or () in sizes:
        raise ValueError(f"This signature does not return rows. Send `{_COLUMNS}` instead.")
    if single is not None:
        return {"predictions": single}
    rows = zip(*columns.values(), strict=True)
    return {"predictions": [dict(zip(columns, row, strict=True)) for row in rows]}


def to_json(array: np.ndarray) -> list:
    """Convert an array to nested lists. Bytes that are not UTF-8 are encoded as base64."""
    if array.dtype != object:
        return array.tolist()
    return np.vectorize(_from_bytes, [object])(array).tolist()


def _encoded(value: object, spec: Spec) -> bytes:
    """Return the bytes of a string, which may also be `bytes` or `{"b64": "..."}`."""
    try:
        if isinstance(value, dict) and value.keys() == {_BASE64}:
            return base64.b64decode(value[_BASE64], validate=True)
        if isinstance(value, str):
            return value.encode("utf-8")
        if isinstance(value, bytes):
            return value
    except (TypeError, ValueError) as error:  # not base64, or lone surrogates
        raise _wrong(spec, f"{shown(value)}, which is not valid base64 or Unicode") from error
    raise _wrong(spec, shown(value))


def _from_bytes(value: bytes) -> str | dict[str, str]:
    with contextlib.suppress(UnicodeDecodeError):
        return value.decode("utf-8")
    return {_BASE64: base64.b64encode(value).decode("ascii")}


def _columns(rows: object, specs: Specs) -> object:
    if not isinstance(rows, list) or not rows:
        raise ValueError(f"`{_ROWS}` must be a non-empty list. Received: {shown(rows)}.")
    if not any(map(_is_named, rows)):
        return rows
    for row in rows:
        is_right = _is_named(row) and row.keys() == specs.keys()
        check_that(is_right, _ROWS, f"objects with the keys {', '.join(specs)}", row)
    return {name: [row[name] for row in rows] for name in specs}


def _is_named(value: object) -> bool:
    """Return whether a JSON value is an object with names, not a base64 string."""
    return isinstance(value, dict) and value.keys() != {_BASE64}
