"""The JSON format of TensorFlow Serving's REST API.

A request contains rows, `{"instances": [{"text": "one"}, {"text": "two"}]}`, or columns,
`{"inputs": {"text": ["one", "two"]}}`. The name of a single input may be omitted. Responses have
the same form, `{"predictions": [...]}` or `{"outputs": {...}}`. Strings that are not UTF-8, and
outputs whose names end in `_bytes`, are written as `{"b64": "..."}`.

Source: tensorflow.org/tfx/serving/api_rest. Requests have too few fields to justify typed models;
instead, the nested lists are validated against the requested signature.
"""

import base64
import binascii
import contextlib
import json
import reprlib
from collections.abc import Mapping
from typing import cast

import numpy as np

from keras_bert_d2l.serving.protocol.interface import Arrays, Specs

DEFAULT_SIGNATURE = "serving_default"
_BASE64 = "b64"
_BINARY = "_bytes"  # suffix of the names of outputs that are always base64
_ROWS, _COLUMNS = "instances", "inputs"

JSONObject = dict[str, object]


def read_object(body: bytes) -> JSONObject:
    """Parse a JSON object.

    Raises:
        ValueError: The body is not a JSON object in UTF-8.
    """
    try:
        # Given bytes, json.loads would accept other encodings and lone surrogates.
        document = json.loads(body.decode("utf-8"))
    except RecursionError as error:
        raise ValueError("The body is nested too deeply.") from error
    except ValueError as error:
        raise ValueError(f"The body must be valid JSON in UTF-8: {error!s:.200}.") from error
    if not isinstance(document, dict):
        raise ValueError(f"The body must be a JSON object. Received: {body[:80]!r}.")
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
    columns = {name: to_json(x, name.endswith(_BINARY)) for name, x in outputs.items()}
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


def to_json(array: np.ndarray, binary: bool = False) -> list:
    """Convert an array to nested lists.

    Args:
        array: The array.
        binary: Whether to encode all bytes as base64. By default, only bytes that are not UTF-8
            are encoded; the others become strings.
    """
    if array.dtype != object:
        return array.tolist()
    return np.vectorize(_from_bytes, [object])(array, binary).tolist()


def encode(value: object) -> bytes:
    """Return the bytes of a JSON value, which is a string or `{"b64": "..."}`.

    Raises:
        ValueError: The value is neither.
    """
    try:
        if isinstance(value, dict) and value.keys() == {_BASE64}:
            return base64.b64decode(value[_BASE64], validate=True)
        if isinstance(value, str):
            return value.encode("utf-8")
    except (binascii.Error, TypeError, ValueError) as error:
        raise ValueError(
            "A string must be valid base64, or Unicode without lone surrogates. Received: "
            f"{reprlib.repr(value)}."
        ) from error
    shown = reprlib.repr(value)
    raise ValueError(f'Expected a string or {{"b64": "..."}}. Received: {shown}.')


def _from_bytes(value: bytes, binary: bool) -> str | dict[str, str]:
    if not binary:
        with contextlib.suppress(UnicodeDecodeError):
            return value.decode("utf-8")
    return {_BASE64: base64.b64encode(value).decode("ascii")}


def _columns(rows: object, specs: Specs) -> object:
    if not isinstance(rows, list) or not rows:
        raise ValueError(f"`{_ROWS}` must be a non-empty list. Received: {reprlib.repr(rows)}.")
    if not any(map(_is_named, rows)):
        return rows
    for row in rows:
        if not _is_named(row) or row.keys() != specs.keys():
            raise ValueError(
                f"Each of `{_ROWS}` must be an object with the keys {', '.join(specs)}. "
                f"Received: {reprlib.repr(row)}."
            )
    return {name: [row[name] for row in rows] for name in specs}


def _is_named(value: object) -> bool:
    """Return whether a JSON value is an object with names, not a base64 string."""
    return isinstance(value, dict) and value.keys() != {_BASE64}
