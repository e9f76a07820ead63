"""Tests with malformed, oversized and concurrent requests to the models of all tasks."""

import collections
import concurrent.futures
import json
import math
import random

import numpy as np
import pytest

from keras_bert_d2l.serving.client.client import ServingClient
from keras_bert_d2l.serving.server.limits import Limits
from keras_bert_d2l.serving.server.local_server import LocalServer, running
from keras_bert_d2l.serving.server.served_model import ServedModel
from tests.nightly import nightly_except

NUM_HOSTILE, NUM_OF_A_TASK = 500, 100
NUM_REQUESTS, NUM_THREADS = 200, 8
MAX_BODY = 3 * 2**20
TOLERANCE = 1e-5
TASKS = ("classifier", "pairs of any labels", "regressor", "tagger", "answerer", "embedder")


@pytest.mark.long
def test_hostile_requests_get_a_valid_response_or_a_clear_error(exported, http):
    huge = [" " * (MAX_BODY + 1), *(json.dumps({"inputs": [text]}) for text in MEGABYTES)]
    counts = ask_hostile(ServedModel(exported), http, NUM_HOSTILE, huge)
    assert counts.keys() == {200, 400, 413}


@pytest.mark.slow
@pytest.mark.parametrize("task", nightly_except({"answerer"}, TASKS))
def test_hostile_task_requests_get_a_valid_response_or_a_clear_error(task, task_exports, http):
    names = inputs_of(task_exports[task], "serving_default")
    huge = json.dumps({"inputs": {name: [MEGABYTES[0]] for name in names}})
    counts = ask_hostile(task_exports[task], http, NUM_OF_A_TASK, [huge])
    assert {200, 400} <= counts.keys() <= {200, 400, 413}


def ask_hostile(model, http, number, huge):
    """Return the number of hostile requests per status."""
    draw = random.Random(0)
    normal = {"inputs": {name: ["red [MASK]"] for name in inputs_of(model, "serving_default")}}
    with running(LocalServer(model, "demo", limits=Limits(max_bytes=MAX_BODY))) as url:
        ask = f"{url}/v1/models/demo"
        before = http(f"{ask}:predict", normal)
        assert before[0] == 200
        bodies = [*BODIES, *(body.encode() for body in huge)]
        answers = [http(f"{ask}:predict", body) for body in bodies]
        for _ in range(number - len(answers)):
            answers.append(http(f"{ask}:predict", json.dumps(hostile(draw, model)).encode()))
        with ServingClient(url, "demo") as client:
            ask_hostile_values(client, model, draw, number // 10)
        assert http(f"{ask}:predict", normal) == before
    for status, answer in answers:
        assert status in (200, 400, 413), answer
        if status != 200:
            assert set(answer) == {"error"}
            assert 5 < len(answer["error"]) < 1500
    counts = collections.Counter(status for status, _ in answers)
    print(dict(counts))
    return counts


def ask_hostile_values(client, model, draw, number):
    """Check that the client raises `ValueError` or returns finite numbers."""
    refusals = []
    for _ in range(number):
        document = hostile(draw, model)
        inputs = document.get("inputs", document.get("instances"))
        try:
            answer = client.predict(inputs, document["signature_name"])
        except ValueError as error:
            refusals.append(str(error))
        else:
            floats = [array for array in answer.values() if array.dtype == np.float32]
            assert all(np.isfinite(array).all() for array in floats)
    assert all(10 < len(refusal) < 1500 for refusal in refusals)


def inputs_of(model, signature):
    return model.interfaces[signature].inputs


BODIES = [
    b"",
    b"{",
    b"null",
    b"[]",
    b"{}",
    b"\xff\xfe{",
    b'{"inputs": ["\xff"]}',
    b'{"inputs": ["\\ud800"]}',
    b'{"inputs": ["red\\u0000green"]}',
    b'{"\\ud800": 1, "inputs": {"\\ud800": ["red"]}}',
    b'{"signature_name": "tokens", "inputs": ' + b"[" * 900 + b"]" * 900 + b"}",
    b'{"inputs": ' + b"[" * 100_000,
    b'{"inputs": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    b'{"signature_name": ' + b'{"a": ' * 50_000 + b"1" + b"}" * 50_000 + b', "inputs": []}',
    b'{"signature_name": "tokens", "inputs": {"tokens": [[' + b"9" * 5000 + b"]]}}",
]
MEGABYTES = ["a" * 2**20, "\0" * 2**20, " " * 2**20, "[MASK]" * 170_000]


def hostile(draw, model):
    signature = draw.choice(list(model.interfaces))
    specs = inputs_of(model, signature)
    columns = {
        name: column(draw, spec.dtype.is_integer)
        for name, spec in specs.items()
        if draw.random() < 0.95
    }
    if draw.random() < 0.3:
        columns = anything(draw, 3)
    document = {"signature_name": signature, "inputs": columns}
    if draw.random() < 0.4:
        is_one = len(specs) == 1 and isinstance(columns, dict)
        document["instances"] = next(iter(columns.values()), []) if is_one else columns
        del document["inputs"]
    if draw.random() < 0.1:
        document[draw.choice(["inputs", "instances", "signature_name"])] = anything(draw, 2)
    return document


def column(draw, integers):
    size = draw.choice([0, 1, 1, 2])
    if not integers:
        return [draw.choice(TEXTS)() if draw.random() < 0.7 else anything(draw, 2)] * size
    width = draw.choice([0, 1, 3, 3, 40])
    value = draw.choice([0, 1, 2, 5, -1, 10**6, 2**31, 1.0, True, "1"])
    return [[value] * width] * size if draw.random() < 0.6 else [value] * size


TEXTS = [
    lambda: "",
    lambda: " ",
    lambda: "\0",
    lambda: "[MASK]",
    lambda: "[MASK] " * 100,
    lambda: "[CLS][SEP][PAD]",
    lambda: "red " * 2000,
    lambda: "\u202e\u200d\ufeff\uffff",
    lambda: "日本" * 300,
    lambda: "a\u0300" * 500,
    lambda: {"b64": "/w=="},
    lambda: {"b64": "no base64"},
]


def anything(draw, depth):
    leaves = [None, True, 0, -1, 1.5, 1e308, math.nan, math.inf, "", "red", "\ud800", 10**30]
    if depth == 0 or draw.random() < 0.4:
        return draw.choice(leaves)
    values = [anything(draw, depth - 1) for _ in range(draw.choice([0, 1, 2]))]
    if draw.random() < 0.5:
        return values
    return dict(zip(["text", "b64"], values, strict=False))


@pytest.mark.slow
@pytest.mark.parametrize("task", nightly_except({"answerer"}, TASKS))
def test_concurrent_requests_to_a_task_get_the_right_outputs(task, task_exports):
    model = task_exports[task]
    names = inputs_of(task_exports[task], "serving_default")
    texts = [f"red {'green ' * number}blueish" for number in range(5)]
    requests = [{name: [text] for name in names} for text in texts]
    right = [model.ask("serving_default", request) for request in requests]
    with concurrent.futures.ThreadPoolExecutor(NUM_THREADS) as pool:
        asked = [requests[number % len(requests)] for number in range(NUM_REQUESTS)]
        answers = list(pool.map(lambda request: model.ask("serving_default", request), asked))
    for number, answer in enumerate(answers):
        expected = right[number % len(right)]
        assert answer.keys() == expected.keys()
        for name, array in answer.items():
            if array.dtype == np.float32:
                np.testing.assert_allclose(array, expected[name], rtol=0, atol=TOLERANCE)
            else:
                np.testing.assert_array_equal(array, expected[name])
