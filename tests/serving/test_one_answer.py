"""One model, one answer: Python, Keras, the SavedModel over HTTP and the ONNX folder agree."""

import importlib.util
import json

import keras
import numpy as np
import pytest

from keras_bert_d2l import (
    MultipleChoice,
    ServingClient,
    TextEmbedder,
    answer,
    choose,
    classify,
    embed,
    export_onnx,
    export_saved_model,
    regress,
    rerank,
    save_pretrained,
    tag,
)
from keras_bert_d2l.cli import main
from keras_bert_d2l.serving.server import local_server
from keras_bert_d2l.serving.server.local_server import LocalServer, running
from tests.nightly import nightly_except
from tests.serving.conftest import PAIRS

SCRIPTS = (
    "red Österreich Ελλάδα Россия ישראל مصر भारत বাংলা தமிழ் ไทย საქართველო Հայաստան ኢትዮጵያ កម្ពុជា ລາວ "
    "བོད 한국 にほん ニホン 中国 ᏣᎳᎩ blue"
)
TEXTS = ["", "red", "greenish, blue!", SCRIPTS, "red greenish blue " * 40]
SPLIT = [[], ["green", "", "", "blue, red"], *(text.split() for text in TEXTS)]
PADDED = [words + [""] * (max(map(len, SPLIT)) - len(words)) for words in SPLIT]
OTHERS = TEXTS[::-1]
COLUMNS = {
    "answer": ("question", "context"),
    "choose": ("text", "choices"),
    "rerank": ("query", "texts"),
}
CONTEXTS = [text or "green" for text in OTHERS]
CANDIDATES = [*OTHERS, *("red " * n + "blue " * m for n in range(2, 8) for m in range(7))]
ASKED = {
    "classifier": (classify, "classify", TEXTS),
    PAIRS: (classify, "classify", TEXTS, OTHERS),
    "regressor": (regress, "regress", TEXTS),
    "tagger": (tag, "tag", TEXTS),
    "answerer": (answer, "answer", ["red"] * len(TEXTS), CONTEXTS),
    "embedder": (embed, "embed", TEXTS),
    "reranker": (rerank, "rerank", "red", CANDIDATES),
    "chooser": (choose, "choose", TEXTS, [["red", SCRIPTS]] * len(TEXTS)),
}
# The outputs of each task, and what a Python function says about a text in the same order.
OUTPUTS = {
    "classify": ("label", "scores"),
    PAIRS: ("scores", "is_label"),
    "regress": ("scores",),
    "tag": ("words", "labels", "scores", "starts", "ends"),
    "answer": ("answer", "score", "start", "end", "null_score"),
    "choose": ("index", "choice", "score", "scores"),
    "embed": ("embedding",),
    "rerank": ("scores",),
}
ENTITY = ("texts", "labels", "scores", "starts", "ends")
IN_PYTHON = {
    "classify": lambda one: [one.label, *one.scores.values()],
    PAIRS: lambda one: [*one.scores.values(), *(label in one.labels for label in one.scores)],
    "regress": lambda one: [*one.scores.values()],
    "tag": lambda tags: [value for tag in tags for value in vars(tag).values()],
    "answer": lambda one: [one.text, one.score, one.start, one.end, one.null_margin],
    "choose": lambda one: [one.index, one.choice, one.score, *one.scores],
    "embed": list,
    "rerank": lambda one: [one.score],
}
WITH_COMMANDS_OF_THEIR_OWN = ("embedder", "reranker")
PROMPTS = {"query": "red ", "document": "Green blue", "other": "greenish"}
EMBEDDERS = {
    "steps": {
        "pooling": ("mean", "max"),
        "steps": ["normalize", {"units": 6, "activation": "tanh", "use_bias": True}],
        "prompts": PROMPTS,
        "default_prompt_name": "other",
    },
    "shortened": {"truncate_dim": 5, "prompts": {"query": PROMPTS["query"]}, "max_len": 12},
    "prompts without a vector": {
        "pooling": "weighted_mean",
        "normalize": False,
        "prompts": PROMPTS,
        "include_prompt": False,
    },
}
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore:Truncated to")]


