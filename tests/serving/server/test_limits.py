"""Tests of requests that are too large or too slow, with a model that costs nothing."""

import json
import socket
import urllib.parse

import pytest
import tensorflow as tf

from keras_bert_d2l.serving.server.local_server import LocalServer, running
from keras_bert_d2l.serving.server.served import Limits
from keras_bert_d2l.serving.server.served_model import ServedModel

LIMITS = Limits(max_rows=8, max_tokens=64, max_bytes=4000)
MAX_LEN = 16


def write_model(folder, card=None):
    """Write a model that returns the length of each text, and copies ids."""
    module = tf.Module()
    text, ids = tf.TensorSpec((None,), tf.string, "text"), tf.TensorSpec((None, None), name="ids")
    module.lengths = tf.function(lambda text: {"y": tf.strings.length(text)}, [text])
    module.copies = tf.function(lambda ids: {"y": tf.identity(ids)}, [ids])
    functions = {name: getattr(module, name) for name in ("lengths", "copies")}
    signatures = {name: one.get_concrete_function() for name, one in functions.items()}
    tf.saved_model.save(module, str(folder), signatures)
    if card is not None:
        (folder / "model_card.json").write_text(json.dumps(card))
    return folder


@pytest.fixture(scope="module", params=["ours", "question answering", "other"])
def url(request, tmp_path_factory):
    """The URL of a model with and without a model card, and the kind of card."""
    cards = {
        "ours": {"task": None, "config": {"max_len": MAX_LEN}},
        "question answering": {"task": {"kind": "QuestionAnswerer"}, "config": {"max_len": 16}},
        "other": None,
    }
    folder = write_model(tmp_path_factory.mktemp("model") / "1", cards[request.param])
    with running(LocalServer(ServedModel(folder), "demo", limits=LIMITS)) as url:
        yield f"{url}/v1/models/demo", request.param


def ask(http, url, signature, inputs, key="inputs"):
    return http(f"{url}:predict", {"signature_name": signature, key: inputs})


def test_a_request_with_too_many_rows_is_rejected(url, http):
    url, _ = url
    for key in ("inputs", "instances"):
        assert ask(http, url, "lengths", ["a"] * 4, key)[0] == 200
        status, answer = ask(http, url, "lengths", ["a"] * 9, key)
        assert status == 413
        assert answer["error"].startswith("A request may have at most 8 rows. Received: 9.")


def test_a_request_with_too_many_tokens_is_rejected(url, http):
    url, _ = url
    # 4 and 5 rows of at most 16 tokens, or about 50 and 65 tokens in total
    few, many = ["x" * 50] * 4, ["x" * 52] * 5
    assert ask(http, url, "lengths", few)[0] == 200
    assert ask(http, url, "lengths", many)[0] == 413
    status, answer = ask(http, url, "copies", [[0.0] * 13] * 5)
    assert status == 413
    assert "at most 64 tokens, including padding. Received: 65" in answer["error"]
    assert "`--max-tokens`" in answer["error"]


def test_only_the_part_of_a_text_that_the_model_reads_counts(url, http):
    url, kind = url
    status, _ = ask(http, url, "lengths", ["x" * 3000])
    assert status == (200 if kind == "ours" else 413)


def test_a_body_that_is_too_large_is_rejected(url, http):
    url, _ = url
    status, answer = http(f"{url}:predict", b" " * 4001)
    assert status == 413
    assert answer["error"] == "The body must not exceed 4000 bytes. Received: 4001."


def upload(url, *headers):
    """Send the head of a request, and return the connection when the server reads the body."""
    place = urllib.parse.urlsplit(url)
    connection = socket.create_connection((place.hostname, place.port), timeout=30)
    head = [f"POST {place.path}:predict HTTP/1.1", "Host: x", "Expect: 100-continue", *headers]
    connection.sendall("\r\n".join([*head, "", ""]).encode())
    return connection, connection.recv(4096).decode()


@pytest.mark.parametrize("header", ["Content-Length: 4001", "Content-Length: 99999999999"])
def test_a_body_is_rejected_by_its_declared_size_before_it_is_read(url, header):
    connection, reply = upload(url[0], header)
    with connection:
        assert reply.startswith("HTTP/1.1 413")


def test_a_body_in_chunks_is_rejected_when_it_exceeds_the_limit(url):
    connection, reply = upload(url[0], "Transfer-Encoding: chunked")
    with connection:
        assert reply.startswith("HTTP/1.1 100")
        connection.sendall(b"fa1\r\n" + b" " * 4001)
        assert connection.recv(4096).startswith(b"HTTP/1.1 413")
