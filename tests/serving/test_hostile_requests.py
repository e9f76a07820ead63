"""Tests with malformed and oversized requests to the models of all tasks."""

import json
import math
import random

import pytest

from keras_bert_d2l.serving.server.local_server import LocalServer, running
from keras_bert_d2l.serving.server.served import Limits
from tests.nightly import nightly_except
from tests.serving.conftest import NAMES

MAX_BODY = 3 * 2**20


@pytest.mark.slow
@pytest.mark.parametrize("name", nightly_except({"answerer"}, NAMES))
def test_hostile_requests_get_a_valid_response_or_a_clear_error(name, load, http):
    """Afterwards, a normal request still returns the same outputs as before."""
    model, draw = load(name), random.Random(0)
    names = inputs_of(model, "serving_default")
    normal = {"inputs": {name: ["red [MASK]"] for name in names}}
    huge = [{"inputs": {name: [text] for name in names}} for text in MEGABYTES]
    with running(LocalServer(model, "demo", limits=Limits(max_bytes=MAX_BODY))) as url:
        ask = f"{url}/v1/models/demo:predict"
        before = http(ask, normal)
        assert before[0] == 200
        answers = [http(ask, body) for body in (*BODIES, *huge, b" " * (MAX_BODY + 1))]
        answers += [http(ask, json.dumps(hostile(draw, model)).encode()) for _ in range(80)]
        assert http(ask, normal) == before
    for status, answer in answers:
        assert status in (200, 400, 413), answer
        if status != 200:
            assert set(answer) == {"error"}
            assert 5 < len(answer["error"]) < 1500
    assert {status for status, _ in answers} == {200, 400, 413}


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
        name: column(draw, spec.dtype.kind == "i")
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
