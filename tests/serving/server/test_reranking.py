"""Tests of the routes for reranking over real HTTP, in the forms of their clients."""

import numpy as np
import pytest

from keras_bert_d2l import rerank
from keras_bert_d2l.serving.server.local_server import LocalServer, running
from keras_bert_d2l.serving.server.served import Limits

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore:Truncated to")]

QUERY = "red blue"
TEXTS = ["blue", "", "greenish green", "red " * 40, "blue"]


@pytest.fixture(scope="module")
def url(load):
    models = [load("embedder"), load("reranker")]
    with running(LocalServer(models, limits=Limits(max_rows=1000, max_tokens=64))) as url:
        yield url


@pytest.fixture
def ask(url, http):
    """A function that posts a request about the texts to a route."""

    def ask(route="/v1/rerank", **fields):
        name = "texts" if route == "/rerank" else "documents"
        return http(f"{url}{route}", {"query": QUERY, name: TEXTS} | fields)

    return ask


@pytest.fixture(scope="module")
def right(task_models):
    return rerank(task_models["reranker"], QUERY, TEXTS)


def assert_results(results, right, name="relevance_score"):
    assert [one["index"] for one in results] == [one.index for one in right]
    scores = [one[name] for one in results]
    np.testing.assert_allclose(scores, [one.score for one in right], rtol=0, atol=1e-5)


@pytest.mark.parametrize("route", ["/v1/rerank", "/v2/rerank"])
def test_documents_are_sorted_as_in_python(ask, right, route):
    status, document = ask(route)
    assert status == 200
    assert document["model"] == "reranker"
    assert document["usage"] == {"total_tokens": 6 + 5 + 8 + 20 + 6}
    assert_results(document["results"], right)
    assert {key for one in document["results"] for key in one} == {"index", "relevance_score"}


def test_the_best_documents_come_back_with_their_texts(ask, right):
    objects = [{"text": text} for text in TEXTS]
    options = {"top_n": 2, "return_documents": True, "model": "reranker"}
    results = ask(documents=objects, **options)[1]["results"]
    assert_results(results, right[:2])
    assert [one["document"] for one in results] == [{"text": one.text} for one in right[:2]]
    assert len(ask(top_n=99, return_documents=None)[1]["results"]) == len(TEXTS)


def test_voyages_client_gets_its_form(ask, right):
    document = ask(top_k=3, truncation=True)[1]
    assert_results(document["data"], right[:3])
    assert "results" not in document


def test_the_route_of_tei_gives_probabilities_or_logits(ask, right):
    status, results = ask("/rerank")
    assert status == 200
    assert_results(results, right, "score")
    raw = ask("/rerank", raw_scores=True, return_text=True)[1]
    logits = np.array([one["score"] for one in raw])
    np.testing.assert_allclose(1 / (1 + np.exp(-logits)), [one.score for one in right], atol=1e-5)
    assert [one["text"] for one in raw] == [one.text for one in right]


def test_a_thousand_documents_are_not_too_many(ask):
    assert len(ask(documents=["red green " * 20] * 1000)[1]["results"]) == 1000
    status, document = ask(documents=["red"] * 1001)
    assert (status, "at most 1000 rows" in document["message"]) == (413, True)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"query": None}, "query"),
        *(
            ({"documents": x}, "documents")
            for x in (None, [], "red", [1], 5, [{"title": "a"}], [[]])
        ),
        *(({"top_n": x}, "top_n") for x in (0, 1.5, "2", True)),
        ({"return_documents": "yes"}, "return_documents"),
        ({"max_chunks_per_doc": 3}, "max_chunks_per_doc"),
        ({"truncation": False}, "documents"),
    ],
)
def test_errors_have_the_form_of_each_client(ask, fields, param):
    for route in ("/v1/rerank", "/v2/rerank"):
        status, document = ask(route, **fields)
        message = document["message"]
        assert (status, document["detail"], document["error"]["message"]) == (400, message, message)
        assert document["error"]["param"] == param
    theirs = {"documents": "texts", "truncation": "truncate"}
    of_tei = {theirs.get(name, name): value for name, value in fields.items()}
    status, document = ask("/rerank", **of_tei)
    assert (status, document["error_type"]) == (400, "Validation")
    assert theirs.get(param, param) in document["error"]


def test_the_model_must_rank_texts(ask, load, http):
    for name in ("other", "embedder"):
        status, document = ask(model=name)
        assert (status, document["error"]["code"]) == (404, "model_not_found")
        assert "`model` must be 'reranker'" in document["message"]
    with running(LocalServer(load("embedder"))) as url:
        for route, name in (("/v1/rerank", "documents"), ("/rerank", "texts")):
            status, document = http(url + route, {"query": "a", name: ["b"]})
            assert (status, "must be a Reranker" in str(document)) == (400, True)


@pytest.mark.parametrize(("route", "name"), [("/v1/rerank", "documents"), ("/rerank", "texts")])
def test_damaged_weights_are_an_error(load, http, route, name, monkeypatch):
    model, nan = load("reranker"), np.array([0.0, np.nan])
    monkeypatch.setattr(model, "ask", lambda *_: {"scores": nan, "logits": nan})
    with running(LocalServer(model)) as url:
        status, document = http(url + route, {"query": "a", name: ["b", "c"]})
    assert (status, "not numbers" in str(document)) == (500, True)
    assert document.get("error_type", "Backend") == "Backend"
