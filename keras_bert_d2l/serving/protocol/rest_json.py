"""JSON as TensorFlow Serving's REST interface has it: bodies in, arrays out, and back.

Requests come by rows, `{"instances": [{"text": "one"}, {"text": "two"}]}`, or by columns,
`{"inputs": {"text": ["one", "two"]}}`; where there is one input its name may be left out. Answers
are `{"predictions": [...]}` and `{"outputs": {...}}` in the same way. Strings that are no UTF-8,
and those of outputs whose names end in `_bytes`, travel as `{"b64": "..."}`. See
tensorflow.org/tfx/serving/api_rest.
"""

import base64
import binascii
import contextlib
import json
import reprlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from keras_bert_d2l.serving.protocol.tensors import to_arrays

DEFAULT_SIGNATURE = "serving_default"
_BASE64 = "b64"
_BINARY = "_bytes"  # how the names of outputs end that always travel so
_ROWS, _COLUMNS = "instances", "inputs"


def read_object(body: bytes) -> dict[str, Any]:
    """Reads a JSON object.

    Raises:
        ValueError: The body is something else.
    """
    try:
        # json.loads would take other encodings, and lone surrogates, from bytes.
        document = json.loads(body.decode("utf-8"))
    except RecursionError as error:
        raise ValueError("The body must be JSON with less nesting.") from error
    except ValueError as error:
        raise ValueError(f"The body must be JSON in UTF-8: {error!s:.200}.") from error
    if not isinstance(document, dict):
        raise ValueError(f"The body must be a JSON object. Received: {body[:80]!r}.")
    return document


def signature_name(document: Mapping[str, Any]) -> str:
    """Returns the signature that a request names.

    Raises:
        ValueError: It is no string.
    """
    name = document.get("signature_name", DEFAULT_SIGNATURE)
    if not isinstance(name, str):
        raise ValueError(f"`signature_name` must be a string. Received: {reprlib.repr(name)}.")
    return name or DEFAULT_SIGNATURE


def request_arrays(
    document: Mapping[str, Any], specs: Mapping[str, tf.TensorSpec]
) -> tuple[dict[str, np.ndarray], bool]:
    """Reads the inputs of a request.

    Args:
        document: The body of the request.
        specs: What its signature takes.

    Returns: the arrays by name, and whether they came by rows.

    Raises:
        ValueError: The request is not what the signature takes.
    """
    by_rows = _ROWS in document
    if by_rows == (_COLUMNS in document):
        raise ValueError(f"The body must hold one of `{_ROWS}` and `{_COLUMNS}`.")
    columns = _columns(document[_ROWS], specs) if by_rows else document[_COLUMNS]
    if not _is_named(columns):
        columns = dict.fromkeys(list(specs)[:1], columns)
    return to_arrays(columns, specs, encode), by_rows


def response(outputs: Mapping[str, np.ndarray], by_rows: bool) -> dict[str, Any]:
    """Returns the body of an answer.

    Args:
        outputs: Arrays by name.
        by_rows: Whether the request came by rows.

    Raises:
        ValueError: There are no such rows.
    """
    columns = {name: to_json(x, name.endswith(_BINARY)) for name, x in outputs.items()}
    single = next(iter(columns.values())) if len(columns) == 1 else None
    if not by_rows:
        return {"outputs": columns if single is None else single}
    sizes = {array.shape[:1] for array in outputs.values()}
    if len(sizes) != 1 or () in sizes:
        raise ValueError(f"This signature does not answer in rows: ask with `{_COLUMNS}`.")
    if single is not None:
        return {"predictions": single}
    rows = zip(*columns.values(), strict=True)
    return {"predictions": [dict(zip(columns, row, strict=True)) for row in rows]}


def to_json(array: np.ndarray, binary: bool = False) -> Any:
    """Returns an array as nested lists.

    Args:
        array: The array.
        binary: Whether all bytes become base64; else those that are no UTF-8, others strings.
    """
    if array.dtype != object:
        return array.tolist()
    values = np.empty(array.size, object)
    values[:] = [_from_bytes(value, binary) for value in array.ravel()]
    return values.reshape(array.shape).tolist()


def encode(value: Any) -> bytes:
    """Returns the bytes that a JSON value stands for: a string, or `{"b64": "..."}`.

    Raises:
        ValueError: It stands for none.
    """
    try:
        if isinstance(value, dict) and value.keys() == {_BASE64}:
            return base64.b64decode(value[_BASE64], validate=True)
        if isinstance(value, str):
            return value.encode("utf-8")
    except (binascii.Error, TypeError, ValueError) as error:
        raise ValueError(
            "A string must be Unicode without lone surrogates, or base64. Received: "
            f"{reprlib.repr(value)}."
        ) from error
    shown = reprlib.repr(value)
    raise ValueError(f'A string, or {{"b64": "..."}}, is expected. Received: {shown}.')


def _from_bytes(value: bytes, binary: bool) -> Any:
    if not binary:
        with contextlib.suppress(UnicodeDecodeError):
            return value.decode("utf-8")
    return {_BASE64: base64.b64encode(value).decode("ascii")}


def _columns(rows: Any, specs: Mapping[str, tf.TensorSpec]) -> Any:
    if not isinstance(rows, list) or not rows:
        raise ValueError(f"`{_ROWS}` must be a list with values. Received: {reprlib.repr(rows)}.")
    if not any(map(_is_named, rows)):
        return rows
    for row in rows:
        if not _is_named(row) or row.keys() != specs.keys():
            raise ValueError(
                f"Each of `{_ROWS}` must be an object with {', '.join(specs)}. "
                f"Received: {reprlib.repr(row)}."
            )
    return {name: [row[name] for row in rows] for name in specs}


def _is_named(value: Any) -> bool:
    """Whether it is an object of names and values, not a string in base64."""
    return isinstance(value, dict) and value.keys() != {_BASE64}
