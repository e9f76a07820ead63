"""The routes that rerank texts, for clients of Cohere, Jina, Voyage and TEI.

Source: docs.cohere.com/reference/rerank, jina.ai/reranker, docs.voyageai.com/reference/reranker-api
and huggingface.github.io/text-embeddings-inference.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from keras_bert_d2l.checks import is_integer
from keras_bert_d2l.serving.protocol import Arrays, JSONObject
from keras_bert_d2l.serving.server.embeddings import answer, check_field, model_of, read_request
from keras_bert_d2l.serving.server.served import Limits, Served

ROUTES, TEI_ROUTE = ("/v1/rerank", "/v2/rerank"), "/rerank"
_RERANK = "rerank"  # the signature
_TEXT, _FLAG, _NUMBER = "a text", "true or false", "a whole number, at least 1"
_OF_VOYAGE = {"top_k": _NUMBER, "truncation": _FLAG}
_OPTIONS = {"model": _TEXT, "top_n": _NUMBER, "return_documents": _FLAG, **_OF_VOYAGE}
_OF_TEI = {"raw_scores": _FLAG, "return_text": _FLAG, "truncate": _FLAG}
_OF_TEI["truncation_direction"] = _TEXT
_TYPES: dict[str, type] = {_TEXT: str, _FLAG: bool, _NUMBER: int}


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
    request = _checked(body, "documents", _OPTIONS)
    name, texts, found = _ranked(models, request, "documents", limits, "truncation")
    sizes = [request[key] for key in ("top_n", "top_k") if request.get(key)]
    results = []
    for index in _best(found["scores"])[: min(sizes, default=None)]:
        one: JSONObject = {"index": index, "relevance_score": float(found["scores"][index])}
        if request.get("return_documents"):
            one["document"] = {"text": texts[index]}
        results.append(one)
    usage = {"total_tokens": int(found["num_tokens"].sum())}
    key = "results" if request.keys().isdisjoint(_OF_VOYAGE) else "data"
    return {"object": "list", "model": name, key: results, "usage": usage}


def rerank_texts(models: Mapping[str, Served], body: bytes, limits: Limits) -> list[JSONObject]:
    """Return the response to the body of a request to `/rerank`, the route of TEI.

    Its scores are the sigmoid of the logits, or with `raw_scores` the logits themselves. Arguments
    and errors are those of `rerank`.
    """
    request = _checked(body, "texts", _OF_TEI)
    side = request.get("truncation_direction", "right")
    check_field(side in ("right", "Right"), "truncation_direction", "must be 'right'", side)
    _, texts, found = _ranked(models, request, "texts", limits, "truncate")
    scores = logits = found["logits"]
    if not request.get("raw_scores"):
        scores = 1 / (1 + np.exp(-logits.astype("float64")))
    results = []
    for index in _best(logits):
        one: JSONObject = {"index": index, "score": float(scores[index])}
        if request.get("return_text"):
            one["text"] = texts[index]
        results.append(one)
    return results


def _checked(body: bytes, field: str, options: Mapping[str, str]) -> dict[str, Any]:
    """Return a request with a query, texts in `field`, and options of the right types."""
    request = read_request(body, ("query", field, *options))
    for name, expected in {"query": _TEXT, **options}.items():
        value = request.get(name)
        is_right = type(value) is _TYPES[expected]
        if is_integer(value):
            is_right &= value > 0
        is_right |= value is None and name != "query"
        check_field(is_right, name, f"must be {expected}", value)
    return request


def _ranked(
    models: Mapping[str, Served], request: dict[str, Any], field: str, limits: Limits, cut: str
) -> tuple[str, list[str], Arrays]:
    """Return the name of the model, the texts of a field of the request, and their scores."""
    given = request.get(field)
    items: list[Any] = given if isinstance(given, list) else []
    texts: list[Any] = [one.get("text") if isinstance(one, dict) else one for one in items]
    are_texts = {*map(type, texts)} == {str}
    check_field(are_texts, field, 'must be a list of texts or {"text": ...}, not empty', given)
    ranking = {name: model for name, model in models.items() if _RERANK in model.interfaces}
    check_field(
        bool(ranking), "model", "must be a Reranker, which is not on this server", [*models]
    )
    asked = request.get("model")
    name, model = model_of(ranking, next(iter(ranking)) if asked is None else asked)
    found = answer(model, _RERANK, {"query": request["query"], "texts": texts}, limits, field)
    if np.isnan(found["logits"]).any():
        raise RuntimeError("The scores are not numbers: the weights of the model are damaged.")
    long = found["truncated"].nonzero()[0].tolist()
    is_right = request.get(cut) in (None, True) or not long
    check_field(is_right, field, f"must be shorter for {cut}=false", f"long texts at {long[:5]}")
    return name, texts, found


def _best(scores: np.ndarray) -> list[int]:
    """Return the indices of scores, best first."""
    return np.argsort(-scores, kind="stable").tolist()
