"""The routes that rerank texts, for clients of Cohere, Jina, Voyage and TEI.

Source: docs.cohere.com/reference/rerank, jina.ai/reranker, docs.voyageai.com/reference/reranker-api
and huggingface.github.io/text-embeddings-inference.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from keras_bert_d2l.checks import is_integer
from keras_bert_d2l.serving.protocol import Arrays, JSONObject, read_object
from keras_bert_d2l.serving.server.embeddings import RequestError, check_field, model_of
from keras_bert_d2l.serving.server.served import Limits, Served, TooLargeError, ask

RERANK_ROUTES, TEI_ROUTE = ("/v1/rerank", "/v2/rerank"), "/rerank"
_RERANK = "rerank"  # the signature
_OF_VOYAGE = ("top_k", "truncation")
_FIELDS = ("query", "documents", "model", "top_n", "return_documents", *_OF_VOYAGE)
_OF_TEI = ("query", "texts", "raw_scores", "return_text", "truncate", "truncation_direction")


def rerank(models: Mapping[str, Served], body: bytes, limits: Limits) -> JSONObject:
    """Return the response to the body of a request to `/v1/rerank` or `/v2/rerank`.

    Args:
        models: The models of the server by name.
        body: The body.
        limits: Limits of one request.

    Raises:
        TooLargeError: The request exceeds a limit.
        ValueError: The request is wrong, or no model of the server ranks texts.
    """
    request = _request(body, _FIELDS)
    names = [name for name in ("top_n", "top_k") if request.get(name) is not None]
    for name in names:
        top_n, expected = request[name], "must be a whole number, at least 1"
        check_field(is_integer(top_n) and top_n >= 1, name, expected, top_n)
    size = min((request[name] for name in names), default=None)
    texts = _texts(request, "documents")
    with_texts = _flag(request, "return_documents", default=False)
    may_truncate = _flag(request, "truncation", default=True)
    name, found = _scores(models, request, "documents", texts, limits, may_truncate=may_truncate)
    scores = found["scores"]
    results = [
        {
            "index": int(index),
            "relevance_score": float(scores[index]),
            **({"document": {"text": texts[index]}} if with_texts else {}),
        }
        for index in _best(scores)[:size]
    ]
    usage = {"total_tokens": int(found["num_tokens"].sum())}
    key = "results" if request.keys().isdisjoint(_OF_VOYAGE) else "data"
    return {"object": "list", "model": name, key: results, "usage": usage}


def rerank_texts(models: Mapping[str, Served], body: bytes, limits: Limits) -> list[JSONObject]:
    """Return the response to the body of a request to `/rerank`, the route of TEI.

    Its scores are the sigmoid of the logits, or with `raw_scores` the logits themselves. Arguments
    and errors are those of `rerank`.
    """
    request = _request(body, _OF_TEI)
    texts = _texts(request, "texts")
    is_raw = _flag(request, "raw_scores", default=False)
    with_text = _flag(request, "return_text", default=False)
    may_truncate = _flag(request, "truncate", default=True)
    side = request.get("truncation_direction", "right")
    check_field(side in ("right", "Right"), "truncation_direction", "must be 'right'", side)
    _, found = _scores(models, request, "texts", texts, limits, may_truncate=may_truncate)
    logits = found["logits"]
    scores = logits if is_raw else 1 / (1 + np.exp(-logits.astype("float64")))
    return [
        {
            "index": int(index),
            "score": float(scores[index]),
            **({"text": texts[index]} if with_text else {}),
        }
        for index in _best(logits)
    ]


def _request(body: bytes, fields: tuple[str, ...]) -> dict[str, Any]:
    request = read_object(body)
    for field in request:
        check_field(field in fields, f"{field:.100}", f"must be one of {', '.join(fields)}", field)
    query = request.get("query")
    check_field(isinstance(query, str), "query", "must be a text", query)
    return request


def _texts(request: Mapping[str, Any], name: str) -> list[str]:
    """Return the texts of a field, each of which is a string or `{"text": ...}`."""
    given = request.get(name)
    items: list[Any] = given if isinstance(given, list) else []
    texts: list[Any] = [one.get("text") if isinstance(one, dict) else one for one in items]
    are_texts = bool(texts) and all(isinstance(one, str) for one in texts)
    check_field(are_texts, name, 'must be a list of texts or {"text": ...}, not empty', given)
    return texts


def _flag(request: Mapping[str, Any], name: str, *, default: bool) -> bool:
    value = request.get(name)
    check_field(isinstance(value, bool | None), name, "must be true or false", value)
    return default if value is None else value


def _scores(
    models: Mapping[str, Served],
    request: Mapping[str, Any],
    name: str,
    texts: list[str],
    limits: Limits,
    *,
    may_truncate: bool,
) -> tuple[str, Arrays]:
    """Return the name of the model that a request asks for, and its outputs for the texts."""
    ranking = {key: model for key, model in models.items() if _RERANK in model.interfaces}
    if not ranking:
        raise RequestError("No model of this server ranks texts. Serve a Reranker.", "model")
    asked = request.get("model")
    key, model = model_of(ranking, next(iter(ranking)) if asked is None else asked)
    try:
        found = ask(model, _RERANK, {"query": request["query"], "texts": texts}, limits)
    except TooLargeError:
        raise
    except ValueError as error:
        message = str(error).replace("`texts`", f"`{name}`")
        raise RequestError(message, "query" if "`query`" in message else name) from error
    if np.isnan(found["logits"]).any():
        raise RuntimeError("The scores are not numbers: the weights of the model are damaged.")
    long = found["truncated"].nonzero()[0].tolist()
    if long and not may_truncate:
        message = f"`{name}` must be shorter, or may be truncated. Too long: number {long[0]}."
        raise RequestError(message, name)
    return key, found


def _best(scores: np.ndarray) -> np.ndarray:
    """Return the indices of scores, best first."""
    return np.argsort(-scores, kind="stable")
