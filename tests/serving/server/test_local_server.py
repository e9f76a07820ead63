"""Tests of the development server over real HTTP."""

import concurrent.futures
import os
import signal
import socket
import threading

import pytest

from keras_bert_d2l.serving.server.local_server import listen, serve
from tests.serving.conftest import MAX_BODY

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
