"""OpenAI's interface for embeddings: `/v1/embeddings`, `/v1/models` and the form of errors.

Source: platform.openai.com/docs/api-reference/embeddings and /models.
"""

import base64
import contextlib
import re
from collections.abc import Iterator
from typing import Any

import numpy as np

from keras_bert_d2l.checks import is_integer, shown
from keras_bert_d2l.serving.protocol import JSONObject, read_object
from keras_bert_d2l.serving.server.limits import Limits, TooLargeError
from keras_bert_d2l.serving.server.served import Served, TokenCounter, ask

ROUTE = "/v1/embeddings"
_EMBED, _TOKENS = "embed", "tokens"  # signatures
_FIELDS = ("input", "model", "encoding_format", "dimensions", "user")
_BEYOND_IDS = 2**31  # of int32
_FORMATS = (None, "float", "base64")


class RequestError(ValueError):
    """A field of a request is wrong.

    Args:
        message: What is wrong and how to fix it.
        param: Name of the field.
        code: OpenAI's name of the error.
    """

    def __init__(self, message: str, param: str, code: str | None = None) -> None:
        super().__init__(message)
        self.param, self.code = param, code


def embeddings(model: Served, name: str, body: bytes, limits: Limits) -> JSONObject:
    """Return the response to the body of a request to `/v1/embeddings`.

    Args:
        model: The model.
        name: Its name on the server.
        body: The body.
        limits: Limits of one request.

    Raises:
        TooLargeError: The request or its response exceeds a limit.
        ValueError: The request is wrong, or the model has no embeddings.
    """
    limits.check_body(body)
    request = read_object(body)
    for field in request:
        _check(field in _FIELDS, f"{field:.100}", f"must be one of {', '.join(_FIELDS)}", field)
    asked, form = request.get("model"), request.get("encoding_format")
    code = "model_not_found" if isinstance(asked, str) else None
    _check(asked == name, "model", f"must be {name!r}, which this server has", asked, code)
    _check(form in _FORMATS, "encoding_format", "must be 'float' or 'base64'", form)
    counter = model.counter if _EMBED in model.interfaces else None
    if counter is None:
        message = f"{name!r} has no embeddings. Serve a TextEmbedder or a BERTModel instead."
        raise RequestError(message, "model")
    rows = _rows(request.get("input"))
    of_rows = _of_texts if _is_text(rows[0]) else _of_ids
    with _naming_input():
        vectors, num_tokens = of_rows(model, counter, rows, limits)
    width, given = vectors.shape[1], request.get("dimensions")
    expected = f"must be {width} or omitted, because the vectors cannot be shortened"
    is_right = given is None or (is_integer(given) and given == width)
    _check(is_right, "dimensions", expected, given)
    data = [
        {"object": "embedding", "index": index, "embedding": _encoded(vector, form == "base64")}
        for index, vector in enumerate(vectors)
    ]
    usage = {"prompt_tokens": num_tokens, "total_tokens": num_tokens}
    return {"object": "list", "data": data, "model": name, "usage": usage}


def model_object(name: str, created: int) -> JSONObject:
    """Return OpenAI's description of a model.

    Args:
        name: Name of the model.
        created: Seconds since 1970.
    """
    return {"id": name, "object": "model", "created": created, "owned_by": "keras-bert-d2l"}


def error_object(message: str, status: int, error: Exception) -> JSONObject:
    """Return OpenAI's description of an error."""
    kind = "invalid_request_error" if status < 500 else "server_error"
    param, code = getattr(error, "param", None), getattr(error, "code", None)
    return {"message": message, "type": kind, "param": param, "code": code}


def _check(
    is_right: bool, param: str, expected: str, given: object, code: str | None = None
) -> None:
    if not is_right:
        raise RequestError(f"`{param}` {expected}. Received: {shown(given)}.", param, code)


@contextlib.contextmanager
def _naming_input() -> Iterator[None]:
    """Name the field `input` in the errors of a signature, which name its own inputs."""
    try:
        yield
    except TooLargeError:
        raise
    except ValueError as error:
        message = re.sub(f"`(text|{_TOKENS})`", "`input`", str(error))
        raise RequestError(message, "input") from error


def _rows(value: object) -> list[Any]:
    """Return the texts or the token ids of an `input`."""
    rows: Any = [value] if _is_text(value) or _is_ids(value) else value
    is_right = isinstance(rows, list) and bool(rows)
    is_right = is_right and (all(map(_is_text, rows)) or all(map(_is_ids, rows)))
    expected = "must be a text, a list of texts, a list of token ids, or a list of lists of ids"
    _check(is_right, "input", f"{expected}. No list may be empty", value)
    return rows


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_ids(value: object) -> bool:
    if not isinstance(value, list) or {*map(type, value)} != {int}:
        return False
    return max(abs(number) for number in value) < _BEYOND_IDS


def _of_texts(
    model: Served, counter: TokenCounter, rows: list[str], limits: Limits
) -> tuple[np.ndarray, int]:
    """Return the vectors `(B, D)` of texts, and the number of tokens that the model read."""
    vectors = ask(model, _EMBED, {"text": rows}, limits)["embedding"]
    texts = np.array([row.encode() for row in rows], object)
    return vectors, int(counter.lengths(texts).clip(max=counter.max_len).sum())


def _of_ids(
    model: Served, counter: TokenCounter, rows: list[list[int]], limits: Limits
) -> tuple[np.ndarray, int]:
    """Return the vectors `(B, D)` of token ids, and the number of tokens."""
    specs, outputs = model.interfaces[_TOKENS]
    if "embedding" not in outputs:
        raise RequestError("This model has no embeddings of token ids. Send texts.", "input")
    limits.check_rows({"tokens": rows}, specs)
    cls, sep, pad = counter.special_ids
    rows = [row if row[0] == cls else [cls, *row, sep] for row in rows]
    longest = max(map(len, rows))
    expected = f"must have at most {counter.max_len} token ids per row, with those at its ends"
    _check(longest <= counter.max_len, "input", expected, longest)
    columns = {
        "tokens": [row + [pad] * (longest - len(row)) for row in rows],
        "segments": np.zeros((len(rows), longest), int),
        "valid_lens": [*map(len, rows)],
        "pred_positions": np.zeros((len(rows), 0), int),
    }
    columns = {name: x for name, x in columns.items() if name in specs}
    return ask(model, _TOKENS, columns, limits)["embedding"], sum(map(len, rows))


def _encoded(vector: np.ndarray, as_bytes: bool) -> list[float] | str:
    """Return a vector as JSON, or its float32 numbers in little-endian order as base64."""
    found = vector.astype("<f4")
    return base64.b64encode(found.tobytes()).decode() if as_bytes else found.tolist()
