"""Tests with servers that are missing, unresponsive, overloaded or not model servers."""

import contextlib
import http.server
import json
import socket
import threading

import pytest

from keras_bert_d2l.serving.client.client import ServingClient


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
        with late, pytest.raises(TimeoutError, match="timeout of 0.2 s"):
            late.embed("red")


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
        (200, [], RuntimeError, "is not a model server"),
        (301, {}, RuntimeError, "returned 301"),
        (400, {"error": "Malformed"}, ValueError, "returned 400: Malformed"),
        (429, {"error": "memory"}, RuntimeError, "returned 429: memory"),
        (503, {"error": "The queue is full"}, ConnectionError, "too busy .The queue is full"),
        (504, {"error": "Timed out"}, TimeoutError, "in time .Timed out"),
    ],
)
def test_error_responses_raise_exceptions(status, document, kind, message):
    with (
        answering(status, document) as url,
        ServingClient(url, "demo") as client,
        pytest.raises(kind, match=message),
    ):
        client.metadata()
