"""OpenAI's interface for embeddings: `/v1/embeddings`, `/v1/models` and the form of errors.

Source: platform.openai.com/docs/api-reference/embeddings and /models. `input_type` is a field of
Cohere's and NVIDIA's interfaces.
"""

import base64
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from keras_bert_d2l.checks import is_integer, shown
from keras_bert_d2l.serving.protocol import Arrays, JSONObject, read_object
from keras_bert_d2l.serving.server.served import Limits, Served, TooLargeError, ask

ROUTE = "/v1/embeddings"
_EMBED = "embed"  # the signature
_FIELDS = ("input", "model", "encoding_format", "dimensions", "input_type", "user")
_SIGNATURES = {  # by `input_type`
    **dict.fromkeys(("query", "search_query"), "embed_query"),
    **dict.fromkeys(("document", "search_document", "passage"), "embed_document"),
}
_ROUNDING = 1e-3  # of the length of a vector


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


def embeddings(models: Mapping[str, Served], body: bytes, limits: Limits) -> JSONObject:
    """Return the response to the body of a request to `/v1/embeddings`.

    Args:
        models: The models of the server by name.
        body: The body.
        limits: Limits of one request.

    Raises:
        TooLargeError: The request exceeds a limit.
        ValueError: The request is wrong, or the model has no embeddings.
    """
    request = read_request(body, _FIELDS)
    name, model = model_of(models, request.get("model"))
    form = request.get("encoding_format")
    is_known = form in (None, "float", "base64")
    check_field(is_known, "encoding_format", "must be 'float' or 'base64'", form)
    count_tokens = model.count_tokens if _EMBED in model.interfaces else None
    if count_tokens is None:
        message = f"{name!r} has no embeddings. Serve a TextEmbedder or a BERTModel instead."
        raise RequestError(message, "model")
    given: Any = request.get("input")
    texts = [given] if isinstance(given, str) else given
    are_texts = isinstance(texts, list) and texts and all(isinstance(one, str) for one in texts)
    check_field(bool(are_texts), "input", "must be a text or a list of texts, not empty", given)
    kind: Any = request.get("input_type")
    is_known = kind is None or (isinstance(kind, str) and kind in _SIGNATURES)
    check_field(is_known, "input_type", f"must be one of {', '.join(_SIGNATURES)}", kind)
    signature = _SIGNATURES.get(kind, _EMBED)
    if signature not in model.interfaces:  # the model has no prompt for it
        signature = _EMBED
    vectors = answer(model, signature, {"text": texts}, limits, "input")["embedding"]
    size: Any = request.get("dimensions")
    is_right = size is None or (is_integer(size) and 0 < size <= vectors.shape[1])
    check_field(is_right, "dimensions", f"must be from 1 to {vectors.shape[1]}, or omitted", size)
    prompt = model.prompts.get(signature, "")
    num_tokens = count_tokens([prompt + text for text in texts])
    found = _shortened(vectors, size).astype("<f4")
    data = [
        {
            "object": "embedding",
            "index": index,
            "embedding": base64.b64encode(x.tobytes()).decode() if form == "base64" else x.tolist(),
        }
        for index, x in enumerate(found)
    ]
    usage = {"prompt_tokens": num_tokens, "total_tokens": num_tokens}
    return {"object": "list", "data": data, "model": name, "usage": usage}


def read_request(body: bytes, fields: Sequence[str]) -> dict[str, Any]:
    """Return the fields of a request.

    Raises:
        ValueError: The body is not a JSON object, or has other fields than `fields`.
    """
    request = read_object(body)
    for field in request:
        check_field(field in fields, f"{field:.100}", f"must be one of {', '.join(fields)}", field)
    return request


def answer(
    model: Served, signature: str, columns: Mapping[str, object], limits: Limits, field: str
) -> Arrays:
    """Return the outputs of a signature, whose last input is the texts of a field of a request.

    Raises:
        TooLargeError: The request exceeds a limit.
        RequestError: The columns do not match the signature.
    """
    try:
        return ask(model, signature, columns, limits)
    except TooLargeError:
        raise
    except ValueError as error:
        raise RequestError(
            str(error).replace(f"`{[*columns][-1]}`", f"`{field}`"), field
        ) from error


def model_of(models: Mapping[str, Served], asked: object) -> tuple[str, Served]:
    """Return the name of the model that a request asks for, and the model.

    Raises:
        RequestError: The server does not have it.
    """
    for name, model in models.items():
        if asked == name:
            return name, model
    expected = f"must be {' or '.join(map(repr, models))}, which this server has"
    code = "model_not_found" if isinstance(asked, str) else None
    raise RequestError(f"`model` {expected}. Received: {shown(asked)}.", "model", code)


def _shortened(vectors: np.ndarray, size: int | None) -> np.ndarray:
    """Return the first `size` numbers of each vector. Those of vectors of length 1 keep it."""
    if size in (None, vectors.shape[1]):
        return vectors
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    short = vectors[:, :size]
    of_short = np.maximum(np.linalg.norm(short, axis=1, keepdims=True), 1e-12)
    return np.where(abs(lengths - 1) < _ROUNDING, short / of_short, short)


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


def check_field(is_right: bool, param: str, expected: str, given: object) -> None:
    """Raise a `RequestError` that says what a field must be, unless it is right."""
    if not is_right:
        raise RequestError(f"`{param}` {expected}. Received: {shown(given)}.", param)
