"""Servers that are absent, silent or too busy, or are not model servers."""

import contextlib
import http.server
import json
import socket
import threading

import pytest

from keras_bert_d2l.serving.client.client import ServingClient


@pytest.mark.parametrize("transport", ["rest", "grpc"])
def test_an_absent_or_silent_server_is_reported(transport):
    scheme = "" if transport == "grpc" else "http://"
    with socket.socket() as absent, socket.socket() as silent:
        for listener in (absent, silent):
            listener.bind(("127.0.0.1", 0))
        silent.listen()
        absent_url, silent_url = (
            f"{scheme}127.0.0.1:{listener.getsockname()[1]}" for listener in (absent, silent)
        )
        nobody = ServingClient(absent_url, "demo", transport=transport)
        with nobody, pytest.raises(ConnectionError, match="keras-bert-d2l serve"):
            nobody.status()
        late = ServingClient(silent_url, "demo", transport=transport, timeout=0.2)
        with late, pytest.raises(TimeoutError, match="not within 0.2 s"):
            late.embed("red")


@contextlib.contextmanager
def answering(status, document):
    """Run a server that gives every request the same answer."""
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
        (200, {}, RuntimeError, "does not answer as a model server"),
        (200, {"metadata": None}, RuntimeError, "does not answer as a model server"),
        (200, [], RuntimeError, "is not a model server"),
        (301, {}, RuntimeError, "answers 301"),
        (400, {"error": "Malformed"}, ValueError, "answers 400: Malformed"),
        (429, {"error": "memory"}, RuntimeError, "answers 429: memory"),
        (503, {"error": "The queue is full"}, ConnectionError, "too busy .The queue is full"),
        (504, {"error": "Timed out"}, TimeoutError, "in time .Timed out"),
    ],
)
def test_an_answer_that_is_an_error_is_raised(status, document, kind, message):
    """The exceptions are those of gRPC: a full queue is UNAVAILABLE there and 503 here."""
    with (
        answering(status, document) as url,
        ServingClient(url, "demo") as client,
        pytest.raises(kind, match=message),
    ):
        client.metadata()
