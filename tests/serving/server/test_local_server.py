"""Tests of the development server over real HTTP, also with requests that are too large."""

import concurrent.futures
import json
import os
import signal
import socket
import threading
import types
import urllib.parse

import numpy as np
import pytest
import tensorflow as tf

from keras_bert_d2l.serving.server.local_server import LocalServer, listen, running, serve
from keras_bert_d2l.serving.server.served import Limits
from keras_bert_d2l.serving.server.served_model import ServedModel
from tests.serving.conftest import MAX_BODY

LIMITS = Limits(max_rows=8, max_tokens=64, max_bytes=4000)
MAX_LEN = 16
REQUESTS = {
    "serving_default": {"text": ["red [MASK]", "", "Ünïcödé 日本 🙂"]},
    "fill_mask": {"text": ["[MASK] blue [MASK]ish green", "red " * 40]},
    "nsp": {"text": ["red", "blue"], "text_b": ["green", ""]},
    "tokens": {
        "tokens": [[1, 4, 2], [1, 2, 0]],
        "segments": [[0, 0, 0], [0, 1, 0]],
        "valid_lens": [3, 2],
        "pred_positions": [[1], [0]],
    },
}


@pytest.fixture(scope="module")
def url(demo_url):
    return f"{demo_url}/v1/models/demo"


@pytest.fixture(scope="module")
def predict(url, http):
    """A function that returns the response to a request, which must succeed."""

    def predict(signature, place="", **body):
        status, answer = http(f"{url}{place}:predict", {"signature_name": signature, **body})
        assert status == 200, answer
        return answer

    return predict


def as_rows(columns):
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


@pytest.mark.slow
def test_rows_and_columns_get_the_same_outputs(predict):
    for signature, columns in REQUESTS.items():
        outputs = predict(signature, inputs=columns)["outputs"]
        rows = predict(signature, instances=as_rows(columns))["predictions"]
        assert len(rows) == len(next(iter(columns.values())))
        assert rows == as_rows(outputs)


@pytest.mark.slow
def test_empty_requests_get_empty_responses(url, http, predict):
    outputs = predict("fill_mask", inputs={"text": []})["outputs"]
    names = ("ids", "positions", "scores", "tokens", "truncated")
    assert outputs == {name: [] for name in names}
    assert http(f"{url}:predict", {"signature_name": "fill_mask", "instances": []})[0] == 400


@pytest.mark.slow
def test_names_of_a_single_input_and_of_the_default_signature_are_optional(predict):
    right = predict("embed", inputs={"text": ["red", "blue"]})
    unnamed = ["red", {"b64": "Ymx1ZQ=="}]
    assert predict("embed", inputs=unnamed) == right
    assert predict("embed", instances=unnamed)["predictions"] == as_rows(right["outputs"])
    right = predict("serving_default", inputs={"text": ["red"]})
    assert predict("", "/versions/1", inputs={"text": ["red"]}) == right


def test_status_and_metadata_have_tensorflow_servings_format(url, http):
    told = {"version": "1", "state": "AVAILABLE"}
    told["status"] = {"error_code": "OK", "error_message": ""}
    assert http(f"{url}/versions/1") == (200, {"model_version_status": [told]})
    assert http(url)[1]["model_version_status"] == [told]
    metadata = http(f"{url}/metadata")[1]
    assert metadata == http(f"{url}/versions/1/metadata")[1]
    assert metadata["model_spec"] == {"name": "demo", "signature_name": "", "version": "1"}
    embed = metadata["metadata"]["signature_def"]["signature_def"]["embed"]
    assert embed["inputs"]["text"]["dtype"] == "DT_STRING"
    assert embed["inputs"]["text"]["tensor_shape"] == {
        "dim": [{"size": "-1", "name": ""}],
        "unknown_rank": False,
    }
    assert embed["method_name"] == "tensorflow/serving/predict"


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/versions/7", None, 404),
        ("/versions/7/metadata", None, 404),
        ("/versions/7:predict", {"inputs": ["red"]}, 404),
        ("x", None, 404),
        ("x:predict", {"inputs": ["red"]}, 404),
        ("/labels/stable:predict", {"inputs": ["red"]}, 400),
        ("/nothing", None, 400),
        ("/", None, 400),
        ("/../../modules", None, 400),
        ("/../../../v2", None, 404),
        (":predict", None, 400),
        (":explode", {"inputs": ["red"]}, 400),
        ("", {"inputs": ["red"]}, 400),
        (":predict", b" " * (MAX_BODY + 1), 413),
        (":classify", {"examples": [{"text": "red"}]}, 400),
        (":regress", {"examples": [{"text": "red"}]}, 400),
    ],
)
def test_unknown_routes_and_models_have_tensorflow_servings_status(url, http, path, body, status):
    given, answer = http(url + path, body)
    assert given == status
    assert isinstance(answer["error"], dict if path == "/../../modules" else str)  # as of OpenAI


@pytest.mark.slow
def test_the_error_contains_the_message_of_the_model(url, http):
    inputs = {"tokens": [[10**6]], "segments": [[0]], "valid_lens": [1], "pred_positions": [[0]]}
    body = {"signature_name": "tokens", "inputs": inputs}
    status, answer = http(f"{url}:predict", body)
    assert status == 400
    assert answer["error"].startswith("The model rejected the request: `tokens` must be from 0 to")
    assert "Graph execution" not in answer["error"]