def best_of(found):
    """Return what was found for each text; of the ranked answers of `answer`, the best."""
    is_ranked = all(isinstance(one, list) and len(one) == 1 for one in found)
    return [one[0] for one in found] if is_ranked else [*found]


@pytest.fixture(scope="module")
def chooser(make_model, tokenizer, tmp_path_factory):
    model = MultipleChoice(make_model(), tokenizer=tokenizer)
    return model, export_saved_model(model, tmp_path_factory.mktemp("saved_models") / "chooser")


def said(record):
    """Return what a record of `predict` and a result of Python both say, without nesting."""
    record = dict(record if isinstance(record, dict) else vars(record))
    scores = record.pop("scores", {})
    scores = scores if isinstance(scores, dict) else dict(enumerate(scores))
    names = ("label", "score", "start", "end")
    return {name: record[name] for name in names if name in record} | scores


@pytest.mark.parametrize("name", [name for name in ASKED if name not in WITH_COMMANDS_OF_THEIR_OWN])
def test_the_command_says_the_same_as_python(
    name, task_models, chooser, tokenizer, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    function, method, *given = ASKED[name]
    given = [values[1:] for values in given]  # files have no empty texts
    model = task_models.get(name, chooser[0])
    save_pretrained(model, "model", tokenizer=tokenizer)
    names = COLUMNS.get(method, ("text", "text_b"))
    rows = [dict(zip(names, row, strict=False)) for row in zip(*given, strict=True)]
    if name == PAIRS:
        rows[-1]["text_b"] = "green"
        given[1] = [*given[1][:-1], "green"]
    file, lines = "texts.jsonl", map(json.dumps, rows)
    if method == "tag":
        file, lines = "texts.txt", given[0]
    (tmp_path / file).write_text("\n".join(lines), encoding="utf-8")
    with pytest.raises(SystemExit) as stopped:
        main(["predict", file, "--model", "model"])
    assert not stopped.value.code
    records = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    for record, found in zip(records, function(model, *given), strict=True):
        pairs = [(record, best_of([found])[0])]
        if method == "tag":
            pairs = zip(record["tags"], found, strict=True)
        for one, right in pairs:
            expected = said(right)
            common = {name: x for name, x in said(one).items() if name in expected}
            assert common
            assert common == pytest.approx({name: expected[name] for name in common}, abs=1e-5)


def assert_alike(values, expected):
    """Compare lists of texts and numbers."""
    assert len(values) == len(expected)
    for value, right in zip(values, expected, strict=True):
        assert value == (right if isinstance(right, str) else pytest.approx(right, abs=1e-5))


def flat(row):
    """Return the values of one row of outputs; rows of words are padded with zeros."""
    if len(row) == len(OUTPUTS["tag"]) and isinstance(row[0], np.ndarray):
        row = [np.stack(row, axis=1, dtype=object)[row[-1] > 0]]
    return [value for values in row for value in np.ravel(values).tolist()]


def assert_words(found, expected):
    """Compare the signature `words` with the tags of `SPLIT`."""
    for row, (words, tags) in enumerate(zip(SPLIT, expected, strict=True)):
        start = 0
        for n, (word, one) in enumerate(zip(words, tags, strict=True)):
            values = [found[name][row, n] for name in OUTPUTS["tag"]]
            assert_alike(values, [word, one.label, one.score, start, start + len(word)])
            start += len(word) + 1
        assert not any(x[row, len(words) :].any() for x in found.values() if x.ndim > 1)


def ask(client, task, given):
    """Return what a server says about each text, in the form of `IN_PYTHON`."""
    inputs = dict(zip(COLUMNS.get(task, ("text", "text_b")), given, strict=False))
    found = client.predict(inputs, task if task in ("embed", "rerank") else "serving_default")
    return [flat(row) for row in zip(*(found[name] for name in OUTPUTS[task]), strict=True)]


@pytest.mark.parametrize("name", ASKED)
def test_a_model_says_the_same_everywhere(name, task_models, load, chooser, tmp_path):
    function, method, *given = ASKED[name]
    model = task_models.get(name, chooser[0])
    exported = local_server.load(chooser[1]) if name == "chooser" else load(name)
    expected = best_of(function(model, *given))
    task = PAIRS if name == PAIRS else method
    in_order = sorted(expected, key=lambda one: one.index) if method == "rerank" else expected
    served = [exported]
    if importlib.util.find_spec("tokenizers"):
        export_onnx(model, tmp_path / name, pairs=name == PAIRS)
        served.append(local_server.load(tmp_path / name))
    for one in served:
        with running(LocalServer(one, name)) as url, ServingClient(url, name) as client:
            for values, right in zip(ask(client, task, given), in_order, strict=True):
                assert_alike(values, IN_PYTHON[task](right))
            if name == "tagger":  # the entities of "O B-É I-É" of its words
                assert_words(client.predict({"words": PADDED}, "words"), tag(model, SPLIT))
                for key, texts, padded in (("text", TEXTS, TEXTS), ("words", SPLIT, PADDED)):
                    signature = "entities" if key == "text" else "word_entities"
                    found = client.predict({key: padded}, signature)
                    rows = zip(*(found[name] for name in ENTITY), strict=True)
                    right = tag(model, texts, aggregate="first")
                    for row, entities in zip(rows, right, strict=True):
                        values = [value for entity in entities for value in vars(entity).values()]
                        assert_alike(flat(row), values)
            if name == "chooser":  # an empty string is a missing choice
                [found] = ask(client, task, (["red"], [["blue", SCRIPTS, ""]]))
                right = choose(model, "red", ["blue", SCRIPTS])
                assert_alike(found, [*IN_PYTHON[task](right), 0])
    if method in ("classify", "regress"):
        texts = {"texts": TEXTS, "texts_b": OTHERS} if name == PAIRS else TEXTS
        predicted = model.predict(texts, probabilities=method == "classify", verbose=0)
        scores = [[*one.scores.values()] for one in expected]
        np.testing.assert_allclose(predicted, scores, rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", nightly_except(["steps"], EMBEDDERS))
def test_prompts_steps_and_shorter_vectors_are_the_same_everywhere(
    name, make_model, tokenizer, tmp_path, http
):
    model = TextEmbedder(make_model(), tokenizer=tokenizer, **EMBEDDERS[name])
    for weight in model.head.weights:
        weight.assign(keras.random.normal(weight.shape, seed=5))
    export_saved_model(model, tmp_path / "saved")
    served = [local_server.load(tmp_path / "saved")]
    if importlib.util.find_spec("tokenizers"):
        export_onnx(model, tmp_path / "onnx")
        served.append(local_server.load(tmp_path / "onnx"))
    asked = {None: None, "query": "search_query", "document": "passage"}
    right = {kind: embed(model, TEXTS, prompt_name=kind) for kind in asked}
    assert not np.allclose(right[None], right["query"], atol=1e-2)
    for one in served:
        assert "embed_query" in one.interfaces
        assert ("embed_document" in one.interfaces) == (name != "shortened")
        with running(LocalServer(one, "mine")) as url, ServingClient(url, "mine") as client:
            for kind, theirs in asked.items():
                signature = f"embed_{kind}" if f"embed_{kind}" in one.interfaces else "embed"
                vectors = client.predict({"text": TEXTS}, signature)["embedding"]
                np.testing.assert_allclose(vectors, right[kind], rtol=0, atol=1e-5)
                body = {"input": TEXTS, "model": "mine", "input_type": theirs, "dimensions": 3}
                short = right[kind][:, :3]
                if name == "steps":  # the only vectors of length 1
                    short = short / np.linalg.norm(short, axis=1, keepdims=True)
                _, document = http(f"{url}/v1/embeddings", body)
                found = [one["embedding"] for one in document["data"]]
                np.testing.assert_allclose(found, short, rtol=0, atol=1e-5)
                texts = [model.prompt(kind) + text for text in TEXTS]
                num_tokens = tokenizer(texts, max_len=model.max_row_len)["valid_lens"]
                assert document["usage"]["prompt_tokens"] == int(sum(num_tokens))
