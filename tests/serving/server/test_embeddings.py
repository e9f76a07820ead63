"""Tests of OpenAI's routes. `tests/peers/test_openai.py` asks with the real client."""

import base64

import numpy as np
import pytest

from keras_bert_d2l.serving.server import served
from keras_bert_d2l.serving.server.local_server import LocalServer, running
from keras_bert_d2l.tasks.embed.predictions import embed

pytestmark = pytest.mark.slow

TEXTS = ["red blue", "green", "", "red " * 40]
NUM_TOKENS = 4 + 3 + 2 + 24  # with [CLS] and [SEP], of at most 24


@pytest.fixture(scope="module")
def url(load):
    with running(LocalServer(load("embedder"), "mine", limits=served.Limits(8, 96))) as url:
        yield f"{url}/v1"


@pytest.fixture
def ask(url, http):
    return lambda value, **more: http(f"{url}/embeddings", {"input": value, "model": "mine"} | more)


@pytest.mark.filterwarnings("ignore:Truncated to")
def test_texts_get_their_vectors_and_the_number_of_tokens(ask, task_models):
    right = embed(task_models["embedder"], TEXTS)
    status, document = ask(TEXTS)
    assert status == 200
    assert (document["object"], document["model"]) == ("list", "mine")
    assert document["usage"] == {"prompt_tokens": NUM_TOKENS, "total_tokens": NUM_TOKENS}
    assert [(one["object"], one["index"]) for one in document["data"]] == [
        ("embedding", index) for index in range(4)
    ]
    vectors = [one["embedding"] for one in document["data"]]
    np.testing.assert_allclose(vectors, right, rtol=0, atol=1e-5)
    options = {"user": "me", "dimensions": 8, "input_type": "query"}  # the model has no prompts
    encoded = ask(TEXTS, encoding_format="base64", **options)[1]["data"]
    content = b"".join(base64.b64decode(one["embedding"]) for one in encoded)
    np.testing.assert_array_equal(np.frombuffer(content, "<f4").reshape(4, 8), vectors)
    [one] = ask(TEXTS[0], encoding_format=None, dimensions=None)[1]["data"]
    np.testing.assert_allclose(one["embedding"], right[0], atol=1e-5)


@pytest.mark.parametrize(
    ("request_", "status", "param", "code"),
    [
        ({"model": "other"}, 404, "model", "model_not_found"),
        ({"model": None}, 400, "model", None),
        ({"encoding_format": "hex"}, 400, "encoding_format", None),
        *(({"dimensions": x}, 400, "dimensions", None) for x in (0, 9, 8.0, "8", True, 10**30)),
        *(({"input_type": x}, 400, "input_type", None) for x in ("image", 1, ["query"])),
        ({"truncate": True}, 400, "truncate", None),
        *(
            ({"input": value}, 400, "input", None)
            for value in (None, [], [1, "a"], ["a", ["b"]], {"a": 1}, [5, 7], ["\ud800"])
        ),
        ({"input": ["a"] * 9}, 413, None, None),
        ({"input": ["red " * 24] * 5}, 413, None, None),
    ],
)
def test_errors_have_openais_form(ask, request_, status, param, code):
    given, document = ask(
        **{"value": "red"} | {{"input": "value"}.get(name, name): x for name, x in request_.items()}
    )
    error = document["error"]
    assert (given, error["param"], error["code"]) == (status, param, code)
    assert error["type"] == "invalid_request_error"
    assert param is None or f"`{param}`" in error["message"]  # not a name of the signature
    if request_.get("input") == []:  # unlike a list, a text may be empty
        assert error["message"].endswith("a list of texts, not empty. Received: [].")
    assert 10 < len(error["message"]) < 500


def test_the_limit_of_tokens_counts_the_prompt(load, monkeypatch):
    model, limits = load("embedder"), served.Limits(8, 15)
    monkeypatch.setattr(model, "prompts", {"embed": "the "})
    with pytest.raises(served.TooLargeError, match="at most 15 tokens.*Received: 21"):
        served.ask(model, "embed", {"text": ["red"] * 3}, limits)


def test_other_methods_and_bodies_are_errors(url, http):
    for body in (None, b"{", b"[]"):
        status, document = http(f"{url}/embeddings", body)
        assert (status, document["error"]["type"]) == (400, "invalid_request_error")
    for path in ("embeddings/", "chat/completions"):
        status, document = http(f"{url}/{path}", {"input": "red", "model": "mine"})
        assert (status, document["error"]["type"]) == (400, "invalid_request_error")
        assert f"Malformed request: POST /v1/{path}. The" in document["error"]["message"]


def test_models_are_listed_and_described(url, http):
    status, document = http(f"{url}/models")
    [found] = document["data"]
    assert (status, document["object"], found["id"]) == (200, "list", "mine")
    assert isinstance(found["created"], int)
    described = http(f"{url}/models/mine")[1]
    assert described == {**found, **http(f"{url}/models/mine/versions/1")[1]}
    assert http(f"{url}/models/other")[0] == 404


def test_a_model_without_embeddings_says_so(load, http):
    with running(LocalServer(load("classifier"), "mine")) as url:
        status, document = http(f"{url}/v1/embeddings", {"input": "red", "model": "mine"})
    assert status == 400
    assert "has no embeddings. Serve a TextEmbedder" in document["error"]["message"]