@pytest.mark.slow
def test_concurrent_requests_get_the_right_outputs(predict):
    texts = [f"red {'green ' * number}[MASK]" for number in range(8)]
    right = [predict("fill_mask", inputs=[text]) for text in texts]
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda text: predict("fill_mask", inputs=[text]), texts * 5))
    assert answers == right * 5


@pytest.mark.slow
def test_ctrl_c_stops_the_server(exported, http, capsys):
    with listen(port=0) as found:
        port = found.getsockname()[1]
    statuses = []

    def stop():
        while True:
            with socket.socket() as connection:
                if connection.connect_ex(("127.0.0.1", port)) == 0:
                    break
        statuses.append(http(f"http://127.0.0.1:{port}/v1/models/mine")[0])
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=stop)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        serve(exported, name="mine", port=port)
    thread.join()
    assert statuses == [200]
    assert f"version 1, at http://127.0.0.1:{port}/v1/models/mine\n" in capsys.readouterr().out


@pytest.mark.slow
def test_errors_are_reported_before_serving_starts(exported, tmp_path):
    with listen(port=0) as found, pytest.raises(OSError, match="Address already in use"):
        serve(exported, port=found.getsockname()[1])
    for path, problem in ((tmp_path, "contains no model version"), ("nothing", "is not a folder")):
        with pytest.raises(FileNotFoundError, match=f"{problem}.*export --model"):
            serve(path, port=0)
    with pytest.raises(ValueError, match="must be a text without '/' or ':'"):
        serve(exported, name="a/b", port=0)
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "saved_model.pb").write_bytes(b"\xff")
    with pytest.raises(ValueError, match="is damaged"):
        serve(tmp_path, port=0)


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
def limited(request, tmp_path_factory):
    """The URL of a model with and without a model card, and the kind of card."""
    cards = {
        "ours": {"task": None, "config": {"max_len": MAX_LEN}},
        "question answering": {"task": {"kind": "QuestionAnswerer"}, "config": {"max_len": 16}},
        "other": None,
    }
    folder = write_model(tmp_path_factory.mktemp("model") / "1", cards[request.param])
    with running(LocalServer(ServedModel(folder), "demo", limits=LIMITS)) as address:
        yield f"{address}/v1/models/demo", request.param


def ask(http, url, signature, inputs, key="inputs"):
    return http(f"{url}:predict", {"signature_name": signature, key: inputs})


@pytest.mark.long
def test_several_models_share_an_address(load, http):
    models = [load("classifier"), load("embedder")]
    with running(LocalServer(models)) as url:
        listed = http(f"{url}/v1/models")[1]["data"]
        assert [one["id"] for one in listed] == ["classifier", "embedder"]
        for model in models:
            place, inputs = f"{url}/v1/models/{model.name}", {"inputs": ["red"]}
            assert http(f"{place}/metadata")[1]["model_spec"]["name"] == model.name
            columns = model.ask("serving_default", {"text": np.array([b"red"], object)})
            assert http(f"{place}:predict", inputs)[1]["outputs"].keys() == columns.keys()
        for name, status in (("embedder", 200), ("classifier", 400), ("other", 404)):
            asked = {"model": name, "input": "red"}
            assert http(f"{url}/v1/embeddings", asked)[0] == status
        error = http(f"{url}/v1/models/embedder/versions/7")[1]["error"]
        assert "version 1 of the model classifier, version 1 of the model embedder" in error


@pytest.mark.parametrize(("names", "name"), [("aa", None), ("ab", "c")])
def test_models_need_names_of_their_own(names, name):
    with pytest.raises(ValueError, match="Each model needs a name of its own.* Received: 2 models"):
        LocalServer([types.SimpleNamespace(name=one) for one in names], name)


def test_a_request_with_too_many_rows_is_rejected(limited, http):
    url, _ = limited
    for key in ("inputs", "instances"):
        assert ask(http, url, "lengths", ["a"] * 4, key)[0] == 200
        status, answer = ask(http, url, "lengths", ["a"] * 9, key)
        assert status == 413
        assert answer["error"].startswith("A request may have at most 8 rows. Received: 9.")


def test_a_request_with_too_many_tokens_is_rejected(limited, http):
    url, _ = limited
    # 4 and 5 rows of at most 16 tokens, or about 50 and 65 tokens in total
    few, many = ["x" * 50] * 4, ["x" * 52] * 5
    assert ask(http, url, "lengths", few)[0] == 200
    assert ask(http, url, "lengths", many)[0] == 413
    status, answer = ask(http, url, "copies", [[0.0] * 13] * 5)
    assert status == 413
    assert "at most 64 tokens, including padding. Received: 65" in answer["error"]
    assert "`--max-tokens`" in answer["error"]


def test_only_the_part_of_a_text_that_the_model_reads_counts(limited, http):
    url, kind = limited
    status, _ = ask(http, url, "lengths", ["x" * 3000])
    assert status == (200 if kind == "ours" else 413)


def test_a_body_that_is_too_large_is_rejected(limited, http):
    url, _ = limited
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


def test_a_body_in_chunks_is_rejected_when_it_exceeds_the_limit(limited):
    connection, reply = upload(limited[0], "Transfer-Encoding: chunked")
    with connection:
        assert reply.startswith("HTTP/1.1 100")
        connection.sendall(b"fa1\r\n" + b" " * 4001)
        assert connection.recv(4096).startswith(b"HTTP/1.1 413")
