"""Tests of the client over real HTTP: with the development server, and without a model server."""

import contextlib
import http.server
import json
import socket
import threading

import numpy as np
import pytest
import tensorflow as tf

from keras_bert_d2l.serving.client import ServingClient
from keras_bert_d2l.serving.protocol import Spec

TOLERANCE = 1e-5
SECONDS = 60
TEXTS = ["red [MASK]", "", "[MASK] blue [MASK]ish green", "Reddish, 日本 🙂\t", "red green " * 20]
REQUESTS = {
    "embed": {"text": TEXTS},
    "embed_sparse": {"text": TEXTS},
    "fill_mask": {"text": TEXTS},
    "nsp": {"text": TEXTS, "text_b": TEXTS[::-1]},
    "serving_default": {"text": TEXTS},
    "tokens": {
        "tokens": [[1, 4, 2], [1, 2, 0], [1, 5, 2]],
        "segments": [[0, 0, 0], [0, 1, 0], [0, 0, 1]],
        "valid_lens": [3, 2, 3],
        "pred_positions": [[1, 0], [0, 0], [2, 1]],
    },
}


@pytest.fixture(scope="module")
def connect(demo_url):
    """A function that creates a client."""

    def connect(model="demo", version=None, **options):
        return ServingClient(demo_url, model, version, **{"timeout": SECONDS, **options})

    return connect


@pytest.fixture(scope="module")
def client(connect):
    with connect() as client:
        yield client


@pytest.fixture
def unasked(client, monkeypatch):
    """A client that must not send a request to the model."""
    client.metadata()
    monkeypatch.setattr(client, "_request", lambda *_: pytest.fail("a request was sent"))
    return client


def assert_same(given, right):
    assert given.keys() == right.keys()
    for name, array in right.items():
        assert given[name].dtype == array.dtype, name
        assert given[name].shape == array.shape, name
        if array.dtype == np.float32:
            np.testing.assert_allclose(given[name], array, rtol=0, atol=TOLERANCE)
        elif array.dtype == object:
            assert given[name].ravel().tolist() == [x.decode() for x in array.ravel()]
        else:
            np.testing.assert_array_equal(given[name], array)


@pytest.mark.long
def test_every_signature_matches_the_model_also_in_split_requests(connect, served):
    for signature, inputs in REQUESTS.items():
        right = served(signature, **inputs)
        for batch_size in (2, 32):
            with connect(batch_size=batch_size) as client:
                assert REQUESTS.keys() == client.metadata().signatures.keys()
                assert_same(client.predict(inputs, signature), right)


@pytest.mark.slow
def test_arrays_tensors_and_bytes_are_accepted_like_lists(client):
    right = client.predict({"text": ["red", "blue"]}, "embed")["embedding"]
    for text in (np.array(["red", "blue"]), tf.constant(["red", "blue"]), (b"red", b"blue")):
        np.testing.assert_array_equal(client.predict({"text": text}, "embed")["embedding"], right)
    found = client.predict({"text": [b"\xff\0"]}, "embed")["embedding"]
    assert found.shape == (1, right.shape[1])


def test_metadata_describes_the_server(client):
    metadata = client.metadata()
    assert metadata.version == 1
    assert metadata.signatures["embed"].inputs == {"text": Spec((None,), np.dtype(object), "text")}
    assert metadata.signatures["embed"].outputs["embedding"].dtype == np.float32


@pytest.mark.parametrize(
    ("signature", "inputs", "message"),
    [
        ("embed", {"text": ["red", "\ud800"]}, "not valid base64 or Unicode"),
        ("embed", {"text": []}, "the same number of rows, at least one"),
        ("embed", {"text": "red"}, "`text` must have the dtype string and the shape"),
        ("embed", {"text": [1]}, "the dtype string .* Received: 1"),
        ("embed", {"texts": ["red"]}, "must be: text. Received: texts"),
        ("embed", {}, "Received: none"),
        ("embed", ["red"], "must be a dictionary with the keys text"),
        ("nsp", {"text": ["red"], "text_b": ["red", "blue"]}, "the same number of rows"),
        ("unknown", {"text": ["red"]}, "must be one of embed, embed_sparse"),
        ({}, {"text": ["red"]}, "`signature_name` must be one of"),
    ],
)
def test_invalid_inputs_are_reported_before_sending(unasked, signature, inputs, message):
    with pytest.raises(ValueError, match=message):
        unasked.predict(inputs, signature)


def test_server_errors_are_raised(connect, client):
    row = {"segments": [[0]], "valid_lens": [1], "pred_positions": [[0]]}
    with pytest.raises(ValueError, match="`tokens` must be from 0 to"):
        client.predict({"tokens": [[10**6]], **row}, "tokens")
    with pytest.raises(LookupError, match="not have this model"), connect("other") as other:
        other.predict({"text": ["red"]}, "embed")
    with pytest.raises(LookupError, match="or version"), connect(version=7) as other:
        other.predict({"text": ["red"]}, "embed")
    with connect(version=1) as same:
        assert same.metadata().version == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"timeout": 0}, "`timeout`"),
        ({"batch_size": 0}, "`batch_size`"),
        ({"model": ""}, "`model`"),
        ({"url": "localhost:8501"}, "`url` must be an address that starts with http"),
    ],
)
def test_invalid_arguments_are_rejected(arguments, message):
    arguments = {"url": "http://localhost:1", "model": "demo", **arguments}
    with pytest.raises(ValueError, match=message):
        ServingClient(**arguments)


def test_a_missing_or_unresponsive_server_is_reported():
    with socket.socket() as absent, socket.socket() as silent:
        for listener in (absent, silent):
            listener.bind(("127.0.0.1", 0))
        silent.listen()
        absent_url, silent_url = (
            f"http://127.0.0.1:{listener.getsockname()[1]}" for listener in (absent, silent)
        )
        nobody = ServingClient(absent_url, "demo")
        with nobody, pytest.raises(ConnectionError, match="keras-bert-d2l serve"):
            nobody.metadata()
        late = ServingClient(silent_url, "demo", timeout=0.2)
        with late, pytest.raises(TimeoutError, match="timeout=0.2"):
            late.metadata()


@contextlib.contextmanager
def answering(status, document):
    """Run a server that sends the same response to every request."""
    body = json.dumps(document).encode()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize(
    ("status", "document", "kind", "message"),
    [
        (200, {}, RuntimeError, "did not respond like a model server"),
        (200, {"metadata": None}, RuntimeError, "did not respond like a model server"),
        (200, [], RuntimeError, "did not respond like a model server"),
        (301, {}, RuntimeError, "returned 301"),
        (400, {"error": "Malformed"}, ValueError, "returned 400: Malformed"),
        (429, {"error": "memory"}, RuntimeError, "returned 429: memory"),
        (503, {"error": "The queue is full"}, ConnectionError, "too busy.*: The queue is full"),
        (504, {"error": "Timed out"}, TimeoutError, "`timeout`.*: Timed out"),
    ],
)
def test_error_responses_raise_exceptions(status, document, kind, message):
    with (
        answering(status, document) as url,
        ServingClient(url, "demo") as client,
        pytest.raises(kind, match=message),
    ):
        client.metadata()
